package relay

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// maxOpen bounds the requests of one client that are open at a time. The
	// busiest clients known open some dozens.
	maxOpen = 4096
	// maxOpenBytes bounds their size together: they are kept until answered,
	// because some have to be sent again.
	maxOpenBytes = 256 << 20
	// maxAllOpenBytes bounds that of all clients: the backend may read all they
	// send and answer nothing.
	maxAllOpenBytes = 512 << 20
	// maxPeerBytes bounds what a client says of itself, which is kept as long as
	// it is attached. Icons may be part of it.
	maxPeerBytes = 1 << 20
	// endGrace is how long what a client has asked may go on when its input has
	// ended: the shim exits within 250 ms.
	endGrace = 150 * time.Millisecond
)

// client is the loop's side of a session.
type client struct {
	session *Session
	// said is what its messages established about its era.
	said era.Session
	// peer is what it said of itself last: in initialize, or in a modern request.
	peer era.Peer
	// ready says that a legacy client has sent notifications/initialized. Nothing
	// unsolicited may be sent to it before.
	ready bool
	ended bool // its input has ended

	calls     map[wire.ID]*call
	openBytes int
	listens   map[wire.ID]*listen
	subs      map[string]struct{} // resources/subscribe of a legacy client
	// unsettled counts the subscriptions that the backend is being asked for;
	// requests of the client that come after them wait in fenced.
	unsettled int
	fenced    []*call
	unfence   *alarm
	asks      map[wire.ID]*ask // our requests to it, legacy only

	// link is its own link to the backend, nil while there is none or where all
	// share one. linked says that it had one, and gets one again at Up.
	link   *link
	linked bool

	// batches are those whose responses still wait for each other.
	batches []*batch

	late heardLevel // what it may hear of requests that were answered

	shapes era.Shapes
	told   map[era.Era]handshake // what it was told in its handshakes
	watch  *alarm                // for a full outbox
	// leftOut counts the log lines and the progress that a full outbox did not
	// take since it is full.
	leftOut int
}

type frameEvent struct {
	session *Session
	frame   []byte
	long    *wire.TooLongError // instead of a frame
}

type (
	attachEvent     struct{ session *Session }
	endOfInputEvent struct{ session *Session }
	closedEvent     struct {
		session *Session
		cause   error
	}
)

func (e attachEvent) handle(r *Router) {
	c := &client{
		session: e.session,
		said:    era.Session{Front: r.config.Offer},
		calls:   make(map[wire.ID]*call),
		listens: make(map[wire.ID]*listen),
		subs:    make(map[string]struct{}),
		asks:    make(map[wire.ID]*ask),
		shapes:  make(era.Shapes),
		told:    make(map[era.Era]handshake),
	}
	r.sessions[e.session] = c
	r.order = append(r.order, c)
	r.publishSessions()
	shim := e.session.shim
	r.log.Info("client attached", "session", e.session.id, "shim", shim.PID, "resumed", shim.Resumed)
}

func (e attachEvent) abandon(cause error) { e.session.out.close(cause, false) }

func (e endOfInputEvent) handle(r *Router) {
	if r.inHand == e.session {
		r.mail.post(e) // it came after that frame
		return
	}
	c := r.sessions[e.session]
	if c == nil || c.ended {
		return
	}
	c.ended = true
	// It can neither cancel its listens nor answer what it was asked any more.
	for _, l := range c.sortedListens() {
		r.endListen(l)
	}
	r.abandonAsks(c)
	if len(c.calls) == 0 {
		r.remove(c, ErrEnded)
		return
	}
	r.agenda.after(endGrace, func() { r.remove(c, ErrEnded) })
}

func (e closedEvent) handle(r *Router) {
	if c := r.sessions[e.session]; c != nil {
		r.remove(c, e.cause)
	}
}

// remove ends a session: its calls are cancelled, what it was asked is declined,
// what it listened to is dropped.
func (r *Router) remove(c *client, cause error) {
	if r.sessions[c.session] != c {
		return
	}
	delete(r.sessions, c.session)
	r.order = slices.DeleteFunc(r.order, func(other *client) bool { return other == c })
	r.attached.Add(-1)
	for _, call := range c.open() {
		r.detach(call, nil)
		r.release(call)
	}
	r.abandonParked(c)
	r.abandonAsks(c)
	r.dropInterests(c)
	if c.link != nil {
		r.retireLink(c.link)
	}
	r.agenda.stop(c.watch)
	r.agenda.stop(c.unfence)
	c.session.out.close(cause, errors.Is(cause, ErrSlowConsumer))
	r.publishSessions()
	r.publishGreeting()
	r.log.Info("client detached", "session", c.session.id, "cause", cause)
}

