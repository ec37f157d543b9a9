package relay

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// lossGrace is how long a request that the transport lost waits for the
// supervisor to say what became of the backend, so that the answer can name the
// exit status. Promise 3 allows a second in all.
const lossGrace = 400 * time.Millisecond

// callStage is where a call is on its way.
type callStage uint8

const (
	callHere    callStage = iota // being answered by the router itself
	callHeld                     // waits for a generation
	callFenced                   // waits for the client's own subscriptions
	callOpening                  // waits for its link to take requests
	callSent                     // in flight on the backend
	callAsking                   // waits for what the backend wants from the client
)

// call is a client's request from its arrival to its one response.
type call struct {
	client *client
	id     wire.ID
	req    era.Request
	params paramsOf
	front  era.Front
	batch  *batch
	size   int
	done   bool

	stage    callStage
	counted  bool   // among those who wait
	deadline *alarm // of the wait
	link     *link  // on which it waits or is in flight
	leg      *leg   // its request in flight
	// delivered says that the backend may have got it, or a dev tool works on it.
	delivered bool
	// again says that it was sent a second time after a generation was lost,
	// anew after a session of the backend's was lost.
	again, anew bool
	stop        context.CancelCauseFunc // of a dev tool
	awaits      topic                   // of a resources/subscribe
	round       *round                  // of inputs for a modern backend
	urls        *urlRound               // of -32042 of a legacy backend
	pause       *alarm                  // while asking
}

// leg is one request in flight on a link.
type leg struct {
	id int64
	// call is the client's request that waits for its answer; nil for requests
	// of the router's own, and for a parked one between two requests.
	call   *call
	parked *parked
	// answered takes the answer to a request of the router's own.
	answered func(m wire.Message)
	method   string
	lost     *alarm // set when the transport lost it
	lostWhy  error
}

// paramsOf is what the router itself reads of the params of a call that may be
// answered with input_required, in one pass over them.
type paramsOf struct {
	name, arguments []byte
	state           string // the requestState of a retry
	responses, task bool   // whether it has inputResponses, a task
}

func readParams(req era.Request) paramsOf {
	if !takesInput(req.Method) {
		return paramsOf{}
	}
	o, err := wire.ParseObject(req.Params)
	if err != nil {
		return paramsOf{}
	}
	p := paramsOf{
		name: o.Get("name"), arguments: o.Get("arguments"),
		responses: o.Has("inputResponses"), task: o.Has("task"),
	}
	p.state, _ = wire.String(o.Get("requestState"))
	return p
}

// takesInput tells the methods that may be answered with input_required.
func takesInput(method string) bool {
	return method == methodToolsCall || method == methodPromptsGet || method == methodRead
}

func (r *Router) newCall(c *client, id wire.ID, req era.Request, size int, b *batch) *call {
	call := &call{
		client: c, id: id, req: req, params: readParams(req),
		front: r.front(req.Source), batch: b, size: size,
	}
	c.calls[id] = call
	c.openBytes += size
	r.openBytes += size
	if b != nil {
		b.open++
	}
	c.session.view.inFlight.Add(1)
	return call
}

// safe reports whether the request may be sent to a second generation: it
// cannot have had effects.
func (call *call) safe() bool {
	switch call.req.Method {
	case methodPing, methodToolsList, methodPromptsList, methodResources, methodTemplates:
		return true
	case methodRead:
		return !call.params.responses
	}
	return false
}

// succeed answers a call with a result in the client's era.
func (r *Router) succeed(call *call, result []byte) {
	r.respond(call, wire.NewResponse(call.id, result))
}

// fail answers a call with an error as it is.
func (r *Router) fail(call *call, e *wire.Error) {
	r.respond(call, wire.NewFailure(call.id, e))
}

// failTranslated answers a call with an error of a backend, in the client's era.
func (r *Router) failTranslated(call *call, source era.Era, e *wire.Error) {
	result, refusal := call.front.Failure(call.req, source, e)
	if refusal != nil {
		r.fail(call, refusal)
		return
	}
	r.succeed(call, result)
}

// failOwn answers a call with something that is not the backend's.
func (r *Router) failOwn(call *call, why Failure) {
	if r.config.Reword != nil {
		why.Hint = r.config.Reword(why.hint(rowOf(why.Reason)))
	}
	r.respond(call, call.ownAnswer(why))
}

