package watch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// fakeGround is a set of files in memory, so that time can be synthetic.
type fakeGround struct {
	events chan fsnotify.Event
	faults chan error
	seed   maphash.Seed

	mu       sync.Mutex
	files    map[string]string
	clock    int64 // stands for the metadata: grows with each write
	entry    string
	before   fingerprint
	touched  bool // what a glance would see
	openErr  error
	limit    error
	fs       string
	lookTime time.Duration
	closed   bool
	tasks    []task
}

func newFakeGround() *fakeGround {
	return &fakeGround{events: make(chan fsnotify.Event), faults: make(chan error), files: map[string]string{}, seed: maphash.MakeSeed()}
}

func (g *fakeGround) open() (<-chan fsnotify.Event, <-chan error, error) {
	return g.events, g.faults, g.openErr
}

func (g *fakeGround) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *fakeGround) silent() (kind, path string) {
	if g.fs == "" {
		return "", ""
	}
	return g.fs, "/project/dist"
}

func (g *fakeGround) classify(event fsnotify.Event) class {
	switch {
	case strings.HasPrefix(event.Name, "other"):
		return irrelevant
	case event.Has(fsnotify.Create):
		return created
	}
	return content
}

func (g *fakeGround) examine(ctx context.Context, work task) finding {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tasks = append(g.tasks, work)
	switch {
	case work.look:
		files, seed := fingerprint{}, g.seed
		for name, text := range g.files {
			hash, stamp, _ := strings.Cut(text, "@")
			files[name] = fileState{
				meta: metadata{size: int64(len(hash)), modified: int64(len(stamp))}, hash: maphash.String(seed, hash),
			}
		}
		moved := g.before != nil && moved(g.before, files)
		g.before, g.touched = files, false
		text, there := g.files[g.entry]
		if g.lookTime > 0 {
			g.mu.Unlock()
			select {
			case <-time.After(g.lookTime):
			case <-ctx.Done():
			}
			g.mu.Lock()
		}
		return finding{
			look: true, print: files, moved: moved, limit: g.limit,
			entryMissing: g.entry != "" && (!there || strings.HasPrefix(text, "@")),
		}
	case work.glance:
		return finding{disturbed: g.touched}
	}
	return finding{}
}

// set writes a file without an event; "" removes it.
func (g *fakeGround) set(name, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock++
	g.touched = true
	if text == "" {
		delete(g.files, name)
		return
	}
	g.files[name] = text + "@" + strings.Repeat("1", int(g.clock))
}

func (g *fakeGround) write(name, text string) {
	g.set(name, text)
	g.events <- fsnotify.Event{Name: name, Op: fsnotify.Write}
}

func (g *fakeGround) looks() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, task := range g.tasks {
		if task.look {
			n++
		}
	}
	return n
}

// inBubble runs a watcher on fake files in fake time.
func inBubble(t *testing.T, config Config, prepare func(*fakeGround), test func(*testing.T, *Watcher, *fakeGround)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newFakeGround()
		g.entry = config.Entry
		if config.Settle == 0 {
			config.Settle = 300 * time.Millisecond
		}
		config.Root = "/project"
		if prepare != nil {
			prepare(g)
		}
		w := newWatcher(config, g)
		config := &w.config
		if config.Logger == nil {
			config.Logger = discard()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		test(t, w, g)
		cancel(nil)
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if !g.closed {
			t.Error("events were left open")
		}
		if _, err := w.Baseline(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("Baseline after the end: %v", err)
		}
		if _, err := w.Settled(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("Settled after the end: %v", err)
		}
	})
}

// expect waits until a change comes, and says after how long.
func expect(t *testing.T, w *Watcher, within time.Duration) (Change, time.Duration) {
	t.Helper()
	start := time.Now()
	select {
	case change := <-w.Changes():
		return change, time.Since(start)
	case <-time.After(within):
		t.Fatalf("no change within %v; status %+v", within, w.Status())
		return Change{}, 0
	}
}

func expectNone(t *testing.T, w *Watcher, during time.Duration) {
	t.Helper()
	select {
	case change := <-w.Changes():
		t.Fatalf("change %+v", change)
	case <-time.After(during):
	}
}

