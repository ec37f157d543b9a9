package relay

import (
	"maps"
	"slices"
)

// stage is what the router knows of the backend.
type stage uint8

const (
	stageIdle        stage = iota // nothing was heard yet
	stageStarting                 // a generation is coming up
	stageUp                       // it serves
	stageDraining                 // it serves what is in flight and nothing new
	stageDown                     // it is gone, the next may follow
	stageUnavailable              // none is coming up, or not soon
)

// backend is the loop's view of the backend.
type backend struct {
	stage      stage
	number     uint64     // of the newest generation heard of
	generation Generation // while up or draining
	failure    Failure    // why it is down or unavailable
	drained    bool       // Drained was called for the generation
	// lastID is that of the requests on the links that all share. One that replaces
	// another may have the same conversation, in which the other's answers still
	// come.
	lastID int64
}

func (b *backend) serves() bool { return b.stage == stageUp }

// state names the stage in the words of status.
func (b *backend) state() string {
	switch b.stage {
	case stageIdle:
		return "idle"
	case stageStarting:
		return "starting"
	case stageUp:
		return "running"
	case stageDraining:
		return "draining"
	case stageDown, stageUnavailable:
		if b.failure.State != "" {
			return b.failure.State
		}
	}
	return "not running"
}

// live reports whether a link belongs to the generation that serves.
func (b *backend) live(l *link) bool {
	return b.generation != nil && l.generation == b.number && l.state != linkClosed
}

func (e startingEvent) handle(r *Router) {
	if e.generation < r.backend.number || r.backend.generation != nil {
		return
	}
	r.backend = backend{stage: stageStarting, number: e.generation, failure: r.backend.failure}
}

func (e upEvent) handle(r *Router) {
	number := e.generation.Number()
	if number < r.backend.number {
		return
	}
	if r.backend.generation != nil {
		r.takeDown(Failure{Reason: ReasonRestarted, Generation: r.backend.number})
	}
	r.backend = backend{stage: stageUp, number: number, generation: e.generation}
	r.log.Debug("backend is up", "generation", number, "held", len(r.held.calls))
	r.reopenLinks()
	r.releaseHeld()
	for _, c := range r.order {
		r.publishPeer(c)
		r.announce(c)
	}
}

func (e drainingEvent) handle(r *Router) {
	if e.generation != r.backend.number || r.backend.stage != stageUp {
		return
	}
	r.backend.stage = stageDraining
	r.recall()
}

// recall lets what is not on its way to the backend yet wait for the next
// generation.
func (r *Router) recall() {
	for l := range r.links {
		waiting := l.waiting
		l.waiting = nil
		for _, call := range waiting {
			call.stage = callHere
			r.forward(call)
		}
	}
	for _, c := range r.order {
		r.unfenceAll(c)
	}
}

// checkDrained reports, once each, that nothing of a client is in flight on a
// generation that is about to be stopped, and in a daemon that is about to end.
func (r *Router) checkDrained() {
	b := &r.backend
	draining := b.stage == stageDraining && !b.drained
	quieting := r.closing != nil && !r.isQuiet
	if !draining && !quieting {
		return
	}
	for l := range r.links {
		if l.busy() {
			return
		}
	}
	if quieting {
		r.isQuiet = true
		close(r.quiet)
	}
	if draining {
		b.drained = true
		r.config.Backend.Drained(b.number)
	}
}

func (e downEvent) handle(r *Router) {
	if e.generation != r.backend.number {
		return
	}
	why := e.why
	if why.Reason == "" {
		why.Reason = ReasonLost
	}
	if why.Generation == 0 {
		why.Generation = e.generation
	}
	r.takeDown(why)
	r.backend = backend{stage: stageDown, number: e.generation, failure: why}
}

// takeDown ends everything that belongs to the generation: what is in flight is
// answered in this very turn.
func (r *Router) takeDown(why Failure) {
	r.backend.stage = stageDown
	r.backend.failure = why
	r.backend.generation = nil
	r.shared = nil
	for _, l := range slices.Collect(maps.Keys(r.links)) {
		r.closeLink(l, why)
	}
	for _, c := range r.order {
		c.link = nil
		c.session.gate.set(true)
		r.unfenceAll(c)
		r.publishPeer(c)
	}
}

func (e unavailableEvent) handle(r *Router) {
	if r.backend.generation != nil || e.why.Generation < r.backend.number && e.why.Generation != 0 {
		return
	}
	r.backend.stage = stageUnavailable
	r.backend.failure = e.why
	if e.why.Reason == reasonStopped {
		// That is the answer to those who wait now; the next request starts the
		// backend again.
		r.backend.stage = stageIdle
	}
	if e.why.Waiting || r.handingOver() {
		return
	}
	for _, call := range r.held.takeAll() {
		call.stage = callHere
		r.failForWant(call, e.why)
	}
}
