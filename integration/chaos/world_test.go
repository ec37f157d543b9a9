//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// stranger is whom a world runs as when root runs the tests: for root no folder
// is read-only.
const stranger = 65534

// errBroken ends a world at its first violation.
var errBroken = errors.New("a violation was found")

// world is a project with its daemon, clients and faults, from nothing to
// nothing.
type world struct {
	t        *testing.T
	seed     uint64
	plan     plan
	timeline *timeline

	base string // of all its folders
	bin  string // of the programs under test
	home string
	root string // of the project
	tmp  string // TMPDIR, empty at the end
	port int    // 0 for a free one at each start

	clients []*client
	journal *journal
	builds  builds

	upgrading sync.Mutex // guards upgraded, and is held while devproxyd is replaced
	upgraded  bool       // devproxyd is the other version

	// stops counts the begins and the ends of devproxyd stop: it is odd during one.
	stops atomic.Int64
	// largest is the most memory that the daemon had.
	largest atomic.Int64
	tally   tally

	// halt ends what goes on in the world.
	halt context.CancelCauseFunc
	// fresh returns what a fresh daemon holds.
	fresh func() (vitals, bool)

	mu     sync.Mutex
	faulty []string // violations
}

func newWorld(t *testing.T, seed uint64, short bool) *world {
	t.Helper()
	base, err := testbed.ShortTempDir("dpc")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, seed: seed, plan: newPlan(seed, short), timeline: newTimeline(),
		base: base, bin: base + "/b", home: base + "/h", root: base + "/p", tmp: base + "/t",
		halt: func(error) {},
	}
	w.journal = newJournal(filepath.Join(base, "journal"))
	for n := range w.plan.clients {
		w.clients = append(w.clients, newClient(w, n))
	}
	return w
}

// tally counts what happened, to show that a world was not a quiet one.
type tally struct {
	faults, requests, answers, failures, news atomic.Int64

	mu      sync.Mutex
	reasons map[string]int // of the answers that are not the backend's, by devproxy's reason
}

func (t *tally) refused(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reasons == nil {
		t.reasons = map[string]int{}
	}
	t.reasons[reason]++
}

// lost returns how many answers are not the backend's, and why.
func (t *tally) lost() (n int, why map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, count := range t.reasons {
		n += count
	}
	return n, maps.Clone(t.reasons)
}

// summary says what the world was like.
func (w *world) summary() string {
	executed, starts := w.journal.totals()
	lost, why := w.tally.lost()
	return fmt.Sprintf("%v, %d faults, %d lives of the backend, %d requests, %d answers (%d of them errors, %d of devproxy: %v), %d notifications, %d calls executed, the daemon had at most %d MiB",
		time.Since(w.timeline.began).Round(time.Second), w.tally.faults.Load(), starts, w.tally.requests.Load(),
		w.tally.answers.Load(), w.tally.failures.Load(), lost, why, w.tally.news.Load(), executed, w.largest.Load()>>20)
}

// violatef notes that an invariant does not hold, which ends the world.
func (w *world) violatef(actor, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.timeline.notef(actor, "VIOLATION: %s", what)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = append(w.faulty, actor+": "+what)
	w.halt(errBroken)
}

func (w *world) isBroken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faulty) > 0
}

// run lives through the world.
func (w *world) run() {
	w.t.Logf("seed %d: %s", w.seed, w.plan)
	if err := w.make(); err != nil {
		w.t.Fatal(err)
	}
	defer w.remove()
	ctx, halt := context.WithCancelCause(w.t.Context())
	defer halt(nil)
	w.halt = halt
	w.fresh = sync.OnceValues(func() (vitals, bool) { return w.reference(ctx) })
	var background sync.WaitGroup
	background.Go(func() { w.watch(ctx) })
	background.Go(func() { w.fresh() })
	for _, stage := range []struct {
		name string
		do   func(context.Context)
	}{
		{"storm", w.storm}, {"calm", w.calm}, {"farewell", w.farewell}, {"comparison", w.compare},
	} {
		w.timeline.notef("world", "%s", stage.name)
		stage.do(ctx)
		if w.isBroken() {
			w.explain()
			break
		}
	}
	w.dismiss()
	halt(nil)
	background.Wait()
	w.end()
	w.report()
}

// make makes the folders and the project.
func (w *world) make() error {
	for _, dir := range []string{w.home, w.root, w.tmp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if w.plan.listens() && w.plan.fixedPort {
		port, err := freePort()
		if err != nil {
			return err
		}
		w.port = port
	}
	if err := os.WriteFile(filepath.Join(w.root, "devproxy.toml"), []byte(w.plan.toml(w)), 0o644); err != nil {
		return err
	}
	if err := w.builds.replace(w.root); err != nil {
		return err
	}
	if err := w.install(); err != nil {
		return err
	}
	return w.handOver()
}

// handOver gives the folders to whom the world runs as, but for the programs, which
// are not its own.
func (w *world) handOver() error {
	if credential() == nil {
		return nil
	}
	return filepath.WalkDir(w.base, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == w.bin {
			return filepath.SkipDir
		}
		return os.Chown(path, stranger, stranger)
	})
}

// credential is whom the programs run as; nil for us.
func credential() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("unexpected address %v", listener.Addr())
	}
	return address.Port, nil
}

// storm lets everybody do what they like for a while.
func (w *world) storm(ctx context.Context) {
	if w.plan.terminal {
		w.command(ctx, "world", "devproxyd", "start")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.plan.storm, errors.New("the storm is over"))
	defer cancel()
	var actors sync.WaitGroup
	for _, c := range w.clients {
		actors.Go(func() { c.live(ctx) })
	}
	actors.Go(func() { w.havoc(ctx) })
	actors.Wait()
}

// farewell lets all clients leave in an orderly way.
func (w *world) farewell(context.Context) {
	each(w.clients, func(c *client) { c.leave(leaveByEOF) })
	w.checkSuccesses()
}

// dismiss ends the shims that are left of a world that failed, and waits for
// everything that the clients began.
func (w *world) dismiss() {
	for _, c := range w.clients {
		c.dismiss()
	}
}

// explain prints what helps to understand a violation, while it is fresh.
func (w *world) explain() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 20*time.Second)
	defer cancel()
	w.t.Logf("devproxyctl status:\n%s", w.command(ctx, "explain", "devproxyctl", "status"))
	for _, p := range w.live() {
		w.t.Logf("process %d: %s", p.PID, p.Command)
	}
	const tail = 12_000
	for path, content := range w.logs() {
		w.t.Logf("%s:\n%s", path, content[max(0, len(content)-tail):])
	}
}

// report fails the test for the violations.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faulty) == 0 {
		w.t.Logf("seed %d is through: %s", w.seed, w.summary())
		if *timelineFlag {
			w.t.Logf("timeline:\n%s", w.timeline)
		}
		return
	}
	w.t.Errorf("seed %d: %d violations:\n%s\n\n%s\n\ntimeline:\n%s",
		w.seed, len(w.faulty), strings.Join(w.faulty, "\n"), w.summary(), w.timeline)
}

// remove removes the folders.
func (w *world) remove() {
	if w.t.Failed() && *keepFlag {
		w.t.Logf("kept %s", w.base)
		return
	}
	if err := os.RemoveAll(w.base); err != nil {
		w.t.Error(err)
	}
}
