package backend

import (
	"fmt"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
)

// state is everything the supervisor decides by. It is a value: transition takes
// one and returns another, and nothing else changes it.
type state struct {
	phase State
	// attempt numbers the starts, and tags the events about each: what comes
	// late from an earlier one is dropped. Not every attempt gets as far as a
	// process, so generation has numbers of its own.
	attempt uint64
	// generation is the number of the last process.
	generation uint64
	// spawned: this attempt has a process that is not known to be gone.
	spawned bool
	// undead: its processes outlived the ladder. Only in Failed, and nothing
	// may start before they are gone.
	undead bool
	// orders are those of the launch that spawned it.
	orders orders

	// next is the phase that follows Draining and Stopping: Idle, Starting,
	// Backoff or Failed. failure is why Backoff or Failed, of phase or next.
	next    State
	failure *Failure
	// ended says for Exit.Reason why the process is being ended.
	ended string
	// retry: this attempt or the next recovers from a crash, so its failure is
	// one more crash.
	retry bool
	// respawn is the era that the next attempt, or this one, has to begin with
	// because the handshake of the one before spoiled its process.
	respawn era.Era
	// crashes are the times of those that count, and delay follows the last.
	crashes []time.Time
	delay   time.Duration

	// need: a request waits and its start could not be decided yet; starter is
	// its client.
	need    bool
	starter era.Peer

	// build tags the running build, 0 for none; builds counts them.
	build  uint64
	builds uint64
	// buildAgain: one more was asked for since this one began, whose sources
	// it may have missed.
	buildAgain bool
	// buildVoid: this one was cancelled; whatever it returns, nothing follows.
	buildVoid bool
	// resume is the phase to go back to when the build of Building fails: Idle
	// or Failed. wanted: a start or a restart is due when no build runs any more.
	resume State
	wanted bool
	// changed: the build output changed during the build.
	changed bool

	// change is the number of the last change that had one, and changeAfter the
	// attempt that was current when it came.
	change, changeAfter uint64

	// closing: the daemon ends; nothing starts any more.
	closing bool
}

// knows reports whether the event is of a change that was heard of already.
func (s state) knows(e event) bool {
	return e.kind == outputChanged && e.change != 0 && e.change == s.change
}

// orders are the parts of a Launch that decide what happens after its start.
type orders struct {
	restartOnCrash bool
	drain          time.Duration
}

// over reports whether the supervisor has nothing left to do.
func (s state) over() bool {
	return s.closing && s.build == 0 && (s.phase == Idle || s.phase == Failed)
}

// isBuilding reports whether a build runs whose outcome counts.
func (s state) isBuilding() bool { return s.build != 0 && !s.buildVoid }

// eventKind is what happened.
type eventKind uint8

const (
	// From outside.
	needed        eventKind = iota // a request needs the backend
	startAsked                     // a person wants it running
	restartAsked                   // a person wants a new generation
	rebuildAsked                   // the same, after a build
	rebuildLeft                    // nobody waits any more for the build that would follow this one
	stopAsked                      // a person wants it stopped
	shutdownAsked                  // the daemon ends
	outputChanged                  // the build output settled on new content
	drained                        // nothing is in flight any more
	// From what effects began.
	built         // the build has ended
	spawned       // the attempt has a process
	ready         // it serves
	startFailed   // it will not serve; its process may live
	respawnNeeded // the handshake needs a fresh process
	exited        // the leader, or its protocol stream, ended by itself
	gone          // the whole group is gone, or has outlived the ladder
	drainOver     // drain_timeout is over
	retryDue      // the backoff delay is over
	stable        // it has served for stableAfter
)

// event is something that happened. attempt tags what is about one attempt,
// build what is about one build.
type event struct {
	kind       eventKind
	attempt    uint64
	at         time.Time
	starter    era.Peer    // needed
	generation uint64      // drained, spawned
	orders     orders      // spawned
	up         *Generation // ready
	next       era.Era     // respawnNeeded
	failure    *Failure    // startFailed; built, unless it succeeded; gone, if there are survivors
	exit       string      // exited: in words, such as "exited with status 1"
	deaf       bool        // gone: it did not end as its input did
	tail       []string    // exited, built: the last lines
	build      uint64      // built
	change     uint64      // outputChanged: its number; 0 for none
	taken      bool        // outputChanged: the start under way, or the last one, is made from it
}