// ownAnswer is the response that tells a client of a failure of devproxy's.
func (call *call) ownAnswer(why Failure) wire.Message {
	e := why.Error()
	if call.req.Method == methodToolsCall {
		e.Message = why.Text()
	}
	result, refusal := call.front.OwnFailure(call.req, e)
	if refusal != nil {
		return wire.NewFailure(call.id, refusal)
	}
	return wire.NewResponse(call.id, result)
}

// failForWant answers a call for which there is no backend. A tools/list gets
// the dev tools, which include the one that says what is wrong.
func (r *Router) failForWant(call *call, why Failure) {
	if call.req.Method == methodToolsList {
		r.succeed(call, r.toolsAlone(call))
		return
	}
	r.failOwn(call, why)
}

// respond sends the one response of a call. One that is too large for the
// client becomes an error that says so, however large that is.
func (r *Router) respond(call *call, m wire.Message) {
	if call.done {
		return
	}
	frame := m.Bytes()
	if r.tooLarge(frame) {
		r.log.Warn("result is larger than [proxy] max_message", "session", call.client.session.id,
			"method", call.req.Method, "size", len(frame))
		frame = call.ownAnswer(tooLargeFailure(len(frame)+1, r.config.MaxMessage)).Bytes()
	}
	if call.batch != nil {
		r.respondIn(call.batch, call.client, call.id, frame)
	} else {
		r.push(call.client, frame)
	}
	r.release(call)
}

// release forgets a call, which has been answered or wants no answer.
func (r *Router) release(call *call) {
	if call.done {
		return
	}
	call.done = true
	c := call.client
	r.unwait(call)
	c.noteLate(call.req)
	delete(c.calls, call.id)
	c.openBytes -= call.size
	r.openBytes -= call.size
	c.session.view.inFlight.Add(-1)
	if call.batch != nil {
		r.settleBatch(c, call.batch)
	}
	if c.ended && len(c.calls) == 0 {
		r.removeSoon(c, ErrEnded)
	}
}

// forward brings a call to the backend, or to where it waits for one.
func (r *Router) forward(call *call) {
	switch {
	case r.closing != nil:
		r.refuse(call)
	case r.isRetry(call):
		r.retry(call)
	case call.client.unsettled > 0:
		r.fence(call)
	default:
		r.proceed(call)
	}
}

// proceed brings a call that waits for nothing of its client's to the backend.
func (r *Router) proceed(call *call) {
	switch {
	case r.closing != nil:
		r.refuse(call)
	case r.backend.serves():
		r.send(call)
	default:
		r.hold(call)
	}
}

// send brings a call to its link.
func (r *Router) send(call *call) {
	l := r.linkFor(call.client, call.req.Peer)
	if l.takes() {
		r.transmit(call, l)
		return
	}
	r.queue(call, l)
}

// queue lets a call wait until the link takes requests.
func (r *Router) queue(call *call, l *link) {
	if !r.wait(call, callOpening) {
		return
	}
	call.link = l
	l.waiting = append(l.waiting, call)
}

// transmit puts a call on an open link.
func (r *Router) transmit(call *call, l *link) {
	if call.req.Level != "" {
		if r.adjustLevel(l, call.req.Level); !l.takes() {
			r.queue(call, l)
			return
		}
	}
	r.unwait(call)
	if refusal := l.back.Refusal(call.req); refusal != nil {
		r.fail(call, refusal)
		return
	}
	if result, ok := r.emptyList(call, l); ok {
		r.succeed(call, result)
		return
	}
	if call.params.state != "" && call.req.Source == era.Modern && l.facts.Era == era.Legacy {
		// Of a modern backend that was there before.
		r.fail(call, r.badState(call.params.state))
		return
	}
	lg := r.newLeg(call, l)
	r.requestBackend(l, lg.id, call.client, call.req.Method, l.back.Request(call.req, token(call, lg)), call.req.Peer)
	if len(r.seekers) > 0 {
		r.seekersMayAsk()
	}
}

// newLeg puts a call in flight.
func (r *Router) newLeg(call *call, l *link) *leg {
	lg := &leg{id: l.newID(), call: call, method: call.req.Method}
	l.legs[lg.id] = lg
	call.stage, call.link, call.leg, call.delivered = callSent, l, lg, true
	return lg
}

