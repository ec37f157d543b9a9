package backend

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/debugmcp/devproxy/daemon/era"
)

var (
	eventNames = map[eventKind]string{
		needed: "needed", startAsked: "start", restartAsked: "restart", rebuildAsked: "rebuild",
		stopAsked: "stop", shutdownAsked: "shutdown", outputChanged: "changed", drained: "drained",
		built: "built", spawned: "spawned", ready: "ready", startFailed: "startFailed",
		respawnNeeded: "respawn", exited: "exited", gone: "gone", drainOver: "drainOver",
		retryDue: "retryDue", stable: "stable",
	}
	effectNames = map[effectKind]string{
		tellStarting: "Starting", tellUp: "Up", tellDraining: "Draining", tellDown: "Down",
		tellUnavailable: "Unavailable", launch: "launch", end: "end", startBuild: "build",
		cancelBuild: "cancelBuild", armDrain: "armDrain", armRetry: "armRetry", armStable: "armStable",
	}
)

// t0 is when everything in these tests happens.
var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// scenes are states that the supervisor can be in, with attempt 7 and, where
// there was a process, generation 5. Rows of the table are named after them.
func scenes() map[string]state {
	base := state{attempt: 7, generation: 5, orders: orders{restartOnCrash: true}}
	with := func(change func(*state)) state {
		s := base
		change(&s)
		return s
	}
	broken := fail(ExitedAtStart, "the backend exited with status 1 before it was ready")
	stopping := func(next State) state {
		return with(func(s *state) {
			s.phase, s.next, s.spawned, s.ended = Stopping, next, true, "restart"
			switch next {
			case Failed:
				s.failure = broken.in(Failed)
			case Backoff:
				s.failure, s.retry, s.delay = fail(Retrying, "again").in(Backoff), true, firstBackoff
				s.crashes = []time.Time{t0}
			default:
			}
		})
	}
	return map[string]state{
		"fresh":    {},
		"idle":     with(func(s *state) { s.phase = Idle }),
		"building": with(func(s *state) { s.phase, s.resume, s.build, s.builds = Building, Idle, 3, 3 }),
		"building, failed": with(func(s *state) {
			s.phase, s.resume, s.build, s.builds, s.failure = Building, Failed, 3, 3, broken.in(Failed)
		}),
		"preparing": with(func(s *state) { s.phase = Starting }),
		"starting":  with(func(s *state) { s.phase, s.spawned = Starting, true }),
		"respawned": with(func(s *state) { s.phase, s.spawned, s.respawn = Starting, true, era.Modern }),
		"recovering": with(func(s *state) {
			s.phase, s.spawned, s.retry, s.crashes = Starting, true, true, []time.Time{t0}
		}),
		"last try": with(func(s *state) {
			s.phase, s.spawned, s.retry, s.crashes = Starting, true, true, slices.Repeat([]time.Time{t0}, crashLimit-1)
		}),
		"running":         with(func(s *state) { s.phase, s.spawned = Running, true }),
		"running, drains": with(func(s *state) { s.phase, s.spawned, s.orders.drain = Running, true, time.Second }),
		"running, stays":  with(func(s *state) { s.phase, s.spawned, s.orders.restartOnCrash = Running, true, false }),
		"running, builds": with(func(s *state) { s.phase, s.spawned, s.build, s.builds = Running, true, 3, 3 }),
		"running, wanted": with(func(s *state) {
			s.phase, s.spawned, s.build, s.builds, s.wanted = Running, true, 3, 3, true
		}),
		"starting, builds": with(func(s *state) { s.phase, s.spawned, s.build, s.builds = Starting, true, 3, 3 }),
		"stopping, builds": with(func(s *state) {
			s.phase, s.next, s.spawned, s.ended, s.build, s.builds = Stopping, Starting, true, "restart", 3, 3
		}),
		"backoff, builds": with(func(s *state) {
			s.phase, s.retry, s.failure, s.crashes = Backoff, true, fail(Retrying, "again").in(Backoff), []time.Time{t0}
			s.build, s.builds = 3, 3
		}),
		"draining":          with(func(s *state) { s.phase, s.spawned, s.next, s.orders.drain = Draining, true, Starting, time.Second }),
		"stopping":          stopping(Idle),
		"stopping, start":   stopping(Starting),
		"stopping, backoff": stopping(Backoff),
		"stopping, failed":  stopping(Failed),
		"backoff": with(func(s *state) {
			s.phase, s.retry, s.failure, s.crashes = Backoff, true, fail(Retrying, "again").in(Backoff), []time.Time{t0}
		}),
		"failed": with(func(s *state) { s.phase, s.failure = Failed, broken.in(Failed) }),
		"waiting": with(func(s *state) {
			s.phase, s.failure = Failed, fail(EntryMissing, "dist/index.js does not exist yet").in(Failed)
			s.failure.Waiting = true
		}),
		"undead": with(func(s *state) {
			s.phase, s.spawned, s.undead, s.failure = Failed, true, true, fail(Survivors, "pid 9").in(Failed)
		}),
		"closing": with(func(s *state) { s.phase, s.spawned, s.closing = Stopping, true, true }),
		"closed":  with(func(s *state) { s.phase, s.closing = Idle, true }),
	}
}

