package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/era"
)

var (
	legacyClient = era.Peer{Era: era.Legacy, Version: era.LegacyVersion}
	patient      = Launch{RestartOnCrash: true, StartTimeout: time.Minute}
)

func TestOneStartServesAllWhoNeedIt(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{prepareTakes: time.Second, readyAfter: time.Second}}, func(b *bench) {
		b.mustBe(Idle)
		for range 20 {
			b.Need(legacyClient)
		}
		b.heard("Starting 1")
		time.Sleep(1500 * time.Millisecond)
		status := b.mustBe(Starting)
		if status.Generation != 1 || status.PID != 1001 || status.Port != 3001 {
			t.Errorf("status = %+v", status)
		}
		b.Need(legacyClient)
		time.Sleep(time.Second)
		b.heard("Up 1")
		status = b.mustBe(Running)
		if status.Facts == nil || status.ReadyAt.IsZero() || status.Message != "" {
			t.Errorf("status = %+v", status)
		}
		b.Need(legacyClient)
		b.heard("")
		if n := b.spawns(); n != 1 {
			t.Errorf("%d starts", n)
		}
		if got := b.runner.orders[0].starter.Era; got != era.Legacy {
			t.Errorf("started for a client of era %v", got)
		}
	})
}

func TestAChangeStartsNothingThatNobodyNeeds(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{}}, func(b *bench) {
		b.Changed(0)
		b.heard("")
		b.mustBe(Idle)
	})
}

// Whoever waits for what comes of a change hears of the one restart, or that
// nothing runs, and how it failed.
func TestAChangeIsFollowed(t *testing.T) {
	slow := act{readyAfter: 10 * time.Second}
	broken := act{readyErr: fail(ExitedAtStart, "the backend exited with status 1 before it was ready")}
	inBubble(t, Config{}, patient, []act{slow, slow, slow, broken}, func(b *bench) {
		if err := b.FollowChange(b.t.Context(), 1, nil); err != nil {
			t.Errorf("while idle: %v", err)
		}
		b.mustBe(Idle)
		b.mustStart()
		var states []string
		note := func(step Step) {
			if step.Status != nil {
				states = append(states, fmt.Sprint(step.Status.State, " ", step.Status.Generation))
			}
		}
		if err := b.FollowChange(b.t.Context(), 2, note); err != nil {
			t.Errorf("while running: %v", err)
		}
		if n := len(states); b.Status().Generation != 2 || n < 3 || states[0] != "stopping 1" || states[n-1] != "running 2" {
			t.Errorf("the states were %v", states)
		}
		// Two who were told of the same change meet in one generation, however late
		// the second is.
		followed := b.async(func(ctx context.Context) error { return b.FollowChange(ctx, 3, nil) })
		if err := b.FollowChange(b.t.Context(), 3, nil); err != nil {
			t.Error(err)
		}
		if err := <-followed; err != nil || b.Status().Generation != 3 {
			t.Errorf("two that meet: %v, generation %d", err, b.Status().Generation)
		}
		if err := b.FollowChange(b.t.Context(), 3, nil); err != nil || b.Status().Generation != 3 {
			t.Errorf("a late one: %v, generation %d", err, b.Status().Generation)
		}
		if err := b.FollowChange(b.t.Context(), 4, nil); err == nil || !strings.Contains(err.Error(), "exited with status 1") {
			t.Errorf("of a start that fails it says %v", err)
		}
		b.mustBe(Failed)
	})
}

// What a start has found already asks for no other, however late it is told.
func TestAChangeThatAStartHasFound(t *testing.T) {
	var taken atomic.Uint64
	slow := act{readyAfter: 10 * time.Second}
	inBubble(t, Config{Taken: taken.Load}, patient, []act{slow, slow}, func(b *bench) {
		b.Need(legacyClient)
		b.mustBe(Starting)
		taken.Store(2)
		b.Changed(1)
		b.Changed(2)
		if err := b.FollowChange(b.t.Context(), 2, nil); err != nil || b.Status().Generation != 1 {
			t.Errorf("followed while it starts: %v, generation %d", err, b.Status().Generation)
		}
		b.Changed(2)
		if status := b.mustBe(Running); status.Generation != 1 {
			t.Errorf("it was started again: generation %d", status.Generation)
		}
		// The newer of two that come at once is not taken for the older.
		b.Changed(2)
		b.Changed(3)
		b.mustBe(Starting)
		time.Sleep(10 * time.Second)
		if status := b.mustBe(Running); status.Generation != 2 {
			t.Errorf("after a new change: generation %d", status.Generation)
		}
	})
}

