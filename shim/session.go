package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// heldWait is how long requests wait for a daemon. It stays under the 10 s
	// that the strictest client gives a server to start (openai/codex#11851), so
	// that the client reads why, and well over what a start takes.
	heldWait = 8 * time.Second
	// maxHeld and maxHeldBytes bound what waits. One line of the longest kind has
	// to fit.
	maxHeld      = 2_000
	maxHeldBytes = maxLine
	// maxHeldNotes bounds the notifications among them, which nobody answers
	// after heldWait: a day without a daemon must not fill the queue.
	maxHeldNotes = 100

	// queueHighWater is how much may wait for the daemon before no more is read
	// from the client.
	queueHighWater = 1 << 20
	// outHighWater is how much may wait for the client before no more is
	// received from the daemon, whose own outbox is the one that counts.
	outHighWater = 1 << 20
	// stallProbe is how long after that, with nothing written, the shim receives
	// a little more: a daemon that has given the client up says so behind what
	// fills the window, after 30 s.
	stallProbe = 35 * time.Second
	// stallAllowance is how much it receives then: the window and what gRPC
	// holds beside it.
	stallAllowance = 2 * client.WindowSize
	// maxOut is when the shim gives the client up itself. It is the size of the
	// daemon's outbox.
	maxOut = 32 << 20

	// quickFirst and quickMost bound the pauses between dials for a daemon that
	// is gone or does not answer; lastingFirst and lastingMost those after a
	// failure that time alone does not mend, which cost the start of a process.
	quickFirst   = 20 * time.Millisecond
	quickMost    = 2 * time.Second
	lastingFirst = time.Second
	lastingMost  = 30 * time.Second
	// nudgeAfter is how old such a failure must be for a request of the client to
	// cause an attempt out of turn, rather than to be answered with it.
	nudgeAfter = time.Second
	// stableAfter is how long a link must have lasted for its end to be dialled
	// after at once.
	stableAfter = 5 * time.Second
	// restartGrace is how long a daemon that said it restarts is waited for
	// before the shim starts one itself.
	restartGrace = 10 * time.Second
)

// item is one frame for the daemon, with whatever came in it.
type item struct {
	frame []byte
	calls []*call // the requests in it
	kind  wire.Kind
	note  string // the method of a notification
	// invalid is the answer to what is no JSON-RPC, if the shim has to give it.
	invalid []byte
}

// outlasts reports whether the item waits for a daemon however long that takes.
func (i item) outlasts() bool {
	return i.kind == wire.Notification ||
		len(i.calls) == 1 && i.calls[0].method == methodListen && i.calls[0].resent
}

// session is the loop's state: one client and the way to its daemon. Nobody
// else touches it.
type session struct {
	config    Config
	pumps     *sync.WaitGroup
	connector *connector
	ledger    *ledger
	notes     chan<- string

	queue      []item // for the daemon; what waits for one while there is none
	queueBytes int
	out        [][]byte // for the client
	outBytes   int
	outLimit   int // above it nothing is received

	link     *link // nil while there is no daemon
	linkedAt time.Time
	welcomed bool            // by the daemon of link
	closed   bool            // our side of link
	lost     <-chan struct{} // of link, until it was heard

	attempt   chan attempted // the one under way, or nil
	failures  int            // attempts and short links in a row
	last      error          // of the last attempt; nil after a success
	lastAt    time.Time
	downSince time.Time
	stopped   bool      // the daemon was stopped on purpose
	grace     time.Time // until when a daemon that restarts is waited for
	served    bool      // some daemon has welcomed this client
	said      string    // last note about a failure

	eof   bool
	eofAt time.Time

	retry, held, stall, exit *time.Timer
	heldArmed, stallArmed    bool
}

type attempted struct {
	link *link
	err  error
}

func newSession(config Config, pumps *sync.WaitGroup) *session {
	return &session{
		config:    config,
		pumps:     pumps,
		connector: &connector{config: config},
		ledger:    newLedger(),
		outLimit:  outHighWater,
		downSince: time.Now(),
		retry:     stoppedTimer(),
		held:      stoppedTimer(),
		stall:     stoppedTimer(),
		exit:      stoppedTimer(),
	}
}

