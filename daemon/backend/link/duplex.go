package link

import (
	"errors"
	"fmt"
	"sync"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// maxNoise is how much of one line that is no message is passed on.
const maxNoise = 8 << 10

// duplex is a link with one stream in each direction: the pipes of a process, or the event stream and the POSTs of
// HTTP+SSE. It keeps the table of open requests. Its owner runs one goroutine that calls send, and one that calls
// receive and, at the end, lose.
type duplex struct {
	o     Options
	facts era.Facts // set when the handshake is done
	box   *outbox
	out   *outlet

	answers chan wire.Message // has room for one: what the handshake waits for
	stirred chan struct{}     // has room for one: the backend said something else during the handshake
	done    chan struct{}     // closed when the conversation is over

	mu      sync.Mutex
	asked   int64          // requests of the handshake so far
	waiting int64          // id of its open request, 0 for none
	calls   map[int64]bool // open requests, and whether they were sent
	err     error          // why the conversation is over
}

func newDuplex(o Options) *duplex {
	return &duplex{
		o:       o.withDefaults(),
		box:     newOutbox(),
		out:     &outlet{},
		answers: make(chan wire.Message, 1),
		stirred: make(chan struct{}, 1),
		done:    make(chan struct{}),
		calls:   map[int64]bool{},
	}
}

// Facts implements [Link].
func (d *duplex) Facts() era.Facts { return d.facts }

// Shared implements [Link]: one stream is one conversation.
func (d *duplex) Shared() bool { return true }

// Congested implements [Link].
func (d *duplex) Congested() bool { return d.box.isCongested() }

// Bind gives the link its sink, and what came before in order. Binding again replaces the sink.
func (d *duplex) Bind(sink Sink) { d.out.bind(sink) }

// Done is closed when the conversation is over. Err then says why.
func (d *duplex) Done() <-chan struct{} { return d.done }

// Err is nil as long as the conversation goes on.
func (d *duplex) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Request implements [Link].
func (d *duplex) Request(id int64, method string, params []byte, _ era.Peer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.calls[id] = false
		d.box.put(item{m: wire.NewRequest(wire.IntID(id), method, params), id: id})
	}
}

// Notify implements [Link].
func (d *duplex) Notify(method string, params []byte) {
	d.o.offer(d.box, item{m: wire.NewNotification(method, params)})
}

// Respond implements [Link].
func (d *duplex) Respond(id wire.ID, result []byte, err *wire.Error) {
	d.o.offer(d.box, item{m: answer(id, result, err)})
}

func answer(id wire.ID, result []byte, err *wire.Error) wire.Message {
	if err != nil {
		return wire.NewFailure(id, err)
	}
	return wire.NewResponse(id, result)
}

// Cancel implements [Link]. A request that was not sent yet is withdrawn. For the others the backend may answer or
// not (TypeScript does not, the Go SDK does); nothing else is said of them.
func (d *duplex) Cancel(id int64, reason []byte) {
	d.mu.Lock()
	sent, open := d.calls[id]
	delete(d.calls, id)
	d.mu.Unlock()
	if open && sent {
		d.o.offer(d.box, item{m: era.BackOf(d.facts.Era).Cancel(id, reason)})
	}
}

// send sends what is queued until the box is closed or transmit fails for good. transmit gets a frame, and the id
// of the request that it is, or 0.
func (d *duplex) send(transmit func(frame []byte, id int64) error) error {
	for {
		it, ok := d.box.next()
		if !ok {
			return nil
		}
		var err error
		if frame := d.frame(it); frame != nil {
			err = transmit(frame, it.id)
		}
		if d.box.sent(it) {
			d.out.writable()
		}
		if err != nil {
			return err
		}
	}
}

// frame returns the bytes to send for an item, nil for none: then whoever waits for it has been told.
func (d *duplex) frame(it item) []byte {
	if it.refused {
		d.fail(it.id, &answerError{ErrQueueFull})
		return nil
	}
	frame := it.m.Bytes()
	if size := len(frame) + 1; d.o.MaxRequest > 0 && size > d.o.MaxRequest && it.id < OwnIDs {
		return d.tooLarge(it, &TooLargeError{Size: int64(size), Limit: d.o.MaxRequest, Which: "[proxy] max_request"})
	}
	if it.id != 0 && !d.markSent(it.id) {
		return nil // withdrawn
	}
	return frame
}

// tooLarge tells whoever waits for a message that will not be sent, and returns what to send instead.
func (d *duplex) tooLarge(it item, err *TooLargeError) []byte {
	switch it.m.Kind {
	case wire.Request:
		d.fail(it.id, err)
	case wire.Response, wire.Failure:
		return wire.NewFailure(it.m.ID, err.Answer()).Bytes()
	case wire.Notification:
		d.o.Logger.Warn("dropped a notification to the backend", "method", it.m.Method, "error", err)
	}
	return nil
}

func (d *duplex) receive(frame []byte) {
	m, err := wire.Parse(frame)
	switch {
	case err == nil:
		d.dispatch(m)
	case errors.Is(err, wire.ErrBatch):
		d.receiveBatch(frame)
	default:
		d.unreadable(frame, err)
	}
}

