package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Why a session ends.
var (
	// ErrEnded: the client's input ended and what could be answered was.
	ErrEnded = errors.New("the client's input ended")
	// ErrSlowConsumer: the client did not read while its outbox was full.
	ErrSlowConsumer = fmt.Errorf("the client does not read its messages, and its outbox is full (%d bytes)", outboxLimit)
	// ErrShutdown: the daemon stops for good.
	ErrShutdown = errors.New("devproxy is shutting down")
	// ErrRestart: the daemon hands over to a successor, which serves the client
	// when it attaches again.
	ErrRestart = errors.New("devproxy is restarting")
	// ErrTooManySessions: MaxSessions are attached.
	ErrTooManySessions = fmt.Errorf("too many clients are attached; a daemon serves %d at most", MaxSessions)
)

// MaxSessions bounds the attached clients. Hosts that spawn a server per agent
// and never reap it have been seen with some hundreds.
const MaxSessions = 4096

// Shim says who attaches.
type Shim struct {
	PID     int64
	Version string
	// Resumed says that the client was served before, by another daemon or
	// stream: its state is about to be sent again, and what changed meanwhile is
	// unknown.
	Resumed bool
}

// Session is one attached client, as its connection sees it: Receive and
// EndOfInput on one side, Next on the other, Close when the connection is lost.
// The methods of a side are for one goroutine each.
type Session struct {
	id       uint64
	shim     Shim
	attached time.Time
	router   *Router
	out      *outbox
	gate     gate
	view     view
}

// Attach joins a client. It waits for nobody; the session ends when the
// connection calls Close, or with a cause of the router's (see Done and Err).
func (r *Router) Attach(shim Shim) (*Session, error) {
	if r.attached.Add(1) > MaxSessions {
		r.attached.Add(-1)
		return nil, ErrTooManySessions
	}
	shim.Version = short(shim.Version)
	s := &Session{
		id:       r.sessionIDs.Add(1),
		shim:     shim,
		attached: time.Now(),
		router:   r,
		out:      newOutbox(&r.outBytes),
	}
	if !r.mail.post(attachEvent{s}) {
		r.attached.Add(-1)
		<-r.stopped // it is about to be closed, if it is not yet
		return nil, r.ended
	}
	return s, nil
}

// ID is the session's number, counted from 1.
func (s *Session) ID() uint64 { return s.id }

// Receive hands over one frame of the client, which it must not change
// afterwards. It waits while the backend cannot take more, until ctx or the
// session ends.
func (s *Session) Receive(ctx context.Context, frame []byte) error {
	return s.hand(ctx, frameEvent{session: s, frame: frame})
}

// ReceiveTooLong reports a message of the client that was discarded for its
// size. The client gets an error, for the request if it can be recognised.
func (s *Session) ReceiveTooLong(ctx context.Context, long *wire.TooLongError) error {
	return s.hand(ctx, frameEvent{session: s, long: long})
}

func (s *Session) hand(ctx context.Context, e frameEvent) error {
	if err := s.gate.wait(ctx, s.out.done); err != nil {
		return err
	}
	select {
	case s.router.clients <- e:
		return nil
	case <-s.out.done:
		return s.out.err()
	case <-s.router.stopped:
		return s.router.ended
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// EndOfInput says that the client sends no more. What it has asked may finish
// briefly; then the session ends with ErrEnded.
func (s *Session) EndOfInput() { s.router.mail.post(endOfInputEvent{s}) }

// Close says that the connection is gone: nothing is answered any more.
func (s *Session) Close(cause error) {
	s.out.close(cause, true)
	s.router.mail.post(closedEvent{session: s, cause: cause})
}

// Next waits for the next frame to send to the client. After the end of the
// session it returns what is still to be sent, then the cause.
func (s *Session) Next(ctx context.Context) ([]byte, error) { return s.out.next(ctx) }

// Accepted notes that the client took a part of the frame that Next returned
// last, so that one large message on a slow line is no sign of a slow consumer.
func (s *Session) Accepted() { s.out.progress() }

// Done is closed when the session has ended. Next may still have frames.
func (s *Session) Done() <-chan struct{} { return s.out.done }

// Err is the cause of the session's end, nil before.
func (s *Session) Err() error { return s.out.err() }

// gate makes the frames of one client wait, while its own link to the backend
// is congested. The zero value is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while open
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case open && g.shut != nil:
		close(g.shut)
		g.shut = nil
	case !open && g.shut == nil:
		g.shut = make(chan struct{})
	}
}

func (g *gate) wait(ctx context.Context, done <-chan struct{}) error {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return nil
		}
		select {
		case <-shut:
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// view is what status shows of a session: written by the loop, read by anyone.
type view struct {
	peer     atomic.Pointer[peerView]
	last     atomic.Pointer[lastView]
	inFlight atomic.Int64
	listed   atomic.Uint64
}

type peerView struct {
	name, version string
	era, protocol string
	stale, link   string
}

type lastView struct {
	method string
	at     time.Time
}