func TestAFailedStartIsNotRepeatedForEachRequest(t *testing.T) {
	broken := act{readyErr: fail(ExitedAtStart, "the backend exited with status 1 before it was ready"), endTakes: 10 * time.Second}
	inBubble(t, Config{}, patient, []act{broken, broken, {}}, func(b *bench) {
		b.Need(legacyClient)
		// Those who wait are told at once, not when the group is gone.
		b.heard("Starting 1, Unavailable exited-at-start")
		b.mustBe(Stopping)
		time.Sleep(11 * time.Second)
		status := b.mustBe(Failed)
		if status.Failure.Reason != ExitedAtStart || !strings.Contains(status.Message, "exited with status 1") {
			t.Errorf("status = %+v", status)
		}
		if exit := status.LastExit; exit == nil || exit.Reason != "start failed" || len(exit.StderrTail) != 1 {
			t.Errorf("last exit = %+v", exit)
		}
		b.Need(legacyClient)
		b.heard("Unavailable exited-at-start")
		b.Changed(0)
		b.heard("Starting 2, Unavailable exited-at-start")
		time.Sleep(time.Minute)
		b.mustBe(Failed)
		b.mustStart()
		if n := b.spawns(); n != 3 {
			t.Errorf("%d starts, want 3", n)
		}
	})
}

// The history has each process there was, how it ended, and no more of them than
// a status has room for. What was published of it before stays as it was.
func TestHistoryTellsTheLastGenerations(t *testing.T) {
	acts := []act{{readyAfter: time.Second, exitsAfter: 3 * time.Second}, {readyErr: fail(ExitedAtStart, "it exited")}}
	for range historyLimit {
		acts = append(acts, act{})
	}
	inBubble(t, Config{}, patient, acts, func(b *bench) {
		if h := b.Status().History; len(h) != 0 {
			t.Errorf("before the first start: %+v", h)
		}
		began := time.Now()
		b.mustStart()
		first := b.Status().History
		if len(first) != 1 || first[0].Generation != 1 || first[0].PID != 1001 || !first[0].StartedAt.Equal(began) ||
			!first[0].ReadyAt.Equal(began.Add(time.Second)) || first[0].Exit != nil {
			t.Errorf("while the first lives: %+v", first)
		}
		time.Sleep(10 * time.Second)
		h := b.Status().History
		if len(h) != 3 || h[0].Exit == nil || h[0].Exit.Reason != "crash" || h[0].Exit.Status != "exited with status 1" || h[0].Exit.StderrTail != nil {
			t.Fatalf("after a crash: %+v", h)
		}
		if h[1].Generation != 2 || !h[1].ReadyAt.IsZero() || h[1].Exit == nil || h[1].Exit.Reason != "start failed" {
			t.Errorf("after a start that failed: %+v", h[1])
		}
		if first[0].Exit != nil {
			t.Error("what was published has changed")
		}
		for range historyLimit {
			restarted := b.async(func(ctx context.Context) error { return b.Restart(ctx, RestartOptions{}, nil) })
			if err := <-restarted; err != nil {
				t.Fatal(err)
			}
		}
		h = b.Status().History
		if len(h) != historyLimit || h[0].Generation != 4 || h[historyLimit-1].Exit != nil || h[historyLimit-2].Exit.Reason != "restart" {
			t.Errorf("after many restarts: %+v", h)
		}
	})
}

func TestACrashIsToldAtOnceAndRepaired(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{exitsAfter: time.Second, endTakes: 10 * time.Second}, {}}, func(b *bench) {
		b.mustStart()
		time.Sleep(time.Second)
		b.heard("Down 1 backend-lost, Unavailable backend-retrying waiting")
		status := b.mustBe(Stopping)
		if status.LastExit == nil || status.LastExit.Reason != "crash" || status.LastExit.Status != "exited with status 1" {
			t.Errorf("last exit = %+v", status.LastExit)
		}
		b.Need(legacyClient)
		b.heard("")
		time.Sleep(10 * time.Second)
		status = b.mustBe(Backoff)
		if want := time.Now().Add(firstBackoff); !status.RetryAt.Equal(want) {
			t.Errorf("retry at %v, want %v", status.RetryAt, want)
		}
		b.Need(legacyClient)
		b.heard("Unavailable backend-retrying waiting")
		time.Sleep(firstBackoff)
		b.heard("Starting 2, Up 2")
		if status = b.mustBe(Running); status.Crashes != 1 || !status.RetryAt.IsZero() {
			t.Errorf("status = %+v", status)
		}
		time.Sleep(stableAfter)
		if status = b.mustBe(Running); status.Crashes != 0 {
			t.Errorf("%d crashes count after a stable time", status.Crashes)
		}
	})
}

