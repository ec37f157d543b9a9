package relay

import (
	"context"
	"errors"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// reopenFirst and reopenMost bound the pause before a link is opened again
	// after it was lost or could not be opened: short at first, because the
	// usual reason is a backend that is just going down or coming up.
	reopenFirst = 100 * time.Millisecond
	reopenMost  = 5 * time.Second
	// closeGrace is how long a session's link stays open after the session, so
	// that the cancels it has queued get out.
	closeGrace = 500 * time.Millisecond
)

// linkState is the life of a link.
type linkState uint8

const (
	linkOpening linkState = iota
	linkOpen
	linkClosed
)

// link is one conversation with a generation: of one session, or shared by all.
type link struct {
	generation uint64
	owner      *client // nil for the shared one
	state      linkState
	conn       Link
	facts      era.Facts
	back       era.Back

	lastID  *int64 // of its requests
	legs    map[int64]*leg
	waiting []*call              // until it takes requests
	early   []event              // that came before it was open
	asks    map[wire.ID]*ask     // of this backend to legacy clients, by its ids
	parked  map[*parked]struct{} // calls of modern clients that this backend asks about
	asking  map[*call]struct{}   // calls of legacy clients that wait for what it wants

	interest *interest
	waiters  map[topic][]waiter
	level    string // the last one set on a legacy backend
	leveling int64  // the request that sets it, while it is not answered
	unasked  bool   // it logs without having been given a level
	owners   ownership

	pause     time.Duration // before the next attempt to open it
	openErr   error
	abort     context.CancelCauseFunc // of the attempt in progress
	abandoned chan struct{}           // closed with the link: nobody waits for the loop any more
	attempted bool                    // it is in progress, even if the link is not wanted any more
	standsIn  *link                   // the shared link that took over what was opened as this one
	gap       bool                    // it follows another one, so changes may have been missed
}

func (r *Router) newLink(owner *client, pause time.Duration) *link {
	l := &link{
		generation: r.backend.number,
		owner:      owner,
		pause:      pause,
		gap:        pause > 0 || owner != nil && owner.linked,
		legs:       make(map[int64]*leg),
		asks:       make(map[wire.ID]*ask),
		parked:     make(map[*parked]struct{}),
		asking:     make(map[*call]struct{}),
		waiters:    make(map[topic][]waiter),
		abandoned:  make(chan struct{}),
		lastID:     new(int64),
	}
	if owner == nil {
		l.lastID = &r.backend.lastID
	}
	r.links[l] = struct{}{}
	return l
}

func (l *link) newID() int64 {
	*l.lastID++
	return *l.lastID
}

func (l *link) shared() bool { return l.owner == nil }

// takes reports whether requests can be sent: it is open, and no log level is on
// its way that has to be there before them.
func (l *link) takes() bool { return l.state == linkOpen && l.leveling == 0 }

func (l *link) congested() bool { return l.state == linkOpen && l.conn.Congested() }

// busy reports whether a call of a client is in flight on the link.
func (l *link) busy() bool {
	if len(l.parked) > 0 || len(l.waiting) > 0 || len(l.asking) > 0 {
		return true
	}
	for _, lg := range l.legs {
		if lg.call != nil {
			return true
		}
	}
	return false
}

// linkNow returns the link that a client uses, nil if there is none yet.
func (r *Router) linkNow(c *client) *link {
	if c.link != nil {
		return c.link
	}
	return r.shared
}

// linkFor returns the link that a client uses, opening one if need be. The
// backend must be up.
func (r *Router) linkFor(c *client, peer era.Peer) *link {
	if c.link != nil {
		return c.link
	}
	if r.backend.generation.Shared() {
		return r.sharedLink()
	}
	c.link = r.newLink(c, 0)
	c.linked = true
	r.openLink(c.link, peer)
	return c.link
}

func (r *Router) sharedLink() *link {
	if r.shared == nil {
		r.shared = r.newLink(nil, 0)
		r.openLink(r.shared, r.Greeting())
	}
	return r.shared
}