func TestSettling(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		for range 10 {
			g.write("a", "1")
			g.write("b", time.Now().String())
			expectNone(t, w, 299*time.Millisecond)
		}
		change, after := expect(t, w, time.Second)
		if after != time.Millisecond || change.Count != 2 || strings.Join(change.Paths, " ") != "a b" {
			t.Errorf("change %+v after %v, want both files 1ms later", change, after)
		}
		status := w.Status()
		if status.LastChanged != "b" || !status.LastChangeAt.Equal(change.At) || status.Files != 2 {
			t.Errorf("status %+v", status)
		}
		if looks := g.looks(); looks != 2 {
			t.Errorf("looked %d times, want at the begin and at the end", looks)
		}
	})
}

func TestNoContentChange(t *testing.T) {
	inBubble(t, Config{}, func(g *fakeGround) { g.set("a", "1") }, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.write("a", "1")
		g.events <- fsnotify.Event{Name: "other"}
		expectNone(t, w, time.Minute)
		g.write("a", "2")
		g.write("a", "1")
		expectNone(t, w, time.Minute)
	})
}

func TestChangesCoalesce(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		for _, name := range []string{"a", "b", "c"} {
			g.write(name, "1")
			time.Sleep(time.Second)
		}
		change, _ := expect(t, w, time.Second)
		if strings.Join(change.Paths, " ") != "a b c" || change.Count != 3 {
			t.Errorf("change %+v", change)
		}
		expectNone(t, w, time.Minute)
	})
}

func TestChangeDuringLook(t *testing.T) {
	slow := func(g *fakeGround) { g.lookTime = 5 * time.Second }
	inBubble(t, Config{}, slow, func(t *testing.T, w *Watcher, g *fakeGround) {
		time.Sleep(5 * time.Second)
		g.write("a", "1")
		time.Sleep(time.Second) // the look is at work, and has seen a
		g.write("b", "1")
		change, after := expect(t, w, time.Minute)
		// The first look ends after 5.3 s with the second burst over: what it saw is reported then
		// at the earliest; a second look must tell the rest.
		rest, _ := expect(t, w, time.Minute)
		if got := strings.Join(append(change.Paths, rest.Paths...), " "); got != "a b" {
			t.Errorf("changes %q, first after %v", got, after)
		}
	})
}

func TestNeverQuiet(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
					g.write("log", time.Now().String())
				}
			}
		})
		_, after := expect(t, w, 2*time.Minute)
		close(stop)
		writer.Wait()
		if after < maxBurst || after > maxBurst+time.Second {
			t.Errorf("reported after %v, want %v", after, maxBurst)
		}
	})
}

func TestBaseline(t *testing.T) {
	inBubble(t, Config{}, func(g *fakeGround) { g.set("a", "1") }, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.write("a", "2")
		time.Sleep(time.Second) // reported, and not received

		start := time.Now()
		if missing, err := w.Baseline(t.Context()); missing != "" || err != nil {
			t.Fatalf("%q %v", missing, err)
		}
		if time.Since(start) != 0 {
			t.Errorf("took %v with nothing going on", time.Since(start))
		}
		expectNone(t, w, time.Minute) // taken back

		g.write("a", "3")
		expect(t, w, time.Second)
		g.write("a", "3")
		expectNone(t, w, time.Minute)
		g.write("a", "2") // what the backend was started from, but not what was reported
		expect(t, w, time.Second)
	})
}

// A change that was received, but not heeded before a start found it, is known by
// its number.
func TestTaken(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		for number := uint64(1); number <= 2; number++ {
			g.write("a", fmt.Sprint(number))
			change, _ := expect(t, w, time.Second)
			if change.Number != number || w.Taken() != number-1 {
				t.Errorf("change %d, %d taken; want %d and %d", change.Number, w.Taken(), number, number-1)
			}
			if _, err := w.Baseline(t.Context()); err != nil {
				t.Fatal(err)
			}
			if w.Taken() != number {
				t.Errorf("after the baseline %d are taken, want %d", w.Taken(), number)
			}
		}
		g.write("a", "3")
		expect(t, w, time.Second)
		if err := w.Forgive(t.Context()); err != nil || w.Taken() != 2 {
			t.Errorf("what no backend starts from is taken: %d, %v", w.Taken(), err)
		}
	})
}