func TestACrashLoopEnds(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{exitsAfter: time.Second}}, func(b *bench) {
		b.mustStart()
		time.Sleep(time.Hour)
		status := b.mustBe(Failed)
		if status.Failure.Reason != CrashLoop || status.Generation != crashLimit {
			t.Errorf("status = %+v", status)
		}
		b.observer.take()
		b.Need(legacyClient)
		b.heard("Unavailable crash-loop")
		b.Changed(0)
		b.heard(fmt.Sprintf("Starting %d, Up %[1]d", crashLimit+1))
	})
}

func TestOnCrashStay(t *testing.T) {
	inBubble(t, Config{}, Launch{}, []act{{exitsAfter: time.Second}}, func(b *bench) {
		b.mustStart()
		time.Sleep(time.Hour)
		status := b.mustBe(Failed)
		if status.Failure.Reason != Crashed || b.spawns() != 1 {
			t.Errorf("%d starts, status = %+v", b.spawns(), status)
		}
	})
}

func TestAStartThatTakesTooLong(t *testing.T) {
	inBubble(t, Config{}, Launch{StartTimeout: 3 * time.Second}, []act{{readyAfter: time.Hour}}, func(b *bench) {
		result := b.async(func(ctx context.Context) error { return b.Start(ctx, nil) })
		time.Sleep(3 * time.Second)
		if got := outcome(result); got != string(StartTimeout) {
			t.Errorf("outcome = %s", got)
		}
		b.mustBe(Failed)
	})
}

func TestRestartsThatMeetBecomeOne(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{endTakes: time.Second}, {readyAfter: time.Second}}, func(b *bench) {
		b.mustStart()
		var results []<-chan error
		for range 3 {
			results = append(results, b.async(func(ctx context.Context) error {
				return b.Restart(ctx, RestartOptions{}, nil)
			}))
		}
		b.Changed(0)
		b.heard("Down 1 backend-restarted")
		time.Sleep(2 * time.Second)
		b.heard("Starting 2, Up 2")
		for _, result := range results {
			if got := outcome(result); got != "ok" {
				t.Errorf("outcome = %s", got)
			}
		}
		if status := b.mustBe(Running); status.LastExit.Reason != "restart" {
			t.Errorf("last exit = %+v", status.LastExit)
		}
	})
}

func TestARestartDuringAStartReplacesIt(t *testing.T) {
	acts := []act{{readyAfter: time.Minute, endTakes: time.Second}, {readyAfter: time.Second}}
	inBubble(t, Config{}, patient, acts, func(b *bench) {
		started := b.async(func(ctx context.Context) error { return b.Start(ctx, nil) })
		b.heard("Starting 1")
		restarted := b.async(func(ctx context.Context) error { return b.Restart(ctx, RestartOptions{}, nil) })
		time.Sleep(time.Second)
		b.heard("Starting 2")
		b.Changed(0)
		b.Changed(0)
		b.heard("Starting 3")
		time.Sleep(time.Second)
		b.heard("Up 3")
		if a, c := outcome(started), outcome(restarted); a != "ok" || c != "ok" {
			t.Errorf("start: %s, restart: %s", a, c)
		}
	})
}

// Wherever a start is, a stop and a shutdown end it.
func TestAStartCanBeAbandonedAnywhere(t *testing.T) {
	stages := map[string]act{
		"preparing":    {prepareTakes: time.Minute},
		"spawning":     {spawnTakes: time.Minute},
		"waiting":      {readyAfter: time.Minute},
		"running":      {},
		"crashed":      {exitsAfter: time.Millisecond, endTakes: time.Second},
		"backing off":  {exitsAfter: time.Millisecond},
		"failing":      {readyErr: fail(HandshakeFailed, "no"), endTakes: time.Second},
		"given up":     {readyErr: fail(HandshakeFailed, "no")},
		"not prepared": {prepareErr: fail(PortInUse, "port 1 is in use by pid 1")},
	}
	for name, first := range stages {
		t.Run("stop while "+name, func(t *testing.T) {
			inBubble(t, Config{}, patient, []act{first, {}}, func(b *bench) {
				b.Need(legacyClient)
				time.Sleep(100 * time.Millisecond)
				if err := b.Stop(b.t.Context(), nil); err != nil {
					t.Error(err)
				}
				b.mustBe(Idle)
				if b.runner.alive != 0 {
					t.Error("it lives")
				}
				b.mustStart()
			})
		})
		t.Run("shutdown while "+name, func(t *testing.T) {
			inBubble(t, Config{}, patient, []act{first}, func(b *bench) {
				b.Need(legacyClient)
				time.Sleep(100 * time.Millisecond)
				asked := b.async(func(ctx context.Context) error { return b.Restart(ctx, RestartOptions{}, nil) })
				b.shutdown()
				if err := <-b.result; err != nil {
					t.Error(err)
				}
				if b.runner.alive != 0 {
					t.Error("it lives")
				}
				// What was decided before the shutdown may have been told.
				if got := outcome(asked); got == "pending" {
					t.Error("whoever asked for a restart waits for ever")
				}
				if got := reasonOf(b.Start(b.t.Context(), nil)); got != string(ShuttingDown) {
					t.Errorf("start afterwards: %s", got)
				}
			})
		})
	}
}