// reopenLinks opens, when a generation has come up, the links that are wanted
// without waiting for a request.
func (r *Router) reopenLinks() {
	if r.backend.generation.Shared() {
		r.sharedLink()
		return
	}
	for _, c := range r.order {
		if c.linked || c.hasInterests() {
			r.linkFor(c, c.peer)
		}
	}
}

// openedEvent is the end of an attempt to open a link.
type openedEvent struct {
	router *Router
	link   *link
	peer   era.Peer
	conn   Link
	err    error
}

// openLink opens a link, after its pause.
func (r *Router) openLink(l *link, peer era.Peer) {
	if l.pause > 0 {
		r.agenda.after(l.pause, func() { r.openNow(l, peer) })
	} else {
		r.openNow(l, peer)
	}
	l.pause = min(max(2*l.pause, reopenFirst), reopenMost)
}

func (r *Router) openNow(l *link, peer era.Peer) {
	if l.state != linkOpening || !r.backend.live(l) {
		return
	}
	generation := r.backend.generation
	l.attempted = true
	l.abort = r.spawn(func(ctx context.Context) {
		conn, err := generation.Open(ctx, peer, sink{r, l})
		e := openedEvent{router: r, link: l, peer: peer, conn: conn, err: err}
		if !r.mail.post(e) {
			e.abandon(nil)
		}
	})
}

var errLinkClosed = errors.New("the link is not wanted any more")

// abandon closes what was opened for nobody.
func (e openedEvent) abandon(error) {
	if e.err == nil && !e.conn.Shared() {
		e.conn.Close()
	}
}

func (e openedEvent) handle(r *Router) {
	l := e.link
	l.attempted = false
	switch {
	case l.state != linkOpening:
		r.openedTooLate(e)
	case e.err != nil:
		r.openFailed(l, e.peer, e.err)
	case e.conn.Shared() && !l.shared():
		r.becomeShared(l, e.conn)
	default:
		r.opened(l, e.conn)
	}
}

// openedTooLate takes what was opened for a link that is not wanted any more. If
// that is the link of all, its sink is this one's now, so what reaches it goes to
// the shared link.
func (r *Router) openedTooLate(e openedEvent) {
	l := e.link
	early := l.early
	l.early = nil
	if e.err != nil || !e.conn.Shared() || r.backend.generation == nil || l.generation != r.backend.number {
		e.abandon(nil)
		return
	}
	l.standsIn = r.sharedLink()
	for _, e := range early {
		e.handle(r)
	}
}

// openFailed tries again, unless the backend itself has refused.
func (r *Router) openFailed(l *link, peer era.Peer, err error) {
	l.openErr = err
	if refusal := answerIn(err); refusal != nil {
		r.forgetLink(l)
		waiting := l.waiting
		l.waiting = nil
		for _, call := range waiting {
			r.linkRefused(call, refusal)
		}
		return
	}
	r.log.Warn("opening a link to the backend", "generation", l.generation, "error", err)
	if len(l.waiting) == 0 && !l.shared() && !l.owner.hasInterests() {
		// The next request tries again.
		r.forgetLink(l)
		return
	}
	r.openLink(l, peer)
}

// linkRefused answers a call whose link the backend refused to open.
func (r *Router) linkRefused(call *call, refusal *wire.Error) {
	call.stage = callHere
	r.failForWant(call, Failure{
		Reason: ReasonLinkFailed, State: r.backend.state(), Generation: r.backend.number,
		Message: "the backend refused the handshake: " + r.masked(refusal.Message),
	})
}

// becomeShared takes a link that was opened for one session and turned out to
// be the one that all share, because the server takes no second initialize.
func (r *Router) becomeShared(l *link, conn Link) {
	l.owner.link = nil
	if r.shared == nil {
		l.owner, l.lastID = nil, &r.backend.lastID
		r.shared = l
		r.opened(l, conn)
		return
	}
	// Another session found out first. Which of the two sinks the link is bound
	// to is not known here, so what reaches this one goes to the other.
	s := r.shared
	l.standsIn = s
	l.state = linkClosed
	delete(r.links, l)
	s.waiting = append(s.waiting, l.waiting...)
	for _, call := range l.waiting {
		call.link = s
	}
	s.early = append(s.early, l.early...)
	l.waiting, l.early = nil, nil
	if s.state == linkOpening {
		r.opened(s, conn)
		return
	}
	r.drainLink(s)
}

