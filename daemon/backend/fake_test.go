package backend

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
)

// act is what the pretended processes of one generation do. Its zero value comes
// up at once and lives until it is ended.
type act struct {
	prepareTakes time.Duration
	prepareErr   error
	spawnTakes   time.Duration
	spawnErr     error
	readyAfter   time.Duration
	readyErr     error
	exitsAfter   time.Duration // after ready; 0: never
	endTakes     time.Duration
	survivesEnds int // how many ends it outlives
}

// fakeRunner pretends. acts are those of the attempts in order; the last one is
// for all that follow.
type fakeRunner struct {
	t      *testing.T
	launch Launch

	mu       sync.Mutex
	acts     []act
	attempts int
	alive    int
	orders   []order
	swept    int
}

func (r *fakeRunner) sweep(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept++
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *fakeRunner) next(o order) act {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.acts[min(r.attempts, len(r.acts)-1)]
	r.attempts++
	r.orders = append(r.orders, o)
	return a
}

func (r *fakeRunner) prepare(ctx context.Context, o order) (plan, error) {
	a := r.next(o)
	if err := pause(ctx, a.prepareTakes); err != nil {
		return plan{}, err
	}
	if a.prepareErr != nil {
		return plan{}, a.prepareErr
	}
	o.note("pretending")
	// The act travels in a place that the loop does not look at.
	l := r.launch.withDefaults()
	l.Dir = fmt.Sprint(r.attempts - 1)
	return plan{order: o, launch: l, port: 3001}, nil
}

func (r *fakeRunner) spawn(ctx context.Context, p plan) (life, error) {
	var index int
	_, _ = fmt.Sscan(p.launch.Dir, &index)
	r.mu.Lock()
	a := r.acts[min(index, len(r.acts)-1)]
	r.mu.Unlock()
	if err := pause(ctx, a.spawnTakes); err != nil {
		return nil, err
	}
	if a.spawnErr != nil {
		return nil, a.spawnErr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive++; r.alive > 1 {
		r.t.Errorf("generation %d was spawned while another lives", p.generation)
	}
	return &fakeLife{runner: r, plan: p, act: a, ended: make(chan struct{}), stop: make(chan struct{})}, nil
}

type fakeLife struct {
	runner *fakeRunner
	plan   plan
	act    act
	ended  chan struct{}
	stop   chan struct{}
	timers sync.WaitGroup
	ends   int
}

func (l *fakeLife) pid() int { return 1000 + int(l.plan.generation) }

func (l *fakeLife) ready(ctx context.Context) (*Generation, error) {
	if err := pause(ctx, l.act.readyAfter); err != nil {
		return nil, fail(StartTimeout, "the backend was not ready in time")
	}
	if l.act.readyErr != nil {
		return nil, l.act.readyErr
	}
	if l.act.exitsAfter > 0 {
		l.timers.Go(func() {
			select {
			case <-time.After(l.act.exitsAfter):
				close(l.ended)
			case <-l.stop:
			}
		})
	}
	facts := era.Facts{Era: era.Modern, Version: era.ModernVersion}
	return &Generation{number: l.plan.generation, facts: facts, shared: func() bool { return false }}, nil
}

func (l *fakeLife) exited() <-chan struct{} { return l.ended }

func (l *fakeLife) exit() (string, []string) {
	return "exited with status 1", []string{"last words"}
}

func (l *fakeLife) ignoredInput() bool { return false }

func (l *fakeLife) end(context.Context) error {
	if l.ends++; l.ends == 1 {
		close(l.stop)
		l.timers.Wait()
	}
	time.Sleep(l.act.endTakes)
	if l.ends <= l.act.survivesEnds {
		return fail(Survivors, "processes of the backend cannot be ended: 9")
	}
	l.runner.mu.Lock()
	defer l.runner.mu.Unlock()
	l.runner.alive--
	return nil
}

// recorder is an observer that writes down what it hears.
type recorder struct {
	mu    sync.Mutex
	heard []string
	// react is called after each, if set.
	react func(string)
}

func (r *recorder) hear(format string, args ...any) {
	r.mu.Lock()
	text := fmt.Sprintf(format, args...)
	r.heard = append(r.heard, text)
	react := r.react
	r.mu.Unlock()
	if react != nil {
		react(text)
	}
}

func (r *recorder) Starting(generation uint64) { r.hear("Starting %d", generation) }
func (r *recorder) Up(g *Generation)           { r.hear("Up %d", g.Number()) }
func (r *recorder) Draining(generation uint64) { r.hear("Draining %d", generation) }
func (r *recorder) Down(generation uint64, why Failure) {
	r.hear("Down %d %s", generation, why.Reason)
}

func (r *recorder) Unavailable(f Failure) {
	waiting := ""
	if f.Waiting {
		waiting = " waiting"
	}
	r.hear("Unavailable %s%s", f.Reason, waiting)
}

// take returns what was heard since the last time, joined.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := strings.Join(r.heard, ", ")
	r.heard = nil
	return heard
}

