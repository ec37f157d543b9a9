package relay

import (
	"fmt"
	"slices"
)

const (
	// maxHeld bounds the requests that wait for a generation or a link. A client
	// opens a handful at its start; the bound is for a flood.
	maxHeld = 4096
	// maxHeldBytes bounds their size together.
	maxHeldBytes = 64 << 20
)

// holding is the requests that wait for a generation, in order, and the count of
// all that wait for anything before they are sent.
type holding struct {
	calls []*call
	count int
	bytes int
}

func (h *holding) remove(call *call) { h.calls = slices.DeleteFunc(h.calls, call.is) }

func (h *holding) takeAll() []*call {
	calls := h.calls
	h.calls = nil
	return calls
}

// hold lets a call wait for a generation, and says that one is needed, unless
// it is the next daemon that will start it.
func (r *Router) hold(call *call) {
	if !r.wait(call, callHeld) {
		return
	}
	r.held.calls = append(r.held.calls, call)
	if r.closing == nil {
		r.need(call)
	}
}

// need asks for a generation. The handshake is that of the client who came
// first.
func (r *Router) need(call *call) {
	if len(r.held.calls) <= 1 {
		r.starter, r.starterPeer = call.client, cloned(call.req.Peer)
		r.publishGreeting()
	}
	r.config.Backend.Need(call.req.Peer)
}

// wait counts a call among those who wait, and sets the end of its patience. It
// reports false if it has answered the call instead, because too many wait.
func (r *Router) wait(call *call, stage callStage) bool {
	call.stage = stage
	if call.counted {
		return true
	}
	if r.held.count >= maxHeld || r.held.bytes+call.size > maxHeldBytes {
		call.stage = callHere
		r.failOwn(call, Failure{
			Reason: ReasonTooManyHeld, State: r.backend.state(), Generation: r.backend.number,
			Message: fmt.Sprintf("%d requests of %d bytes wait for the backend already, and no more than %d of %d bytes may",
				r.held.count, r.held.bytes, maxHeld, maxHeldBytes),
		})
		return false
	}
	call.counted = true
	r.held.count++
	r.held.bytes += call.size
	call.deadline = r.agenda.after(r.config.RequestWait, func() { r.waitedOut(call) })
	return true
}

// unwait ends the wait of a call, whatever it waited for.
func (r *Router) unwait(call *call) {
	if !call.counted {
		return
	}
	call.counted = false
	r.held.count--
	r.held.bytes -= call.size
	r.agenda.stop(call.deadline)
	call.deadline = nil
}

// waitedOut answers a call whose patience has ended.
func (r *Router) waitedOut(call *call) {
	why := r.waitFailure(call)
	r.detach(call, nil)
	r.failForWant(call, why)
}

func (r *Router) waitFailure(call *call) Failure {
	b := &r.backend
	if r.handingOver() {
		return Failure{
			Reason: ReasonWaited, State: b.state(), Generation: b.number,
			Message: fmt.Sprintf("the backend was not ready within %v: devproxy itself is being restarted", r.config.RequestWait),
		}
	}
	if b.stage == stageUnavailable {
		return b.failure
	}
	why := Failure{
		Reason: ReasonWaited, State: b.state(), Generation: b.number,
		Message: fmt.Sprintf("the backend was not ready within %v (it is %s)", r.config.RequestWait, b.state()),
	}
	if b.stage == stageDown {
		why.Exit = b.failure.Exit
		if b.failure.Message != "" {
			why.Message += "; before that: " + b.failure.Message
		}
	}
	if call.stage == callOpening && call.link.openErr != nil {
		why.Reason = ReasonLinkFailed
		why.Message = fmt.Sprintf("no connection to the backend within %v: %s", r.config.RequestWait, r.masked(call.link.openErr.Error()))
	}
	return why
}

// releaseHeld brings all held calls to where they go now, in order.
func (r *Router) releaseHeld() {
	for _, call := range r.held.takeAll() {
		call.stage = callHere
		r.forward(call)
	}
}
