package relay

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// parked is a call of a modern client on a legacy backend that has asked for
// something. See dialogue.
type parked struct {
	client   *client
	link     *link
	leg      *leg
	binding  [32]byte
	dialogue dialogue
	call     *call // the client's request that waits for it now
	gather   *alarm
	state    string // minted for the client's next retry
	// answer is what the backend said, and lost why it will not, while no
	// request waited.
	answer wire.Message
	lost   *Failure
}

// pending is what a retry with a minted requestState goes on with.
type pending struct {
	client  *client
	binding [32]byte
	parked  *parked
	urls    *urlRound
	expiry  *alarm
}

// park takes a question for a modern client, which sees it as input_required.
func (r *Router) park(l *link, server wire.ID, in era.Input, lg *leg) {
	p := lg.parked
	if p == nil {
		call := lg.call
		p = &parked{
			client: call.client, link: l, leg: lg, call: call,
			binding:  era.Binding(call.req.Method, call.req.Params),
			dialogue: dialogue{attached: true},
		}
		lg.parked = p
		l.parked[p] = struct{}{}
	}
	if !p.dialogue.ask(server, in) {
		r.respondBackend(l, p.client, refuseQuestion(server,
			fmt.Sprintf("%d questions of this call are open, and no more may be", maxQuestions)))
		return
	}
	r.gather(p)
}

// gather answers the waiting request with input_required, after a moment in
// which other questions may come.
func (r *Router) gather(p *parked) {
	if p.gather == nil && p.dialogue.due() {
		p.gather = r.agenda.after(gatherFor, func() {
			p.gather = nil
			if p.dialogue.due() {
				r.requireInput(p)
			}
		})
	}
}

func (r *Router) requireInput(p *parked) {
	call := p.call
	p.call, p.leg.call = nil, nil
	call.leg, call.stage = nil, callHere
	p.state = r.mintState(&pending{client: p.client, binding: p.binding, parked: p})
	r.succeed(call, call.front.InputRequired(p.dialogue.detach(), p.state))
}

// mintState returns a requestState that cannot be guessed, and forgets it when
// its time is up.
func (r *Router) mintState(p *pending) string {
	var secret [16]byte
	rand.Read(secret[:])
	state := r.mintName() + "-" + base64.RawURLEncoding.EncodeToString(secret[:])
	r.states[state] = p
	p.expiry = r.agenda.after(stateLife, func() {
		delete(r.states, state)
		if p.parked != nil {
			r.cancelParked(p.parked, wire.Quote("the client did not come back with the input"))
		}
	})
	return state
}

// maxUnfinished bounds the requests of one client that were answered with
// input_required and that it has not come back to. Those that wait on a backend
// are bounded by what that may ask.
const maxUnfinished = 1024

func (r *Router) unfinished(c *client) int {
	n := 0
	for _, p := range r.states {
		if p.client == c {
			n++
		}
	}
	return n
}

// isRetry reports whether a request goes on with something that was begun here,
// or by an earlier daemon.
func (r *Router) isRetry(call *call) bool {
	return call.req.Source == era.Modern && strings.HasPrefix(call.params.state, statePrefix)
}

// retry takes a client's retry with a requestState of ours: single use, and only
// for what it was given for.
func (r *Router) retry(call *call) {
	state := call.params.state
	p := r.states[state]
	if p == nil || p.client != call.client || p.binding != era.Binding(call.req.Method, call.req.Params) {
		r.fail(call, r.badState(state))
		return
	}
	delete(r.states, state)
	r.agenda.stop(p.expiry)
	if p.urls != nil {
		r.retryAfterURL(call, p.urls)
		return
	}
	r.attach(call, p.parked)
}

// badState refuses a requestState that nothing is known of.
func (r *Router) badState(state string) *wire.Error {
	message := "Invalid or expired requestState"
	if !strings.HasPrefix(state, statePrefix+r.config.Instance+"-") {
		message += ": backend restarted; call again"
	}
	return &wire.Error{Code: wire.CodeInvalidParams, Message: message}
}

// attach lets a retry take the place of the request that was answered with
// input_required.
func (r *Router) attach(call *call, p *parked) {
	responses, _ := era.InputResponses(call.req.Params)
	for _, answer := range p.dialogue.retry(responses) {
		r.respondBackend(p.link, p.client, answer)
	}
	p.state = ""
	switch {
	case p.lost != nil:
		r.failOwn(call, *p.lost)
	case p.answer.Kind != 0:
		r.completed(p.link, call, p.answer)
	default:
		p.call, p.leg.call = call, call
		call.stage, call.link, call.leg, call.delivered = callSent, p.link, p.leg, true
		if call.req.Level != "" {
			r.adjustLevel(p.link, "")
		}
		r.gather(p)
	}
}

// parkedAnswered takes the backend's answer to a call that it has asked about.
func (r *Router) parkedAnswered(l *link, lg *leg, m wire.Message) {
	p := lg.parked
	r.unpark(p)
	call := p.call
	if call == nil {
		p.answer = m
		p.dialogue.close()
		return
	}
	call.leg = nil
	r.completed(l, call, m)
}

// unpark ends the parking of a call whose end is known.
func (r *Router) unpark(p *parked) {
	delete(p.link.parked, p)
	r.agenda.stop(p.gather)
	p.gather = nil
}

// parkedLost notes that a call that is parked will not be answered.
func (r *Router) parkedLost(lg *leg, why Failure) {
	p := lg.parked
	r.unpark(p)
	if call := p.call; call != nil {
		call.leg = nil
		r.loseCall(call, why)
		return
	}
	p.lost = &why
	p.dialogue.close()
}

// cancelParked ends a call for which nobody will come back.
func (r *Router) cancelParked(p *parked, reason []byte) {
	r.unpark(p)
	for _, answer := range p.dialogue.abandon() {
		r.respondBackend(p.link, p.client, answer)
	}
	if st := r.states[p.state]; st != nil {
		r.agenda.stop(st.expiry)
		delete(r.states, p.state)
	}
	if p.link.legs[p.leg.id] == p.leg {
		delete(p.link.legs, p.leg.id)
		r.cancelBackend(p.link, p.leg.id, p.client, reason)
	}
}

// abandonParked ends what a client that is gone has left between two requests.
func (r *Router) abandonParked(c *client) {
	for state, p := range r.states {
		if p.client != c {
			continue
		}
		r.agenda.stop(p.expiry)
		delete(r.states, state)
		if p.parked != nil {
			r.cancelParked(p.parked, wire.Quote("the client is gone"))
		}
	}
}
