package backend

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/daemon/backend/link"
)

var (
	errAbandoned    = errors.New("the start was abandoned")
	errStartTimeout = errors.New("start_timeout is over")
	errBuildStopped = errors.New("the build was cancelled because the backend was stopped")
	errBuildLeft    = errors.New("it was cancelled by whoever asked for it")
)

// loop is Supervisor.Run: the one goroutine that changes the state. What takes
// time it hands to goroutines that end in an event; group waits for them all.
type loop struct {
	*Supervisor

	state    state
	scene    scene
	current  *attempt
	build    *buildRun
	requests []*request
	group    sync.WaitGroup

	drain, retry, stable alarm
}

// attempt is one start and, if it gets that far, the life of its process.
type attempt struct {
	order

	number uint64
	cancel context.CancelCauseFunc
	// done is closed when its goroutine has ended. life belongs to that one
	// before, and to whoever ends it afterwards; nil if there is no process.
	done chan struct{}
	life life
}

func (l *loop) run(ctx context.Context) {
	// Whatever ends is ended by an effect, so that it is ended in order.
	work := context.WithoutCancel(ctx)
	l.group.Go(func() {
		if err := l.runner.sweep(work); err != nil {
			l.log.Warn("ending what an earlier daemon left", slog.Any("error", err))
		}
	})
	shutdown := ctx.Done()
	for !l.state.over() {
		select {
		case <-shutdown:
			shutdown = nil
			l.handle(work, item{event: event{kind: shutdownAsked}})
		case <-l.inbox.wake:
			for _, it := range l.inbox.take() {
				l.handle(work, it)
			}
		case <-l.drain.c:
			l.handle(work, l.drain.ring())
		case <-l.retry.c:
			l.handle(work, l.retry.ring())
		case <-l.stable.c:
			l.handle(work, l.stable.ring())
		}
	}
	l.group.Wait()
	for _, it := range l.inbox.close() {
		l.accept(it.request, it.event)
	}
	l.settleRequests(event{}, l.state)
}

// handle takes one step of the state machine.
func (l *loop) handle(work context.Context, it item) {
	if it.left != nil {
		l.leave(work, it.left)
		return
	}
	if it.scene != nil {
		if it.event.attempt == l.state.attempt {
			it.scene(&l.scene)
			l.publish()
		}
		return
	}
	e := it.event
	if e.at.IsZero() {
		e.at = time.Now()
	}
	if l.state.stale(e) {
		return
	}
	// The watcher tells of a change on another way than the start takes that finds
	// it, which may have been faster.
	e.taken = e.kind == outputChanged && e.change != 0 && l.config.Taken != nil && e.change <= l.config.Taken()
	l.accept(it.request, e)
	before := l.state
	next, effects := transition(before, e)
	l.state = next
	l.scene.take(e, before, next)
	l.logChange(before)
	l.tellBuilt(e) // before what comes of it
	// What an observer is told must already show, as it may look at once.
	l.publish()
	for _, eff := range effects {
		l.perform(work, eff)
	}
	l.settleRequests(e, before)
}

func (l *loop) accept(r *request, e event) {
	if r == nil {
		return
	}
	r.after = l.state.attempt
	switch {
	case l.state.knows(e):
		r.after = l.state.changeAfter
	case e.taken && r.after > 0:
		r.after--
	}
	l.requests = append(l.requests, r)
}

// leave forgets a request for a build, and the build with the last of those who
// wait for it.
func (l *loop) leave(work context.Context, r *request) {
	if !slices.Contains(l.requests, r) {
		return // it was answered in the same moment
	}
	l.requests = slices.DeleteFunc(l.requests, func(other *request) bool { return other == r })
	shared := slices.ContainsFunc(l.requests, func(other *request) bool { return other.building && other.build == r.build })
	switch {
	case !r.building || shared:
	case r.build == 0:
		l.handle(work, item{event: event{kind: rebuildLeft}})
	default:
		l.build.cancel(errBuildLeft)
	}
}