// token is the progress token towards the backend: the id of the request, if
// the client wants progress at all.
func token(call *call, lg *leg) int64 {
	if call.req.Token == nil {
		return 0
	}
	return lg.id
}

// answer takes a response of the backend.
func (r *Router) answer(l *link, m wire.Message) {
	id, ok := m.ID.Echoed()
	if !ok {
		r.log.Warn("backend answered a request that was never sent", "generation", l.generation, "id", string(m.ID))
		return
	}
	if r.interestAnswered(l, id, m) {
		return
	}
	lg := l.legs[id]
	if lg == nil {
		// It was cancelled: the backend answers all the same, as the Go SDK does.
		return
	}
	delete(l.legs, id)
	r.agenda.stop(lg.lost)
	switch {
	case lg.answered != nil:
		lg.answered(m)
	case lg.parked != nil:
		r.parkedAnswered(l, lg, m)
	default:
		lg.call.leg = nil
		r.completed(l, lg.call, m)
	}
}

// completed takes the backend's answer to a call.
func (r *Router) completed(l *link, call *call, m wire.Message) {
	call.stage = callHere
	if call.req.Level != "" {
		r.adjustLevel(l, "")
	}
	if m.Kind == wire.Failure {
		r.backendFailed(l, call, m)
		return
	}
	res, err := l.back.Result(call.req.Method, m.Result)
	res.ServerInfo = l.facts.Info
	if err == nil && res.Kind == era.InputRequired && call.req.Source == era.Legacy {
		r.startRound(l, call, res)
		return
	}
	r.noteTask(l, call, m.Result)
	result := call.front.Result(call.req, res, call.client.shapes)
	if call.req.Method == methodToolsList {
		result = r.mergeTools(call, m.Result, result)
		call.client.session.view.listed.Store(l.generation)
	}
	r.succeed(call, result)
}

// backendFailed takes the backend's error.
func (r *Router) backendFailed(l *link, call *call, m wire.Message) {
	e := errorOf(m)
	if e.Code == era.CodeURLElicitation && call.req.Source == era.Modern && l.facts.Era == era.Legacy {
		r.urlRequired(l, call, e)
		return
	}
	if e.Code == era.CodeUnsupportedVersion && l.facts.Era == era.Modern {
		// Links that could ask for the backend's eras again have done so.
		r.log.Warn("backend refuses the protocol version of its own handshake", "generation", l.generation,
			"method", call.req.Method, "version", l.facts.Version, "error", e)
	}
	r.noteURLs(l, call, e)
	switch result, refusal := call.front.Failure(call.req, l.facts.Era, e); refusal {
	case nil:
		r.succeed(call, result)
	case e:
		r.respond(call, wire.Message{Kind: wire.Failure, ID: call.id, Error: asWritten(m.Error, e)})
	default:
		r.fail(call, refusal)
	}
}

// asWritten is an error that nobody has translated, to the byte as the backend
// wrote it, unless it has what makes clients drop the whole message: members
// that no error has, or a code that is no plain integer.
func asWritten(raw []byte, e *wire.Error) []byte {
	o, err := wire.ParseObject(raw)
	if err != nil {
		return e.Bytes()
	}
	for _, m := range o.Members() {
		switch m.Key {
		case "message", "data":
		case "code":
			if string(m.Value) != strconv.FormatInt(e.Code, 10) {
				return e.Bytes()
			}
		default:
			return e.Bytes()
		}
	}
	return raw
}

// detach takes a call from wherever it is, without an answer: the client has
// cancelled it (reason is its raw reason), or it is about to be answered
// otherwise.
func (r *Router) detach(call *call, reason []byte) {
	r.unwait(call)
	switch call.stage {
	case callHere:
		if call.stop != nil {
			call.stop(errCancelled)
		}
		r.unqueueSubscription(call)
	case callHeld:
		r.held.remove(call)
	case callFenced:
		call.client.fenced = slices.DeleteFunc(call.client.fenced, call.is)
	case callOpening:
		call.link.waiting = slices.DeleteFunc(call.link.waiting, call.is)
	case callSent:
		r.cancelLeg(call, reason)
	case callAsking:
		r.withdrawRound(call, reason)
	}
	call.stage = callHere
}

var errCancelled = errors.New("the client has cancelled the request")

func (call *call) is(other *call) bool { return other == call }