func TestBaselineWaitsForQuiet(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.write("a", "1")
		start := time.Now()
		if _, err := w.Baseline(t.Context()); err != nil || time.Since(start) != 300*time.Millisecond {
			t.Errorf("took %v, want the settle time; %v", time.Since(start), err)
		}
		expectNone(t, w, time.Minute)

		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for {
				g.write("a", time.Now().String())
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
		synctest.Wait()
		start = time.Now()
		if _, err := w.Baseline(t.Context()); err != nil || time.Since(start) != baselinePatience {
			t.Errorf("took %v, want %v; %v", time.Since(start), baselinePatience, err)
		}
		close(stop)
		writer.Wait()
		g.write("a", "the rest of the build")
		expect(t, w, time.Second)
	})
}

func TestAbandonedBaseline(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.write("a", "1")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("given up"))
		defer cancel()
		if _, err := w.Baseline(ctx); err == nil || err.Error() != "given up" {
			t.Errorf("error %v", err)
		}
		expect(t, w, time.Second) // nobody was started from it
	})
}

func TestEntryMissing(t *testing.T) {
	inBubble(t, Config{Entry: "/project/main"}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		if missing, err := w.Baseline(t.Context()); missing != "/project/main" || err != nil {
			t.Fatalf("%q %v", missing, err)
		}
		if !w.Status().EntryMissing {
			t.Error("status does not tell it")
		}
		g.write("lib", "1")
		expectNone(t, w, time.Minute)
		g.write("/project/main", "1")
		change, _ := expect(t, w, time.Second)
		if change.Count != 2 || w.Status().EntryMissing {
			t.Errorf("change %+v, status %+v", change, w.Status())
		}

		g.write("/project/main", "") // the builder cleans up
		expectNone(t, w, time.Minute)
		g.write("/project/main", "1")
		expectNone(t, w, time.Minute) // and makes the same again
	})
}

func TestHold(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		release, second := w.Hold(), w.Hold()
		g.write("a", "1")
		expectNone(t, w, time.Minute)
		g.write("b", "1")
		release()
		release()
		expectNone(t, w, time.Minute)
		second()
		change, after := expect(t, w, time.Second)
		if change.Count != 2 || after != 300*time.Millisecond {
			t.Errorf("change %+v after %v", change, after)
		}
		expectNone(t, w, time.Minute)

		release = w.Hold()
		g.write("a", "2")
		g.write("a", "1")
		release()
		expectNone(t, w, time.Minute)
	})
}

// settled asks, and gives the answer with how long it took.
func settled(t *testing.T, w *Watcher) (Verdict, time.Duration) {
	t.Helper()
	began := time.Now()
	verdict, err := w.Settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return verdict, time.Since(began)
}

func TestSettled(t *testing.T) {
	const settle = 300 * time.Millisecond
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		if verdict, after := settled(t, w); verdict.Change != 0 || after != settle {
			t.Errorf("of nothing it says %+v after %v", verdict, after)
		}
		// Who asks has the change, even one that no event has told.
		g.set("a", "1")
		if verdict, after := settled(t, w); verdict.Change != 1 || after != settle {
			t.Errorf("of a new file it says %+v after %v", verdict, after)
		}
		expectNone(t, w, time.Minute)

		// While somebody holds changes back there is nothing to be said.
		release := w.Hold()
		g.write("a", "2")
		verdicts := make(chan Verdict, 2)
		for range cap(verdicts) {
			go func() {
				verdict, _ := w.Settled(t.Context())
				verdicts <- verdict
			}()
		}
		expectNone(t, w, time.Minute)
		release()
		for range cap(verdicts) {
			if verdict := <-verdicts; verdict.Change != 2 {
				t.Errorf("after a hold it says %+v", verdict)
			}
		}

		// A change that nobody waits for any more is told as every other.
		release = w.Hold()
		g.write("a", "3")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
		defer cancel()
		if _, err := w.Settled(ctx); err == nil || err.Error() != "too long" {
			t.Errorf("who gives up gets %v", err)
		}
		release()
		expect(t, w, time.Second)
	})
}

// Whoever builds and says so is no feedback loop, however often.
func TestSettledIsNoFeedback(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		for i := range 3 * feedbackStarts {
			if _, err := w.Baseline(t.Context()); err != nil {
				t.Fatal(err)
			}
			release := w.Hold()
			g.write("a", fmt.Sprint(i))
			release()
			if verdict, after := settled(t, w); verdict.Change == 0 || after > time.Second {
				t.Fatalf("of build %d it says %+v after %v", i, verdict, after)
			}
		}
		if problem := w.Status().Problem; problem != "" {
			t.Errorf("the problem is %q", problem)
		}
	})
}