// So it is with one that waits for the end of the last generation.
func TestAQueuedStartCanBeAbandoned(t *testing.T) {
	for name, abandon := range map[string]func(*bench) Reason{
		"stop": func(b *bench) Reason {
			if err := b.Stop(b.t.Context(), nil); err != nil {
				b.t.Error(err)
			}
			b.mustBe(Idle)
			return Stopped
		},
		"shutdown": func(b *bench) Reason {
			b.shutdown()
			if err := <-b.result; err != nil {
				b.t.Error(err)
			}
			return ShuttingDown
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, patient, []act{{endTakes: time.Minute}, {}}, func(b *bench) {
				b.mustStart()
				restarted := b.async(func(ctx context.Context) error { return b.Restart(ctx, RestartOptions{}, nil) })
				b.Need(legacyClient)
				b.mustBe(Stopping)
				reason := abandon(b)
				b.heard(fmt.Sprintf("Down 1 backend-restarted, Unavailable %s", reason))
				if got := outcome(restarted); got != string(reason) {
					t.Errorf("restart: %s", got)
				}
				if b.spawns() != 1 || b.runner.alive != 0 {
					t.Errorf("%d starts, %d alive", b.spawns(), b.runner.alive)
				}
			})
		})
	}
}

func TestAStopTellsThoseWhoWait(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{readyAfter: time.Minute}}, func(b *bench) {
		result := b.async(func(ctx context.Context) error { return b.Start(ctx, nil) })
		if err := b.Stop(b.t.Context(), nil); err != nil {
			t.Error(err)
		}
		b.heard("Starting 1, Unavailable stopped")
		if got := outcome(result); got != string(Stopped) {
			t.Errorf("start: %s", got)
		}
	})
}

func TestCallsInFlightGetTimeBeforeARestart(t *testing.T) {
	drains := Launch{DrainTimeout: 5 * time.Second}
	t.Run("and may use less", func(t *testing.T) {
		inBubble(t, Config{}, drains, []act{{}}, func(b *bench) {
			b.mustStart()
			b.Changed(0)
			b.heard("Draining 1")
			b.Drained(1)
			b.heard("Down 1 backend-restarted, Starting 2, Up 2")
		})
	})
	t.Run("and no more", func(t *testing.T) {
		inBubble(t, Config{}, drains, []act{{}}, func(b *bench) {
			b.mustStart()
			b.Changed(0)
			b.Drained(7)
			time.Sleep(5*time.Second - time.Nanosecond)
			b.heard("Draining 1")
			time.Sleep(time.Nanosecond)
			b.heard("Down 1 backend-restarted, Starting 2, Up 2")
		})
	})
	t.Run("but not before a stop", func(t *testing.T) {
		inBubble(t, Config{}, drains, []act{{}}, func(b *bench) {
			b.mustStart()
			if err := b.Stop(b.t.Context(), nil); err != nil {
				t.Error(err)
			}
			b.heard("Down 1 stopped, Unavailable stopped")
		})
	})
}

func TestAMissingEntryIsWaitedFor(t *testing.T) {
	missing := fail(EntryMissing, "dist/index.js does not exist yet")
	missing.Waiting = true
	inBubble(t, Config{}, patient, []act{{prepareErr: missing}, {prepareErr: missing}, {}}, func(b *bench) {
		b.Need(legacyClient)
		b.heard("Starting 1, Unavailable entry-missing waiting")
		status := b.mustBe(Failed)
		if !strings.HasPrefix(status.Message, "dist/index.js does not exist yet") {
			t.Errorf("message = %q", status.Message)
		}
		b.Need(legacyClient)
		b.heard("Starting 1, Unavailable entry-missing waiting")
		b.Changed(0)
		b.heard("Starting 1, Up 1")
	})
}

func TestAHandshakeThatSpoilsItsProcess(t *testing.T) {
	spoiled := act{readyErr: &link.RespawnError{Next: era.Modern, Reason: errors.New("the process ended")}, endTakes: time.Second}
	inBubble(t, Config{}, patient, []act{spoiled, {}}, func(b *bench) {
		b.Need(legacyClient)
		b.heard("Starting 1")
		time.Sleep(time.Second)
		b.heard("Starting 2, Up 2")
		second := b.runner.orders[1]
		if second.first != era.Modern || second.starter.Era != era.Legacy || second.generation != 2 {
			t.Errorf("order = %+v", second)
		}
	})
	inBubble(t, Config{}, patient, []act{spoiled}, func(b *bench) {
		b.Need(legacyClient)
		time.Sleep(time.Minute)
		b.heard("Starting 1, Starting 2, Unavailable handshake-failed")
		b.mustBe(Failed)
	})
}