// bench is a supervisor with a pretended backend, in a synctest bubble.
type bench struct {
	*Supervisor

	t        *testing.T
	runner   *fakeRunner
	observer *recorder
	shutdown context.CancelFunc
	result   chan error
}

// inBubble runs a test against a supervisor whose attempts do what acts say.
// It ends the supervisor if the test has not.
func inBubble(t *testing.T, config Config, l Launch, acts []act, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, observer: &recorder{}, result: make(chan error, 1)}
		b.runner = &fakeRunner{t: t, launch: l, acts: acts}
		config.Observer = b.observer
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		b.Supervisor = newSupervisor(config, b.runner, loadSnapshots("", nil, log), log)
		ctx, cancel := context.WithCancel(t.Context())
		b.shutdown = cancel
		go func() { b.result <- b.Run(ctx) }()
		synctest.Wait()
		test(b)
		cancel()
		synctest.Wait()
	})
}

// heard waits until nothing more happens at this moment, and compares.
func (b *bench) heard(want string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.observer.take(); got != want {
		b.t.Errorf("heard %q\nwant  %q", got, want)
	}
}

// mustBe waits until nothing more happens at this moment, and compares.
func (b *bench) mustBe(want State) Status {
	b.t.Helper()
	synctest.Wait()
	status := b.Status()
	if status.State != want {
		b.t.Fatalf("state is %v (%s), want %v", status.State, status.Message, want)
	}
	return status
}

// mustStart brings it up.
func (b *bench) mustStart() {
	b.t.Helper()
	if err := b.Start(b.t.Context(), nil); err != nil {
		b.t.Fatal(err)
	}
	b.mustBe(Running)
	b.observer.take()
}

func (b *bench) spawns() int {
	b.runner.mu.Lock()
	defer b.runner.mu.Unlock()
	return b.runner.attempts
}

// async starts something that a person asks for, and returns its outcome.
func (b *bench) async(ask func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- ask(b.t.Context()) }()
	synctest.Wait()
	return result
}

// outcome returns what has come of async by now, or "pending".
func outcome(result <-chan error) string {
	synctest.Wait()
	select {
	case err := <-result:
		return reasonOf(err)
	default:
		return "pending"
	}
}

// discard is a logger for what a test does not look at.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func reasonOf(err error) string {
	if err == nil {
		return "ok"
	}
	return string(failureOf(err, Reason(err.Error())).Reason)
}

// stepNames shows steps in short.
func stepNames(steps []Step) []string {
	var names []string
	for _, s := range steps {
		switch {
		case s.Status != nil:
			names = append(names, s.Status.State.String())
		case s.Output != nil:
			names = append(names, "> "+*s.Output)
		case s.Build != nil:
			names = append(names, fmt.Sprintf("build ok=%v", s.Build.OK))
		}
	}
	return slices.Clip(names)
}
