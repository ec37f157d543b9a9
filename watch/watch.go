package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// ErrStopped is the end of a call to a watcher whose Run has returned.
var ErrStopped = errors.New("watcher has stopped")

// Config says what to watch.
type Config struct {
	// Root is the absolute path of the project: patterns start there, and the
	// directories from there to each path are watched too.
	Root string
	// Paths are absolute; they need not exist. None means that nothing ever changes.
	Paths []string
	// Ignore are doublestar patterns. Each is held against the path within
	// Root, the path within the watched one and, if it has no slash, the name.
	Ignore []string
	// Settle is how long nothing may happen before a change counts as complete.
	Settle time.Duration
	// Entry is the absolute path of the file without which no change is
	// reported; empty for none. It may lie outside of Paths.
	Entry string
	// Poll is how often to look instead of waiting for events; 0 = events.
	Poll time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Change is new content of what is watched.
type Change struct {
	// Number counts the changes, from 1.
	Number uint64
	// At is when it had settled.
	At time.Time
	// Paths are the absolute paths of the first files that were added, removed
	// or changed, sorted, at most maxNamed.
	Paths []string
	// Count is how many there were altogether.
	Count int
}

// maxNamed bounds the paths in a Change: enough for a message to a person.
const maxNamed = 20

// Mode is how changes are noticed.
type Mode string

// The modes.
const (
	Events  Mode = "events"
	Polling Mode = "poll"
)

// Status is what the watcher knows at one moment.
type Status struct {
	Paths []string
	Mode  Mode
	// Files is how many are known.
	Files int
	// LastChanged is the file of the last reported change that was written
	// last; empty before the first change.
	LastChanged  string
	LastChangeAt time.Time
	// Entry is Config.Entry; EntryMissing says that it is not there or empty.
	Entry        string
	EntryMissing bool
	// Overflows is how often events were lost and everything was looked at anew.
	Overflows int
	// Problem says in words what limits the watcher and what to do; empty if nothing does.
	Problem string
}

// Watcher watches the paths of one project. Its methods may be called from any
// goroutine.
type Watcher struct {
	config Config
	ground ground

	changes   chan Change          // buffer 1; sent to by Run alone, never closed: an end is no change
	baselines chan baselineRequest // unbuffered
	verdicts  chan verdictRequest  // unbuffered
	recheck   chan struct{}        // buffer 1: one is as good as many
	released  chan struct{}        // buffer 1
	done      chan struct{}        // closed when Run returns
	running   atomic.Bool
	holds     atomic.Int32
	taken     atomic.Uint64
	status    atomic.Pointer[Status]
}

type baselineRequest struct {
	// reply is unbuffered, so that both sides agree whether it was taken.
	reply     chan string
	abandoned <-chan struct{}
	// forgive: no backend starts from it.
	forgive bool
}

// Verdict is what has come of a build, once its output has settled.
type Verdict struct {
	// Change is the Number of the change that it is: the content differs from the
	// last one that was reported or that a backend was started from, even if
	// Forgive has taken it.
	// Whoever hears of it has taken it over. 0: it is none.
	Change uint64
	// MissingEntry is the entry file's path if that is missing or empty. What else
	// has changed counts when it is there.
	MissingEntry string
}

type verdictRequest struct {
	// reply is unbuffered, so that both sides agree who has the change.
	reply     chan Verdict
	abandoned <-chan struct{}
}

// New checks the configuration. It touches no file.
func New(config Config) (*Watcher, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	for _, path := range append(slices.Clone(config.Paths), config.Root) {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("watching %q: the path is not absolute", path)
		}
	}
	if config.Entry != "" && !filepath.IsAbs(config.Entry) {
		return nil, fmt.Errorf("watching for the entry file %q: the path is not absolute", config.Entry)
	}
	for _, pattern := range config.Ignore {
		if !doublestar.ValidatePattern(pattern) {
			return nil, fmt.Errorf("ignoring %q: %w", pattern, doublestar.ErrBadPattern)
		}
	}
	return newWatcher(config, newTree(config)), nil
}