// cancelLeg tells the backend that nobody waits for the call any more. Its late
// answer will find nobody.
func (r *Router) cancelLeg(call *call, reason []byte) {
	l, lg := call.link, call.leg
	call.leg = nil
	if lg == nil {
		return
	}
	r.agenda.stop(lg.lost)
	if lg.parked != nil {
		r.cancelParked(lg.parked, reason)
		return
	}
	delete(l.legs, lg.id)
	r.cancelBackend(l, lg.id, call.client, reason)
}

// lostByTransport notes that the transport lost a request. The supervisor may
// be about to say that the backend is down; that is a better answer.
func (r *Router) lostByTransport(l *link, lg *leg, why error) {
	if lg.lost != nil {
		return
	}
	lg.lostWhy = why
	lg.lost = r.agenda.after(lossGrace, func() {
		delete(l.legs, lg.id)
		if l.state == linkClosed && len(l.legs) == 0 && len(l.asking) == 0 {
			delete(r.links, l)
		}
		r.lose(l, lg, Failure{
			Reason: ReasonRequestLost, State: r.backend.state(), Generation: l.generation,
			Message: "no answer from the backend: " + r.masked(why.Error()),
		})
	})
}

// lose takes a leg that will not be answered, which is no more in the link's
// table: what is safe is sent once more, the rest gets the failure.
func (r *Router) lose(l *link, lg *leg, why Failure) {
	r.agenda.stop(lg.lost)
	switch {
	case lg.answered != nil:
		lg.answered(wire.NewFailure(wire.IntID(lg.id), &wire.Error{Code: wire.CodeInternal, Message: why.Text()}))
	case lg.parked != nil:
		r.parkedLost(lg, why)
	default:
		lg.call.leg = nil
		r.loseCall(lg.call, why)
	}
}

func (r *Router) loseCall(call *call, why Failure) {
	if call.done {
		return
	}
	call.stage, call.link = callHere, nil
	if call.safe() && !call.again && why.Reason != reasonStopped && (r.closing == nil || r.handingOver()) {
		call.again = true
		r.forward(call)
		return
	}
	r.refuseLost(call, why)
}

// refuseLost answers a call that was lost for good.
func (r *Router) refuseLost(call *call, why Failure) {
	switch {
	case r.closing == nil:
		r.failForWant(call, why)
	case r.handingOver() && why.Reason == ReasonShuttingDown:
		// The supervisor does not know that a successor follows.
		r.failOwn(call, r.restarted())
	default:
		r.failOwn(call, why)
	}
}

// sessionLost sends a call again that the backend has provably not processed,
// on a new link, once.
func (r *Router) sessionLost(l *link, lg *leg, why error) {
	call := lg.call
	if call == nil || lg.parked != nil || call.anew {
		if refusal := answerIn(why); refusal != nil {
			r.answer(l, wire.NewFailure(wire.IntID(lg.id), &wire.Error{
				Code: wire.CodeInternal, Message: refusal.Message, Data: refusal.Data,
			}))
			return
		}
		r.lostByTransport(l, lg, why)
		return
	}
	delete(l.legs, lg.id)
	call.anew, call.delivered = true, false
	call.stage, call.link, call.leg = callHere, nil, nil
	r.forward(call)
}

// clientProgress passes progress on a question to the backend that asked it
// with this token.
func (r *Router) clientProgress(c *client, params []byte) {
	token := string(era.ProgressToken(params))
	for _, a := range c.asks {
		if a.link == nil || a.token == "" || a.token != token || a.link.state != linkOpen {
			continue
		}
		if out, ok := a.link.back.Notification(era.Legacy, noteProgress, params); ok {
			r.notifyBackend(a.link, c, noteProgress, out)
		}
		return
	}
}

// backendProgress brings progress to whoever waits for the request it is about,
// with the token that he gave.
func (r *Router) backendProgress(l *link, params []byte) {
	id, ok := wire.ID(era.ProgressToken(params)).Echoed()
	if !ok {
		return
	}
	lg := l.legs[id]
	if lg == nil || lg.call == nil || lg.call.req.Token == nil {
		// Over, the router's own, or parked: nobody waits.
		return
	}
	call := lg.call
	if out, ok := call.front.Notification(l.facts.Era, noteProgress, params, ""); ok {
		r.notify(call.client, noteProgress, era.WithProgressToken(out, call.req.Token))
	}
}
