package relay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// gatherFor is how long a question of a legacy backend waits for others
	// before a modern client gets to see them together: the TypeScript SDK asks
	// several at once.
	gatherFor = 20 * time.Millisecond
	// stateLife is how long a client may take to retry: what the TypeScript
	// SDK's own shim allows for each leg.
	stateLife = 10 * time.Minute
	// seekFor is how long a question waits for a client that can be asked, if
	// none can at the moment.
	seekFor = 5 * time.Second
	// pollAfter is the pause before a call is made again whose backend has asked
	// for nothing but that.
	pollAfter = 250 * time.Millisecond
	// urlWait is how long a call waits for a page that the user has agreed to
	// visit, before it is made again all the same.
	urlWait = time.Minute
	// maxAsks bounds what one backend may have asked and not got answered.
	maxAsks = 1024
	// maxAskBytes bounds the size of it, as far as it is kept: a question that a
	// client was sent is not.
	maxAskBytes = 32 << 20
)

// statePrefix marks the request states that are minted here.
const statePrefix = "devproxy-"

// ask is a request of ours to a legacy client.
type ask struct {
	id     wire.ID
	client *client
	method string
	// link and server are where the answer goes: to the backend that asked, or
	// nil for what a modern backend wants for a call.
	link   *link
	server wire.ID
	token  string // the raw progress token in it
	// call and key are the call and the entry of its inputRequests.
	call *call
	key  string
}

// seeker is a question of a backend on a shared link for which there is nobody
// to ask yet.
type seeker struct {
	link   *link
	server wire.ID
	input  era.Input
	expiry *alarm
}

// question takes a request of the backend.
func (r *Router) question(l *link, m wire.Message, via int64) {
	in := era.Input{Method: m.Method, Params: m.Params}
	switch {
	case m.Method == methodPing:
		r.respondBackend(l, l.owner, reply{server: m.ID, result: []byte("{}")})
	case len(l.asks)+len(l.parked)+len(r.seekers) >= maxAsks:
		r.respondBackend(l, l.owner, refuseQuestion(m.ID,
			fmt.Sprintf("%d requests to clients are open, and no more may be", maxAsks)))
	case r.askedBytes(l)+len(m.ID)+len(m.Params) > maxAskBytes:
		r.respondBackend(l, l.owner, refuseQuestion(m.ID,
			fmt.Sprintf("requests to clients of more than %d bytes would be open", maxAskBytes)))
	default:
		r.route(l, m.ID, in, via)
	}
}

// askedBytes is the size of what is kept of the open questions of a link.
func (r *Router) askedBytes(l *link) int {
	size := 0
	for server, a := range l.asks {
		size += len(server) + len(a.token)
	}
	for p := range l.parked {
		for _, q := range p.dialogue.open {
			size += len(q.server) + len(q.input.Params)
		}
	}
	for _, s := range r.seekers {
		size += len(s.server) + len(s.input.Params)
	}
	return size
}

// route finds whom to ask: whoever's call the question came with; else, newest
// first, those whose call is in flight; else the client of the link; else any
// legacy client that can be asked.
func (r *Router) route(l *link, server wire.ID, in era.Input, via int64) {
	if lg := l.legs[via]; lg != nil && (lg.call != nil || lg.parked != nil) {
		r.routeTo(l, server, in, lg)
		return
	}
	if via != 0 && !l.interest.mine(via) {
		// The call it belongs to was cancelled.
		r.respondBackend(l, l.owner, declined(server, in.Method))
		return
	}
	if l.owner != nil && l.owner.said.Initialized {
		r.askOrRefuse(l, server, in, l.owner)
		return
	}
	if r.routeInFlight(l, server, in) || r.routeIdle(l, server, in) {
		return
	}
	s := &seeker{link: l, server: server, input: in}
	s.expiry = r.agenda.after(seekFor, func() {
		r.dropSeeker(s)
		r.respondBackend(l, l.owner, reply{server: server, err: &wire.Error{
			Code: wire.CodeMethodNotFound, Message: "no client is there to be asked for " + in.Method}})
	})
	r.seekers = append(r.seekers, s)
}