func newWatcher(config Config, ground ground) *Watcher {
	w := &Watcher{
		config: config, ground: ground,
		changes: make(chan Change, 1), baselines: make(chan baselineRequest), verdicts: make(chan verdictRequest),
		recheck: make(chan struct{}, 1), released: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.status.Store(&Status{Paths: config.Paths, Mode: Events, Entry: config.Entry})
	return w
}

// Run watches until ctx ends, and returns nil then. It may be called once.
func (w *Watcher) Run(ctx context.Context) error {
	if w.running.Swap(true) {
		return errors.New("watching: Run was called before")
	}
	defer close(w.done)
	newLoop(w).run(ctx)
	return nil
}

// Changes gives a value whenever the content has settled on something that is
// neither what was reported last nor what the last Baseline saw. Changes that
// nobody has received yet are one. The channel is never closed.
func (w *Watcher) Changes() <-chan Change { return w.changes }

// Baseline takes the content as it is now for what the backend that is about to
// start is made from: from now on only a difference to it is a change, and a
// change that was reported but not received yet is taken back. While files are
// being written it waits for them to settle, for 2 seconds at most, so that a
// start in the middle of a build does not need a second one. One that was received
// but not heeded yet can be told by [Watcher.Taken].
//
// It returns the entry file's path if that is missing or empty. Nothing should
// be started then; a change is reported once the file is there. Run must be
// running; errors are ErrStopped and the cause of ctx's end.
func (w *Watcher) Baseline(ctx context.Context) (missingEntry string, err error) {
	return w.baseline(ctx, false)
}

// Forgive is Baseline for content that no backend is started from, such as what a
// failed build has left: it is no change by itself, but one to a later Settled.
func (w *Watcher) Forgive(ctx context.Context) error {
	_, err := w.baseline(ctx, true)
	return err
}

func (w *Watcher) baseline(ctx context.Context, forgive bool) (missingEntry string, err error) {
	request := baselineRequest{reply: make(chan string), abandoned: ctx.Done(), forgive: forgive}
	select {
	case w.baselines <- request:
	case <-w.done:
		return "", ErrStopped
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	select {
	case missing := <-request.reply:
		return missing, nil
	case <-w.done:
		return "", ErrStopped
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Settled waits until what was written before the call has settled and nobody
// holds changes back, and says whether it is a change. A change that is told so
// does not come through Changes as well: the caller passes it on, whatever has
// become of ctx meanwhile. Several who ask at once are all told of it, by the same
// number. Errors are as for Baseline.
func (w *Watcher) Settled(ctx context.Context) (Verdict, error) {
	request := verdictRequest{reply: make(chan Verdict), abandoned: ctx.Done()}
	select {
	case w.verdicts <- request:
	case <-w.done:
		return Verdict{}, ErrStopped
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
	select {
	case verdict := <-request.reply:
		return verdict, nil
	case <-w.done:
		return Verdict{}, ErrStopped
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
}

// Recheck looks at the files soon, without an event: to be called when a
// backend is up, for what changed between Baseline and its start.
func (w *Watcher) Recheck() { wake(w.recheck) }

// Hold keeps changes back until release is called, for a build that writes in
// bursts. What has changed by then is reported once, after the settle time.
// Holds may overlap; calling release again does nothing.
func (w *Watcher) Hold() (release func()) {
	w.holds.Add(1)
	return sync.OnceFunc(func() {
		if w.holds.Add(-1) == 0 {
			wake(w.released)
		}
	})
}

// Taken is the Number of the last change that a Baseline has taken for what the
// backend is made from: none up to it asks for another start. 0: there was none.
func (w *Watcher) Taken() uint64 { return w.taken.Load() }

// Status is the latest state; it waits for nobody.
func (w *Watcher) Status() Status { return *w.status.Load() }

func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// report hands a change over. There is always room: Run is the only sender and
// takes back what lies there.
func (w *Watcher) report(change Change) {
	if earlier, ok := w.takeBack(); ok {
		paths := slices.Concat(earlier.Paths, change.Paths)
		slices.Sort(paths)
		paths = slices.Compact(paths)
		change.Count = max(change.Count, earlier.Count, len(paths))
		change.Paths = paths[:min(len(paths), maxNamed)]
	}
	w.changes <- change
}

func (w *Watcher) takeBack() (Change, bool) {
	select {
	case change := <-w.changes:
		return change, true
	default:
		return Change{}, false
	}
}