// opened starts the conversation. What the backend is to announce is asked for
// first, so that no held call can cause a change that goes unheard.
func (r *Router) opened(l *link, conn Link) {
	l.state, l.conn, l.openErr, l.pause = linkOpen, conn, nil, 0
	l.facts = conn.Facts()
	l.back = era.BackOf(l.facts.Era)
	l.interest = newInterest(l.facts.Era == era.Modern, !l.shared(), l.newID)
	if !l.shared() {
		r.publishPeer(l.owner)
	}
	r.adjustLevel(l, "")
	r.express(l)
	r.drainLink(l)
}

// drainLink sends what has waited for a link, and takes what came meanwhile.
func (r *Router) drainLink(l *link) {
	waiting := l.waiting
	l.waiting = nil
	for _, call := range waiting {
		switch {
		case call.client.unsettled > 0:
			r.fence(call)
		case !l.takes():
			r.queue(call, l)
		default:
			r.transmit(call, l)
		}
	}
	early := l.early
	l.early = nil
	for _, e := range early {
		e.handle(r)
	}
}

// retireLink ends the link of a session that has ended. Its calls were
// cancelled before.
func (r *Router) retireLink(l *link) {
	l.owner.link = nil
	open := l.state == linkOpen
	r.unhook(l)
	if open {
		r.retired[l] = struct{}{}
		r.agenda.after(closeGrace, func() { r.closeRetired(l) })
	}
}

func (r *Router) closeRetired(l *link) {
	delete(r.retired, l)
	r.closeConn(l.conn)
}

// closeConn closes a connection elsewhere, as it may take a while.
func (r *Router) closeConn(conn Link) { r.spawn(func(context.Context) { conn.Close() }) }

// closeLink ends a link with its generation.
func (r *Router) closeLink(l *link, why Failure) {
	open := l.state == linkOpen
	r.endLink(l, why)
	if open {
		r.closeConn(l.conn)
	}
}

// forgetLink drops a link that was never open.
func (r *Router) forgetLink(l *link) {
	if l.owner != nil && l.owner.link == l {
		l.owner.link = nil
	}
	if r.shared == l {
		r.shared = nil
	}
	r.settleWaiters(l)
	r.unhook(l)
}

// unhook makes whatever still comes from a link reach nobody.
func (r *Router) unhook(l *link) {
	if l.state == linkClosed {
		return
	}
	l.state = linkClosed
	close(l.abandoned)
	if l.abort != nil {
		l.abort(errLinkClosed)
	}
	delete(r.links, l)
}

// endLink answers or moves everything that depends on a link.
func (r *Router) endLink(l *link, why Failure) {
	r.unhook(l)
	if l.owner != nil && l.owner.link == l {
		l.owner.link = nil
	}
	r.settleWaiters(l)
	r.withdrawAsks(l)
	r.dropSeekers(l)
	delete(r.links, l)
	waiting, legs := l.waiting, l.legs
	l.waiting, l.legs = nil, nil
	for _, id := range sortedIDs(legs) {
		r.lose(l, legs[id], why)
	}
	for _, call := range sortedCalls(l.asking) {
		r.withdrawRound(call, nil)
		r.loseCall(call, why)
	}
	for _, call := range waiting {
		if !call.done {
			call.stage = callHere
			r.forward(call)
		}
	}
}

// sink posts what comes from a link to the loop.
type sink struct {
	router *Router
	link   *link
}

type (
	messageEvent struct {
		link *link
		m    wire.Message
		via  int64
	}
	failedEvent struct {
		link *link
		id   int64
		err  error
	}
	writableEvent struct{ link *link }
	lostEvent     struct {
		link *link
		err  error
	}
)

// Message implements Sink.
func (s sink) Message(m wire.Message, via int64) {
	size := eventBytes + len(m.Method) + len(m.Params) + len(m.Result) + len(m.Error)
	s.router.mail.postMessage(messageEvent{s.link, m, via}, size, s.link.abandoned)
}