// effectKind is something to be done.
type effectKind uint8

const (
	tellStarting effectKind = iota
	tellUp
	tellDraining
	tellDown
	tellUnavailable
	launch      // begin the attempt
	end         // cancel its start wherever it is, end its group; gone follows
	startBuild  // built follows
	cancelBuild // built follows sooner
	armDrain    // drainOver follows after delay
	armRetry    // retryDue follows after delay
	armStable   // stable follows after delay
)

// effect is something to be done, in the order given.
type effect struct {
	kind       effectKind
	attempt    uint64
	generation uint64        // tell…, launch
	up         *Generation   // tellUp
	failure    *Failure      // tellDown, tellUnavailable
	starter    era.Peer      // launch
	respawn    era.Era       // launch
	build      uint64        // startBuild
	delay      time.Duration // arm…
}

// transition decides what an event means. It is pure.
func transition(s state, e event) (state, []effect) {
	if s.stale(e) {
		return s, nil
	}
	t := turn{state: s}
	t.take(e)
	return t.state, t.effects
}

// stale reports whether the event is about something that is over.
func (s state) stale(e event) bool {
	switch e.kind {
	case needed, startAsked, restartAsked, rebuildAsked, rebuildLeft, stopAsked, shutdownAsked, outputChanged:
		return false
	case drained:
		return e.generation != s.generation
	case built:
		return e.build != s.build
	default:
		return e.attempt != s.attempt
	}
}

// turn is one transition under way.
type turn struct {
	state

	effects []effect
}

func (t *turn) do(e effect) { t.effects = append(t.effects, e) }

func (t *turn) take(e event) {
	switch e.kind {
	case needed:
		t.onNeeded(e)
	case startAsked:
		t.onStart()
	case restartAsked:
		t.onRestart()
	case rebuildAsked:
		t.onRebuild()
	case rebuildLeft:
		t.buildAgain = false
	case stopAsked:
		t.onStop(Stopped)
	case shutdownAsked:
		t.onStop(ShuttingDown)
	case outputChanged:
		if e.taken || t.knows(e) {
			return
		}
		if e.change != 0 {
			t.change, t.changeAfter = e.change, t.attempt
		}
		t.onChanged()
	case drained, drainOver:
		if t.phase == Draining {
			t.takeDown(t.inFlight(Restarted, ""))
		}
	case built:
		t.onBuilt(e)
	case spawned:
		// Also in Stopping: a start is abandoned wherever it is, and counts as
		// far as it got.
		if t.phase == Starting || t.phase == Stopping {
			t.spawned, t.generation, t.orders = true, e.generation, e.orders
		}
	case ready:
		t.onReady(e)
	case startFailed:
		t.onStartFailed(e)
	case respawnNeeded:
		t.onRespawn(e)
	case exited:
		t.onExited(e)
	case gone:
		t.onGone(e)
	case retryDue:
		if t.phase == Backoff {
			t.begin()
		}
	case stable:
		if t.phase == Running {
			t.crashes = nil
		}
	}
}

// onNeeded starts on demand from Idle alone: everywhere else a generation comes
// without it, or only a person or a change can make one come.
func (t *turn) onNeeded(e event) {
	if t.closing {
		t.tell(&Failure{Reason: ShuttingDown, Message: "devproxy is shutting down"})
		return
	}
	switch t.phase {
	case Idle:
		t.starter = e.starter
		t.fresh()
	case Building:
		t.need, t.starter = true, e.starter
	case Starting, Running, Draining:
	case Stopping:
		switch t.next {
		case Idle:
			t.need, t.starter = true, e.starter
		case Failed:
			t.tell(t.failure)
		default:
		}
	case Backoff:
		t.tell(t.failure)
	case Failed:
		// What waits for a file may have missed its appearance; to look is
		// cheap and starts nothing that is not there.
		if t.failure.Waiting {
			t.starter = e.starter
			t.recover()
			return
		}
		t.tell(t.failure)
	}
}