// What a failed build has left is no change, until a build that succeeds finds it
// good; but not if a backend was started from it meanwhile.
func TestForgive(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		fail := func(text string) {
			release := w.Hold()
			g.write("a", text)
			if err := w.Forgive(t.Context()); err != nil {
				t.Fatal(err)
			}
			release()
			expectNone(t, w, time.Minute)
		}
		fail("1")
		fail("2")
		if verdict, _ := settled(t, w); verdict.Change != 1 {
			t.Errorf("of what failed builds have left it says %+v", verdict)
		}
		if verdict, _ := settled(t, w); verdict.Change != 0 {
			t.Errorf("of what it has told it says %+v", verdict)
		}
		fail("3")
		fail("2")
		if verdict, _ := settled(t, w); verdict.Change != 0 {
			t.Errorf("of what a backend runs from it says %+v", verdict)
		}
		fail("3")
		if _, err := w.Baseline(t.Context()); err != nil {
			t.Fatal(err)
		}
		if verdict, _ := settled(t, w); verdict.Change != 0 {
			t.Errorf("of what a backend was started from it says %+v", verdict)
		}
	})
}

func TestSettledWithoutEntry(t *testing.T) {
	inBubble(t, Config{Entry: "main"}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.write("other", "1")
		g.write("lib", "1")
		if verdict, _ := settled(t, w); verdict.Change != 0 || verdict.MissingEntry != "main" {
			t.Errorf("without the entry file it says %+v", verdict)
		}
		g.write("main", "1")
		if change, _ := expect(t, w, time.Minute); change.Count == 0 {
			t.Errorf("with it the change is %+v", change)
		}
	})
}

func TestRecheck(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.set("a", "1")
		w.Recheck()
		expect(t, w, time.Millisecond)
		w.Recheck()
		expectNone(t, w, time.Minute)
	})
}

func TestOverflow(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.set("a", "1")
		g.faults <- fsnotify.ErrEventOverflow
		expect(t, w, time.Second)
		if n := w.Status().Overflows; n != 1 {
			t.Errorf("%d overflows", n)
		}
		if w.Status().Mode != Events {
			t.Errorf("mode %s", w.Status().Mode)
		}
	})
}

func TestPolling(t *testing.T) {
	tests := []struct {
		name    string
		config  Config
		prepare func(*fakeGround)
		every   time.Duration
		problem string
	}{
		{"asked for", Config{Poll: 5 * time.Second}, nil, 5 * time.Second, ""},
		{"no events to be had", Config{}, func(g *fakeGround) { g.openErr = errors.New("no instance left") }, fallbackPoll,
			"no instance left; looking every 2s instead of waiting for file events"},
		{"limit reached", Config{}, func(g *fakeGround) { g.limit = errors.New("no watch left") }, fallbackPoll,
			"no watch left; looking every 2s instead of waiting for file events"},
		{"file system without events", Config{}, func(g *fakeGround) { g.fs = "9p" }, fallbackPoll,
			"dist is on a 9p file system, which sends no events for changes made elsewhere; looking every 2s instead of waiting for file events"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, test.config, test.prepare, func(t *testing.T, w *Watcher, g *fakeGround) {
				if status := w.Status(); status.Mode != Polling || status.Problem != test.problem {
					t.Errorf("status %+v, want the problem %q", status, test.problem)
				}
				g.set("a", "1")
				_, after := expect(t, w, time.Minute)
				if want := test.every + 300*time.Millisecond; after > want {
					t.Errorf("noticed after %v, want %v at most", after, want)
				}
				g.set("a", "1") // written, but the same
				expectNone(t, w, time.Minute)
			})
		})
	}
}

func TestPollingWaitsForQuiet(t *testing.T) {
	inBubble(t, Config{Poll: time.Second, Settle: 600 * time.Millisecond}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		for range 20 {
			g.set("a", time.Now().String())
			expectNone(t, w, 500*time.Millisecond)
		}
		expect(t, w, 3*time.Second)
		expectNone(t, w, time.Minute)
	})
}

func TestGlance(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		g.set("a", "1")
		_, after := expect(t, w, time.Minute)
		if want := glanceEvery + 300*time.Millisecond; after != want {
			t.Errorf("noticed after %v, want %v", after, want)
		}
		if w.Status().Mode != Events {
			t.Error("events were given up for one accident")
		}
		g.set("a", "2")
		expect(t, w, time.Minute)
		synctest.Wait()
		status := w.Status()
		if status.Mode != Polling || !strings.HasPrefix(status.Problem, "files changed without an event") {
			t.Errorf("status %+v", status)
		}
		g.set("a", "3")
		if _, after := expect(t, w, time.Minute); after > fallbackPoll+300*time.Millisecond {
			t.Errorf("polling noticed after %v", after)
		}
	})
}

