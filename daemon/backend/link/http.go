package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// maxPosts is how many requests of one link are with the backend at a time; more wait. It is far above what a
	// client has in flight, and keeps a runaway one from using up file descriptors. Subscriptions do not count.
	maxPosts = 256
	// orderLimit is how long later messages wait for one that must come first. It only has to reach the
	// backend, which takes milliseconds; one that hangs must not hold up the rest.
	orderLimit = 2 * time.Second
	// goneGrace is how long requests that were sent before a session was found to be gone may take to hear it
	// themselves, so that they are known not to have been processed.
	goneGrace = 500 * time.Millisecond
	// postLimit is how long the backend may take to accept what has no answer. Servers do at once; one that does not
	// must not gather connections.
	postLimit = 30 * time.Second
)

const (
	methodPing        = "ping"
	methodListen      = "subscriptions/listen"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodSetLevel    = "logging/setLevel"
)

// mustComeFirst tells the requests that decide what is heard of later ones. Each message is a connection of its own,
// so nothing else keeps the order.
func mustComeFirst(method string) bool {
	switch method {
	case methodListen, methodSubscribe, methodUnsubscribe, methodSetLevel:
		return true
	default:
		return false
	}
}

// httpLink is a conversation over Streamable HTTP: modern, or one legacy session. Every message is a POST of its own,
// and every request has a goroutine. It implements [Link].
type httpLink struct {
	host    *Host
	facts   era.Facts
	session string // Mcp-Session-Id, "" for none
	out     *outlet
	// ordered is sent in order; urgent passes it: answers to the backend, and cancellations.
	ordered, urgent *outbox
	// listening is closed when the GET stream of a legacy link is open, or known not to be.
	listening mark
	shared    atomic.Bool

	mu    sync.Mutex
	calls map[int64]*call
	gone  bool          // the session is: nothing more is sent
	over  bool          // closed or lost
	ended chan struct{} // closed with over
}

var _ hosted = (*httpLink)(nil)

// call is an open request.
type call struct {
	id      int64
	written mark // the request is with the backend, as far as can be told
	heard   mark // the backend has begun to answer, and not with an error
	reached mark // nothing that comes later can overtake it
	ended   mark

	// These belong to the link's mu.
	abort     context.CancelCauseFunc // nil until it is sent
	cancelled bool
}

// mark is something that happens once.
type mark struct {
	once *sync.Once
	c    chan struct{}
}

func newMark() mark { return mark{new(sync.Once), make(chan struct{})} }

func (m mark) set() { m.once.Do(func() { close(m.c) }) }

func newCall(id int64) *call {
	return &call{id: id, written: newMark(), heard: newMark(), reached: newMark(), ended: newMark()}
}

func newHTTPLink(h *Host, facts era.Facts, session string) *httpLink {
	return &httpLink{
		host: h, facts: facts, session: session,
		out: &outlet{}, ordered: newOutbox(), urgent: newOutbox(),
		listening: newMark(), ended: make(chan struct{}),
		calls: map[int64]*call{},
	}
}

// Facts implements [Link].
func (l *httpLink) Facts() era.Facts { return l.facts }

// Shared implements [Link].
func (l *httpLink) Shared() bool { return l.shared.Load() }

func (l *httpLink) share() { l.shared.Store(true) }

// Bind gives the link its sink.
func (l *httpLink) Bind(sink Sink) { l.out.bind(sink) }

// Congested implements [Link].
func (l *httpLink) Congested() bool { return l.ordered.isCongested() }

func (l *httpLink) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.over && !l.gone
}

func (l *httpLink) inFlight() []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends []<-chan struct{}
	for _, c := range l.calls {
		if c.abort != nil {
			ends = append(ends, c.ended.c)
		}
	}
	return ends
}

// Close implements [Link].
func (l *httpLink) Close() {
	l.out.mute()
	l.end()
}

// end makes run end. It returns the calls that were open then, and false if it has ended before.
func (l *httpLink) end() (map[int64]*call, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, false
	}
	l.over = true
	l.ordered.close()
	l.urgent.close()
	close(l.ended)
	calls := l.calls
	l.calls = map[int64]*call{}
	return calls, true
}

// Request implements [Link].
func (l *httpLink) Request(id int64, method string, params []byte, _ era.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.calls[id] = newCall(id)
		l.ordered.put(item{m: wire.NewRequest(wire.IntID(id), method, params), id: id})
	}
}