// Failed implements Sink.
func (s sink) Failed(id int64, err error) { s.router.mail.post(failedEvent{s.link, id, err}) }

// Writable implements Sink.
func (s sink) Writable() { s.router.mail.post(writableEvent{s.link}) }

// Lost implements Sink.
func (s sink) Lost(err error) { s.router.mail.post(lostEvent{s.link, err}) }

// current returns the link that an event is for, nil if it is stale or has to
// wait for the link to open, in which case it was queued.
func (r *Router) current(l *link, e event) *link {
	if l.standsIn != nil {
		l = l.standsIn
	}
	switch l.state {
	case linkOpen:
		return l
	case linkOpening:
		l.early = append(l.early, e)
	case linkClosed:
		if l.attempted {
			l.early = append(l.early, e)
		}
	}
	return nil
}

func (e messageEvent) handle(r *Router) {
	l := r.current(e.link, e)
	if l == nil {
		return
	}
	r.trace(FromBackend, r.sessionOf(l, e.m, e.via), l.generation, l.facts.Era, e.m)
	switch e.m.Kind {
	case wire.Response, wire.Failure:
		r.answer(l, e.m)
	case wire.Request:
		r.question(l, e.m, e.via)
	case wire.Notification:
		r.backendNotification(l, e.m, e.via)
	}
}

func (e failedEvent) handle(r *Router) {
	l := r.current(e.link, e)
	if l == nil {
		return
	}
	lg := l.legs[e.id]
	answer := answerIn(e.err)
	switch {
	case lg == nil:
		if answer == nil {
			answer = &wire.Error{Code: wire.CodeInternal, Message: e.err.Error()}
		}
		r.interestAnswered(l, e.id, wire.NewFailure(wire.IntID(e.id), answer))
	case errors.Is(e.err, era.ErrSessionLost):
		r.replaceLink(l)
		r.sessionLost(l, lg, e.err)
	case isOverLimit(e.err) && lg.call != nil && lg.parked == nil && lg.answered == nil:
		r.overLimit(l, lg, e.err)
	case answer != nil:
		r.answer(l, wire.NewFailure(wire.IntID(e.id), answer))
	default:
		r.lostByTransport(l, lg, e.err)
	}
}

// isOverLimit reports whether a link gave a request up for a limit of ours.
func isOverLimit(err error) bool {
	_, is := errors.AsType[interface {
		error
		OverLimit()
	}](err)
	return is
}

// overLimit answers a call whose request or answer passed a limit: the backend
// lives, and did not see it or has answered it.
func (r *Router) overLimit(l *link, lg *leg, why error) {
	delete(l.legs, lg.id)
	r.agenda.stop(lg.lost)
	call := lg.call
	call.leg, call.link, call.stage = nil, nil, callHere
	if call.req.Level != "" {
		r.adjustLevel(l, "")
	}
	r.failOwn(call, Failure{
		Reason: ReasonOverLimit, State: r.backend.state(), Generation: l.generation, Message: why.Error(),
	})
}

// replaceLink makes sure that what comes next does not use a link whose session
// the backend has forgotten, or whose pipe is broken. What is in flight on it
// gets its own notice.
func (r *Router) replaceLink(l *link) {
	if !r.unlink(l) || !r.backend.serves() {
		return
	}
	if l.shared() {
		r.shared = r.newLink(nil, reopenFirst)
		r.openLink(r.shared, r.Greeting())
		return
	}
	r.linkFor(l.owner, l.owner.peer)
}

// unlink takes a link from those who use it, and reports whether anybody did.
func (r *Router) unlink(l *link) bool {
	switch c := l.owner; {
	case r.shared == l:
		r.shared = nil
	case c != nil && c.link == l:
		c.link = nil
		c.session.gate.set(true)
		r.publishPeer(c)
	default:
		return false
	}
	return true
}

func (e writableEvent) handle(r *Router) {
	if l := r.current(e.link, e); l != nil && l.owner != nil {
		l.owner.session.gate.set(!l.congested())
	}
}