// TestGlanceBesideEvents holds that changes which came with events, or without
// content, do not count as silent.
func TestGlanceBesideEvents(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		for range 5 {
			time.Sleep(glanceEvery - time.Millisecond) // ever nearer to the glance
			g.write("a", time.Now().String())
			expect(t, w, time.Second)
			g.set("a", "x")
			g.write("a", "x")
			release := w.Hold()
			time.Sleep(glanceEvery)
			release()
			expect(t, w, time.Second)
			g.set("a", "x")
			time.Sleep(glanceEvery + time.Second)
		}
		if w.Status().Mode != Events {
			t.Errorf("status %+v", w.Status())
		}
	})
}

func TestFeedbackLoop(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		restart := func() (Change, time.Duration) {
			if _, err := w.Baseline(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			g.write("/project/dist/cache", time.Now().String()) // the backend does it
			return expect(t, w, time.Minute)
		}
		for range feedbackStarts {
			if _, after := restart(); after != 300*time.Millisecond {
				t.Fatalf("reported after %v", after)
			}
		}
		if problem := w.Status().Problem; !strings.HasPrefix(problem, filepath.FromSlash("dist/cache")+" changed right after each of the last 5 starts") {
			t.Errorf("problem %q", problem)
		}
		for range 5 { // slowed down, and still suspected
			if _, after := restart(); after != feedbackPeriod-time.Second {
				t.Fatalf("reported after %v", after)
			}
		}
		if _, err := w.Baseline(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if problem := w.Status().Problem; problem != "" {
			t.Errorf("after a quiet start: problem %q", problem)
		}
	})
}

// TestFeedbackSuspectsPerson holds that who saves often is kept waiting no longer
// than a loop is, for all that each save follows the last one soon.
func TestFeedbackSuspectsPerson(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
		start := func() time.Time {
			if _, err := w.Baseline(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		}
		save := func() { g.write("/project/dist/index.js", time.Now().String()) }
		for range feedbackStarts {
			start()
			time.Sleep(time.Second)
			save()
			expect(t, w, time.Minute)
		}
		began := start()
		for range 9 {
			time.Sleep(time.Second)
			save()
		}
		expect(t, w, time.Minute)
		if after := time.Since(began); after != feedbackPeriod {
			t.Errorf("restarted %v after the last start", after)
		}
		start()
		time.Sleep(feedbackPeriod)
		save()
		if _, after := expect(t, w, time.Minute); after != 300*time.Millisecond {
			t.Errorf("a save long after the start was reported after %v", after)
		}
	})
}

func TestRunTwice(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, w *Watcher, _ *fakeGround) {
		if err := w.Run(t.Context()); err == nil {
			t.Error("the second Run was accepted")
		}
	})
}

// A save is heard of at once; of a large build the events are read many at a
// time, which puts off neither the change nor its end.
func TestManyEventsAtATime(t *testing.T) {
	tests := []struct {
		name   string
		settle time.Duration
		events int
		waits  bool
	}{
		{"a save", time.Second, crowd, false},
		{"a large build", time.Second, crowd + 1, true},
		{"too short a settle time", 2*rest - 1, crowd + 1, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Config{Settle: test.settle}, nil, func(t *testing.T, w *Watcher, g *fakeGround) {
				for range 2 { // each burst anew
					began := time.Now()
					for range test.events {
						g.write("a", unique())
					}
					if waited := time.Since(began); (waited == rest) != test.waits || waited > rest {
						t.Errorf("%d events took %v", test.events, waited)
					}
					if _, took := expect(t, w, time.Minute); took != test.settle {
						t.Errorf("settled after %v", took)
					}
				}
			})
		})
	}
}

func TestBacklogNeedsNoRest(t *testing.T) {
	now := time.Now()
	p := pace{burst: crowd}
	p.resume(now)
	for range backlog - 1 {
		if p.tires(now) {
			t.Fatal("rests within a sip")
		}
	}
	if now = now.Add(sip); p.tires(now) {
		t.Error("rests while the queue is full")
	}
	if p.tires(now.Add(sip)) != true || !p.resting {
		t.Error("reads on when the queue is empty")
	}
}
