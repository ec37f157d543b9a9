package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// Methods that the router treats in a way of their own.
const (
	methodInitialize   = "initialize"
	methodDiscover     = "server/discover"
	methodPing         = "ping"
	methodSetLevel     = "logging/setLevel"
	methodSubscribe    = "resources/subscribe"
	methodUnsubscribe  = "resources/unsubscribe"
	methodListen       = "subscriptions/listen"
	methodToolsList    = "tools/list"
	methodToolsCall    = "tools/call"
	methodPromptsList  = "prompts/list"
	methodPromptsGet   = "prompts/get"
	methodResources    = "resources/list"
	methodTemplates    = "resources/templates/list"
	methodRead         = "resources/read"
	methodElicit       = "elicitation/create"
	methodSample       = "sampling/createMessage"
	methodRoots        = "roots/list"
	noteInitialized    = "notifications/initialized"
	noteCancelled      = "notifications/cancelled"
	noteProgress       = "notifications/progress"
	noteMessage        = "notifications/message"
	noteRoots          = "notifications/roots/list_changed"
	noteTools          = "notifications/tools/list_changed"
	notePrompts        = "notifications/prompts/list_changed"
	noteResources      = "notifications/resources/list_changed"
	noteUpdated        = "notifications/resources/updated"
	noteAcknowledged   = "notifications/subscriptions/acknowledged"
	noteElicitComplete = "notifications/elicitation/complete"
	noteTaskStatus     = "notifications/tasks/status"
)

// Router joins the clients and the backend. Make one with New, start Run, and
// then use it from anywhere: its methods only post.
type Router struct {
	config Config
	log    *slog.Logger
	tools  devTools
	// hiddenTools is published for HiddenTools.
	hiddenTools atomic.Pointer[[]string]

	// The border: everything here may be used by any goroutine.
	clients    chan frameEvent // unbuffered, so that a frame handed over is a frame in the loop
	mail       *mailbox
	stopped    chan struct{}
	sessionIDs atomic.Uint64
	outBytes   atomic.Int64 // in all outboxes
	attached   atomic.Int64
	published  atomic.Pointer[[]*Session]
	greeting   atomic.Pointer[era.Peer]

	// Everything below belongs to the goroutine in Run.

	sessions map[*Session]*client
	order    []*client // as attached
	inHand   *Session  // whose frame was taken and is handled after the mail
	agenda   agenda
	workers  sync.WaitGroup // openings, closings and dev tools in progress
	// spawn starts a worker, whose context ends with Run or with the function it
	// returns.
	spawn   func(func(context.Context)) context.CancelCauseFunc
	lastKey uint64 // of the names minted towards clients

	backend   backend
	held      holding
	openBytes int   // of the requests of all clients that are open
	shared    *link // of the current generation, nil while there is none
	links     map[*link]struct{}
	retired   map[*link]struct{} // of sessions that have ended, about to be closed
	// starter is the client whose request started the backend last, and how it
	// presented itself.
	starter     *client
	starterPeer era.Peer

	states  map[string]*pending // by the requestState minted for it
	seekers []*seeker           // questions of the backend that wait for somebody to answer

	closing error // ErrShutdown or ErrRestart once the daemon is ending
	// quiet is closed when after that nothing is in flight on the backend.
	quiet   chan struct{}
	isQuiet bool

	// ended is why Run has returned; to be read once stopped is closed.
	ended error
}

// New returns a router that does nothing until Run.
func New(config Config) *Router {
	if config.RequestWait <= 0 {
		config.RequestWait = DefaultRequestWait
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Router{
		config:   config,
		log:      config.Logger,
		tools:    newDevTools(config.Tools),
		clients:  make(chan frameEvent),
		mail:     newMailbox(),
		stopped:  make(chan struct{}),
		quiet:    make(chan struct{}),
		sessions: make(map[*Session]*client),
		links:    make(map[*link]struct{}),
		retired:  make(map[*link]struct{}),
		states:   make(map[string]*pending),
	}
}

// errStopping ends the work that Run has started elsewhere.
var errStopping = errors.New("the router is stopping")

// Run is the loop. It serves until ctx ends, then ends all sessions with the
// cause of ctx if that is ErrRestart, else with ErrShutdown, and returns when
// everything it has started is over. It must be called once.
func (r *Router) Run(ctx context.Context) error {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	r.spawn = func(do func(context.Context)) context.CancelCauseFunc {
		ctx, cancel := context.WithCancelCause(work)
		r.workers.Go(func() {
			defer cancel(nil)
			do(ctx)
		})
		return cancel
	}

	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		r.arm(timer)
		select {
		case <-ctx.Done():
		case e := <-r.intake():
			// Whatever was posted before this frame was handed over comes first:
			// its own session's beginning may be among it.
			r.inHand = e.session
			r.readMail()
			r.inHand = nil
			e.handle(r)
		case <-r.mail.ready:
			r.readMail()
		case <-timer.C:
			r.agenda.ring(time.Now())
		}
		r.checkDrained()
	}
	r.end(context.Cause(ctx))
	stop(errStopping)
	r.workers.Wait()
	return nil
}