// routeTo asks the client of a certain call.
func (r *Router) routeTo(l *link, server wire.ID, in era.Input, lg *leg) {
	c, peer := lg.asker()
	if err := peer.Can(in.Method, in.Params); err != nil {
		r.respondBackend(l, c, cannot(server, err))
		return
	}
	if peer.Era == era.Legacy {
		r.askClient(l, server, in, c)
		return
	}
	r.park(l, server, in, lg)
}

// asker is the client of a leg, as it presented itself with the call.
func (lg *leg) asker() (*client, era.Peer) {
	if lg.call != nil {
		return lg.call.client, lg.call.req.Peer
	}
	return lg.parked.client, lg.parked.client.peer
}

// carries reports whether a question can go to the client of the leg: to any
// legacy one, to a modern one only in answer to certain methods.
func (lg *leg) carries() bool {
	switch {
	case lg.parked != nil:
		return true
	case lg.call == nil:
		return false
	}
	return lg.call.req.Source == era.Legacy || takesInput(lg.call.req.Method)
}

func (r *Router) routeInFlight(l *link, server wire.ID, in era.Input) bool {
	var refusal error
	for _, id := range slices.Backward(sortedIDs(l.legs)) {
		lg := l.legs[id]
		if !lg.carries() {
			continue
		}
		_, peer := lg.asker()
		err := peer.Can(in.Method, in.Params)
		if err == nil {
			r.routeTo(l, server, in, lg)
			return true
		}
		refusal = cmp.Or(refusal, err)
	}
	if refusal != nil {
		r.respondBackend(l, l.owner, cannot(server, refusal))
	}
	return refusal != nil
}

// routeIdle asks the newest legacy client that can be asked.
func (r *Router) routeIdle(l *link, server wire.ID, in era.Input) bool {
	for _, c := range slices.Backward(r.clientsOf(l)) {
		if c.ready && c.said.Peer.Can(in.Method, in.Params) == nil {
			r.askClient(l, server, in, c)
			return true
		}
	}
	return false
}

// seekersMayAsk tries again for questions that found nobody.
func (r *Router) seekersMayAsk() {
	for _, s := range slices.Clone(r.seekers) {
		if r.routeInFlight(s.link, s.server, s.input) || r.routeIdle(s.link, s.server, s.input) {
			r.dropSeeker(s)
		}
	}
}

func (r *Router) dropSeeker(s *seeker) {
	r.agenda.stop(s.expiry)
	r.seekers = slices.DeleteFunc(r.seekers, func(other *seeker) bool { return other == s })
}

// dropSeekers forgets the questions of a link that is gone.
func (r *Router) dropSeekers(l *link) {
	for _, s := range slices.Clone(r.seekers) {
		if s.link == l {
			r.dropSeeker(s)
		}
	}
}

func cannot(server wire.ID, err error) reply {
	if missing, ok := errors.AsType[*era.MissingError](err); ok {
		return reply{server: server, err: missing.Wire()}
	}
	return reply{server: server, err: &wire.Error{Code: wire.CodeMethodNotFound, Message: err.Error()}}
}

// askOrRefuse asks the client of a link, if it is one that can be asked.
func (r *Router) askOrRefuse(l *link, server wire.ID, in era.Input, c *client) {
	if err := c.said.Peer.Can(in.Method, in.Params); err != nil {
		r.respondBackend(l, c, cannot(server, err))
		return
	}
	r.askClient(l, server, in, c)
}

// askClient passes a question of a legacy backend on to a legacy client.
func (r *Router) askClient(l *link, server wire.ID, in era.Input, c *client) {
	a := &ask{
		id: r.mintID(), client: c, method: in.Method,
		link: l, server: server, token: string(era.TokenOf(in.Params)),
	}
	if !r.sendAsk(a, in.Params) {
		r.respondBackend(l, c, reply{server: server, err: r.tooLargeError()})
		return
	}
	l.asks[server] = a
	if in.Method == methodElicit {
		l.owners.noteElicitation(in.Params, c)
	}
}