func stoppedTimer() *time.Timer {
	timer := time.NewTimer(math.MaxInt64)
	timer.Stop()
	return timer
}

// finishBy is until when what is left for the client may be written after run
// has returned err.
func (s *session) finishBy(err error) time.Time {
	if s.eof && err == nil {
		return s.eofAt.Add(exitWithin)
	}
	return time.Now()
}

// run is the loop.
func (s *session) run(ctx context.Context, streams *streams) error {
	defer s.stopTimers()
	s.notes = streams.notes
	s.try(ctx)
	for !s.finished() {
		var lines <-chan line
		if s.readable() {
			lines = streams.lines
		}
		var frames chan<- []byte
		var frame []byte
		if len(s.out) > 0 {
			frames, frame = streams.frames, s.out[0]
		}
		var outgoing chan<- []byte
		var next []byte
		var incoming <-chan []byte
		var events <-chan event
		if s.link != nil {
			events = s.link.events
			if len(s.queue) > 0 && s.deliverable() {
				outgoing, next = s.link.outgoing, s.queue[0].frame
			}
			if s.outBytes < s.outLimit {
				incoming = s.link.incoming
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-streams.failed:
			s.say("stdout is lost: %v", err)
			return nil
		case l := <-lines:
			s.fromClient(ctx, l)
		case frames <- frame:
			s.written()
		case outgoing <- next:
			s.handed()
		case frame := <-incoming:
			s.message(frame)
		case e := <-events:
			if err := s.fromDaemon(ctx, e); err != nil {
				return err
			}
		case a := <-s.attempt:
			s.attempted(ctx, a)
		case <-s.lost:
			// What is left in the window is bounded, and behind it is the end.
			s.lost, s.outLimit = nil, math.MaxInt
		case <-s.retry.C:
			s.try(ctx)
		case <-s.held.C:
			s.heldTooLong()
		case <-s.stall.C:
			if err := s.stalled(); err != nil {
				return err
			}
		case <-s.exit.C:
			return nil
		}
	}
	return nil
}

func (s *session) stopTimers() {
	for _, timer := range []*time.Timer{s.retry, s.held, s.stall, s.exit} {
		timer.Stop()
	}
}

// finished reports whether nothing is left to do for a client whose input has
// ended. On the way there it ends our side of the link.
func (s *session) finished() bool {
	if !s.eof {
		return false
	}
	if s.link == nil {
		return s.attempt == nil || !s.owes()
	}
	if len(s.queue) == 0 && !s.closed {
		s.closed = true
		close(s.link.outgoing)
	}
	return false
}

// owes reports whether something waits for a daemon that must not wait for ever.
func (s *session) owes() bool {
	return slices.ContainsFunc(s.queue, func(i item) bool { return !i.outlasts() })
}

// readable reports whether the client's next line may be taken. While there is
// no daemon it may, so that pings and cancellations are heard; what waits is
// bounded apart.
func (s *session) readable() bool {
	if s.eof || s.outBytes >= maxOut {
		return false
	}
	return s.link == nil || s.queueBytes < queueHighWater
}

// deliverable reports whether the first of the queue may go to the daemon. One
// that must not be sent twice waits for the welcome: a daemon that is lost before
// it has not got it.
func (s *session) deliverable() bool {
	return s.welcomed || !slices.ContainsFunc(s.queue[0].calls, func(c *call) bool { return !c.repeatable() })
}

// Towards the client.

// emit queues a frame for the client.
func (s *session) emit(frame []byte) {
	s.out = append(s.out, frame)
	s.outBytes += len(frame)
	if s.outBytes >= s.outLimit && !s.stallArmed {
		s.stallArmed = true
		s.stall.Reset(stallProbe)
	}
}

// written notes that the pump has taken the first frame, and so has written the
// one before.
func (s *session) written() {
	s.outBytes -= len(s.out[0])
	s.out[0] = nil
	s.out = s.out[1:]
	if s.outBytes < outHighWater {
		s.stallArmed = false
		s.stall.Stop()
		if s.lost != nil || s.link == nil {
			s.outLimit = outHighWater
		}
		return
	}
	if s.stallArmed {
		s.stall.Reset(stallProbe)
	}
}

// stalled lets the daemon tell whether it has given the client up.
func (s *session) stalled() error {
	if s.outBytes >= maxOut {
		return ErrSlowConsumer
	}
	if s.outLimit != math.MaxInt {
		s.outLimit = s.outBytes + stallAllowance
	}
	s.stall.Reset(stallProbe)
	return nil
}

// fail answers c, which then is over.
func (s *session) fail(c *call, f failure) {
	s.emit(f.answer(c))
	s.ledger.forget(c)
}

func duplicate(id wire.ID) []byte {
	return wire.NewFailure(id, &wire.Error{
		Code: wire.CodeInvalidRequest, Message: "a request with this id is still open",
	}).Bytes()
}

// say tells the person who reads stderr.
func (s *session) say(format string, args ...any) {
	select {
	case s.notes <- fmt.Sprintf(format, args...):
	default: // nobody reads it
	}
}

// From the client.

func (s *session) fromClient(ctx context.Context, l line) {
	if l.err != nil {
		s.noLine(l.err)
		return
	}
	m, err := wire.Parse(l.frame)
	switch {
	case errors.Is(err, wire.ErrBatch):
		s.batch(ctx, l.frame)
	case err != nil:
		s.invalid(l.frame, err)
	case m.Kind == wire.Request:
		s.request(ctx, m, l.frame)
	case m.Kind == wire.Notification:
		s.notification(m, l.frame)
	default:
		s.answer(m, l.frame)
	}
}

// noLine takes the end of the input, or a line that was too long.
func (s *session) noLine(err error) {
	long, ok := errors.AsType[*wire.TooLongError](err)
	if ok {
		f := failureOf(ReasonLineTooLong, fmt.Sprintf("%d bytes, the limit is %d", long.Size, long.Limit))
		s.say("%s", f.message())
		s.emit(wire.NewFailure(s.answerable(long.Outline()), f.error()).Bytes())
		return
	}
	if !errors.Is(err, io.EOF) {
		s.say("reading stdin: %v", err)
	}
	s.eof, s.eofAt = true, time.Now()
	s.exit.Reset(exitWithin)
}

func (s *session) request(ctx context.Context, m wire.Message, frame []byte) {
	if s.link == nil && m.Method == methodPing {
		s.emit(wire.NewResponse(m.ID, []byte("{}")).Bytes())
		return
	}
	if c := s.ledger.calls[m.ID]; c != nil {
		if s.link == nil {
			s.emit(duplicate(m.ID))
			return
		}
		c.duplicates++ // the daemon answers it
		s.push(item{frame: frame, kind: wire.Request})
		return
	}
	c := s.ledger.open(m)
	if why := s.tooMuch(len(frame)); why != "" {
		s.fail(c, failureOf(ReasonTooManyRequests, why))
		return
	}
	s.push(item{frame: frame, calls: []*call{c}, kind: wire.Request})
	s.hold(ctx)
}

// tooMuch says which limit another request of that size passes, "" if none.
func (s *session) tooMuch(size int) string {
	switch {
	case len(s.ledger.calls) > maxCalls:
		return fmt.Sprintf("%d are, and no more may be", maxCalls)
	case s.link != nil:
	case len(s.queue) >= maxHeld:
		return fmt.Sprintf("%d messages wait for the daemon, and no more may", maxHeld)
	case s.queueBytes+size > maxHeldBytes:
		return fmt.Sprintf("messages of %d bytes wait for the daemon, and no more than %d bytes may", s.queueBytes, maxHeldBytes)
	}
	return ""
}

func (s *session) notification(m wire.Message, frame []byte) {
	if m.Method == noteCancelled && s.cancelled(wire.ID(member(m.Params, "requestId"))) {
		return
	}
	if s.link == nil && s.heldNotes() >= maxHeldNotes {
		s.say("dropped %s: too many notifications wait for the daemon", m.Method)
		return
	}
	s.push(item{frame: frame, kind: wire.Notification, note: m.Method})
}

func (s *session) heldNotes() int {
	n := 0
	for _, i := range s.queue {
		if i.kind == wire.Notification {
			n++
		}
	}
	return n
}

// cancelled abandons the client's request id. It returns true if no daemon has
// to hear of it: none got the request, or none is left that did. An initialize
// cannot be cancelled.
func (s *session) cancelled(id wire.ID) bool {
	c := s.ledger.calls[id]
	if c == nil || c.method == methodInitialize {
		return s.link == nil
	}
	sent := c.sent
	s.ledger.forget(c)
	if sent || c.element != nil { // a batch that waits goes to a daemon as it is
		return false
	}
	for n, i := range s.queue {
		if slices.Contains(i.calls, c) {
			s.queueBytes -= len(i.frame)
			s.queue = slices.Delete(s.queue, n, n+1)
			return true
		}
	}
	return s.link == nil
}

// answer passes on the client's answer to a question of the daemon. Whom an
// answer is for that nobody waits for, the daemon knows; a later daemon does
// not.
func (s *session) answer(m wire.Message, frame []byte) {
	delete(s.ledger.questions, m.ID)
	if s.link != nil {
		s.push(item{frame: frame, kind: m.Kind})
	}
}

// invalid passes on what is no JSON-RPC, untouched: the daemon answers it. If
// there is none the shim does.
func (s *session) invalid(frame []byte, err error) {
	answer := s.invalidAnswer(frame, err)
	if s.link == nil {
		s.emit(answer)
		return
	}
	s.push(item{frame: frame, invalid: answer})
}

func (s *session) invalidAnswer(frame []byte, err error) []byte {
	if invalid, ok := errors.AsType[*wire.InvalidError](err); ok {
		return wire.NewFailure(invalid.ID, &wire.Error{
			Code: wire.CodeInvalidRequest, Message: invalid.Reason,
		}).Bytes()
	}
	return wire.NewFailure(s.answerable(wire.OutlineOf(frame)), &wire.Error{Code: wire.CodeParse, Message: err.Error()}).Bytes()
}

// answerable is the id to answer what could not be read with, as far as it says
// and no other request has it.
func (s *session) answerable(o wire.Outline) wire.ID {
	id := o.RequestID()
	if s.ledger.calls[id] != nil {
		return ""
	}
	return id
}

// batch passes on an array of messages as it is. Its requests are owed answers
// of their own if the daemon is lost.
func (s *session) batch(ctx context.Context, frame []byte) {
	elements, err := wire.ParseBatch(frame)
	if err != nil {
		s.invalid(frame, err)
		return
	}
	if len(elements) > maxCalls {
		f := failureOf(ReasonTooManyRequests, fmt.Sprintf("a batch has %d messages, and no more than %d may be", len(elements), maxCalls))
		s.emit(wire.NewFailure("", f.error()).Bytes())
		return
	}
	i := item{frame: frame, kind: wire.Request}
	for _, element := range elements {
		m, err := wire.Parse(element)
		if err != nil || m.Kind != wire.Request {
			continue
		}
		if c := s.ledger.calls[m.ID]; c != nil {
			c.duplicates++
			continue
		}
		c := s.ledger.open(m)
		c.element = element
		i.calls = append(i.calls, c)
	}
	if why := s.tooMuch(len(frame)); why != "" {
		for _, c := range i.calls {
			s.fail(c, failureOf(ReasonTooManyRequests, why))
		}
		return
	}
	s.push(i)
	s.hold(ctx)
}

func (s *session) push(i item) {
	s.queue = append(s.queue, i)
	s.queueBytes += len(i.frame)
}

// handed notes that the first of the queue is with the link.
func (s *session) handed() {
	i := s.queue[0]
	s.queue[0] = item{}
	s.queue = s.queue[1:]
	s.queueBytes -= len(i.frame)
	for _, c := range i.calls {
		if s.ledger.calls[c.id] == c { // else it was cancelled in its batch
			s.ledger.sending(c, i.frame)
		}
	}
	if i.note == noteInitialized {
		s.ledger.initialized = true
	}
}

// While there is no daemon.

// hold sees to it that a request that has just been queued does not wait for
// ever: there is an attempt to get a daemon, and an end of waiting.
func (s *session) hold(ctx context.Context) {
	if s.link != nil && s.welcomed {
		return
	}
	if s.link == nil && s.attempt == nil && s.last != nil {
		if s.costly(s.last) && time.Since(s.lastAt) < nudgeAfter {
			s.failQueue(failureFrom(s.last))
			return
		}
		s.try(ctx)
	}
	s.armHeld()
}

func (s *session) armHeld() {
	if !s.heldArmed && s.owes() {
		s.heldArmed = true
		s.held.Reset(heldWait)
	}
}

// costly reports whether another attempt after err would start a process again,
// and not just look at a socket.
func (s *session) costly(err error) bool { return lasting(err) && !s.stopped }

// giveUp reports whether requests are answered with err rather than held.
func (s *session) giveUp(err error) bool {
	return lasting(err) || time.Since(s.downSince) >= heldWait
}

func (s *session) heldTooLong() {
	s.heldArmed = false
	s.failQueue(failureFrom(s.last))
}

// failQueue answers everything that waits and wants an answer. Notifications
// stay for the next daemon, and so do listens that an earlier daemon had: SDK
// clients do not listen again.
func (s *session) failQueue(f failure) {
	s.heldArmed = false
	s.held.Stop()
	s.requeue(func(i item) bool {
		if i.outlasts() {
			return true
		}
		for _, c := range i.calls {
			if s.ledger.calls[c.id] == c { // else it was cancelled
				s.fail(c, f)
			}
		}
		if i.invalid != nil {
			s.emit(i.invalid)
		}
		return false
	})
}

// requeue keeps those items of the queue that keep says.
func (s *session) requeue(keep func(item) bool) {
	s.queue = slices.DeleteFunc(s.queue, func(i item) bool {
		if keep(i) {
			return false
		}
		s.queueBytes -= len(i.frame)
		return true
	})
}

// try begins an attempt to get a daemon, unless one is under way.
func (s *session) try(ctx context.Context) {
	if s.attempt != nil || s.link != nil || s.eof {
		return
	}
	s.retry.Stop()
	autostart := !s.config.NoAutostart && !s.stopped && !time.Now().Before(s.grace)
	resumed := s.served
	result := make(chan attempted, 1)
	s.attempt = result
	s.pumps.Go(func() {
		l, err := s.connector.open(ctx, autostart, resumed)
		result <- attempted{link: l, err: err}
	})
}

// dropAttempt leaves the link of an attempt whose outcome the loop did not take
// any more. The attempt must be over.
func (s *session) dropAttempt() {
	if s.attempt == nil {
		return
	}
	if a := <-s.attempt; a.err == nil {
		a.link.leave()
	}
}

func (s *session) attempted(ctx context.Context, a attempted) {
	s.attempt = nil
	if a.err != nil {
		s.failed(a.err)
		return
	}
	s.link, s.linkedAt, s.welcomed, s.closed = a.link, time.Now(), false, false
	s.lost, s.last = a.link.daemon.Lost(), nil
	var replay []item
	for _, frame := range s.ledger.replay() {
		// No call of the client's, so it goes with this link.
		replay = append(replay, item{frame: frame, kind: wire.Request})
		s.queueBytes += len(frame)
	}
	s.queue = append(replay, s.queue...)
	a.link.run(s.pumps)
}

// failed notes why there is no daemon, tells it to whom it concerns and plans
// the next attempt.
func (s *session) failed(err error) {
	if s.stopped && !lasting(err) {
		err = errStopped
	}
	s.last, s.lastAt = err, time.Now()
	if text := strings.TrimSpace(err.Error()); s.giveUp(err) && text != s.said {
		s.said = text
		s.say("%s", text)
	}
	if s.giveUp(err) {
		s.failQueue(failureFrom(err))
	}
	first, most := quickFirst, quickMost
	if s.costly(err) {
		first, most = lastingFirst, lastingMost
	}
	wait := pause(first, most, s.failures)
	s.failures++
	// Spread, so that the shims of many clients do not come at the same time.
	s.retry.Reset(wait + rand.N(wait/4+1))
}

// From the daemon.

func (s *session) fromDaemon(ctx context.Context, e event) error {
	switch {
	case e.welcome != nil:
		s.welcome(e.welcome)
	case e.closing != nil:
		return s.closing(ctx, e.closing)
	case e.end != nil:
		return s.ended(ctx, e.end)
	}
	return nil
}

func (s *session) welcome(w *devproxyv1.Welcome) {
	if err := checkContract(w, s.config.Version); err != nil {
		s.refused(err)
		return
	}
	if s.served {
		s.say("attached to the daemon again (process %d)", w.GetPid())
	}
	s.welcomed, s.served, s.stopped, s.said = true, true, false, ""
	s.grace = time.Time{} // the successor is there; its own loss is mended at once
	s.heldArmed = false
	s.held.Stop()
	if w.GetWarning() != "" {
		s.say("%s", w.GetWarning())
	}
}

func (s *session) message(frame []byte) {
	m, err := wire.Parse(frame)
	if errors.Is(err, wire.ErrBatch) {
		s.answeredBatch(frame)
		return
	}
	if err != nil {
		s.say("dropped what the daemon sent: %v", err)
		return
	}
	switch m.Kind {
	case wire.Request:
		s.ledger.asked(m.ID)
	case wire.Notification:
		if m.Method == noteCancelled {
			delete(s.ledger.questions, wire.ID(member(m.Params, "requestId")))
		}
		if m.Method == noteAcknowledged && !s.ledger.acknowledge(m.Params) {
			return
		}
	case wire.Response, wire.Failure:
		if !s.ledger.settle(m) {
			if m.Kind == wire.Failure {
				s.say("the daemon did not resume the session in full: %s", m.Error)
			}
			return
		}
		if s.ledger.unresumed {
			s.ledger.unresumed = false
			s.say("a subscription will not outlive the daemon: no more than %d of %d bytes are kept", maxSubscriptions, maxSubscribed)
		}
	}
	s.emit(frame)
}

func (s *session) answeredBatch(frame []byte) {
	elements, err := wire.ParseBatch(frame)
	if err != nil {
		s.say("dropped what the daemon sent: %v", err)
		return
	}
	for _, element := range elements {
		if m, err := wire.Parse(element); err == nil && (m.Kind == wire.Response || m.Kind == wire.Failure) {
			s.ledger.settle(m)
		}
	}
	s.emit(frame)
}

// closing takes the daemon's last word.
func (s *session) closing(ctx context.Context, c *devproxyv1.Closing) error {
	switch c.GetReason() {
	case devproxyv1.CloseReason_CLOSE_REASON_SLOW_CONSUMER:
		return ErrSlowConsumer
	case devproxyv1.CloseReason_CLOSE_REASON_SHUTDOWN:
		s.shutDown()
	case devproxyv1.CloseReason_CLOSE_REASON_RESTART:
		s.grace = time.Now().Add(restartGrace)
		s.lose(ctx, c.GetResendUnanswered())
	case devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED, devproxyv1.CloseReason_CLOSE_REASON_DONE:
		if s.eof {
			s.unlink()
			return nil
		}
		s.lose(ctx, c.GetResendUnanswered())
	}
	return nil
}

// ended takes the end of a stream whose daemon said no last word.
func (s *session) ended(ctx context.Context, err error) error {
	if !s.welcomed {
		if refusal := refusal(err, s.config.Version); refusal != nil {
			s.refused(refusal)
			return nil
		}
	} else if status.Code(err) == codes.ResourceExhausted {
		// A daemon that gives a client up cannot always say why: its words queue
		// behind what the client does not read.
		return ErrSlowConsumer
	}
	if !s.eof {
		s.say("the daemon is lost: %s", status.Convert(err).Message())
	}
	s.lose(ctx, false)
	return nil
}

// unlink leaves the link and forgets what was only for its daemon: replayed
// messages, answers to its questions, and requests with an id that was open,
// which it was to refuse.
func (s *session) unlink() {
	s.link.leave()
	s.link, s.lost = nil, nil
	s.outLimit = outHighWater
	s.downSince = time.Now()
	s.requeue(func(i item) bool {
		switch i.kind {
		case wire.Request:
			return len(i.calls) > 0
		case wire.Response, wire.Failure:
			return false
		case wire.Notification:
		}
		return true
	})
	for _, c := range s.ledger.openCalls() {
		for range c.duplicates {
			s.emit(duplicate(c.id))
		}
		c.duplicates = 0
	}
	if s.eof {
		return
	}
	for _, frame := range s.ledger.cancelQuestions() {
		s.emit(frame)
	}
}

// refused gives up a daemon that does not want this client, or cannot have it.
// None of what it got was served.
func (s *session) refused(err error) {
	s.unlink()
	for _, c := range s.ledger.sentCalls() {
		s.fail(c, failureFrom(err))
	}
	s.failed(err)
}

// shutDown gives up a daemon that was stopped on purpose.
func (s *session) shutDown() {
	s.unlink()
	s.stopped = true
	for _, c := range s.ledger.sentCalls() {
		if c.method == methodListen {
			s.emit(listenEnd(c.id))
			s.ledger.forget(c)
			continue
		}
		s.fail(c, failureOf(ReasonStopped, ""))
	}
	s.failed(errStopped)
}

// listenEnd is how a listen ends that the server ends: only devproxyd stop does,
// since SDK clients do not listen again.
func listenEnd(id wire.ID) []byte {
	result := []byte(`{"resultType":"complete","_meta":{"` + metaSubscription + `":`)
	result = append(result, id...)
	return wire.NewResponse(id, append(result, `}}`...)).Bytes()
}

// lose takes the loss of the daemon: what it had is answered or queued again,
// in front, and the next daemon is looked for. parted says that the daemon has
// answered whatever may have had effects, so that all the rest may be sent again.
func (s *session) lose(ctx context.Context, parted bool) {
	s.unlink()
	var again []item
	for _, c := range s.ledger.sentCalls() {
		switch {
		case c.method == methodPing:
			s.emit(wire.NewResponse(c.id, []byte("{}")).Bytes())
			s.ledger.forget(c)
		case parted && c.frame == nil: // too large to be kept
			s.fail(c, failureOf(ReasonDaemonRestarted, ""))
		case !parted && (c.frame == nil || !mayResend(c)):
			s.fail(c, failureOf(ReasonDaemonLost, ""))
		default:
			c.resent = c.resent || !parted || c.method == methodListen
			frame := s.ledger.unsend(c)
			again = append(again, item{frame: frame, calls: []*call{c}, kind: wire.Request})
			s.queueBytes += len(frame)
			again = append(again, s.confirm(c)...)
		}
	}
	s.queue = append(again, s.queue...)
	if time.Since(s.linkedAt) >= stableAfter {
		s.failures = 0
		s.try(ctx)
	} else {
		s.failed(client.ErrNoDaemon)
	}
	s.armHeld()
}

// confirm returns the client's notifications/initialized if it came before the
// answer to the initialize c that is sent again.
func (s *session) confirm(c *call) []item {
	if c.method != methodInitialize || !s.ledger.initialized || s.ledger.shaken {
		return nil
	}
	frame := wire.NewNotification(noteInitialized, nil).Bytes()
	s.queueBytes += len(frame)
	return []item{{frame: frame, kind: wire.Notification, note: noteInitialized}}
}