func (r *Router) readMail() {
	for _, e := range r.mail.take() {
		e.handle(r)
	}
}

// arm sets the loop's timer to the first alarm.
func (r *Router) arm(timer *time.Timer) {
	if at, ok := r.agenda.next(); ok {
		timer.Reset(time.Until(at))
		return
	}
	timer.Stop()
}

// intake is where frames of clients come from: nowhere while the link that all
// share has more to send than it should.
func (r *Router) intake() <-chan frameEvent {
	if r.shared != nil && r.shared.congested() {
		return nil
	}
	return r.clients
}

func (e shutdownEvent) handle(r *Router) {
	if r.closing != nil {
		return
	}
	r.closing = e.cause
	if r.handingOver() {
		r.recall()
		return
	}
	for _, call := range r.held.takeAll() {
		r.failOwn(call, r.shuttingDown())
	}
}

// handingOver reports whether another daemon follows, which serves what this one
// has not brought to the backend.
func (r *Router) handingOver() bool { return errors.Is(r.closing, ErrRestart) }

func (r *Router) shuttingDown() Failure {
	return Failure{Reason: ReasonShuttingDown, State: r.backend.state(), Generation: r.backend.number}
}

// restarted is what becomes of a call that was in flight when the daemon handed
// over.
func (r *Router) restarted() Failure {
	return Failure{Reason: ReasonRestarted, State: r.backend.state(), Generation: r.backend.number}
}

// refuse takes a call that the ending daemon does not bring to the backend any
// more. On a handover it waits as at every restart.
func (r *Router) refuse(call *call) {
	if r.handingOver() {
		r.hold(call)
		return
	}
	r.failOwn(call, r.shuttingDown())
}

// leave ends a call that is still open when the loop ends. On a handover what
// cannot have had effects stays unanswered: the shim sends it to the successor.
func (r *Router) leave(call *call) {
	switch {
	case !r.handingOver():
		r.failOwn(call, r.shuttingDown())
	case call.delivered && !call.safe():
		r.failOwn(call, r.restarted())
	default:
		r.release(call)
	}
}

// end is the last turn of the loop.
func (r *Router) end(cause error) {
	if !errors.Is(cause, ErrRestart) {
		cause = ErrShutdown
	}
	if r.closing == nil {
		r.closing = cause
	}
	r.ended = cause
	for _, c := range r.order {
		for _, call := range c.open() {
			r.detach(call, nil)
			r.leave(call)
		}
		if errors.Is(cause, ErrShutdown) {
			r.endListens(c)
		}
	}
	for l := range r.links {
		r.closeLink(l, r.shuttingDown())
	}
	for l := range r.retired {
		r.closeRetired(l)
	}
	for _, c := range r.order {
		c.session.out.close(cause, false)
	}
	for _, e := range r.mail.close() {
		if abandoned, ok := e.(interface{ abandon(cause error) }); ok {
			abandoned.abandon(cause)
		}
	}
	r.published.Store(nil)
	close(r.stopped)
}

// traced reports whether somebody wants to see the traffic.
func (r *Router) traced() bool {
	return r.config.Traffic != nil && (r.config.Watched == nil || r.config.Watched())
}

// trace shows a message to the traffic hook.
func (r *Router) trace(d Direction, session, generation uint64, e era.Era, m wire.Message) {
	if r.traced() {
		r.traceFrame(d, session, generation, e, m.Bytes())
	}
}

func (r *Router) traceFrame(d Direction, session, generation uint64, e era.Era, frame []byte) {
	if r.traced() {
		r.config.Traffic(Traffic{Direction: d, Session: session, Generation: generation, Era: e, Frame: frame})
	}
}
