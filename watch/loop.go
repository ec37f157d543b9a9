package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// glanceEvery is how often the paths themselves are looked at, in case
	// that events went missing: seldom enough to let a laptop's disk sleep.
	glanceEvery = 30 * time.Second
	// baselinePatience is how long a start waits for files to settle: longer
	// than the pauses of most builds, and far shorter than a client waits.
	baselinePatience = 2 * time.Second
	// fallbackPoll is how often to look where there are no events and nothing
	// is configured: a look at 20,000 files takes some 100 ms.
	fallbackPoll = 2 * time.Second
	// maxSilent is how many changes may be found without an event before
	// events are given up: one can be an accident.
	maxSilent = 2
	// crowd is how many events of a burst are read as they come. A save has a
	// few, and must not wait; what has more is a build that writes a lot, and to
	// wake up for each of its files costs more than all else.
	crowd = 256
	// rest is how long events are then left to the system's queue (of 16384 in
	// Linux), and sip how long they are read in between.
	rest = 20 * time.Millisecond
	sip  = 2 * time.Millisecond
	// backlog is how many events within a sip say that the queue needs no rest.
	backlog = 1024
)

// ground is the files as the loop sees them; *tree outside of tests.
type ground interface {
	open() (<-chan fsnotify.Event, <-chan error, error)
	close()
	silent() (kind, path string)
	classify(fsnotify.Event) class
	examine(context.Context, task) finding
}

// class is what an event is about.
type class uint8

const (
	irrelevant class = iota
	content          // something below a watched path
	created          // the same, and it may be a directory
	passage          // something on the way to a watched path
)

// task is what to do next; the zero task is nothing. A look includes the others.
type task struct {
	look    bool // find out what is there and read it
	survey  bool // watch every directory anew
	glance  bool // see whether the paths were touched
	created map[string]bool
	cut     bool // the look is due though files are still being written
}

func (t task) empty() bool { return !t.look && !t.survey && !t.glance && len(t.created) == 0 }

// finding is what came of a task.
type finding struct {
	look         bool
	print        fingerprint
	moved        bool // something was written since the last look, even if to no effect
	entryMissing bool
	notes        []string
	grown        bool  // directories are watched that were not
	disturbed    bool  // by a glance
	limit        error // events cannot be had; says why and what to do
}

// loop is the state of a running watcher. It belongs to the goroutine in run.
type loop struct {
	w      *Watcher
	events <-chan fsnotify.Event
	errors <-chan error

	next      task // to be done once the one at work is
	working   task
	findings  chan finding // nil while nothing is at work
	workers   sync.WaitGroup
	waiting   []baselineRequest // for a look to start
	serving   []baselineRequest // for the one at work
	asking    []verdictRequest  // for the end of the burst
	quiet     quiet
	settled   *time.Timer
	patience  *time.Timer
	polls     *time.Timer
	rested    *time.Timer
	pace      pace
	pollEvery time.Duration // 0 while there are events

	reference fingerprint // what was reported last, or a backend started from; nil before the first look
	forgiven  fingerprint // what the reference was before Forgive changed it; nil if it has not
	latest    fingerprint
	owed      bool   // a start waits for the entry file
	changes   uint64 // that were told
	feedback  feedback
	burst     time.Time // of the first event since the last complete look; zero if none

	seen            uint64 // events that counted
	seenByLook      uint64 // those before the last look
	suspicious      bool   // a glance found something though no event had told
	seenBySuspicion uint64 // those before that glance
	silent          int    // changes that no event told
	givenUp         string // why events are to be given up
	degraded        string // that it was done, and why
	notes           []string
	status          Status
}

func newLoop(w *Watcher) *loop {
	l := &loop{
		w: w, quiet: quiet{period: w.config.Settle}, status: w.Status(),
		settled: stoppedTimer(), patience: stoppedTimer(), polls: stoppedTimer(), rested: stoppedTimer(),
	}
	l.next.look = true
	return l
}

func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