func TestSurvivorsBlockTheNextStart(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{survivesEnds: 2}, {}}, func(b *bench) {
		b.mustStart()
		if got := reasonOf(b.Restart(b.t.Context(), RestartOptions{}, nil)); got != string(Survivors) {
			t.Errorf("restart: %s", got)
		}
		if status := b.mustBe(Failed); status.PID == 0 {
			t.Error("their pid is not shown any more")
		}
		if got := reasonOf(b.Start(b.t.Context(), nil)); got != string(Survivors) {
			t.Errorf("start: %s", got)
		}
		b.mustStart()
		if status := b.mustBe(Running); status.Generation != 2 {
			t.Errorf("generation %d, want 2", status.Generation)
		}
	})
	inBubble(t, Config{}, patient, []act{{survivesEnds: 9}}, func(b *bench) {
		b.mustStart()
		b.shutdown()
		if got := reasonOf(<-b.result); got != string(Survivors) {
			t.Errorf("Run: %s", got)
		}
	})
}

// collect returns a step function and what it was called with.
func collect() (func(Step), *[]Step) {
	steps := new([]Step)
	return func(s Step) { *steps = append(*steps, s) }, steps
}

func TestARebuildReportsItsSteps(t *testing.T) {
	config := Config{Build: func(_ context.Context, out func(string)) error {
		out("compiling")
		out("done")
		return nil
	}}
	inBubble(t, config, patient, []act{{}}, func(b *bench) {
		b.mustStart()
		var during State
		before := func() error {
			during = b.Status().State
			return nil
		}
		step, steps := collect()
		if err := b.Restart(b.t.Context(), RestartOptions{Rebuild: true, Before: before}, step); err != nil {
			t.Fatal(err)
		}
		want := []string{"> compiling", "> done", "build ok=true", "stopping", "starting", "running"}
		if got := stepNames(*steps); !slices.Equal(got, want) {
			t.Errorf("steps = %q, want %q", got, want)
		}
		if during != Running {
			t.Errorf("Before was called while %v, want running", during)
		}
		status := b.mustBe(Running)
		if lb := status.LastBuild; lb == nil || !lb.OK || lb.Running || !slices.Equal(lb.Tail, []string{"compiling", "done"}) {
			t.Errorf("last build = %+v", lb)
		}
	})
}

func TestARebuildFromIdleShowsTheBuild(t *testing.T) {
	config := Config{Build: func(ctx context.Context, _ func(string)) error { return pause(ctx, time.Second) }}
	inBubble(t, config, patient, []act{{}}, func(b *bench) {
		result := b.async(func(ctx context.Context) error {
			return b.Restart(ctx, RestartOptions{Rebuild: true}, nil)
		})
		if status := b.mustBe(Building); !status.Building || !status.LastBuild.Running {
			t.Errorf("status = %+v", status)
		}
		b.Need(legacyClient)
		b.heard("")
		time.Sleep(time.Second)
		b.heard("Starting 1, Up 1")
		if got := outcome(result); got != "ok" {
			t.Errorf("restart: %s", got)
		}
	})
}

func TestAFailedBuildLeavesTheBackendAlone(t *testing.T) {
	config := Config{Build: func(_ context.Context, out func(string)) error {
		out("src/index.ts(3,1): error TS2304")
		return errors.New("exited with status 2")
	}}
	inBubble(t, config, patient, []act{{}}, func(b *bench) {
		b.mustStart()
		called := false
		options := RestartOptions{Rebuild: true, Before: func() error { called = true; return nil }}
		err := b.Restart(b.t.Context(), options, nil)
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Reason != BuildFailed || f.State != Running || !strings.Contains(err.Error(), "TS2304") {
			t.Errorf("error = %+v", err)
		}
		if called {
			t.Error("Before was called")
		}
		b.heard("")
		status := b.mustBe(Running)
		if lb := status.LastBuild; lb.OK || lb.Message != "the build failed: exited with status 2" {
			t.Errorf("last build = %+v", lb)
		}
	})
}