// handle of lostEvent: the requests in flight wait a moment for the supervisor
// to say why; if the generation goes on all the same, another link is opened.
func (e lostEvent) handle(r *Router) {
	l := e.link
	if l.standsIn != nil {
		l = l.standsIn
	}
	if l.state == linkOpening || l.attempted {
		l.early = append(l.early, e)
		return
	}
	if l.state == linkClosed {
		return
	}
	r.log.Info("link to the backend lost", "generation", l.generation, "error", e.err)
	r.unhook(l)
	r.settleWaiters(l)
	r.withdrawAsks(l)
	r.dropSeekers(l)
	for _, id := range sortedIDs(l.legs) {
		r.lostByTransport(l, l.legs[id], e.err)
	}
	if len(l.legs)+len(l.asking) > 0 {
		r.links[l] = struct{}{} // for its generation's end to find what is in flight
	}
	r.closeConn(l.conn)
	waiting := l.waiting
	l.waiting = nil
	r.openInstead(l)
	for _, call := range waiting {
		call.stage = callHere
		r.forward(call)
	}
}

// openInstead opens another link in the place of one that was lost, if anybody
// is to hear something on it; else the next request does.
func (r *Router) openInstead(l *link) {
	c := l.owner
	if c == nil {
		r.replaceLink(l)
		return
	}
	if r.unlink(l) && r.backend.serves() && c.hasInterests() {
		c.link = r.newLink(c, reopenFirst)
		r.openLink(c.link, c.peer)
	}
}

// masked is what a link says of a failure, without the secrets in it.
func (r *Router) masked(text string) string {
	if r.config.Mask == nil {
		return text
	}
	return r.config.Mask(text)
}

// answerIn returns the answer of the backend that an error of a link carries.
func answerIn(err error) *wire.Error {
	if answer, ok := errors.AsType[*wire.Error](err); ok {
		return answer
	}
	if answer, ok := errors.AsType[interface {
		error
		Answer() *wire.Error
	}](err); ok {
		return answer.Answer()
	}
	return nil
}

// The four ways to write to a backend, all shown to the traffic hook.

func (r *Router) requestBackend(l *link, id int64, c *client, method string, params []byte, peer era.Peer) {
	r.trace(ToBackend, c.number(), l.generation, l.facts.Era, wire.NewRequest(wire.IntID(id), method, params))
	l.conn.Request(id, method, params, peer)
	l.gateOwner()
}

// gateOwner lets the one client of a link wait that has more to send than it
// should. On the shared link the loop's intake does the same for all.
func (l *link) gateOwner() {
	if l.owner != nil && l.congested() {
		l.owner.session.gate.set(false)
	}
}

func (r *Router) notifyBackend(l *link, c *client, method string, params []byte) {
	r.trace(ToBackend, c.number(), l.generation, l.facts.Era, wire.NewNotification(method, params))
	l.conn.Notify(method, params)
	l.gateOwner()
}

func (r *Router) respondBackend(l *link, c *client, a reply) {
	if l.state != linkOpen {
		return
	}
	m := wire.NewResponse(a.server, a.result)
	if a.err != nil {
		m = wire.NewFailure(a.server, a.err)
	}
	r.trace(ToBackend, c.number(), l.generation, l.facts.Era, m)
	l.conn.Respond(a.server, a.result, a.err)
}

func (r *Router) cancelBackend(l *link, id int64, c *client, reason []byte) {
	if l.state != linkOpen {
		return
	}
	if r.traced() {
		r.trace(ToBackend, c.number(), l.generation, l.facts.Era, l.back.Cancel(id, reason))
	}
	l.conn.Cancel(id, reason)
}

// number is the session's number, 0 for nobody.
func (c *client) number() uint64 {
	if c == nil {
		return 0
	}
	return c.session.id
}

// sessionOf is the session that a message of the backend belongs to, as far as
// that is plain.
func (r *Router) sessionOf(l *link, m wire.Message, via int64) uint64 {
	if l.owner != nil {
		return l.owner.session.id
	}
	id := via
	if m.Kind == wire.Response || m.Kind == wire.Failure {
		id, _ = m.ID.Echoed()
	}
	if lg := l.legs[id]; lg != nil && lg.call != nil {
		return lg.call.client.session.id
	}
	return 0
}