// cells says what becomes of which event in which state: the phase (and what is
// to follow it), then the effects. What is not listed is ignored.
var cells = map[string]map[string]string{
	"fresh": {
		"needed":  "starting: Starting launch",
		"start":   "starting: Starting launch",
		"restart": "starting: Starting launch",
		"rebuild": "building: build",
		"stop":    "idle", "shutdown": "idle",
	},
	"idle": {
		"needed":  "starting: Starting launch",
		"start":   "starting: Starting launch",
		"restart": "starting: Starting launch",
		"rebuild": "building: build",
		"stop":    "idle", "shutdown": "idle",
	},
	"building": {
		"needed": "building", "start": "building", "restart": "building", "rebuild": "building", "changed": "building",
		"stop":     "building: cancelBuild Unavailable(stopped)",
		"shutdown": "building: cancelBuild Unavailable(shutting-down)",
		"built ok": "starting: Starting launch", "built": "idle",
	},
	"building, failed": {
		"needed": "building", "start": "building", "restart": "building", "rebuild": "building", "changed": "building",
		"stop":     "building: cancelBuild Unavailable(stopped)",
		"shutdown": "building: cancelBuild Unavailable(shutting-down)",
		"built ok": "starting: Starting launch", "built": "failed",
	},
	"preparing": {
		"restart": "stopping then starting: end",
		"changed": "stopping then starting: end",
		"rebuild": "starting: build",
		"stop":    "stopping then idle: end Unavailable(stopped)", "shutdown": "stopping then idle: end Unavailable(shutting-down)",
		"spawned":     "starting",
		"ready":       "running: Up armStable",
		"startFailed": "failed: Unavailable(exited-at-start)",
		"respawn":     "stopping then starting: end",
	},
	"starting": {
		"restart": "stopping then starting: end",
		"changed": "stopping then starting: end",
		"rebuild": "starting: build",
		"stop":    "stopping then idle: end Unavailable(stopped)", "shutdown": "stopping then idle: end Unavailable(shutting-down)",
		"spawned":     "starting",
		"ready":       "running: Up armStable",
		"startFailed": "stopping then failed: Unavailable(exited-at-start) end",
		"respawn":     "stopping then starting: end",
	},
	"respawned": {
		"restart": "stopping then starting: end",
		"changed": "stopping then starting: end",
		"rebuild": "starting: build",
		"stop":    "stopping then idle: end Unavailable(stopped)", "shutdown": "stopping then idle: end Unavailable(shutting-down)",
		"spawned":     "starting",
		"ready":       "running: Up armStable",
		"startFailed": "stopping then failed: Unavailable(exited-at-start) end",
		"respawn":     "stopping then failed: Unavailable(exited-at-start) end",
	},
	"recovering": {
		"restart": "stopping then starting: end",
		"changed": "stopping then starting: end",
		"rebuild": "starting: build",
		"stop":    "stopping then idle: end Unavailable(stopped)", "shutdown": "stopping then idle: end Unavailable(shutting-down)",
		"spawned":     "starting",
		"ready":       "running: Up armStable",
		"startFailed": "stopping then backoff: Unavailable(backend-retrying) end",
		"respawn":     "stopping then starting: end",
	},
	"last try": {
		"restart": "stopping then starting: end",
		"changed": "stopping then starting: end",
		"rebuild": "starting: build",
		"stop":    "stopping then idle: end Unavailable(stopped)", "shutdown": "stopping then idle: end Unavailable(shutting-down)",
		"spawned":     "starting",
		"ready":       "running: Up armStable",
		"startFailed": "stopping then failed: Unavailable(crash-loop) end",
		"respawn":     "stopping then starting: end",
	},
	"running": {
		"restart": "stopping then starting: Down(backend-restarted) end",
		"changed": "stopping then starting: Down(backend-restarted) end",
		"rebuild": "running: build",
		"stop":    "stopping then idle: Down(stopped) end Unavailable(stopped)", "shutdown": "stopping then idle: Down(shutting-down) end Unavailable(shutting-down)",
		"exited": "stopping then backoff: Down(backend-lost) end Unavailable(backend-retrying)",
		"stable": "running",
	},
	"running, drains": {
		"restart": "draining then starting: Draining armDrain",
		"changed": "draining then starting: Draining armDrain",
		"rebuild": "running: build",
		"stop":    "stopping then idle: Down(stopped) end Unavailable(stopped)", "shutdown": "stopping then idle: Down(shutting-down) end Unavailable(shutting-down)",
		"exited": "stopping then backoff: Down(backend-lost) end Unavailable(backend-retrying)",
		"stable": "running",
	},
	"running, stays": {
		"restart": "stopping then starting: Down(backend-restarted) end",
		"changed": "stopping then starting: Down(backend-restarted) end",
		"rebuild": "running: build",
		"stop":    "stopping then idle: Down(stopped) end Unavailable(stopped)", "shutdown": "stopping then idle: Down(shutting-down) end Unavailable(shutting-down)",
		"exited": "stopping then failed: Down(backend-lost) end Unavailable(crashed)",
		"stable": "running",
	},
	"running, builds": {
		"restart": "running",
		"changed": "running",
		"rebuild": "running",
		"stop":    "stopping then idle: cancelBuild Down(stopped) end Unavailable(stopped)", "shutdown": "stopping then idle: cancelBuild Down(shutting-down) end Unavailable(shutting-down)",
		"built ok": "stopping then starting: Down(backend-restarted) end",
		"built":    "running",
		"exited":   "stopping then backoff: Down(backend-lost) end Unavailable(backend-retrying)",
		"stable":   "running",
	},
	"running, wanted": {
		"changed": "running",
		"rebuild": "running",
		"stop":    "stopping then idle: cancelBuild Down(stopped) end Unavailable(stopped)", "shutdown": "stopping then idle: cancelBuild Down(shutting-down) end Unavailable(shutting-down)",
		"built ok": "stopping then starting: Down(backend-restarted) end",
		"built":    "stopping then starting: Down(backend-restarted) end",
		"exited":   "stopping then backoff: Down(backend-lost) end Unavailable(backend-retrying)",
		"stable":   "running",
	},
	"starting, builds": {
		"restart": "starting",
		"changed": "starting",
		"rebuild": "starting",
		"stop":    "stopping then idle: cancelBuild end Unavailable(stopped)", "shutdown": "stopping then idle: cancelBuild end Unavailable(shutting-down)",
		"built ok":    "stopping then starting: end",
		"built":       "starting",
		"spawned":     "starting",
		"ready":       "running: Up armStable",
		"startFailed": "stopping then failed: Unavailable(exited-at-start) end",
		"respawn":     "stopping then starting: end",
	},
	"stopping, builds": {
		"restart": "stopping then starting",
		"changed": "stopping then starting",
		"rebuild": "stopping then starting",
		"stop":    "stopping then idle: cancelBuild Unavailable(stopped)", "shutdown": "stopping then idle: cancelBuild Unavailable(shutting-down)",
		"built ok":  "stopping then starting",
		"built":     "stopping then starting",
		"spawned":   "stopping then starting",
		"gone":      "building",
		"survivors": "failed: Unavailable(survivors)",
	},
	"backoff, builds": {
		"needed":  "backoff: Unavailable(backend-retrying)",
		"start":   "building",
		"restart": "backoff",
		"changed": "backoff",
		"rebuild": "backoff",
		"stop":    "idle: cancelBuild Unavailable(stopped)", "shutdown": "idle: cancelBuild Unavailable(shutting-down)",
		"built ok": "starting: Starting launch",
		"built":    "backoff",
		"retryDue": "building",
	},
	"draining": {
		"rebuild": "draining then starting: build",
		"stop":    "stopping then idle: Down(stopped) end Unavailable(stopped)", "shutdown": "stopping then idle: Down(shutting-down) end Unavailable(shutting-down)",
		"drained": "stopping then starting: Down(backend-restarted) end", "drainOver": "stopping then starting: Down(backend-restarted) end",
		"exited": "stopping then starting: Down(backend-lost) end",
	},
	"stopping": {
		"needed":  "stopping then idle",
		"start":   "stopping then starting",
		"restart": "stopping then starting",
		"rebuild": "stopping then idle: build",
		"stop":    "stopping then idle: Unavailable(stopped)", "shutdown": "stopping then idle: Unavailable(shutting-down)",
		"spawned":   "stopping then idle",
		"gone":      "idle",
		"survivors": "failed: Unavailable(survivors)",
	},
	"stopping, start": {
		"rebuild": "stopping then starting: build",
		"stop":    "stopping then idle: Unavailable(stopped)", "shutdown": "stopping then idle: Unavailable(shutting-down)",
		"spawned":   "stopping then starting",
		"gone":      "starting: Starting launch",
		"survivors": "failed: Unavailable(survivors)",
	},
	"stopping, backoff": {
		"start":   "stopping then starting",
		"restart": "stopping then starting",
		"changed": "stopping then starting",
		"rebuild": "stopping then backoff: build",
		"stop":    "stopping then idle: Unavailable(stopped)", "shutdown": "stopping then idle: Unavailable(shutting-down)",
		"spawned":   "stopping then backoff",
		"gone":      "backoff: armRetry",
		"survivors": "failed: Unavailable(survivors)",
	},
	"stopping, failed": {
		"needed":  "stopping then failed: Unavailable(exited-at-start)",
		"start":   "stopping then starting",
		"restart": "stopping then starting",
		"changed": "stopping then starting",
		"rebuild": "stopping then failed: build",
		"stop":    "stopping then idle: Unavailable(stopped)", "shutdown": "stopping then idle: Unavailable(shutting-down)",
		"spawned":   "stopping then failed",
		"gone":      "failed",
		"survivors": "failed: Unavailable(survivors)",
	},
	"backoff": {
		"needed":  "backoff: Unavailable(backend-retrying)",
		"start":   "starting: Starting launch",
		"restart": "starting: Starting launch",
		"changed": "starting: Starting launch",
		"rebuild": "backoff: build",
		"stop":    "idle: Unavailable(stopped)", "shutdown": "idle: Unavailable(shutting-down)",
		"retryDue": "starting: Starting launch",
	},
	"failed": {
		"needed":  "failed: Unavailable(exited-at-start)",
		"start":   "starting: Starting launch",
		"restart": "starting: Starting launch",
		"changed": "starting: Starting launch",
		"rebuild": "building: build",
		"stop":    "idle: Unavailable(stopped)", "shutdown": "idle: Unavailable(shutting-down)",
	},
	"waiting": {
		"needed":  "starting: Starting launch",
		"start":   "starting: Starting launch",
		"restart": "starting: Starting launch",
		"changed": "starting: Starting launch",
		"rebuild": "building: build",
		"stop":    "idle: Unavailable(stopped)", "shutdown": "idle: Unavailable(shutting-down)",
	},
	"undead": {
		"needed":  "failed: Unavailable(survivors)",
		"start":   "stopping then starting: end",
		"restart": "stopping then starting: end",
		"changed": "stopping then starting: end",
		"rebuild": "failed: build",
		"stop":    "stopping then idle: end Unavailable(stopped)", "shutdown": "stopping then idle: end Unavailable(shutting-down)",
	},
	"closing": {
		"needed":    "stopping then idle: Unavailable(shutting-down)",
		"spawned":   "stopping then idle",
		"gone":      "idle",
		"survivors": "failed: Unavailable(survivors)",
	},
	"closed": {
		"needed": "idle: Unavailable(shutting-down)",
	},
}