// Notify implements [Link].
func (l *httpLink) Notify(method string, params []byte) {
	l.host.o.offer(l.ordered, item{m: wire.NewNotification(method, params)})
}

// Respond implements [Link].
func (l *httpLink) Respond(id wire.ID, result []byte, err *wire.Error) {
	l.host.o.offer(l.urgent, item{m: answer(id, result, err)})
}

// Cancel implements [Link]. In the modern era the end of the stream is the cancellation, in a legacy session a
// notification is.
func (l *httpLink) Cancel(id int64, reason []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls[id]
	if c == nil || c.cancelled {
		return
	}
	c.cancelled = true
	switch {
	case c.abort == nil: // it was not sent yet: see begin
	case l.facts.Era == era.Modern:
		c.abort(ErrCancelled)
	default:
		l.host.o.offer(l.urgent, item{m: era.BackOf(era.Legacy).Cancel(id, reason), id: id})
	}
}

// run sends and receives until the link is closed or lost, or ctx ends.
func (l *httpLink) run(ctx context.Context) {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var pumps sync.WaitGroup
	pumps.Go(func() { l.sendOrdered(work) })
	pumps.Go(func() { l.sendUrgent(work) })
	if l.facts.Era == era.Legacy {
		pumps.Go(func() { l.listen(work) })
	}
	select {
	case <-l.ended:
	case <-ctx.Done():
		l.end()
	}
	stop(ErrClosed)
	pumps.Wait()
	if l.session != "" && !l.isGone() {
		l.host.deleteSession(context.WithoutCancel(ctx), l.session, l.facts.Version)
	}
}

func (l *httpLink) isGone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

func (l *httpLink) sendOrdered(ctx context.Context) {
	var posts sync.WaitGroup
	defer posts.Wait()
	if l.facts.Era == era.Legacy {
		// What a server has to say beside its answers goes to the GET stream, and nowhere while there is none.
		pause(ctx, l.listening.c, listenLimit)
	}
	slots := make(chan struct{}, maxPosts)
	for {
		it, ok := l.ordered.next()
		if !ok {
			return
		}
		if it.id == 0 {
			sent := newMark()
			posts.Go(func() {
				defer sent.set()
				l.post(ctx, it)
				l.wasSent(it)
			})
			pause(ctx, sent.c, orderLimit)
			continue
		}
		c := l.callOf(it.id)
		if c == nil {
			l.wasSent(it)
			continue
		}
		counts := it.m.Method != methodListen
		if counts {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		posts.Go(func() {
			l.serve(ctx, c, it)
			if counts {
				<-slots
			}
		})
		if mustComeFirst(it.m.Method) {
			pause(ctx, c.reached.c, orderLimit)
		}
	}
}

func (l *httpLink) callOf(id int64) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[id]
}

func (l *httpLink) wasSent(it item) {
	if l.ordered.sent(it) {
		l.out.writable()
	}
}

// pause waits for c, ctx or the limit.
func pause(ctx context.Context, c <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// serve sees one request through to its end.
func (l *httpLink) serve(ctx context.Context, c *call, it item) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	sent := sync.OnceFunc(func() {
		c.written.set()
		l.wasSent(it)
	})
	var r reply
	err := l.begin(c, it, abort)
	if err == nil {
		r, err = l.exchange(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { sent() },
		}), c, it)
	}
	if err == nil {
		l.checkType(it.m.Method, r.m)
		err = l.checkVersion(it.m.Method, r)
	}
	sent()
	l.conclude(c, r.m, err)
	c.reached.set()
	c.ended.set()
	if r.resp != nil {
		finish(r.resp, abort)
	}
	if gone, ok := errors.AsType[*goneError](err); ok {
		l.sessionGone(ctx, gone)
	}
}

// checkVersion looks into an answer for the refusal of the protocol version that both had agreed on: the server behind
// the URL has become another one, and the host must ask for its eras again. Such an answer says that the request was
// not processed. It is ignored for the requests that keep up what clients subscribed to, which nobody but the link's
// user repeats, and for those of a legacy session that a handler has answered, for whom the code means nothing.
func (l *httpLink) checkVersion(method string, r reply) error {
	if r.m.Kind != wire.Failure || mustComeFirst(method) || l.Shared() {
		return nil
	}
	refused, err := wire.ParseError(r.m.Error)
	if err != nil || refused.Code != era.CodeUnsupportedVersion ||
		l.facts.Era == era.Legacy && r.resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	l.host.doubt()
	l.host.o.Logger.Warn("the backend refuses the protocol version of its handshake; it is asked for its eras again",
		"method", method, "version", l.facts.Version, "error", refused)
	return &goneError{text: "the backend no longer speaks version " + l.facts.Version, refusal: refused}
}