// removeSoon ends a session after the current turn, whose code may still use the
// client.
func (r *Router) removeSoon(c *client, cause error) {
	r.agenda.after(0, func() { r.remove(c, cause) })
}

// open returns the client's open requests in no particular order.
func (c *client) open() []*call { return slices.Collect(maps.Values(c.calls)) }

// eraNow is the era to speak of when a message has none of its own.
func (c *client) eraNow() era.Era {
	switch {
	case c.said.Initialized:
		return era.Legacy
	case c.said.ModernSeen:
		return era.Modern
	}
	return era.None
}

// front returns the codec towards the client for an era.
func (r *Router) front(e era.Era) era.Front {
	if e == era.Modern {
		return r.config.Offer.Front(era.Modern)
	}
	return r.config.Offer.Front(era.Legacy)
}

func (e frameEvent) handle(r *Router) {
	c := r.sessions[e.session]
	if c == nil || c.ended {
		return
	}
	if e.long != nil {
		r.tooLong(c, e.long)
		return
	}
	r.traceFrame(FromClient, c.session.id, 0, c.eraNow(), e.frame)
	r.frame(c, e.frame, nil)
}

// frame takes one message, of a batch or not.
func (r *Router) frame(c *client, frame []byte, b *batch) {
	m, err := wire.Parse(frame)
	if err != nil {
		r.malformed(c, frame, err, b)
		return
	}
	if m.Method != "" {
		c.session.view.last.Store(&lastView{method: short(m.Method), at: time.Now()})
	}
	switch m.Kind {
	case wire.Request:
		r.request(c, m, len(frame), b)
	case wire.Notification:
		r.notification(c, m)
	case wire.Response, wire.Failure:
		r.answered(c, m)
	}
}

func (r *Router) malformed(c *client, frame []byte, err error, b *batch) {
	invalid, isInvalid := errors.AsType[*wire.InvalidError](err)
	switch {
	case errors.Is(err, wire.ErrBatch) && b == nil:
		r.batch(c, frame)
	case errors.Is(err, wire.ErrBatch):
		r.reply(c, b, wire.NewFailure("", &wire.Error{Code: wire.CodeInvalidRequest, Message: "a batch inside a batch"}))
	case isInvalid:
		r.log.Warn("client sent no JSON-RPC message", "session", c.session.id, "error", err)
		if invalid.ID == "" {
			// Nobody could tell which request it was for, and the Go SDK's
			// client ends its connection on an error without an id.
			return
		}
		r.reply(c, b, wire.NewFailure(invalid.ID, &wire.Error{Code: wire.CodeInvalidRequest, Message: invalid.Error()}))
	default:
		r.log.Warn("client sent no JSON", "session", c.session.id, "error", err)
		id := wire.OutlineOf(frame).RequestID()
		if c.taken(id) {
			id = ""
		}
		r.reply(c, b, wire.NewFailure(id, &wire.Error{Code: wire.CodeParse, Message: err.Error()}))
	}
}

// tooLong answers a message that was too long to be read. Its start or its end
// usually names the request.
func (r *Router) tooLong(c *client, long *wire.TooLongError) {
	r.log.Warn("client sent a message that is too long",
		"session", c.session.id, "size", long.Size, "limit", long.Limit)
	id := long.Outline().RequestID()
	if id == "" || c.taken(id) {
		return
	}
	r.reply(c, nil, wire.NewFailure(id, &wire.Error{Code: wire.CodeInvalidRequest, Message: long.Error()}))
}

// batch splits a batch, which clients of the oldest versions may send.
func (r *Router) batch(c *client, frame []byte) {
	frames, err := wire.ParseBatch(frame)
	if err != nil {
		r.reply(c, nil, wire.NewFailure("", &wire.Error{Code: wire.CodeParse, Message: err.Error()}))
		return
	}
	if !c.said.Initialized || !era.Batches(c.said.Peer.Version) || len(frames) == 0 {
		r.log.Warn("client sent a batch it may not send", "session", c.session.id)
		r.reply(c, nil, wire.NewFailure("", &wire.Error{
			Code:    wire.CodeInvalidRequest,
			Message: "batches are not part of this protocol version, or the batch is empty",
		}))
		return
	}
	if len(frames) > maxOpen {
		r.reply(c, nil, wire.NewFailure("", Failure{
			Reason:  ReasonTooManyOpen,
			Message: fmt.Sprintf("a batch has %d messages, and no more than %d may be", len(frames), maxOpen),
		}.Error()))
		return
	}
	b := &batch{open: 1} // this function's own hold, so that it is not complete before its end
	c.batches = append(c.batches, b)
	for _, f := range frames {
		r.frame(c, f, b)
	}
	r.settleBatch(c, b)
}