func (t *turn) onStart() {
	if t.closing {
		return
	}
	switch t.phase {
	case Idle, Backoff:
		t.fresh()
	case Building:
		t.wanted = true
	case Starting, Running, Draining:
	case Stopping:
		if t.next != Starting {
			t.startNext()
		}
	case Failed:
		t.recover()
	}
}

// onRestart makes a generation come that was started after this moment, and one
// only, however often it is asked before that start. During a build it waits for
// the end, like every start.
func (t *turn) onRestart() {
	if t.closing {
		return
	}
	if t.isBuilding() {
		t.wanted = true
		return
	}
	switch t.phase {
	case Idle, Backoff:
		t.fresh()
	case Building:
		t.wanted = true
	case Starting:
		// It may have read what was changed since; to let it come up first
		// would cost its start time and gain nothing.
		t.abandon("start abandoned")
		t.startNext()
	case Running:
		t.leave()
	case Draining:
	case Stopping:
		t.startNext()
	case Failed:
		t.recover()
	}
}

// onChanged restarts what runs, or tries again what failed; it starts nothing
// that nobody needs. During a build it waits for the end, which decides: a build
// writes its output in more than one go.
func (t *turn) onChanged() {
	if t.closing {
		return
	}
	if t.build != 0 {
		t.changed = true
		return
	}
	switch t.phase {
	case Idle, Building:
	case Stopping:
		if t.next != Idle {
			t.startNext()
		}
	case Starting, Running, Draining, Backoff, Failed:
		t.onRestart()
	}
}

func (t *turn) onRebuild() {
	if t.closing {
		return
	}
	if t.build != 0 {
		t.buildAgain = true
	} else {
		t.beginBuild()
	}
	t.rest(t.phase)
}

func (t *turn) beginBuild() {
	t.builds++
	t.build, t.changed = t.builds, false
	t.do(effect{kind: startBuild, build: t.build})
}

// onBuilt lets one restart follow the last of the builds that met, if any of them
// succeeded or somebody asked for one meanwhile.
func (t *turn) onBuilt(e event) {
	if e.failure == nil && !t.buildVoid {
		t.wanted, t.changed = true, false
	}
	changed := t.changed
	t.build, t.buildVoid, t.changed = 0, false, false
	switch {
	case t.buildAgain:
		t.buildAgain = false
		t.beginBuild()
		t.changed = changed
		t.rest(t.phase)
	case t.phase == Building:
		t.resumeAfterBuild(changed)
	case t.wanted:
		t.wanted = false
		t.onRestart()
	case changed:
		t.onChanged()
	}
}

// resumeAfterBuild goes back to where the build began, and answers what came in
// between as it would have been answered there.
func (t *turn) resumeAfterBuild(changed bool) {
	wanted, need := t.wanted, t.need
	t.phase, t.wanted, t.need = t.resume, false, false
	switch {
	case t.closing:
	case wanted, t.phase == Idle && need, t.phase == Failed && changed:
		t.fresh()
	case need:
		t.tell(t.failure)
	}
}

// onStop ends whatever is under way. Requests that are held are told; one that
// comes later starts the backend again, unless the daemon ends.
func (t *turn) onStop(reason Reason) {
	if t.closing {
		return
	}
	t.closing = reason == ShuttingDown
	t.need, t.wanted, t.changed, t.buildAgain = false, false, false, false
	t.crashes = nil
	if t.build != 0 && !t.buildVoid {
		t.buildVoid = true
		t.do(effect{kind: cancelBuild, build: t.build})
	}
	switch t.phase {
	case Idle:
	case Building:
		t.resume, t.failure = Idle, nil
		t.tell(t.stopped(reason))
	case Starting:
		t.abandon(endedBy(reason))
		t.endNext(reason)
	case Running, Draining:
		t.takeDown(t.inFlight(reason, ""))
		t.endNext(reason)
	case Stopping:
		t.endNext(reason)
	case Backoff:
		t.phase, t.failure = Idle, nil
		t.tell(t.stopped(reason))
	case Failed:
		if t.undead {
			t.phase = Stopping
			t.do(effect{kind: end, attempt: t.attempt})
			t.endNext(reason)
			return
		}
		t.phase, t.failure = Idle, nil
		t.tell(t.stopped(reason))
	}
}