func (l *loop) run(ctx context.Context) {
	l.openEyes()
	glances := time.NewTicker(glanceEvery)
	defer glances.Stop()
	// The worker sees the end by its context. Only then may the events be closed.
	defer l.w.ground.close()
	defer l.workers.Wait()

	for {
		l.dispatch(ctx)
		events := l.events
		if l.pace.resting {
			events = nil
		}
		select {
		case <-ctx.Done():
			return
		case event, ok := <-events:
			if ok {
				l.event(event)
			} else {
				l.events, l.givenUp = nil, "file events have ended"
			}
		case err, ok := <-l.errors:
			if ok {
				l.trouble(err)
			} else {
				l.errors = nil // events end with it, and tell
			}
		case f := <-l.findings:
			l.findings = nil
			if ctx.Err() == nil {
				l.found(f)
			}
		case request := <-l.w.baselines:
			l.baseline(request)
		case request := <-l.w.verdicts:
			// What was written just now may not have sent its events yet.
			l.asking = append(l.asking, request)
			l.feedback.explained()
			l.touch()
		case <-l.w.recheck:
			l.next.look = true
		case <-l.w.released:
			l.touch()
		case <-l.settled.C:
			l.settle()
		case <-l.patience.C:
			l.next.look = true
		case <-l.rested.C:
			l.pace.resume(time.Now())
		case <-l.polls.C:
			l.next.look = true
		case now := <-glances.C:
			if l.burst.IsZero() {
				l.feedback.calm(now)
			}
			l.next.glance = l.pollEvery == 0
			l.publish()
		}
	}
}

// openEyes starts events, or polling where it was asked for or must be.
func (l *loop) openEyes() {
	if l.w.config.Poll > 0 {
		l.pollEvery = l.w.config.Poll
		l.publish()
		return
	}
	if kind, path := l.w.ground.silent(); kind != "" {
		l.givenUp = fmt.Sprintf("%s is on a %s file system, which sends no events for changes made elsewhere",
			l.display(path), kind)
		return
	}
	events, errs, err := l.w.ground.open()
	if err != nil {
		l.givenUp = adviceFor(err)
		return
	}
	l.events, l.errors = events, errs
	l.publish()
}

// degrade goes over from events to polling, while nothing is at work.
func (l *loop) degrade() {
	l.w.ground.close()
	l.events, l.errors = nil, nil
	l.pollEvery = fallbackPoll
	l.degraded = fmt.Sprintf("%s; looking every %v instead of waiting for file events", l.givenUp, fallbackPoll)
	l.w.config.Logger.Warn("polling instead of waiting for file events", "reason", l.givenUp)
	l.givenUp = ""
	l.next.look = true
	l.publish()
}

// dispatch starts the next task if none is at work.
func (l *loop) dispatch(ctx context.Context) {
	if l.findings != nil {
		return
	}
	if l.givenUp != "" && l.pollEvery == 0 {
		l.degrade()
	}
	if l.next.empty() {
		return
	}
	work := l.next
	l.next = task{}
	if work.look {
		l.serving, l.waiting = append(l.serving, l.waiting...), nil
		l.patience.Stop()
		l.seenByLook = l.seen
	}
	findings := make(chan finding, 1)
	l.workers.Go(func() { findings <- l.w.ground.examine(ctx, work) })
	l.findings, l.working = findings, work
}

func (l *loop) event(event fsnotify.Event) {
	switch l.w.ground.classify(event) {
	case irrelevant:
		return
	case created:
		if l.next.created == nil {
			l.next.created = map[string]bool{}
		}
		l.next.created[event.Name] = true
	case passage:
		l.next.survey = true
	case content:
	}
	l.seen++
	l.touch()
	// A rest must be over well before the burst could seem to be.
	if queueHoldsEvents && l.w.config.Settle >= 2*rest && l.pace.tires(l.quiet.last) {
		l.rested.Reset(rest)
	}
}

func (l *loop) trouble(err error) {
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		l.status.Overflows++
		l.publish()
	} else {
		l.w.config.Logger.Warn("file events report a fault", "error", err)
	}
	l.seen++
	l.next.survey = true
	l.touch()
}

// touch begins or prolongs a burst.
func (l *loop) touch() {
	begun := l.quiet.pending()
	now := time.Now()
	l.quiet.period = max(l.w.config.Settle, l.feedback.pause(now))
	l.quiet.touch(now)
	if !begun {
		l.settled.Reset(l.quiet.due().Sub(now))
	}
	if l.burst.IsZero() {
		l.burst = now
	}
}

// settle is called when the timer fires, which was set at the burst's begin.
func (l *loop) settle() {
	if !l.quiet.pending() {
		return
	}
	if wait := time.Until(l.quiet.due()); wait > 0 {
		l.settled.Reset(wait)
		return
	}
	cut := l.quiet.clear()
	l.pace.burst = 0
	if l.held() {
		return // the release begins a burst of its own
	}
	l.next.look, l.next.cut = true, l.next.cut || cut
}

func (l *loop) held() bool { return l.w.holds.Load() > 0 }

// baseline takes a request in. While files are being written it waits, but not
// for a build under way: who holds changes back decides when to start.
func (l *loop) baseline(request baselineRequest) {
	l.waiting = append(l.waiting, request)
	if l.quiet.pending() && !l.held() {
		l.patience.Reset(baselinePatience)
		return
	}
	l.next.look = true
}