// sendAsk sends a request to a client, unless it is too large for it.
func (r *Router) sendAsk(a *ask, params []byte) bool {
	frame := wire.NewRequest(a.id, a.method, params).Bytes()
	if r.tooLarge(frame) {
		r.log.Warn("request to the client is larger than [proxy] max_message",
			"session", a.client.session.id, "method", a.method, "size", len(frame))
		return false
	}
	a.client.asks[a.id] = a
	r.push(a.client, frame)
	return true
}

func (r *Router) tooLargeError() *wire.Error {
	e := Failure{Reason: ReasonTooLarge}.Error()
	return &wire.Error{Code: wire.CodeInternal, Message: e.Message, Data: e.Data}
}

// mintID returns an id for a request to a client.
func (r *Router) mintID() wire.ID { return wire.StringID(r.mintName()) }

func (r *Router) mintName() string {
	r.lastKey++
	return statePrefix + r.config.Instance + "-" + strconv.FormatUint(r.lastKey, 10)
}

// answered takes a response of a client to one of our requests.
func (r *Router) answered(c *client, m wire.Message) {
	a := c.asks[m.ID]
	if a == nil {
		// It was withdrawn, or asked by another daemon.
		return
	}
	delete(c.asks, a.id)
	if a.call != nil {
		r.roundAnswered(a, m)
		return
	}
	delete(a.link.asks, a.server)
	answer := reply{server: a.server, result: m.Result}
	if m.Kind == wire.Failure {
		answer.err = errorOf(m)
	}
	r.respondBackend(a.link, c, answer)
}

// errorOf returns the error of a failure, readable or not.
func errorOf(m wire.Message) *wire.Error {
	e, err := wire.ParseError(m.Error)
	if err != nil {
		return &wire.Error{Code: wire.CodeInternal, Message: "the error of the answer cannot be read: " + err.Error()}
	}
	return e
}

// withdraw tells a client that the answer to a question is not wanted any more.
func (r *Router) withdraw(a *ask, reason []byte) {
	delete(a.client.asks, a.id)
	params := new(wire.Object)
	params.Set("requestId", []byte(a.id))
	if reason != nil {
		params.Set("reason", reason)
	}
	r.notify(a.client, noteCancelled, params.Bytes())
}

// withdrawAsks withdraws all questions of a link that is gone.
func (r *Router) withdrawAsks(l *link) {
	for _, server := range slices.Sorted(maps.Keys(l.asks)) {
		r.withdraw(l.asks[server], wire.Quote("the server has ended"))
	}
	clear(l.asks)
}

// abandonAsks declines what a client was asked that will not answer any more.
func (r *Router) abandonAsks(c *client) {
	for _, id := range slices.Sorted(maps.Keys(c.asks)) {
		a := c.asks[id]
		if a.link != nil {
			delete(a.link.asks, a.server)
			r.respondBackend(a.link, c, declined(a.server, a.method))
		}
	}
	clear(c.asks)
}

// backendCancelled takes a notifications/cancelled of the backend: it takes a
// question back, or ends one of our listens.
func (r *Router) backendCancelled(l *link, params []byte) {
	id := era.CancelledID(params)
	if a := l.asks[id]; a != nil {
		delete(l.asks, id)
		r.withdraw(a, era.CancelReason(params))
		return
	}
	for p := range l.parked {
		if p.dialogue.withdraw(id) {
			return
		}
	}
	for _, s := range slices.Clone(r.seekers) {
		if s.link == l && s.server == id {
			r.dropSeeker(s)
			return
		}
	}
	if own, ok := id.Echoed(); ok && l.facts.Era == era.Modern {
		r.interestAnswered(l, own, wire.NewResponse(id, nil))
	}
}