// endNext lets Idle follow Stopping.
func (t *turn) endNext(reason Reason) {
	t.next, t.failure, t.respawn, t.retry = Idle, nil, era.None, false
	t.tell(t.stopped(reason))
}

// startNext lets a fresh start follow Stopping.
func (t *turn) startNext() {
	t.next, t.failure, t.respawn, t.retry = Starting, nil, era.None, false
	t.crashes = nil
}

// fresh begins an attempt that owes nothing to the ones before.
func (t *turn) fresh() {
	t.crashes, t.retry, t.respawn = nil, false, era.None
	t.begin()
}

// recover leaves Failed, ending first what would not end.
func (t *turn) recover() {
	if !t.undead {
		t.fresh()
		return
	}
	t.phase, t.undead = Stopping, false
	t.do(effect{kind: end, attempt: t.attempt})
	t.startNext()
}

// begin begins an attempt. What a build leaves half done must start nothing, so it
// waits for the end of one.
func (t *turn) begin() {
	if t.isBuilding() {
		t.phase, t.resume, t.failure, t.wanted = Building, Idle, nil, true
		return
	}
	t.attempt++
	t.phase, t.failure, t.ended = Starting, nil, ""
	t.need, t.wanted = false, false
	t.do(effect{kind: tellStarting, generation: t.generation + 1})
	t.do(effect{
		kind: launch, attempt: t.attempt, generation: t.generation + 1,
		starter: t.starter, respawn: t.respawn,
	})
}

func (t *turn) onReady(e event) {
	if t.phase != Starting {
		return
	}
	t.phase, t.retry, t.respawn, t.starter = Running, false, era.None, era.Peer{}
	t.do(effect{kind: tellUp, generation: t.generation, up: e.up})
	t.do(effect{kind: armStable, attempt: t.attempt, delay: stableAfter})
}

// onStartFailed gives up, unless it was a try to recover from a crash: what was
// started for a request or a person and did not come up will not do so the next
// time either, and a new process for each request would help nobody.
func (t *turn) onStartFailed(e event) {
	if t.phase != Starting {
		return
	}
	t.giveUp(e.failure, e.at)
	if !t.spawned {
		t.settle()
		return
	}
	t.abandon("start failed")
}

func (t *turn) giveUp(f *Failure, at time.Time) {
	if t.retry && f.Reason.retryable() {
		t.crash(f, at)
	} else {
		t.failure = f.in(Failed)
		t.next = Failed
	}
	t.starter, t.respawn = era.Peer{}, era.None
	t.tell(t.failure)
}

// crash lets Backoff follow, or Failed at the limit. f says how it crashed.
func (t *turn) crash(f *Failure, at time.Time) {
	t.crashes = append(recentCrashes(t.crashes, at), at)
	n := len(t.crashes)
	if n >= crashLimit {
		loop := fail(CrashLoop, fmt.Sprintf("it crashed %d times within %s, the last time because %s",
			n, at.Sub(t.crashes[0]).Round(time.Second), f.Message))
		loop.Generation, loop.Exit, loop.Tail = f.Generation, f.Exit, f.Tail
		t.failure, t.next, t.retry = loop.in(Failed), Failed, false
		return
	}
	t.delay = backoffDelay(n)
	again := fail(Retrying, fmt.Sprintf("%s; it starts again in %s (crash %d of at most %d)",
		f.Message, t.delay, n, crashLimit))
	again.Generation, again.Exit, again.Tail, again.Waiting = f.Generation, f.Exit, f.Tail, true
	t.failure, t.next, t.retry = again.in(Backoff), Backoff, true
}

// onRespawn lets a fresh process follow at once, and only once for each start:
// a handshake that spoils that one too has failed.
func (t *turn) onRespawn(e event) {
	if t.phase != Starting {
		return
	}
	if t.respawn != era.None {
		t.onStartFailed(e)
		return
	}
	t.abandon("handshake needs a fresh process")
	t.next, t.respawn = Starting, e.next
}

