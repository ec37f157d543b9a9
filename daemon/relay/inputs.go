package relay

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
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
		r.respondBackend(l, l.owner, reply{server: m.ID, err: &wire.Error{Code: wire.CodeInternal, Message: "too many requests to the client are open"}})
	default:
		r.route(l, m.ID, in, via)
	}
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

// takesInput tells the methods that may be answered with input_required.
func takesInput(method string) bool {
	return method == methodToolsCall || method == methodPromptsGet || method == methodRead
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
	if own, ok := id.Int(); ok && l.facts.Era == era.Modern {
		r.interestAnswered(l, own, wire.NewResponse(id, nil))
	}
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
		r.respondBackend(l, p.client, reply{server: server, err: &wire.Error{Code: wire.CodeInternal, Message: "the call has too many open questions"}})
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

// isRetry reports whether a request goes on with something that was begun here,
// or by an earlier daemon.
func (r *Router) isRetry(call *call) bool {
	return call.req.Source == era.Modern && takesInput(call.req.Method) &&
		strings.HasPrefix(era.RequestState(call.req.Params), statePrefix)
}

// retry takes a client's retry with a requestState of ours: single use, and only
// for what it was given for.
func (r *Router) retry(call *call) {
	state := era.RequestState(call.req.Params)
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
		call.stage, call.link, call.leg = callSent, p.link, p.leg
		if call.req.Level != "" {
			r.adjustLevel(p.link)
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

// startRound asks a legacy client for what a modern backend wants for its call.
func (r *Router) startRound(l *link, call *call, res era.Result) {
	if call.round == nil {
		call.round = new(round)
	}
	if !call.round.begin(res.Inputs, res.State) {
		r.inputFailed(call, "the server asked for input too often")
		return
	}
	for _, in := range res.Inputs {
		if err := call.req.Peer.Can(in.Method, in.Params); err != nil {
			r.inputFailed(call, err.Error())
			return
		}
	}
	call.stage, call.link = callAsking, l
	l.asking[call] = struct{}{}
	if len(res.Inputs) == 0 {
		call.pause = r.agenda.after(pollAfter, func() { r.again(call) })
		return
	}
	for _, in := range res.Inputs {
		a := &ask{id: r.mintID(), client: call.client, method: in.Method, call: call, key: in.Key}
		if !r.sendAsk(a, call.front.Ask(in, r.mintName())) {
			r.withdrawRound(call, nil)
			r.inputFailed(call, "the server's request for input is larger than [proxy] max_message allows")
			return
		}
	}
}

// roundAnswered takes one of the client's answers.
func (r *Router) roundAnswered(a *ask, m wire.Message) {
	call := a.call
	if m.Kind == wire.Failure {
		r.withdrawRound(call, nil)
		r.inputFailed(call, a.method+": "+errorOf(m).Message)
		return
	}
	if len(m.Result) == 0 || m.Result[0] != '{' {
		r.withdrawRound(call, nil)
		r.inputFailed(call, a.method+": the client's answer is no object")
		return
	}
	if call.round.answer(a.key, m.Result) {
		r.again(call)
	}
}

// again makes a call again with the inputs that were asked for.
func (r *Router) again(call *call) {
	l := call.link
	delete(l.asking, call)
	call.pause = nil
	if l.state != linkOpen {
		r.loseCall(call, Failure{Reason: ReasonLinkFailed, State: r.backend.state(), Generation: l.generation})
		return
	}
	lg := r.newLeg(call, l)
	params := l.back.Retry(call.req, token(call, lg), call.round.responses(), call.round.state)
	r.requestBackend(l, lg.id, call.client, call.req.Method, params, call.req.Peer)
}

// withdrawRound ends what a client is being asked for a call.
func (r *Router) withdrawRound(call *call, reason []byte) {
	delete(call.link.asking, call)
	r.agenda.stop(call.pause)
	call.pause = nil
	for _, id := range slices.Sorted(maps.Keys(call.client.asks)) {
		if a := call.client.asks[id]; a.call == call {
			r.withdraw(a, reason)
		}
	}
	call.stage = callHere
}

// inputFailed answers a call whose backend does not get what it asked for, as
// the TypeScript server's own shim for legacy clients does.
func (r *Router) inputFailed(call *call, text string) {
	call.stage = callHere
	if call.req.Method == methodToolsCall {
		r.succeed(call, call.front.ToolResult(text, true, nil))
		return
	}
	r.fail(call, &wire.Error{Code: wire.CodeInternal, Message: text})
}

// urlRound is a call of a modern client that a legacy backend refused with
// -32042 until the user has visited some pages (ERAS C.7, step 9).
type urlRound struct {
	count    int
	open     []string        // elicitation ids asked for, by the position of their key
	accepted map[string]bool // what the user said to those asked for before
	waits    map[string]struct{}
	waited   map[string]struct{} // those whose completion was awaited once
}

// urlRequired takes a -32042.
func (r *Router) urlRequired(l *link, call *call, e *wire.Error) {
	elicitations := era.URLElicitations(e)
	if call.urls == nil {
		call.urls = &urlRound{accepted: make(map[string]bool), waits: make(map[string]struct{}), waited: make(map[string]struct{})}
	}
	u := call.urls
	u.count++
	if len(elicitations) == 0 || !takesInput(call.req.Method) || call.req.Peer.Can(methodElicit, elicitations[0].Params) != nil {
		result, refusal := call.front.Failure(call.req, l.facts.Era, e)
		if refusal != nil {
			r.fail(call, refusal)
			return
		}
		r.succeed(call, result)
		return
	}
	if u.count > maxRounds {
		r.inputFailed(call, "the server asked for the same pages too often")
		return
	}
	for _, el := range elicitations {
		accepted, known := u.accepted[el.ID]
		_, waited := u.waited[el.ID]
		switch {
		case !known || el.ID == "":
		case !accepted:
			r.inputFailed(call, "the user did not agree to open the page that the server needs: "+e.Message)
			return
		case waited:
			r.inputFailed(call, "the page that the server needs was not completed: "+e.Message)
			return
		default:
			u.waits[el.ID] = struct{}{}
		}
	}
	if len(u.waits) > 0 {
		r.awaitURL(l, call)
		return
	}
	u.open = nil
	inputs := make([]era.Input, len(elicitations))
	for i, el := range elicitations {
		u.open = append(u.open, el.ID)
		inputs[i] = el.Input(urlKey(i))
	}
	state := r.mintState(&pending{client: call.client, binding: era.Binding(call.req.Method, call.req.Params), urls: u})
	r.succeed(call, call.front.InputRequired(inputs, state))
}

func urlKey(i int) string { return "u" + strconv.Itoa(i+1) }

// retryAfterURL makes the call anew, now that the client has answered.
func (r *Router) retryAfterURL(call *call, u *urlRound) {
	responses, _ := era.InputResponses(call.req.Params)
	for i, id := range u.open {
		for _, response := range responses {
			if response.Key == urlKey(i) {
				action, _ := memberString(response.Result, "action")
				u.accepted[id] = action == "accept"
			}
		}
	}
	call.urls = u
	call.req.Params = withoutRetry(call.req.Params)
	r.forward(call)
}

// withoutRetry returns params without what makes a request a retry.
func withoutRetry(params []byte) []byte {
	o, err := wire.ParseObject(params)
	if err != nil {
		return params
	}
	o.Delete("inputResponses")
	o.Delete("requestState")
	return o.Bytes()
}

// awaitURL waits for the word that the pages are done, for a while, and then
// makes the call again.
func (r *Router) awaitURL(l *link, call *call) {
	call.stage, call.link = callAsking, l
	l.asking[call] = struct{}{}
	call.pause = r.agenda.after(urlWait, func() { r.urlsDone(call) })
}

func (r *Router) urlsDone(call *call) {
	for id := range call.urls.waits {
		call.urls.waited[id] = struct{}{}
	}
	clear(call.urls.waits)
	delete(call.link.asking, call)
	r.agenda.stop(call.pause)
	call.pause, call.stage = nil, callHere
	r.forward(call)
}

// elicitationComplete takes the word that a page is done: for a call that waits
// for it, or for the legacy client that was sent there.
func (r *Router) elicitationComplete(l *link, m wire.Message) {
	id := era.ElicitationID(m.Params)
	for _, call := range sortedCalls(l.asking) {
		if call.urls == nil {
			continue
		}
		if _, waits := call.urls.waits[id]; waits {
			delete(call.urls.waits, id)
			call.urls.waited[id] = struct{}{}
			if len(call.urls.waits) == 0 {
				r.urlsDone(call)
			}
		}
	}
	if l.facts.Era != era.Legacy {
		return
	}
	c := l.owner
	if c == nil {
		c = l.owners.elicitations.owner(id)
	}
	if c != nil && r.sessions[c.session] == c {
		r.tellLegacy(c, era.Legacy, m.Method, m.Params)
	}
}

// taskStatus brings the status of a task to the client that started it.
func (r *Router) taskStatus(l *link, m wire.Message) {
	c := l.owner
	if c == nil {
		id, _ := memberString(m.Params, "taskId")
		c = l.owners.tasks.owner(id)
	}
	if c != nil && r.sessions[c.session] == c {
		r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
	}
}

// ownership is whose things are that a legacy backend names in notifications, on
// a link that several clients share.
type ownership struct {
	elicitations owners
	tasks        owners
}

// noteElicitation remembers who was sent to a page.
func (o *ownership) noteElicitation(params []byte, c *client) {
	if id := era.ElicitationID(params); id != "" {
		o.elicitations.note(id, c)
	}
}

// noteURLs remembers to whom an error passed that names pages to visit.
func (r *Router) noteURLs(l *link, call *call, e *wire.Error) {
	for _, el := range era.URLElicitations(e) {
		l.owners.elicitations.note(el.ID, call.client)
	}
}

// noteTask remembers who started a task.
func (r *Router) noteTask(l *link, call *call, result []byte) {
	if !l.shared() || l.facts.Era != era.Legacy || call.req.Source != era.Legacy || call.req.Method != methodToolsCall {
		return
	}
	params, err := wire.ParseObject(call.req.Params)
	if err != nil || !params.Has("task") {
		return
	}
	if o, err := wire.ParseObject(result); err == nil {
		if id, ok := memberString(o.Get("task"), "taskId"); ok {
			l.owners.tasks.note(id, call.client)
		}
	}
}

// maxOwned bounds what is remembered of each kind; the oldest is forgotten, and
// its notifications are dropped.
const maxOwned = 1024

// owners maps names to clients. The zero value is empty.
type owners struct {
	byName map[string]*client
	order  []string
}

func (o *owners) note(name string, c *client) {
	if o.byName == nil {
		o.byName = make(map[string]*client)
	}
	if _, have := o.byName[name]; !have {
		if len(o.order) >= maxOwned {
			delete(o.byName, o.order[0])
			o.order = o.order[1:]
		}
		o.order = append(o.order, name)
	}
	o.byName[name] = c
}

func (o *owners) owner(name string) *client { return o.byName[name] }