// checkType looks into an answer for what every modern one has. A server that takes a modern request and answers like
// a legacy one has become that behind our back, or never was another. The answer is good all the same.
func (l *httpLink) checkType(method string, m wire.Message) {
	if l.facts.Era != era.Modern || m.Kind != wire.Response || l.host.isDoubted() || era.HasResultType(m.Result) {
		return
	}
	l.host.doubt()
	l.host.o.Logger.Info("the backend answers a modern request like a legacy server; the next link asks for its eras again",
		"method", method)
}

// errHeld keeps a request of a session that is gone in the table, for lose.
var errHeld = errors.New("the session is gone")

// begin makes a request abortable. Its error is why it is not to be sent.
func (l *httpLink) begin(c *call, it item, abort context.CancelCauseFunc) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.cancelled:
		return ErrCancelled
	case it.refused:
		return &answerError{ErrQueueFull}
	case l.gone:
		return errHeld
	}
	c.abort = abort
	return nil
}

// conclude tells the sink how a request ended, unless somebody else has.
func (l *httpLink) conclude(c *call, m wire.Message, err error) {
	if errors.Is(err, errHeld) {
		return
	}
	l.mu.Lock()
	_, open := l.calls[c.id]
	delete(l.calls, c.id)
	cancelled := c.cancelled
	l.mu.Unlock()
	switch {
	case !open:
	case err == nil:
		l.out.message(m, c.id)
	case cancelled:
		l.out.failed(c.id, ErrCancelled)
	default:
		l.out.failed(c.id, err)
	}
}

// reply is an answer, and the response that it came in, which is still to be finished.
type reply struct {
	m    wire.Message
	resp *http.Response
}

func (l *httpLink) exchange(ctx context.Context, c *call, it item) (reply, error) {
	if l.facts.Era == era.Modern {
		return l.exchangeModern(ctx, c, it)
	}
	return l.exchangeLegacy(ctx, c, it)
}

// attempt makes one POST of a request and hands on what comes on its response, up to the answer.
func (l *httpLink) attempt(
	ctx context.Context, c *call, header http.Header, frame []byte, pos *position,
) (reply, error) {
	resp, err := l.host.roundTrip(ctx, http.MethodPost, l.host.target, header, frame)
	if err != nil {
		return reply{}, delivery(err)
	}
	if err := l.checkSession(resp, c.id); err != nil {
		return reply{}, err
	}
	return l.read(ctx, resp, c, pos)
}

// delivery says of an error of a request whether the backend can have it.
func delivery(err error) error {
	if undelivered(err) {
		return fmt.Errorf("%w: %w", era.ErrSessionLost, err)
	}
	return fmt.Errorf("sending the request: %w", err)
}

func (l *httpLink) read(ctx context.Context, resp *http.Response, c *call, pos *position) (reply, error) {
	if resp.StatusCode/100 == 2 {
		c.heard.set()
	}
	var found *wire.Message
	err := l.host.readMessages(resp, pos, func(m wire.Message) bool {
		if answers(m, c.id) {
			found = &m
			return false
		}
		l.inbound(m, c.id)
		c.reached.set() // a listen's acknowledgement, or more
		return true
	})
	if found != nil {
		return reply{*found, resp}, nil
	}
	_ = resp.Body.Close()
	switch {
	case ctx.Err() != nil:
		return reply{}, context.Cause(ctx)
	case err == nil:
		return reply{}, ErrStreamEnded
	default:
		return reply{}, err
	}
}

// inbound takes what is no answer to the request of that stream.
func (l *httpLink) inbound(m wire.Message, via int64) {
	switch {
	case m.Kind == wire.Response || m.Kind == wire.Failure:
		l.host.o.Logger.Warn("dropped an answer of the backend that came on the stream of another request",
			"id", string(m.ID), "stream", via)
	case m.Kind == wire.Request && m.Method == methodPing:
		l.Respond(m.ID, []byte(`{}`), nil)
	default:
		if m.Method == noteToolsChanged {
			l.host.tools.forget()
		}
		if !l.out.message(m, via) && m.Kind == wire.Request {
			l.Respond(m.ID, nil, nobody())
		}
	}
}

