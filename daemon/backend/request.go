package backend

import (
	"context"
	"fmt"
	"sync"
)

// maxSteps bounds the steps that wait for a slow caller: a screenful of build
// output many times over, while state changes are few. Past it lines are left
// out, and a line says how many.
const maxSteps = 1000

// request is a Start, Restart, Stop or FollowChange that somebody waits for. The
// loop owns it, but for steps and done, which lead back to the caller.
type request struct {
	kind eventKind
	// before is RestartOptions.Before of a rebuild.
	before func() error
	// keep is RestartOptions.Keep.
	keep func(cause error) bool
	// change is the number of a change, as for FollowChange.
	change uint64
	// building: it waits for a build, with the tag build once that has begun.
	building bool
	build    uint64
	// after is the attempt that was current when it took effect; a later one
	// fulfils it.
	after uint64

	steps *steps
	done  chan error // has room for the one error
}

// waitsFor reports whether e is the end of the build that the request waits for.
func (r *request) waitsFor(e event) bool {
	return e.kind == built && r.building && r.build == e.build
}

// answer returns whether the request is over in that state, and its error.
func (r *request) answer(s state) (bool, error) {
	if r.kind == stopAsked {
		return r.answerStop(s)
	}
	if r.kind == outputChanged && s.phase == Idle && !s.closing {
		return true, nil // a change starts nothing that nobody needs
	}
	switch {
	case s.closing:
		return true, fail(ShuttingDown, "devproxy is shutting down")
	case r.building:
		return false, nil
	case s.phase == Running && (r.kind == startAsked || s.attempt > r.after):
		return true, nil
	case s.phase == Failed:
		return true, s.failure.clone()
	case s.phase == Idle:
		return true, fail(Stopped, "the backend was stopped meanwhile")
	}
	return false, nil
}

func (r *request) answerStop(s state) (bool, error) {
	switch {
	case s.phase == Failed:
		return true, s.failure.clone()
	case s.phase == Idle, s.attempt > r.after:
		return true, nil
	}
	return false, nil
}

// finish ends the request; it is called once.
func (r *request) finish(err error) { r.done <- err }

// steps is what a caller has yet to be told. Adding never blocks.
type steps struct {
	mu      sync.Mutex
	queue   []Step
	omitted int
	wake    chan struct{} // has room for one
}

func newSteps() *steps { return &steps{wake: make(chan struct{}, 1)} }

func (q *steps) add(step Step) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if step.Output != nil && len(q.queue) >= maxSteps {
		q.omitted++
		return
	}
	if q.omitted > 0 {
		line := fmt.Sprintf("… %d lines left out", q.omitted)
		q.queue = append(q.queue, Step{Output: &line})
		q.omitted = 0
	}
	q.queue = append(q.queue, step)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *steps) take() []Step {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.queue
	q.queue = nil
	return queue
}

// deliver calls step with what is there, in order.
func (q *steps) deliver(step func(Step)) {
	for _, s := range q.take() {
		step(s)
	}
}

// ask puts the request to the loop and passes its steps on until it is over.
func (s *Supervisor) ask(ctx context.Context, r *request, step func(Step)) error {
	if step == nil {
		step = func(Step) {}
	}
	r.steps, r.done = newSteps(), make(chan error, 1)
	if !s.inbox.put(item{event: event{kind: r.kind, change: r.change}, request: r}) {
		return fail(ShuttingDown, "devproxy is shutting down")
	}
	for {
		select {
		case <-r.steps.wake:
			r.steps.deliver(step)
		case err := <-r.done:
			r.steps.deliver(step)
			return err
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if r.kind == rebuildAsked && (r.keep == nil || !r.keep(cause)) {
				s.inbox.put(item{left: r})
			}
			return cause
		}
	}
}