// batch gathers the responses to the requests of one batch.
type batch struct {
	open      int
	responses []response
	size      int  // of the responses together, with those that were taken back
	split     bool // they go one by one
}

// response is one that waits for the others of its batch.
type response struct {
	id    wire.ID
	frame []byte
}

// respondIn takes a response to a request of a batch. Once they are too much for
// one message they do not wait for each other any more.
func (r *Router) respondIn(b *batch, c *client, id wire.ID, frame []byte) {
	if b.split {
		r.push(c, frame)
		return
	}
	b.responses = append(b.responses, response{id, frame})
	b.size += len(frame) + len(",")
	if limit := r.config.MaxMessage; b.size <= outboxLimit && (limit <= 0 || b.size+len("[]") <= limit) {
		return
	}
	b.split = true
	for _, response := range b.responses {
		r.push(c, response.frame)
	}
	b.responses = nil
}

// settleBatch counts one request of a batch as answered, and sends the responses
// with the last one.
func (r *Router) settleBatch(c *client, b *batch) {
	if b.open--; b.open > 0 {
		return
	}
	c.batches = slices.DeleteFunc(c.batches, func(other *batch) bool { return other == b })
	if len(b.responses) == 0 {
		return
	}
	frames := make([][]byte, len(b.responses))
	for i, response := range b.responses {
		frames[i] = response.frame
	}
	r.push(c, wire.JoinArray(frames))
}

// takeBack drops the response to a request that the client cancels while it waits
// for the others of its batch.
func (c *client) takeBack(id wire.ID) {
	for _, b := range c.batches {
		b.responses = slices.DeleteFunc(b.responses, func(r response) bool { return r.id == id })
	}
}

// taken reports whether an id is in flight.
func (c *client) taken(id wire.ID) bool { return c.calls[id] != nil || c.listens[id] != nil }

func (r *Router) request(c *client, m wire.Message, size int, b *batch) {
	if c.taken(m.ID) {
		r.reply(c, b, wire.NewFailure(m.ID, &wire.Error{
			Code: wire.CodeInvalidRequest, Message: "a request with this id is already in flight"}))
		return
	}
	if why := r.tooMuchOpen(c, size); why != "" {
		r.reply(c, b, wire.NewFailure(m.ID, Failure{Reason: ReasonTooManyOpen, Message: why}.Error()))
		return
	}
	req, refusal := era.Classify(m, c.said)
	if refusal == nil {
		refusal = tooTalkative(req.Peer)
	}
	if refusal != nil {
		r.reply(c, b, wire.NewFailure(m.ID, refusal))
		return
	}
	if req.Source == era.Modern {
		r.heardModern(c, req.Peer)
	}
	call := r.newCall(c, m.ID, req, size, b)
	r.dispatch(call)
}

// tooMuchOpen says which limit a request of that size passes, "" if none.
func (r *Router) tooMuchOpen(c *client, size int) string {
	switch {
	case len(c.calls) >= maxOpen:
		return fmt.Sprintf("%d requests of this client are open, and no more may be", maxOpen)
	case c.openBytes+size > maxOpenBytes:
		return fmt.Sprintf("requests of %d bytes of this client are open, and no more than %d bytes may be", c.openBytes, maxOpenBytes)
	case r.openBytes+size > maxAllOpenBytes:
		return fmt.Sprintf("requests of %d bytes of all clients are open, and no more than %d bytes may be", r.openBytes, maxAllOpenBytes)
	}
	return ""
}

// tooTalkative refuses a client that says too much of itself.
func tooTalkative(p era.Peer) *wire.Error {
	size := len(p.Version) + len(p.Info) + len(p.Capabilities)
	if size <= maxPeerBytes {
		return nil
	}
	return &wire.Error{
		Code:    wire.CodeInvalidParams,
		Message: fmt.Sprintf("Invalid params: clientInfo and capabilities have %d bytes, and no more than %d may be", size, maxPeerBytes),
	}
}

// heardModern notes what a modern client says of itself in each request.
func (r *Router) heardModern(c *client, p era.Peer) {
	if c.said.ModernSeen && c.peer.Era == era.Modern && c.peer.Version == p.Version &&
		bytes.Equal(c.peer.Info, p.Info) && bytes.Equal(c.peer.Capabilities, p.Capabilities) {
		return
	}
	c.said.ModernSeen = true
	c.peer = cloned(p)
	r.publishPeer(c)
	r.publishGreeting()
}