// trials are the events of the columns, each about the scenes' own attempt,
// generation and build.
func trials() map[string]event {
	all := map[string]event{}
	for kind := range stable + 1 {
		e := event{kind: kind, attempt: 7, at: t0}
		switch kind {
		case needed:
			e.starter = era.Peer{Era: era.Modern}
		case drained:
			e.generation = 5
		case spawned:
			e.generation, e.orders = 5, orders{restartOnCrash: true}
		case ready:
			e.up = &Generation{number: 5}
		case startFailed, respawnNeeded:
			e.failure, e.next = fail(ExitedAtStart, "the backend exited with status 1"), era.Modern
		case exited:
			e.exit = "exited with status 1"
		case built:
			e.build = 3
			all["built ok"] = e
			e.failure = fail(BuildFailed, "the build failed")
		case gone:
			survivors := e
			survivors.failure = fail(Survivors, "pid 9")
			all["survivors"] = survivors
		default:
		}
		all[eventNames[kind]] = e
	}
	return all
}

func show(s state, effects []effect) string {
	text := s.phase.String()
	if s.phase == Draining || s.phase == Stopping {
		text += " then " + s.next.String()
	}
	if len(effects) > 0 {
		text += ":"
	}
	for _, e := range effects {
		text += " " + effectNames[e.kind]
		if e.failure != nil {
			text += "(" + string(e.failure.Reason) + ")"
		}
	}
	return text
}

