package link

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// firstRetry and lastRetry bound the pause between two attempts to reach a server that is coming up: short
	// against what a start takes, and long enough not to busy the machine that is starting it.
	firstRetry = 25 * time.Millisecond
	lastRetry  = 250 * time.Millisecond
)

// Host is an HTTP backend: it knows the URL and hands out links. Its methods may be called from any goroutine;
// [Host.Connect] comes first.
type Host struct {
	target  *url.URL
	invalid error // what is wrong with the URL
	o       Options
	client  *http.Client

	work     sync.WaitGroup // links, and calls of Connect and Open
	asked    atomic.Int64   // requests of our own
	rawNames atomic.Bool    // Mcp-Name is taken as plain bytes only
	tools    *toolCache
	opening  chan struct{} // holds a token while nobody opens the shared link or detects the eras again

	mu       sync.Mutex
	closed   bool
	running  map[*context.CancelCauseFunc]struct{} // ends what work counts
	links    map[hosted]struct{}
	greeting era.Peer
	facts    map[era.Era]era.Facts
	doubted  bool // the eras are to be detected again before the next link
	sse      bool // HTTP+SSE instead of Streamable HTTP
	sessions bool // the legacy handshake gives a session
	shared   bool // a second handshake was refused, or the transport has one stream
	control  hosted
}

// hosted is a link of a host.
type hosted interface {
	Link
	Bind(Sink)
	share()
	alive() bool
	// inFlight are the ends of what it waits for from the backend.
	inFlight() []<-chan struct{}
}

// NewHTTP is the host of a backend that speaks Streamable HTTP at rawURL, or HTTP+SSE if that is all there is.
func NewHTTP(rawURL string, o Options) *Host {
	target, err := parseTarget(rawURL)
	h := &Host{
		target:  target,
		invalid: err,
		o:       o.withDefaults(),
		client:  newClient(),
		tools:   newToolCache(),
		opening: make(chan struct{}, 1),
		running: map[*context.CancelCauseFunc]struct{}{},
		links:   map[hosted]struct{}{},
		facts:   map[era.Era]era.Facts{},
	}
	h.opening <- struct{}{}
	return h
}

// NewSSE is the host of a backend that speaks HTTP+SSE of 2024-11-05 at rawURL. All sessions share one link.
func NewSSE(rawURL string, o Options) *Host {
	h := NewHTTP(rawURL, o)
	h.sse, h.shared = true, true
	return h
}

// Connect waits until the backend answers, and learns which eras it offers. A connection that is refused or broken,
// and an answer that says "not yet", are tried again until ctx ends. The facts are those of the greeting's era if
// sessions of it get a link in that era, and name all eras and versions that the backend offers.
//
// A legacy backend keeps the session of this handshake for as long as the host lives: should it refuse a second
// one, then that is the link all sessions share.
func (h *Host) Connect(ctx context.Context, greeting era.Peer) (era.Facts, error) {
	if h.invalid != nil {
		return era.Facts{}, h.invalid
	}
	ctx, leave, err := h.enter(ctx)
	if err != nil {
		return era.Facts{}, err
	}
	defer leave()
	h.mu.Lock()
	h.greeting = greeting
	h.mu.Unlock()

	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := h.detect(ctx, greeting)
		if err == nil {
			facts, _ := h.FactsOf(h.eraFor(greeting))
			return facts, nil
		}
		if ctx.Err() != nil {
			return era.Facts{}, fmt.Errorf("waiting for %s: %w", h.target, context.Cause(ctx))
		}
		if !notReady(err) {
			return era.Facts{}, fmt.Errorf("connecting to %s: %w", h.target, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return era.Facts{}, fmt.Errorf("waiting for %s: %w (last error: %w)", h.target, context.Cause(ctx), err)
		}
	}
}

// FactsOf is what the backend said in the handshake of an era, if it offers that era.
func (h *Host) FactsOf(e era.Era) (era.Facts, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts, ok := h.facts[e]
	if !ok {
		return era.Facts{}, false
	}
	return h.complete(facts), true
}

// complete gives facts the eras and versions of all handshakes. The caller holds mu.
func (h *Host) complete(facts era.Facts) era.Facts {
	facts.Eras, facts.Versions = nil, slices.Clone(facts.Versions)
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		other, ok := h.facts[e]
		if !ok {
			continue
		}
		facts.Eras = append(facts.Eras, e)
		for _, v := range other.Versions {
			if !slices.Contains(facts.Versions, v) {
				facts.Versions = append(facts.Versions, v)
			}
		}
	}
	return facts
}

// Shared reports whether all sessions share one link. It may become true at an Open.
func (h *Host) Shared() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shared
}

// eraFor is the era of the link for a peer: its own where that is offered. Legacy without a session is worth less
// to a legacy client than a translation: no subscriptions, no questions, no cancellation that has an effect.
func (h *Host) eraFor(peer era.Peer) era.Era {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, modern := h.facts[era.Modern]
	if !modern || peer.Era == era.Legacy && h.sessions {
		return era.Legacy
	}
	return era.Modern
}