// dispatch answers what can be answered here, and sends the rest on.
func (r *Router) dispatch(call *call) {
	switch {
	case call.req.Method == methodPing:
		r.succeed(call, call.front.Ack())
	case call.req.Method == methodInitialize && call.req.Source == era.Legacy:
		r.initialize(call)
	case call.req.Method == methodDiscover && call.req.Source == era.Modern:
		r.discover(call)
	case call.req.Method == methodListen && call.req.Source == era.Modern:
		r.listen(call)
	case call.req.Method == methodSetLevel && call.req.Source == era.Legacy:
		r.setLevel(call)
	case call.req.Method == methodSubscribe && call.req.Source == era.Legacy:
		r.subscribe(call)
	case call.req.Method == methodUnsubscribe && call.req.Source == era.Legacy:
		r.unsubscribe(call)
	case call.req.Method == methodToolsCall && !r.handingOver() && r.callDevTool(call):
	default:
		r.forward(call)
	}
}

func (r *Router) notification(c *client, m wire.Message) {
	switch m.Method {
	case noteCancelled:
		r.clientCancelled(c, m.Params)
	case noteInitialized:
		r.initialized(c)
	case noteProgress:
		r.clientProgress(c, m.Params)
	default:
		r.passNotification(c, m)
	}
}

// passNotification sends a notification on to a backend that is there anyway:
// none is started for it.
func (r *Router) passNotification(c *client, m wire.Message) {
	l := r.linkNow(c)
	if l == nil || l.state != linkOpen {
		return
	}
	said, _ := era.Classify(m, c.said)
	if params, ok := l.back.Notification(said.Source, m.Method, m.Params); ok {
		r.notifyBackend(l, c, m.Method, params)
	}
}

// clientCancelled handles notifications/cancelled, which names a request, a
// listen, or nothing that is open any more.
func (r *Router) clientCancelled(c *client, params []byte) {
	id := era.CancelledID(params)
	if l := c.listens[id]; l != nil {
		r.endListen(l)
		return
	}
	call := c.calls[id]
	if call == nil {
		c.takeBack(id)
		return
	}
	if call.req.Method == methodInitialize {
		return
	}
	r.detach(call, era.CancelReason(params))
	r.release(call)
}

// reply sends a response that belongs to no call.
func (r *Router) reply(c *client, b *batch, m wire.Message) {
	if b != nil {
		r.respondIn(b, c, m.ID, m.Bytes())
		return
	}
	r.push(c, m.Bytes())
}

// push queues a frame for the client.
func (r *Router) push(c *client, frame []byte) {
	r.traceFrame(ToClient, c.session.id, 0, c.eraNow(), frame)
	size := c.session.out.push(frame)
	if size > outboxCap || (size > outboxLimit && c.watch == nil) {
		r.watchOutbox(c)
	}
}

// watchOutbox gives a client up that does not read.
func (r *Router) watchOutbox(c *client) {
	r.agenda.stop(c.watch)
	c.watch = nil
	slow, again := c.session.out.slow(time.Now())
	switch {
	case slow:
		r.log.Warn("client does not read its messages and is closed", "session", c.session.id)
		r.removeSoon(c, ErrSlowConsumer)
	case !again.IsZero():
		c.watch = r.agenda.at(again, func() { r.watchOutbox(c) })
	}
}

// notify sends a notification to the client, if it is not too large for it.
func (r *Router) notify(c *client, method string, params []byte) {
	frame := wire.NewNotification(method, params).Bytes()
	if r.tooLarge(frame) {
		r.log.Warn("notification is larger than [proxy] max_message and is dropped",
			"session", c.session.id, "method", method, "size", len(frame))
		return
	}
	if (method == noteMessage || method == noteProgress) && r.leavesOut(c) {
		return
	}
	r.push(c, frame)
}

// leavesOut reports whether a log line or progress is not for the client, since
// its outbox is full: a backend may write more of both than any client reads, and
// neither answers nor this process's memory should pay for it.
func (r *Router) leavesOut(c *client) bool {
	if c.session.out.full() {
		if c.leftOut == 0 {
			r.log.Warn("client reads more slowly than the backend writes; log lines and progress are left out", "session", c.session.id)
		}
		c.leftOut++
		return true
	}
	if c.leftOut > 0 {
		r.log.Info("client gets log lines and progress again", "session", c.session.id, "left_out", c.leftOut)
		c.leftOut = 0
	}
	return false
}

// tooLarge reports whether a frame with its newline exceeds what clients take.
func (r *Router) tooLarge(frame []byte) bool {
	return r.config.MaxMessage > 0 && len(frame)+1 > r.config.MaxMessage
}