// receiveBatch takes what protocol versions before 2025-06-18 allow.
func (d *duplex) receiveBatch(frame []byte) {
	elems, err := wire.ParseBatch(frame)
	if err != nil {
		d.unreadable(frame, err)
		return
	}
	for _, elem := range elems {
		m, err := wire.Parse(elem)
		if err != nil {
			d.unreadable(elem, err)
			continue
		}
		d.dispatch(m)
	}
}

// unreadable takes a line that is no message. Most are a banner or a log line that went to the wrong stream, but
// somebody may wait for what it was meant to be.
func (d *duplex) unreadable(frame []byte, err error) {
	if id, ok := answered(frame); ok && d.failUnread(id, unreadableAnswer(err)) {
		return
	}
	if id, ok := asked(frame); ok {
		d.Respond(id, nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: err.Error()})
	}
	d.stir()
	d.o.Noise(cut(frame, maxNoise))
}

func unreadableAnswer(err error) *answerError {
	return &answerError{fmt.Errorf("the backend's answer is unreadable: %w", err)}
}

// failUnread ends the request whose answer cannot be read, which may be the handshake's, and reports whether it was
// open.
func (d *duplex) failUnread(id int64, err *answerError) bool {
	d.mu.Lock()
	handshake := d.waiting == id
	d.mu.Unlock()
	if handshake {
		d.dispatchAnswer(wire.NewFailure(wire.IntID(id), err.Answer()))
		return true
	}
	return d.fail(id, err)
}

func (d *duplex) dispatch(m wire.Message) {
	if m.Kind == wire.Response || m.Kind == wire.Failure {
		d.dispatchAnswer(m)
		return
	}
	d.stir()
	if m.Kind == wire.Request && m.Method == methodPing {
		// Answered here, because it also comes while nobody is bound, and silence makes the Go SDK end its session.
		d.Respond(m.ID, []byte(`{}`), nil)
		return
	}
	if d.out.message(m, 0) {
		return
	}
	if m.Kind == wire.Request {
		d.Respond(m.ID, nil, nobody())
		return
	}
	d.o.Logger.Debug("dropped a notification of the backend: nobody is attached", "method", m.Method)
}

// nobody answers the requests of a backend that nobody can take.
func nobody() *wire.Error {
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "no client is attached that could answer"}
}

func (d *duplex) dispatchAnswer(m wire.Message) {
	id, ok := m.ID.Echoed()
	d.mu.Lock()
	// During the handshake one request is open, so that an error without an id can only be about that one.
	handshake := d.waiting != 0 && (ok && id == d.waiting || m.ID == wire.NullID)
	delete(d.calls, id)
	d.mu.Unlock()
	switch {
	case handshake:
		select {
		case d.answers <- m:
		default: // a second answer to the same request
		}
	case !ok:
		d.o.Logger.Warn("dropped an answer of the backend that names no request of ours",
			"id", string(m.ID), "error", string(m.Error))
	default:
		d.out.message(m, 0)
	}
}

// stir notes that the process is up and says something, be it no answer.
func (d *duplex) stir() {
	select {
	case d.stirred <- struct{}{}:
	default:
	}
}

// oversized finds out who waits for a line that was dropped for its length.
func (d *duplex) oversized(e *wire.TooLongError) {
	err := &TooLargeError{Size: e.Size, Limit: e.Limit, Which: replyLimit}
	log := d.o.Logger.With("error", err)
	env := e.Outline()
	switch {
	case env.Method != "" && env.ID != "":
		log.Warn("refused a request of the backend", "method", env.Method)
		d.Respond(env.ID, nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: err.Error()})
	case env.Method != "":
		log.Warn("dropped a notification of the backend", "method", env.Method)
	case env.ID != "":
		log.Warn("dropped an answer of the backend", "id", string(env.ID))
		if id, ok := env.ID.Echoed(); ok {
			d.fail(id, err)
		}
	case env.Answer:
		// Its id is in the middle. If several requests wait, any of them may be the one whose answer is gone; an
		// error for all of them is better than one of them waiting for ever.
		log.Warn("dropped an answer of the backend whose request is not known")
		d.failAll(func(bool) error { return err })
	default:
		log.Warn("dropped a line of the backend's stdout")
	}
}

// markSent notes that the backend may know this request from now on. It reports whether it is still wanted.
func (d *duplex) markSent(id int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == d.waiting {
		return true
	}
	if _, open := d.calls[id]; !open {
		return false
	}
	d.calls[id] = true
	return true
}

// fail ends one request, and reports whether it was open.
func (d *duplex) fail(id int64, err error) bool {
	d.mu.Lock()
	_, open := d.calls[id]
	delete(d.calls, id)
	d.mu.Unlock()
	if open {
		d.out.failed(id, err)
	}
	return open
}

// failAll ends every open request with the error for it.
func (d *duplex) failAll(errFor func(written bool) error) {
	d.mu.Lock()
	calls := d.calls
	d.calls = map[int64]bool{}
	d.mu.Unlock()
	for id, written := range calls {
		d.out.failed(id, errFor(written))
	}
}

// lose ends the conversation, once.
func (d *duplex) lose(err error) {
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return
	}
	d.err = err
	d.mu.Unlock()

	d.box.close()
	d.failAll(func(written bool) error {
		if written {
			return err
		}
		return fmt.Errorf("%w before the request was sent: %w", era.ErrSessionLost, err)
	})
	d.out.lost(err)
	close(d.done)
}