var compareStates = cmp.Options{
	cmp.AllowUnexported(state{}, orders{}), cmpopts.EquateEmpty(),
}

func TestEveryEventInEveryState(t *testing.T) {
	all := scenes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before := all[name]
		row, ok := cells[name]
		if !ok {
			t.Errorf("no row for %q", name)
		}
		for column := range row {
			if _, ok := trials()[column]; !ok {
				t.Errorf("%s: no event %q", name, column)
			}
		}
		for column, e := range trials() {
			t.Run(name+"/"+column, func(t *testing.T) {
				after, effects := transition(before, e)
				want, listed := row[column]
				got := show(after, effects)
				if !listed {
					if diff := cmp.Diff(before, after, compareStates); diff != "" || len(effects) > 0 {
						t.Errorf("got %q, want it ignored\n%s", got, diff)
					}
					return
				}
				if got != want {
					t.Errorf("got  %q\nwant %q", got, want)
				}
			})
		}
	}
}

func TestStaleEventsAreIgnored(t *testing.T) {
	for name, before := range scenes() {
		for column, e := range trials() {
			switch e.kind {
			case drained:
				e.generation = 4
			case built:
				e.build = 2
			case spawned, ready, startFailed, respawnNeeded, exited, gone, drainOver, retryDue, stable:
				e.attempt = 6
			default:
				continue
			}
			after, effects := transition(before, e)
			if diff := cmp.Diff(before, after, compareStates); diff != "" || len(effects) > 0 {
				t.Errorf("%s, stale %s: got %s\n%s", name, column, show(after, effects), diff)
			}
		}
	}
}