func (l *loop) publish() {
	status := l.scene.status(l.state)
	last := l.published.Load()
	if reflect.DeepEqual(status, last.status) {
		return
	}
	p := &publication{status: status, replaced: make(chan struct{})}
	if l.state.phase == Running {
		p.up = l.scene.up
	}
	l.published.Store(p)
	close(last.replaced)
	if status.State == last.status.State {
		return
	}
	for _, r := range l.requests {
		shown := p.current()
		r.steps.add(Step{Status: &shown})
	}
}

// perform does what can be done at once, and begins the rest.
func (l *loop) perform(work context.Context, e effect) {
	switch e.kind {
	case tellStarting:
		l.observer.Starting(e.generation)
	case tellUp:
		l.observer.Up(e.up)
	case tellDraining:
		l.observer.Draining(e.generation)
	case tellDown:
		l.observer.Down(e.generation, *e.failure.clone())
	case tellUnavailable:
		l.observer.Unavailable(*e.failure.clone())
	case launch:
		l.launch(work, e)
	case end:
		l.end(work)
	case startBuild:
		l.startBuild(work, e.build)
	case cancelBuild:
		l.build.cancel(errBuildStopped)
	case armDrain:
		l.drain.set(e.delay, event{kind: drainOver, attempt: e.attempt})
	case armRetry:
		l.retry.set(e.delay, event{kind: retryDue, attempt: e.attempt})
	case armStable:
		l.stable.set(e.delay, event{kind: stable, attempt: e.attempt})
	}
}