func TestBeforeCanPreventARestart(t *testing.T) {
	refused := errors.New("the disk is full")
	config := Config{Build: func(context.Context, func(string)) error { return nil }}
	for _, rebuild := range []bool{false, true} {
		inBubble(t, config, patient, []act{{}}, func(b *bench) {
			b.mustStart()
			err := b.Restart(b.t.Context(), RestartOptions{Rebuild: rebuild, Before: func() error { return refused }}, nil)
			if err == nil || !strings.Contains(err.Error(), "preparing the restart: the disk is full") {
				t.Errorf("error = %v", err)
			}
			b.heard("")
		})
	}
}

func TestARebuildWithoutABuildCommand(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{}}, func(b *bench) {
		err := b.Restart(b.t.Context(), RestartOptions{Rebuild: true}, nil)
		if reasonOf(err) != string(ConfigInvalid) || !strings.Contains(err.Error(), "[build] command") {
			t.Errorf("error = %v", err)
		}
	})
}

func TestRebuildsThatMeet(t *testing.T) {
	builds := 0
	config := Config{Build: func(ctx context.Context, _ func(string)) error {
		builds++
		return pause(ctx, time.Second)
	}}
	inBubble(t, config, patient, []act{{}}, func(b *bench) {
		b.mustStart()
		var results []<-chan error
		for range 4 {
			results = append(results, b.async(func(ctx context.Context) error {
				return b.Restart(ctx, RestartOptions{Rebuild: true}, nil)
			}))
		}
		time.Sleep(time.Second)
		for _, result := range results {
			if got := outcome(result); got != "pending" {
				t.Errorf("after the first build: %s", got)
			}
		}
		time.Sleep(time.Second)
		for _, result := range results {
			if got := outcome(result); got != "ok" {
				t.Errorf("after the second build: %s", got)
			}
		}
		// The second build is for all who asked while the first ran: it may have
		// read their sources before they were saved.
		if builds != 2 {
			t.Errorf("%d builds, want 2", builds)
		}
		b.heard("Down 1 backend-restarted, Starting 2, Up 2")
	})
}

// A restart and a rebuild that meet end in one new generation, in either order,
// whatever becomes of the build; so do those who asked for them.
func TestARestartAndARebuildThatMeet(t *testing.T) {
	for _, buildErr := range []error{nil, errors.New("exited with status 2")} {
		config := Config{Build: func(ctx context.Context, _ func(string)) error {
			return errors.Join(pause(ctx, 5*time.Second), buildErr)
		}}
		rebuilt := "ok"
		if buildErr != nil {
			rebuilt = string(BuildFailed)
		}
		restart := func(b *bench, rebuild bool) <-chan error {
			return b.async(func(ctx context.Context) error { return b.Restart(ctx, RestartOptions{Rebuild: rebuild}, nil) })
		}
		inBubble(t, config, patient, []act{{}, {readyAfter: time.Second}}, func(b *bench) {
			b.mustStart()
			rebuild := restart(b, true)
			time.Sleep(time.Second)
			first, second := restart(b, false), restart(b, false)
			if status := b.mustBe(Running); status.Message != "the build runs; a restart follows" {
				t.Errorf("message = %q", status.Message)
			}
			time.Sleep(5 * time.Second)
			b.heard("Down 1 backend-restarted, Starting 2, Up 2")
			if r, f, s := outcome(rebuild), outcome(first), outcome(second); r != rebuilt || f != "ok" || s != "ok" {
				t.Errorf("build %v: rebuild %s, restarts %s, %s", buildErr, r, f, s)
			}
		})
		inBubble(t, config, patient, []act{{endTakes: time.Second}, {readyAfter: time.Second}}, func(b *bench) {
			b.mustStart()
			first := restart(b, false)
			rebuild := restart(b, true)
			b.heard("Down 1 backend-restarted")
			time.Sleep(4 * time.Second)
			if status := b.mustBe(Building); status.Message != "the build runs; a start follows" {
				t.Errorf("message = %q", status.Message)
			}
			b.Need(legacyClient)
			b.heard("")
			time.Sleep(2 * time.Second)
			b.heard("Starting 2, Up 2")
			if r, f := outcome(rebuild), outcome(first); r != rebuilt || f != "ok" {
				t.Errorf("build %v: rebuild %s, restart %s", buildErr, r, f)
			}
		})
	}
}