// play feeds events to a state and returns what show says of each.
func play(s state, events ...event) (state, []string) {
	var seen []string
	for _, e := range events {
		if e.attempt == 0 {
			e.attempt = s.attempt
		}
		if e.at.IsZero() {
			e.at = t0
		}
		if e.build == 0 {
			e.build = s.build
		}
		var effects []effect
		s, effects = transition(s, e)
		seen = append(seen, show(s, effects))
	}
	return s, seen
}

func TestStories(t *testing.T) {
	up := []event{{kind: startAsked}, {kind: spawned, generation: 1, orders: orders{restartOnCrash: true}}, {kind: ready}}
	exit := event{kind: exited, exit: "exited with status 1"}
	failed := event{kind: startFailed, failure: fail(ExitedAtStart, "the backend exited with status 1")}
	for name, story := range map[string]struct {
		events []event
		want   []string
	}{
		"a request during a stop starts it again": {
			append(slices.Clone(up), event{kind: stopAsked}, event{kind: needed}, event{kind: gone}),
			[]string{"stopping then idle: Down(stopped) end Unavailable(stopped)", "stopping then idle", "starting: Starting launch"},
		},
		"a request during a shutdown does not": {
			append(slices.Clone(up), event{kind: shutdownAsked}, event{kind: needed}, event{kind: gone}),
			[]string{"stopping then idle: Down(shutting-down) end Unavailable(shutting-down)", "stopping then idle: Unavailable(shutting-down)", "idle"},
		},
		"a change during a requested stop starts nothing": {
			append(slices.Clone(up), event{kind: stopAsked}, event{kind: outputChanged}, event{kind: gone}),
			[]string{"stopping then idle: Down(stopped) end Unavailable(stopped)", "stopping then idle", "idle"},
		},
		"the failure of a first start is final": {
			[]event{{kind: needed}, {kind: spawned, generation: 1}, failed, {kind: gone}, {kind: needed}, {kind: outputChanged}},
			[]string{
				"starting: Starting launch", "starting", "stopping then failed: Unavailable(exited-at-start) end", "failed",
				"failed: Unavailable(exited-at-start)", "starting: Starting launch",
			},
		},
		"a change during the end of a failed start tries again": {
			[]event{{kind: needed}, {kind: spawned, generation: 1}, failed, {kind: outputChanged}, {kind: gone}},
			[]string{
				"starting: Starting launch", "starting", "stopping then failed: Unavailable(exited-at-start) end",
				"stopping then starting", "starting: Starting launch",
			},
		},
		"a failure that waiting does not heal ends the recovery from a crash": {
			append(slices.Clone(up), exit, event{kind: gone}, event{kind: retryDue},
				event{kind: startFailed, failure: fail(PortInUse, "port 1 is in use")}),
			[]string{
				"stopping then backoff: Down(backend-lost) end Unavailable(backend-retrying)", "backoff: armRetry",
				"starting: Starting launch", "failed: Unavailable(port-in-use)",
			},
		},
		"survivors are ended again before anything starts": {
			append(slices.Clone(up), event{kind: restartAsked}, event{kind: gone, failure: fail(Survivors, "pid 9")},
				event{kind: startAsked}, event{kind: gone, failure: fail(Survivors, "pid 9")},
				event{kind: restartAsked}, event{kind: gone}),
			[]string{
				"stopping then starting: Down(backend-restarted) end", "failed: Unavailable(survivors)",
				"stopping then starting: end", "failed: Unavailable(survivors)",
				"stopping then starting: end", "starting: Starting launch",
			},
		},
		"a change during a build waits for its end": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: outputChanged},
				event{kind: built, failure: fail(BuildFailed, "no")}),
			[]string{"running: build", "running", "stopping then starting: Down(backend-restarted) end"},
		},
		"a change during a build that succeeds restarts once": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: outputChanged}, event{kind: built},
				event{kind: gone}, event{kind: spawned, generation: 2}, event{kind: ready}),
			[]string{
				"running: build", "running", "stopping then starting: Down(backend-restarted) end",
				"starting: Starting launch", "starting", "running: Up armStable",
			},
		},
		"a rebuild during a build builds again": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: rebuildAsked}, event{kind: rebuildAsked},
				event{kind: built}, event{kind: gone}, event{kind: built}, event{kind: gone}),
			[]string{
				"running: build", "running", "running", "running: build", "running",
				"stopping then starting: Down(backend-restarted) end", "starting: Starting launch",
			},
		},
		"a rebuild during a build that fails restarts for the one that did not": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: rebuildAsked}, event{kind: built},
				event{kind: built, failure: fail(BuildFailed, "no")}, event{kind: gone}),
			[]string{
				"running: build", "running", "running: build", "stopping then starting: Down(backend-restarted) end",
				"starting: Starting launch",
			},
		},
		"a rebuild during a restart starts once, what it built": {
			append(slices.Clone(up), event{kind: restartAsked}, event{kind: rebuildAsked}, event{kind: needed}, event{kind: gone},
				event{kind: needed}, event{kind: built}, event{kind: spawned, generation: 2}, event{kind: ready}),
			[]string{
				"stopping then starting: Down(backend-restarted) end", "stopping then starting: build", "stopping then starting", "building",
				"building", "starting: Starting launch", "starting", "running: Up armStable",
			},
		},
		"a rebuild during a restart that fails does not cost the restart": {
			append(slices.Clone(up), event{kind: restartAsked}, event{kind: rebuildAsked}, event{kind: gone},
				event{kind: built, failure: fail(BuildFailed, "no")}),
			[]string{
				"stopping then starting: Down(backend-restarted) end", "stopping then starting: build", "building",
				"starting: Starting launch",
			},
		},
		"a restart during a build restarts once, what was built": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: restartAsked}, event{kind: restartAsked},
				event{kind: built}, event{kind: gone}, event{kind: spawned, generation: 2}, event{kind: ready}),
			[]string{
				"running: build", "running", "running", "stopping then starting: Down(backend-restarted) end",
				"starting: Starting launch", "starting", "running: Up armStable",
			},
		},
		"a restart during a build that fails is a restart": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: restartAsked},
				event{kind: built, failure: fail(BuildFailed, "no")}, event{kind: gone}),
			[]string{"running: build", "running", "stopping then starting: Down(backend-restarted) end", "starting: Starting launch"},
		},
		"a stop takes back the restart that waits for a build": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: restartAsked}, event{kind: stopAsked},
				event{kind: built, failure: fail(BuildFailed, "cancelled")}, event{kind: gone}),
			[]string{
				"running: build", "running", "stopping then idle: cancelBuild Down(stopped) end Unavailable(stopped)",
				"stopping then idle", "idle",
			},
		},
		"a crash during a build is repaired with what it builds": {
			append(slices.Clone(up), event{kind: rebuildAsked}, exit, event{kind: gone}, event{kind: retryDue}, event{kind: built}),
			[]string{
				"running: build", "stopping then backoff: Down(backend-lost) end Unavailable(backend-retrying)", "backoff: armRetry",
				"building", "starting: Starting launch",
			},
		},
		"a request during a build that fails starts the old output": {
			[]event{{kind: rebuildAsked}, {kind: needed}, {kind: built, failure: fail(BuildFailed, "no")}},
			[]string{"building: build", "building", "starting: Starting launch"},
		},
		"a stop voids the build": {
			[]event{{kind: rebuildAsked}, {kind: stopAsked}, {kind: built}},
			[]string{"building: build", "building: cancelBuild Unavailable(stopped)", "idle"},
		},
		"a request after that is served all the same": {
			[]event{{kind: rebuildAsked}, {kind: stopAsked}, {kind: needed}, {kind: built}},
			[]string{"building: build", "building: cancelBuild Unavailable(stopped)", "building", "starting: Starting launch"},
		},
		"a rebuild after a stop of the last one builds": {
			[]event{{kind: rebuildAsked}, {kind: stopAsked}, {kind: rebuildAsked}, {kind: built}, {kind: built}},
			[]string{"building: build", "building: cancelBuild Unavailable(stopped)", "building", "building: build", "starting: Starting launch"},
		},
		"a backend that is stopped during a rebuild rests": {
			append(slices.Clone(up), event{kind: rebuildAsked}, event{kind: stopAsked}, event{kind: gone}, event{kind: built}),
			[]string{"running: build", "stopping then idle: cancelBuild Down(stopped) end Unavailable(stopped)", "idle", "idle"},
		},
		"a rebuild during a stop is a build before a start": {
			append(slices.Clone(up), event{kind: stopAsked}, event{kind: rebuildAsked}, event{kind: gone}, event{kind: needed}, event{kind: built}),
			[]string{
				"stopping then idle: Down(stopped) end Unavailable(stopped)", "stopping then idle: build", "building", "building",
				"starting: Starting launch",
			},
		},
		"a handshake gets one fresh process for each start": {
			[]event{
				{kind: needed}, {kind: spawned, generation: 1}, {kind: respawnNeeded, next: era.Modern, failure: fail(HandshakeFailed, "no")}, {kind: gone},
				{kind: spawned, generation: 2}, {kind: respawnNeeded, next: era.Legacy, failure: fail(HandshakeFailed, "no")}, {kind: gone},
			},
			[]string{
				"starting: Starting launch", "starting", "stopping then starting: end", "starting: Starting launch",
				"starting", "stopping then failed: Unavailable(handshake-failed) end", "failed",
			},
		},
		"a process that appears after the start was abandoned counts": {
			[]event{{kind: needed}, {kind: stopAsked}, {kind: spawned, generation: 1}, {kind: ready}, {kind: gone}},
			[]string{"starting: Starting launch", "stopping then idle: end Unavailable(stopped)", "stopping then idle", "stopping then idle", "idle"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, seen := play(state{}, story.events...)
			if diff := cmp.Diff(story.want, seen[len(seen)-len(story.want):]); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestRespawnKeepsTheStarterAndBeginsWithTheOtherEra(t *testing.T) {
	s, _ := play(state{}, event{kind: needed, starter: era.Peer{Era: era.Legacy}}, event{kind: spawned, generation: 1},
		event{kind: respawnNeeded, next: era.Modern})
	s, effects := transition(s, event{kind: gone, attempt: s.attempt})
	got := effects[len(effects)-1]
	want := effect{kind: launch, attempt: 2, generation: 2, respawn: era.Modern, starter: era.Peer{Era: era.Legacy}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(effect{})); diff != "" {
		t.Errorf("launch (-want +got)\n%s", diff)
	}
	s, _ = play(s, event{kind: spawned, generation: 2}, event{kind: ready}, event{kind: restartAsked})
	if s.respawn != era.None || s.starter.Era != era.None {
		t.Errorf("the next generation would inherit %v and starter %v", s.respawn, s.starter)
	}
}

// Whatever ends a generation, who waited for an answer hears that the request may
// have been done: in the message where the reason's advice is about something else.
func TestInFlightMayHaveHadEffects(t *testing.T) {
	for _, reason := range []Reason{Lost, Restarted, Stopped, ShuttingDown} {
		f := (&turn{}).inFlight(reason, "exited with status 1")
		if told := f.Message + "; " + f.Hint; !strings.Contains(told, "may have had effects") {
			t.Errorf("%s: %q", reason, told)
		}
	}
}

func TestCrashesGrowTheDelayUntilTheLimit(t *testing.T) {
	s := state{phase: Running, attempt: 1, generation: 1, spawned: true, orders: orders{restartOnCrash: true}}
	at := t0
	var delays []time.Duration
	for s.phase != Failed {
		s, _ = play(s, event{kind: exited, exit: "exited with status 1", at: at}, event{kind: gone, at: at})
		if s.phase == Backoff {
			delays = append(delays, s.delay)
			at = at.Add(s.delay + time.Second)
			s, _ = play(s, event{kind: retryDue, at: at}, event{kind: spawned, generation: s.generation + 1, orders: s.orders}, event{kind: ready})
		}
	}
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays (-want +got)\n%s", diff)
	}
	if s.failure.Reason != CrashLoop || s.failure.Exit != "exited with status 1" || s.failure.Hint == "" {
		t.Errorf("failure = %+v", s.failure)
	}
	if s, _ = play(s, event{kind: outputChanged}); len(s.crashes) != 0 || s.retry {
		t.Errorf("a change does not give a new chance: %d crashes, retry %v", len(s.crashes), s.retry)
	}
}

func TestCrashesAreForgiven(t *testing.T) {
	crashed := func(s state, at time.Time) state {
		s, _ = play(s, event{kind: exited, at: at}, event{kind: gone, at: at}, event{kind: retryDue, at: at},
			event{kind: spawned, generation: s.generation + 1, orders: s.orders}, event{kind: ready})
		return s
	}
	running := state{phase: Running, attempt: 1, spawned: true, orders: orders{restartOnCrash: true}}
	t.Run("after a stable time", func(t *testing.T) {
		s := crashed(crashed(running, t0), t0)
		s, _ = play(s, event{kind: stable})
		if s = crashed(s, t0); len(s.crashes) != 1 {
			t.Errorf("%d crashes count, want 1", len(s.crashes))
		}
	})
	t.Run("after the window", func(t *testing.T) {
		s := running
		for i := range 3 * crashLimit {
			s = crashed(s, t0.Add(time.Duration(i)*crashWindow/(crashLimit-1)))
			if s.phase != Running {
				t.Fatalf("given up after %d crashes: %v", i+1, s.failure)
			}
		}
	})
}

func TestBackoffDelayIsBounded(t *testing.T) {
	for n, want := range map[int]time.Duration{
		1: firstBackoff, 2: 2 * firstBackoff, 5: maxBackoff, 6: maxBackoff, 1000: maxBackoff,
	} {
		if got := backoffDelay(n); got != want {
			t.Errorf("backoffDelay(%d) = %v, want %v", n, got, want)
		}
	}
}

// world plays the part of everything outside the state machine, and checks the
// promises of the package in every step.
type world struct {
	t        *testing.T
	state    state
	pending  []event // what effects will bring about
	active   uint64  // the attempt whose goroutine or process may live
	up       uint64  // the generation that the observer thinks is up
	building uint64
	// announced is the last generation of Starting.
	announced uint64
	story     []string
}

func (w *world) feed(e event) {
	before := w.state
	var effects []effect
	w.state, effects = transition(w.state, e)
	w.story = append(w.story, fmt.Sprintf("%s → %s", eventNames[e.kind], show(w.state, effects)))
	if before.closing && !w.state.closing {
		w.fail("it came back from shutdown")
	}
	for _, eff := range effects {
		w.perform(eff)
	}
	switch w.state.phase {
	case Failed, Backoff:
		if w.state.failure == nil {
			w.fail("no failure says why")
		}
	case Idle, Building:
		if w.active != 0 {
			w.fail("something lives")
		}
	default:
	}
}

func (w *world) perform(e effect) {
	switch e.kind {
	case launch:
		if w.active != 0 {
			w.fail("two attempts at once")
		}
		if w.state.closing {
			w.fail("a launch during shutdown")
		}
		if w.state.isBuilding() {
			w.fail("a launch during a build")
		}
		w.active = e.attempt
		w.pending = append(w.pending, event{kind: spawned, attempt: e.attempt, generation: e.generation})
	case end:
		if w.active != e.attempt && w.active != 0 {
			w.fail("end of another attempt")
		}
		w.pending = append(w.pending, event{kind: gone, attempt: e.attempt})
	case startBuild:
		if w.building != 0 {
			w.fail("two builds at once")
		}
		w.building = e.build
		w.pending = append(w.pending, event{kind: built, build: e.build})
	case armDrain:
		w.pending = append(w.pending, event{kind: drainOver, attempt: e.attempt})
	case armRetry:
		w.pending = append(w.pending, event{kind: retryDue, attempt: e.attempt})
	case tellUp:
		if w.up != 0 {
			w.fail("Up without Down")
		}
		w.up = e.generation
	case tellDraining:
		if w.up != e.generation {
			w.fail("Draining of what is not up")
		}
	case tellDown:
		if w.up != e.generation {
			w.fail("Down of what is not up")
		}
		w.up = 0
	case tellStarting:
		if w.up != 0 {
			w.fail("Starting before Down")
		}
		if e.generation < w.announced {
			w.fail("generations go backwards")
		}
		w.announced = e.generation
	case tellUnavailable:
		if e.failure == nil {
			w.fail("Unavailable without a reason")
		}
		// The observer takes what is about an older generation for late news.
		if g := e.failure.Generation; g != 0 && g < w.announced {
			w.fail(fmt.Sprintf("Unavailable about generation %d after Starting %d", g, w.announced))
		}
	default:
	}
}

// happen lets one pending thing come about, in one of the ways it can.
func (w *world) happen(r *rand.Rand) {
	if len(w.pending) == 0 {
		return
	}
	i := r.IntN(len(w.pending))
	e := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	e.at = t0.Add(time.Duration(len(w.story)) * time.Second)
	switch e.kind {
	case spawned:
		w.spawn(r, e)
		return
	case gone:
		// Whatever the attempt was about to report comes before.
		w.pending = slices.DeleteFunc(w.pending, func(p event) bool { return p.attempt == e.attempt && p.kind != gone })
		if r.IntN(8) == 0 {
			e.failure = fail(Survivors, "pid 9")
		} else {
			w.active = 0
		}
	case built:
		w.building = 0
		if r.IntN(2) == 0 {
			e.failure = fail(BuildFailed, "no")
		}
	default:
	}
	w.feed(e)
}

func (w *world) spawn(r *rand.Rand, e event) {
	next := event{attempt: e.attempt, failure: fail(ExitedAtStart, "no"), next: era.Legacy, at: e.at}
	next.failure.Generation = e.generation
	if r.IntN(5) == 0 {
		if w.state.phase == Starting && w.state.attempt == e.attempt {
			w.active = 0
		}
		next.kind = startFailed
		next.failure = fail(PortInUse, "no")
		w.feed(next)
		return
	}
	e.orders = orders{restartOnCrash: r.IntN(2) == 0, drain: time.Duration(r.IntN(2)) * time.Second}
	w.feed(e)
	next.kind = []eventKind{ready, ready, startFailed, respawnNeeded}[r.IntN(4)]
	w.pending = append(w.pending, next)
	if next.kind == ready && r.IntN(2) == 0 {
		w.pending = append(w.pending, event{kind: exited, attempt: e.attempt, exit: "exited with status 1"})
	}
}

func (w *world) fail(what string) {
	w.t.Helper()
	w.t.Fatalf("%s:\n%s", what, strings.Join(w.story[max(0, len(w.story)-20):], "\n"))
}

func TestPromisesHoldOnAnyWay(t *testing.T) {
	outside := []eventKind{
		needed, needed, needed, startAsked, restartAsked, restartAsked, rebuildAsked, stopAsked,
		outputChanged, outputChanged, drained, stable,
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := &world{t: t}
		for range 200 {
			if r.IntN(3) > 0 {
				w.happen(r)
				continue
			}
			w.feed(event{
				kind: outside[r.IntN(len(outside))], attempt: w.state.attempt, generation: w.state.generation,
				at: t0.Add(time.Duration(len(w.story)) * time.Second),
			})
		}
		w.feed(event{kind: shutdownAsked})
		for range 100 {
			w.happen(r)
		}
		if !w.state.over() || w.up != 0 || w.active != 0 && !w.state.undead {
			t.Fatalf("seed %d: not over: %s", seed, strings.Join(w.story[max(0, len(w.story)-30):], "\n"))
		}
	}
}