func (l *loop) found(f finding) {
	if f.limit != nil {
		l.givenUp = f.limit.Error()
	}
	if f.disturbed && !l.quiet.pending() { // else there will be a look anyway
		l.suspicious, l.seenBySuspicion = l.seen == l.seenByLook, l.seen
		l.touch()
	}
	if f.grown && !f.look {
		l.touch()
	}
	if f.look {
		l.looked(f)
	}
}

func (l *loop) looked(f finding) {
	l.doubt(f)
	l.latest, l.notes = f.print, f.notes
	l.status.Files, l.status.EntryMissing = len(f.print), f.entryMissing
	if l.reference == nil {
		l.reference = f.print
	}
	if l.pollEvery > 0 {
		l.polls.Reset(l.pollEvery)
		if f.moved {
			l.touch() // being written, for all that polling can tell
		}
	}
	l.publish()
	l.serve(f)
	l.evaluate(f)
	if !l.quiet.pending() {
		l.burst = time.Time{}
	}
}

// doubt counts the changes that only a glance has noticed, and gives events up
// when there are too many: where they do not arrive they never will.
func (l *loop) doubt(f finding) {
	unseen := l.suspicious && l.seen == l.seenBySuspicion
	l.suspicious = false
	if !unseen || l.pollEvery > 0 || len(difference(l.latest, f.print)) == 0 {
		return
	}
	if l.silent++; l.silent >= maxSilent {
		l.givenUp = "files changed without an event"
	}
}

// serve answers the starts that waited for this look.
func (l *loop) serve(f finding) {
	requests := l.serving
	l.serving = nil
	missing := ""
	if f.entryMissing {
		missing = l.w.config.Entry
	}
	for _, request := range requests {
		select {
		case request.reply <- missing:
			switch {
			case !request.forgive:
				l.forgiven = nil
				l.w.taken.Store(l.changes)
			case l.forgiven == nil:
				l.forgiven = l.reference
			}
			l.reference, l.owed = f.print, missing != ""
			l.w.takeBack()
			if missing == "" {
				l.feedback.started(time.Now())
			}
		case <-request.abandoned:
		}
	}
}

// evaluate reports the content if it is new, complete and wanted now.
func (l *loop) evaluate(f finding) {
	if l.held() || (l.quiet.pending() && !l.working.cut) {
		return
	}
	if f.entryMissing {
		l.tell(Verdict{MissingEntry: l.w.config.Entry})
		return
	}
	paths := difference(l.reference, l.latest)
	if len(paths) == 0 && len(l.asking) > 0 && l.forgiven != nil {
		// A build that succeeds makes good what a failed one has left.
		paths = difference(l.forgiven, l.latest)
	}
	if len(paths) == 0 && !l.owed {
		l.tell(Verdict{})
		return
	}
	now := time.Now()
	l.reference, l.forgiven, l.owed = l.latest, nil, false
	l.feedback.changed(l.began(now), paths)
	l.status.LastChangeAt = now
	l.status.LastChanged = l.newest(paths)
	l.w.config.Logger.Debug("the content of the watched paths is new", "files", len(paths), "newest", l.status.LastChanged)
	l.publish() // first, so that who has the change finds the status to it
	l.changes++
	if l.tell(Verdict{Change: l.changes}) {
		return
	}
	l.w.report(Change{Number: l.changes, At: now, Paths: paths[:min(len(paths), maxNamed)], Count: len(paths)})
}

// tell answers those who have asked what comes of a burst, and reports whether
// any of them was still there.
func (l *loop) tell(verdict Verdict) (heard bool) {
	requests := l.asking
	l.asking = nil
	for _, request := range requests {
		select {
		case request.reply <- verdict:
			heard = true
		case <-request.abandoned:
		}
	}
	return heard
}

// began is when what is reported now was begun to be written, by the events:
// the files themselves may carry any time.
func (l *loop) began(now time.Time) time.Time {
	if l.burst.IsZero() {
		return now
	}
	return l.burst
}

func (l *loop) newest(paths []string) string {
	newest, at := "", int64(0)
	for _, path := range paths {
		if modified := l.latest[path].meta.modified; newest == "" || modified > at {
			newest, at = path, modified
		}
	}
	return newest
}

func (l *loop) publish() {
	l.status.Mode = Events
	if l.pollEvery > 0 {
		l.status.Mode = Polling
	}
	problems := append([]string(nil), l.notes...)
	for _, problem := range []string{l.degraded, l.feedback.problem(l.display)} {
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	l.status.Problem = strings.Join(problems, "; ")
	status := l.status
	l.w.status.Store(&status)
}

func (l *loop) display(path string) string {
	return strings.ReplaceAll(slashRel(l.w.config.Root, path), "/", string(os.PathSeparator))
}