// A build ends with the last of those who wait for it, unless they say that it is to
// go on.
func TestWhoeverLeavesTakesTheBuildAway(t *testing.T) {
	left := errors.New("Ctrl-C")
	var builds, cancelled int
	config := Config{Build: func(ctx context.Context, _ func(string)) error {
		builds++
		err := pause(ctx, 10*time.Second)
		if err != nil {
			cancelled++
		}
		return err
	}}
	rebuild := func(b *bench, keep bool) (leave func(), result <-chan error) {
		ctx, cancel := context.WithCancelCause(b.t.Context())
		o := RestartOptions{Rebuild: true, Keep: func(cause error) bool { return keep && errors.Is(cause, left) }}
		result = b.async(func(context.Context) error { return b.Restart(ctx, o, nil) })
		return func() { cancel(left); b.heard("") }, result
	}
	for name, test := range map[string]struct {
		run                           func(b *bench)
		builds, cancelled, generation int
	}{
		"alone": {func(b *bench) {
			leave, _ := rebuild(b, false)
			time.Sleep(time.Second)
			leave()
			if build := b.Status().LastBuild; build.Running || build.OK || !strings.Contains(build.Message, "cancelled by whoever asked for it") {
				t.Errorf("the build is told as %+v", build)
			}
		}, 1, 1, 1},
		"whom it is to go on for": {func(b *bench) {
			leave, _ := rebuild(b, true)
			leave()
		}, 1, 0, 2},
		"one of two": {func(b *bench) {
			_, first := rebuild(b, false)
			_, second := rebuild(b, false)
			leave, _ := rebuild(b, false)
			leave()
			time.Sleep(20 * time.Second)
			if f, s := outcome(first), outcome(second); f != "ok" || s != "ok" {
				t.Errorf("the others: %s, %s", f, s)
			}
		}, 2, 0, 2},
		"the only one who waits for the next": {func(b *bench) {
			_, first := rebuild(b, false)
			leave, _ := rebuild(b, false)
			leave()
			time.Sleep(10 * time.Second)
			if f := outcome(first); f != "ok" {
				t.Errorf("the first: %s", f)
			}
		}, 1, 0, 2},
	} {
		builds, cancelled = 0, 0
		inBubble(t, config, patient, []act{{}, {}}, func(b *bench) {
			b.mustStart()
			test.run(b)
			time.Sleep(time.Minute)
			if s := b.mustBe(Running); builds != test.builds || cancelled != test.cancelled || s.Generation != uint64(test.generation) {
				t.Errorf("%s: %d builds, %d of them cancelled, generation %d", name, builds, cancelled, s.Generation)
			}
		})
	}
}

func TestAStopCancelsTheBuild(t *testing.T) {
	var cause error
	config := Config{Build: func(ctx context.Context, _ func(string)) error {
		<-ctx.Done()
		cause = context.Cause(ctx)
		return cause
	}}
	inBubble(t, config, patient, []act{{}}, func(b *bench) {
		b.mustStart()
		result := b.async(func(ctx context.Context) error {
			return b.Restart(ctx, RestartOptions{Rebuild: true}, nil)
		})
		if err := b.Stop(b.t.Context(), nil); err != nil {
			t.Error(err)
		}
		if got := outcome(result); got != string(Stopped) || !errors.Is(cause, errBuildStopped) {
			t.Errorf("restart: %s, cause: %v", got, cause)
		}
		b.mustBe(Idle)
	})
}

func TestWhoeverLeavesDoesNotTakeTheRestartAway(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{}, {readyAfter: time.Minute / 2}}, func(b *bench) {
		b.mustStart()
		gone := errors.New("the caller left")
		ctx, cancel := context.WithCancelCause(b.t.Context())
		result := b.async(func(context.Context) error { return b.Restart(ctx, RestartOptions{}, nil) })
		cancel(gone)
		if err := <-result; !errors.Is(err, gone) {
			t.Errorf("error = %v", err)
		}
		time.Sleep(time.Minute / 2)
		b.heard("Down 1 backend-restarted, Starting 2, Up 2")
	})
}

func TestASlowCallerMissesLinesAndNothingElse(t *testing.T) {
	config := Config{Build: func(_ context.Context, out func(string)) error {
		for i := range 3 * maxSteps {
			out(fmt.Sprint(i))
		}
		return nil
	}}
	inBubble(t, config, patient, []act{{}}, func(b *bench) {
		block := make(chan struct{})
		var steps []Step
		result := b.async(func(ctx context.Context) error {
			return b.Restart(ctx, RestartOptions{Rebuild: true}, func(s Step) {
				<-block
				steps = append(steps, s)
			})
		})
		b.mustBe(Running) // in spite of the caller
		close(block)
		if got := outcome(result); got != "ok" {
			t.Fatalf("restart: %s", got)
		}
		names := stepNames(steps)
		// As many as wait, once while the first step blocks and once after it.
		if n := len(names); n > 2*maxSteps+20 {
			t.Errorf("%d steps", n)
		}
		omitted := slices.IndexFunc(names, func(s string) bool { return strings.HasSuffix(s, "lines left out") })
		if omitted < 0 || !slices.Contains(names, "build ok=true") || names[len(names)-1] != "running" {
			t.Errorf("the last steps are %q", names[max(0, len(names)-8):])
		}
	})
}