func (t *turn) onExited(e event) {
	switch t.phase {
	case Running:
		f := fail(Crashed, fmt.Sprintf("the backend (generation %d) %s", t.generation, e.exit))
		f.Generation, f.Exit, f.Tail = t.generation, e.exit, e.tail
		t.takeDown(t.inFlight(Lost, e.exit))
		t.ended = "crash"
		if t.orders.restartOnCrash {
			t.crash(f, e.at)
		} else {
			t.next, t.failure = Failed, f.in(Failed)
		}
		t.tell(t.failure)
	case Draining:
		t.takeDown(t.inFlight(Lost, e.exit))
		t.ended = "crash"
	default:
		// Before ready the start itself reports it; afterwards it was asked for.
	}
}

// onGone goes on to what follows, as the previous generation is no more.
func (t *turn) onGone(e event) {
	if t.phase != Stopping {
		return
	}
	if e.failure != nil {
		t.phase, t.undead, t.failure = Failed, true, e.failure.in(Failed)
		t.respawn, t.retry = era.None, false
		t.tell(t.failure)
		return
	}
	t.spawned, t.undead = false, false
	t.settle()
}

// settle enters the phase that was to follow.
func (t *turn) settle() {
	switch t.next {
	case Starting:
		t.begin()
	case Backoff:
		t.phase = Backoff
		t.do(effect{kind: armRetry, attempt: t.attempt, delay: t.delay})
	case Failed:
		t.rest(Failed)
	default:
		t.rest(Idle)
		if t.phase == Idle && t.need {
			t.fresh()
		}
	}
}

// rest makes Building of Idle and Failed while a build runs that a start will
// follow, so that requests wait for it.
func (t *turn) rest(phase State) {
	t.phase = phase
	if (phase == Idle || phase == Failed && !t.undead) && t.isBuilding() {
		t.phase, t.resume = Building, phase
	}
}

// leave stops a serving generation for the next one.
func (t *turn) leave() {
	t.startNext()
	t.starter = era.Peer{}
	if t.orders.drain <= 0 {
		t.takeDown(t.inFlight(Restarted, ""))
		return
	}
	t.phase = Draining
	t.do(effect{kind: tellDraining, generation: t.generation})
	t.do(effect{kind: armDrain, attempt: t.attempt, delay: t.orders.drain})
}

// takeDown ends a generation that was up. Whoever calls it decides what follows.
func (t *turn) takeDown(why *Failure) {
	t.ended = endedBy(why.Reason)
	t.do(effect{kind: tellDown, generation: t.generation, failure: why})
	t.phase = Stopping
	t.do(effect{kind: end, attempt: t.attempt})
}

// abandon ends an attempt that was not up. Whoever calls it decides what follows.
func (t *turn) abandon(ended string) {
	t.ended, t.phase = ended, Stopping
	t.do(effect{kind: end, attempt: t.attempt})
}

func (t *turn) tell(f *Failure) {
	t.do(effect{kind: tellUnavailable, failure: f})
}

// inFlight is what becomes of the requests in flight on a generation.
func (t *turn) inFlight(reason Reason, exit string) *Failure {
	var message string
	switch reason {
	case Lost:
		message = fmt.Sprintf("the backend (generation %d) %s while it worked on this request",
			t.generation, exit)
	case Restarted:
		message = fmt.Sprintf("the backend (generation %d) was restarted while it worked on this request",
			t.generation)
	case ShuttingDown:
		message = "devproxy shut down while the backend worked on this request, which may have had effects"
	default:
		message = fmt.Sprintf("the backend (generation %d) was stopped while it worked on this request, which may have had effects",
			t.generation)
	}
	f := fail(reason, message)
	f.State, f.Generation, f.Exit = Stopping, t.generation, exit
	return f
}

// stopped is what becomes of the requests that waited for a generation, which
// has no number as it will not come.
func (t *turn) stopped(reason Reason) *Failure {
	message := "the backend was stopped"
	if reason == ShuttingDown {
		message = "devproxy is shutting down"
	}
	f := fail(reason, message)
	f.State = Idle
	return f
}

// endedBy returns the Exit.Reason of a generation taken down for that reason.
func endedBy(reason Reason) string {
	switch reason {
	case Lost:
		return "crash"
	case Restarted:
		return "restart"
	case ShuttingDown:
		return "shutdown"
	default:
		return "stop"
	}
}

// in returns the failure as seen in that state.
func (f *Failure) in(s State) *Failure {
	c := f.clone()
	c.State = s
	return c
}