// post sends what has no answer.
func (l *httpLink) post(ctx context.Context, it item) {
	ctx, cancel := context.WithTimeoutCause(ctx, postLimit, errSilence)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	log := l.host.o.Logger.With("kind", it.m.Kind.String(), "method", it.m.Method)
	resp, err := l.host.roundTrip(ctx, http.MethodPost, l.host.target, l.headerFor(it), it.m.Bytes())
	if err != nil {
		log.Warn("sending to the backend", "error", err)
		return
	}
	err = l.checkSession(resp, 0)
	finish(resp, abort)
	if gone, ok := errors.AsType[*goneError](err); ok {
		l.sessionGone(ctx, gone)
		return
	}
	if resp.StatusCode/100 != 2 {
		log.Warn("the backend refused a message", "status", resp.StatusCode)
	}
}

func (l *httpLink) headerFor(it item) http.Header {
	if l.facts.Era == era.Legacy {
		return l.legacyHeader()
	}
	header := messageHeader()
	header.Set(headerVersion, versionOf(it.m.Params, l.facts.Version))
	if it.m.Method != "" {
		header.Set(headerMethod, it.m.Method) // the Go SDK wants it on notifications too
	}
	return header
}

// sendUrgent sends what must not wait for anything, except that answers are no more at a time than requests.
func (l *httpLink) sendUrgent(ctx context.Context) {
	var posts sync.WaitGroup
	defer posts.Wait()
	slots := make(chan struct{}, maxPosts)
	for {
		it, ok := l.urgent.next()
		if !ok {
			return
		}
		if it.id != 0 {
			l.urgent.sent(it)
			posts.Go(func() { l.cancelLegacy(ctx, it) })
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		posts.Go(func() {
			l.post(ctx, it)
			l.urgent.sent(it)
			<-slots
		})
	}
}

// goneError says that the backend does not know the session any more, or not the protocol version.
type goneError struct {
	text    string
	refusal *wire.Error // the answer that said so, nil if that was no JSON-RPC
}

func (e *goneError) Error() string { return e.text }

func (e *goneError) Unwrap() []error {
	if e.refusal == nil {
		return []error{era.ErrSessionLost}
	}
	return []error{era.ErrSessionLost, e.refusal}
}

// checkSession looks into an error status for the end of the session. The body can be read again.
func (l *httpLink) checkSession(resp *http.Response, id int64) error {
	if l.session == "" || resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("reading HTTP status %d: %w", resp.StatusCode, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if !isSessionGone(resp.StatusCode, body, id) {
		return nil
	}
	return &goneError{text: fmt.Sprintf("%v: HTTP status %d: %s",
		era.ErrSessionLost, resp.StatusCode, cut(bytes.TrimSpace(body), maxErrorText))}
}

// sessionGone ends the link, once. Requests that are on their way get a moment to hear it for themselves.
func (l *httpLink) sessionGone(ctx context.Context, err *goneError) {
	l.mu.Lock()
	if l.gone || l.over {
		l.mu.Unlock()
		return
	}
	l.gone = true
	var unheard []*call
	for _, c := range l.calls {
		if c.abort != nil {
			unheard = append(unheard, c)
		}
	}
	l.mu.Unlock()

	grace := time.NewTimer(goneGrace)
	defer grace.Stop()
	for _, c := range unheard {
		select {
		case <-c.heard.c:
		case <-c.ended.c:
		case <-grace.C:
			grace.Reset(0) // for those that follow
		case <-ctx.Done():
		}
	}
	l.lose(err)
}

// lose ends the conversation, once.
func (l *httpLink) lose(err error) {
	calls, first := l.end()
	if !first {
		return
	}
	for id, c := range calls {
		if l.begun(c) {
			// Not wrapped: that would say that the backend has not processed it.
			l.out.failed(id, fmt.Errorf("the request was in flight when it became known: %s", err.Error()))
		} else {
			l.out.failed(id, fmt.Errorf("%w before the request was sent", era.ErrSessionLost))
		}
	}
	l.out.lost(err)
}

func (l *httpLink) begun(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.abort != nil
}