func TestASubscriberMissesNoChange(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{prepareTakes: time.Second, readyAfter: time.Second, endTakes: time.Second}}, func(b *bench) {
		var seen []string
		followed := make(chan struct{})
		ctx, cancel := context.WithCancel(b.t.Context())
		go func() {
			defer close(followed)
			for {
				status, changed := b.Subscribe()
				if s := status.State.String(); len(seen) == 0 || seen[len(seen)-1] != s {
					seen = append(seen, s)
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		}()
		synctest.Wait()
		b.Need(legacyClient)
		time.Sleep(3 * time.Second)
		_ = b.Stop(b.t.Context(), nil)
		synctest.Wait()
		cancel()
		<-followed
		if diff := cmp.Diff([]string{"idle", "starting", "running", "stopping", "idle"}, seen); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// A start that comes to no process says nothing about the generation before it.
func TestAStartThatNeverRan(t *testing.T) {
	for name, broken := range map[string]act{
		"not prepared": {prepareErr: fail(PortInUse, "port 1 is in use by pid 1")},
		"not spawned":  {spawnErr: fail(StartFailed, "exec format error")},
	} {
		inBubble(t, Config{}, patient, []act{{}, broken, {readyErr: fail(HandshakeFailed, "no")}}, func(b *bench) {
			b.mustStart()
			_ = b.Restart(b.t.Context(), RestartOptions{}, nil)
			if status := b.mustBe(Failed); !status.NeverRan || status.Generation != 1 {
				t.Errorf("%s: %+v", name, status)
			}
			_ = b.Restart(b.t.Context(), RestartOptions{}, nil)
			if status := b.mustBe(Failed); status.NeverRan || status.Generation != 2 {
				t.Errorf("%s, then not ready: %+v", name, status)
			}
		})
	}
}

// An observer has a loop of its own, which may put to this one at any time.
func TestAnObserverMayAskBack(t *testing.T) {
	broken := act{prepareErr: fail(PortInUse, "port 1 is in use by pid 1")}
	inBubble(t, Config{}, patient, []act{broken}, func(b *bench) {
		asked := 0
		b.observer.react = func(heard string) {
			if strings.HasPrefix(heard, "Unavailable") && asked < 10 {
				asked++
				b.Need(legacyClient)
				b.Changed(0)
				b.Drained(1)
			}
		}
		b.Need(legacyClient)
		synctest.Wait()
		b.mustBe(Failed)
		if asked != 10 {
			t.Errorf("asked back %d times", asked)
		}
	})
}

func TestWhatIsAskedBeforeRunWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := &recorder{}
		r := &fakeRunner{t: t, acts: []act{{}}}
		s := newSupervisor(Config{Observer: observer}, r, loadSnapshots("", nil, nil), discard())
		s.Need(legacyClient)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- s.Run(ctx) }()
		synctest.Wait()
		if got := observer.take(); got != "Starting 1, Up 1" {
			t.Errorf("heard %q", got)
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if r.swept != 1 {
			t.Errorf("swept %d times", r.swept)
		}
	})
}

func TestFactsOfTheRunningOneGoFirst(t *testing.T) {
	inBubble(t, Config{}, patient, []act{{}}, func(b *bench) {
		if _, ok := b.Facts(era.Legacy); ok {
			t.Error("facts before any handshake")
		}
		b.snapshots.remember(nil, []era.Facts{{Era: era.Legacy, Version: "2025-06-18"}}, era.None, nil)
		if f, ok := b.Facts(era.Legacy); !ok || f.Version != "2025-06-18" {
			t.Errorf("facts = %+v, %v", f, ok)
		}
		b.mustStart()
		if f, ok := b.Facts(era.Legacy); !ok || f.Version != era.ModernVersion {
			t.Errorf("facts = %+v, %v", f, ok)
		}
	})
}

// A start and its failure are told with the same number, also where no process
// came of it.
func TestTheLogCountsAStartThatFails(t *testing.T) {
	var text strings.Builder
	l := &loop{Supervisor: &Supervisor{log: slog.New(slog.NewTextHandler(&text, nil))}}
	idle := state{phase: Idle}
	starting := state{phase: Starting, attempt: 1}
	failed := state{phase: Failed, attempt: 1, failure: fail(CommandNotFound, "no such command")}
	for _, step := range []struct{ before, after state }{{idle, starting}, {starting, failed}} {
		l.state = step.after
		l.logChange(step.before)
	}
	if lines := text.String(); strings.Count(lines, "generation=1") != 2 || strings.Contains(lines, "generation=0") || !strings.Contains(lines, "start of the backend failed") {
		t.Errorf("it says\n%s", lines)
	}
}
