package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/watch"
)

// buildings are the builds under way: the daemon's own, and those that people run
// themselves with "devproxyctl build". While there is any, changes are held back,
// and a start that nobody asked for by name waits for the end of a person's.
type buildings struct {
	watcher *watch.Watcher
	log     *slog.Logger

	mu    sync.Mutex
	count int
	// owed: a person's build has succeeded while others went on, so that what is
	// there at the end of the last one is a change even if that one fails.
	owed   bool
	people []*callerBuild // of these, those that run, oldest first
	last   *callerBuild   // the one that ended last
	// insisting counts those who ask for a start or restart by name.
	insisting int
	// turned is closed, and replaced, when a start may have to wait no more.
	turned chan struct{}
}

// forgivenWithin bounds the look at what a failed build wrote, which takes moments.
const forgivenWithin = 5 * time.Second

var errForgiven = errors.New("the files take too long to read")

// callerBuild is a build that a person runs.
type callerBuild struct {
	command string
	release func()

	backend.Build // owned by buildings.mu
}

func newBuildings(watcher *watch.Watcher, log *slog.Logger) *buildings {
	return &buildings{watcher: watcher, log: log, turned: make(chan struct{})}
}

// begin holds changes back until finish.
func (b *buildings) begin() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	return b.watcher.Hold()
}

// finish ends what begin began. Compilers write output in spite of errors, and a
// build that fails leaves the running backend alone: what is there then is no
// change, unless another build has a claim to it, or the next one that succeeds
// finds it good.
func (b *buildings) finish(ctx context.Context, release func(), failed bool) {
	b.mu.Lock()
	b.count--
	forgive := failed && b.count == 0 && !b.owed
	if b.count == 0 {
		b.owed = false
	}
	b.mu.Unlock()
	if forgive {
		// Also of a build that was cancelled.
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), forgivenWithin, errForgiven)
		defer cancel()
		if err := b.watcher.Forgive(ctx); err != nil {
			b.log.Debug("the output of a failed build may count as a change", "error", err)
		}
	}
	release()
}

// beginCaller begins a person's build.
func (b *buildings) beginCaller(command string) *callerBuild {
	c := &callerBuild{command: command, release: b.begin()}
	c.StartedAt, c.Running = time.Now(), true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.people = append(b.people, c)
	b.log.Info("changes are held back while somebody builds", "command", command)
	return c
}

// endCaller ends it. message says how it failed, and is empty if it did not; known
// is false where nobody has said how it ended. Then what it left is judged like
// any other change.
func (b *buildings) endCaller(ctx context.Context, c *callerBuild, message string, known bool) {
	b.mu.Lock()
	c.Duration, c.Running = time.Since(c.StartedAt), false
	switch {
	case !known:
		c.Message = "nobody has said how it ended: the devproxyctl that ran it is gone"
	case message != "":
		c.Message = "the build failed: " + message
	default:
		c.OK = true
	}
	b.owed = b.owed || c.OK || !known
	b.people = slices.DeleteFunc(b.people, func(other *callerBuild) bool { return other == c })
	b.last = c
	failed := known && !c.OK
	b.turn()
	b.mu.Unlock()
	switch {
	case !known:
		b.log.Warn("whoever built has gone; changes are held back no longer", "command", c.command)
	case !failed:
		b.log.Info("somebody's build succeeded", "command", c.command)
	default:
		b.log.Warn("somebody's build failed; a backend that runs is left alone", "command", c.command, "outcome", message)
	}
	b.finish(ctx, c.release, failed)
}

// turn wakes the starts that wait. The caller holds mu.
func (b *buildings) turn() {
	close(b.turned)
	b.turned = make(chan struct{})
}

// insist lets starts begin though somebody builds, until the end of it: who asks
// for one by name may be that build itself.
func (b *buildings) insist() (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.insisting++
	b.turn()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.insisting--
	}
}

// baseline is that of the watcher, once nobody builds who would leave half of his
// output in it. It is called before every start.
func (b *buildings) baseline(ctx context.Context) (missingEntry string, err error) {
	for {
		b.mu.Lock()
		wait, turned := len(b.people) > 0 && b.insisting == 0, b.turned
		b.mu.Unlock()
		if !wait {
			return b.watcher.Baseline(ctx)
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// seen is a person's build as it is shown.
type seenBuild struct {
	command  string
	byPerson bool
	backend.Build
}

// look returns the build of a person that is of most interest, if there was one,
// and whether starts wait for it.
func (b *buildings) look() (seen *seenBuild, wait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	latest := b.last
	if n := len(b.people); n > 0 {
		latest, wait = b.people[n-1], b.insisting == 0
	}
	if latest == nil {
		return nil, false
	}
	return &seenBuild{command: latest.command, byPerson: true, Build: latest.Build}, wait
}

// outsideBuilds is an environment without what says that it is that of a build: a
// daemon that is started by one outlives it.
func outsideBuilds(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		return strings.HasPrefix(pair, client.BuildingVariable+"=")
	})
}

// took is how long it took, or has taken so far.
func (b *seenBuild) took() time.Duration {
	if b.Running {
		return time.Since(b.StartedAt)
	}
	return b.Duration
}

// lastBuild is the daemon's own build or that of a person: the one that runs, else
// the later one; nil if there was none.
func (v view) lastBuild() *seenBuild {
	own, theirs := v.backend.LastBuild, v.callerBuild
	switch {
	case own == nil:
		return theirs
	case theirs == nil, own.Running && !theirs.Running, own.Running == theirs.Running && own.StartedAt.After(theirs.StartedAt):
		return &seenBuild{command: v.build, Build: *own}
	}
	return theirs
}