func (l *loop) launch(work context.Context, e effect) {
	a := &attempt{number: e.attempt, done: make(chan struct{})}
	a.order = order{
		generation: e.generation,
		starter:    e.starter,
		first:      e.respawn,
		note: func(text string) {
			l.inbox.put(item{
				event: event{attempt: a.number},
				scene: func(s *scene) { s.note = text },
			})
		},
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancelCause(work)
	l.current = a
	l.group.Go(func() {
		defer close(a.done)
		l.drive(ctx, a)
	})
}

// drive takes an attempt from its order to the end of its process, which is not
// always its own doing.
func (l *loop) drive(ctx context.Context, a *attempt) {
	p, err := l.runner.prepare(ctx, a.order)
	if len(p.launch.Command) > 0 {
		l.inbox.put(item{
			event: event{attempt: a.number},
			scene: func(s *scene) { s.command, s.transport = p.launch.Command, p.launch.Transport },
		})
	}
	if err != nil {
		l.post(a, event{kind: startFailed, failure: failureOf(err, StartFailed)})
		return
	}
	start, cancel := context.WithTimeoutCause(ctx, p.launch.StartTimeout, errStartTimeout)
	defer cancel()
	up, err := l.bringUp(start, a, p)
	for try := 1; try < portTries && errors.Is(err, errPortTaken); try++ {
		// Nobody asked for that port, and so another one will do.
		l.log.Warn("starting the backend again on another port", slog.Any("cause", err))
		if err = a.life.end(ctx); err != nil {
			break
		}
		if p.port, err = choosePort(start, 0); err != nil {
			break
		}
		up, err = l.bringUp(start, a, p)
	}
	if err != nil {
		l.post(a, notReady(a, err))
		return
	}
	l.post(a, event{kind: ready, up: up})
	select {
	case <-a.life.exited():
		status, tail := a.life.exit()
		l.post(a, event{kind: exited, exit: status, tail: tail})
	case <-ctx.Done():
	}
}

// bringUp starts the process of an attempt and waits until it serves.
func (l *loop) bringUp(ctx context.Context, a *attempt, p plan) (*Generation, error) {
	life, err := l.runner.spawn(ctx, p)
	if err != nil {
		return nil, failureOf(err, StartFailed)
	}
	a.life = life
	at := time.Now()
	l.inbox.put(item{
		event: event{attempt: a.number},
		scene: func(s *scene) { s.spawned(a.generation, at, p, life.pid()) },
	})
	l.post(a, event{kind: spawned, generation: a.generation, orders: orders{
		restartOnCrash: p.launch.RestartOnCrash, drain: p.launch.DrainTimeout,
	}})
	return life.ready(ctx)
}

// notReady is the event that follows a failed start.
func notReady(a *attempt, err error) event {
	f := failureOf(err, HandshakeFailed)
	if a.life != nil {
		f.Generation = a.generation
	}
	if respawn, ok := errors.AsType[*link.RespawnError](err); ok {
		return event{kind: respawnNeeded, next: respawn.Next, failure: f}
	}
	return event{kind: startFailed, failure: f}
}

// end cancels the current attempt wherever it is and ends its process.
func (l *loop) end(work context.Context) {
	a := l.current
	a.cancel(errAbandoned)
	l.group.Go(func() {
		<-a.done
		e := event{kind: gone}
		if a.life != nil {
			if err := a.life.end(work); err != nil {
				e.failure = failureOf(err, Survivors)
				e.failure.Generation = a.generation
			}
			e.exit, e.tail = a.life.exit()
			e.deaf = a.life.ignoredInput()
		}
		l.post(a, e)
	})
}

func (l *loop) post(a *attempt, e event) {
	e.attempt = a.number
	l.inbox.put(item{event: e})
}

// settleRequests answers those who wait for what e brought about.
func (l *loop) settleRequests(e event, before state) {
	l.requests = slices.DeleteFunc(l.requests, func(r *request) bool {
		if r.waitsFor(e) {
			if err := l.built(r, e, before); err != nil {
				r.finish(err)
				return true
			}
		}
		over, err := r.answer(l.state)
		if over {
			r.finish(err)
		}
		return over
	})
}

// tellBuilt tells those who wait for a build how it ended.
func (l *loop) tellBuilt(e event) {
	for _, r := range l.requests {
		if r.waitsFor(e) {
			shown := l.scene.built
			r.steps.add(Step{Build: &shown})
		}
	}
}

// built has a request go on after its build; with an error it ends there.
func (l *loop) built(r *request, e event, before state) error {
	switch {
	case before.buildVoid:
		return fail(Stopped, "the backend was stopped during the build")
	case e.failure != nil:
		f := e.failure.clone()
		f.State, f.Generation = l.state.phase, l.state.generation
		return f
	}
	r.building, r.after = false, before.attempt
	return nil
}

// alarm is a timer of the loop; c is nil unless it is set. An alarm that is no
// longer wanted rings all the same: its event is stale then.
type alarm struct {
	c     <-chan time.Time
	event event
}

func (a *alarm) set(d time.Duration, e event) {
	a.c, a.event = time.After(d), e
}

func (a *alarm) ring() item {
	a.c = nil
	return item{event: a.event}
}

// logChange says what has become of the backend, once for each change.
func (l *loop) logChange(before state) {
	s := l.state
	if s.phase == before.phase && s.attempt == before.attempt {
		return
	}
	number := s.generation
	unborn := before.phase == Starting && !before.spawned && (s.phase == Failed || s.phase == Backoff)
	if unborn {
		number++ // the start that failed is the one that was told of, though it came to nothing
	}
	log := l.log.With(slog.Uint64("generation", number))
	switch s.phase {
	case Idle:
		log.Info("backend is idle")
	case Building:
		log.Info("building before the start")
	case Starting:
		l.log.Info("starting backend", slog.Uint64("generation", s.generation+1))
	case Running:
		log.Info("backend is up", slog.Int("pid", l.scene.pid), slog.Int("port", l.scene.port),
			slog.String("era", l.scene.up.Facts().Era.String()),
			slog.String("version", l.scene.up.Facts().Version))
	case Draining:
		log.Info("draining backend", slog.Duration("timeout", s.orders.drain))
	case Stopping:
		log.Info("stopping backend", slog.String("why", s.ended))
	case Backoff:
		log.Warn("backend crashed", slog.String("exit", s.failure.Exit),
			slog.Int("crashes", len(s.crashes)), slog.Duration("retry_in", s.delay))
	case Failed:
		log = log.With(slog.String("reason", string(s.failure.Reason)), slog.String("message", s.failure.Message))
		if unborn {
			log.Error("start of the backend failed")
		} else {
			log.Error("backend given up")
		}
	}
}