// Open makes a link for one session, in the peer's era where the backend offers it. Where all share one link,
// this returns it, bound to this sink from now on. An error with a *wire.Error in it is the backend's refusal.
func (h *Host) Open(ctx context.Context, peer era.Peer, sink Sink) (Link, error) {
	ctx, leave, err := h.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := h.openOnce(ctx, peer, sink)
	if refusesVersion(err) && !h.Shared() {
		h.doubt() // it spoke the legacy era when it was asked last
		l, err = h.openOnce(ctx, peer, sink)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a link to the backend: %w", err)
	}
	return l, nil
}

func (h *Host) openOnce(ctx context.Context, peer era.Peer, sink Sink) (hosted, error) {
	if err := h.redetect(ctx); err != nil {
		return nil, err
	}
	switch {
	case h.Shared():
		return h.openShared(ctx, peer, sink)
	case h.eraFor(peer) == era.Modern:
		return h.openModern(ctx, sink)
	default:
		return h.openSession(ctx, peer, sink)
	}
}

func (h *Host) openModern(ctx context.Context, sink Sink) (hosted, error) {
	facts, _ := h.FactsOf(era.Modern)
	l := newHTTPLink(h, facts, "")
	l.Bind(sink)
	return l, h.start(ctx, l, l.run)
}

// openSession makes a session of its own, unless the backend has but one.
func (h *Host) openSession(ctx context.Context, peer era.Peer, sink Sink) (hosted, error) {
	l, err := h.newSession(ctx, peer)
	if err == nil {
		l.Bind(sink)
		h.releaseControl()
		return l, nil
	}
	if isVerdict(err) && !refusesVersion(err) && h.becomeShared() {
		h.o.Logger.Info("the backend takes no second initialize; all sessions share one link", "error", err)
		return h.openShared(ctx, peer, sink)
	}
	return nil, err
}

// becomeShared makes the control link the one for all, if there is one.
func (h *Host) becomeShared() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.control == nil || !h.control.alive() {
		return h.shared // somebody else has found out before
	}
	h.shared = true
	h.control.share()
	return true
}

// releaseControl lets the control link refuse what the backend asks it, now that it is known to serve nobody.
func (h *Host) releaseControl() {
	h.mu.Lock()
	control := h.control
	h.mu.Unlock()
	if control != nil {
		control.Bind(refuser{control})
	}
}

// openShared binds the link that all share, and makes another one if it is gone.
func (h *Host) openShared(ctx context.Context, peer era.Peer, sink Sink) (hosted, error) {
	select {
	case <-h.opening:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { h.opening <- struct{}{} }()
	h.mu.Lock()
	l, sse := h.control, h.sse
	h.mu.Unlock()
	if l == nil || !l.alive() {
		var err error
		if sse {
			l, err = h.newSSE(ctx, peer)
		} else {
			l, err = h.newSession(ctx, peer)
		}
		if err != nil {
			return nil, err
		}
		h.setControl(l)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // whoever asked has gone, and must not become the one who hears
	}
	l.share()
	l.Bind(sink)
	return l, nil
}

func (h *Host) setControl(l hosted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.control = l
}

// InFlight are the ends of the requests that are with the backend at this moment. When the backend has ended they end
// by themselves, with what it answered before or with an error, unless somebody else holds its connections.
func (h *Host) InFlight() []<-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ends []<-chan struct{}
	for l := range h.links {
		ends = append(ends, l.inFlight()...)
	}
	return ends
}

// Close ends every link and session, and whatever Connect and Open are doing, and waits for all goroutines. Sessions
// are deleted with a short deadline.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	for l := range h.links {
		l.Close()
	}
	for cancel := range h.running {
		(*cancel)(ErrClosed)
	}
	h.mu.Unlock()
	h.work.Wait()
	h.client.CloseIdleConnections()
}

// enter begins a piece of work that Close ends and waits for.
func (h *Host) enter(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		cancel(ErrClosed)
		return nil, nil, ErrClosed
	}
	h.work.Add(1)
	h.running[&cancel] = struct{}{}
	return ctx, func() {
		h.mu.Lock()
		delete(h.running, &cancel)
		h.mu.Unlock()
		cancel(nil)
		h.work.Done()
	}, nil
}

// start runs a link until its end. Its context has the values of ctx, but lives on.
func (h *Host) start(ctx context.Context, l hosted, run func(context.Context)) error {
	ctx, leave, err := h.enter(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.links[l] = struct{}{}
	h.mu.Unlock()
	go func() {
		defer leave()
		run(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.links, l)
	}()
	return nil
}

// refuser is the sink of a control link that serves nobody.
type refuser struct{ link Link }

// Message implements [Sink].
func (r refuser) Message(m wire.Message, _ int64) {
	if m.Kind == wire.Request {
		r.link.Respond(m.ID, nil, nobody())
	}
}

// Failed implements [Sink].
func (refuser) Failed(int64, error) {}

// Writable implements [Sink].
func (refuser) Writable() {}

// Lost implements [Sink].
func (refuser) Lost(error) {}
