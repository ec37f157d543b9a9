package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/port"
	"github.com/debugmcp/devproxy/internal/process"
)

const (
	// maxLine bounds one line of a backend's output: a long stack trace in one
	// line fits, a dump of its memory does not.
	maxLine = 32 << 10
	// outputTail is how many of its last lines are kept to explain its end: a
	// stack trace and what led to it, on one screen.
	outputTail = 20
	// lastOutput is how long the end of its output, and of its answers, may take
	// to be read once a leader has exited. Usually that is there at once; a
	// grandchild that holds the pipe must not delay the answers to what was in
	// flight.
	lastOutput = 300 * time.Millisecond
	// lastStep is how long a process may live on after its link has ended until
	// that is told instead of an exit status: those whose requests were lost with
	// it wait 400 ms for this.
	lastStep = 300 * time.Millisecond
	// lastBreath is how long a handshake may go on after the process has ended,
	// and the process after the handshake has.
	lastBreath = 500 * time.Millisecond
	// healthPoll is the pause between two health checks, and healthTimeout the
	// limit of one.
	healthPoll    = 100 * time.Millisecond
	healthTimeout = 2 * time.Second
)

// ownerTries is how many looks must find a stranger on the port: enough for a
// process that ends to be gone, and no delay that a person feels.
const ownerTries = 4

var errExited = errors.New("the process ended")

// httpHint is for a stdio backend that says nothing on stdout.
const httpHint = "it wrote nothing to stdout: if it is a server that listens on a port, set [backend] transport = \"http\" and port in devproxy.toml; else "

const backgroundHint = "[backend] command in devproxy.toml must stay in the foreground, neither become a daemon nor start its server with &; " +
	"correct it, then restart with dev_restart or `devproxyctl restart`"

// processLife is one process, its output, and the link or links to it.
type processLife struct {
	runner *processes
	plan   plan
	proc   *process.Process

	// output counts the pumps and the goroutine behind ended. errRead is
	// closed when stderr has been read to its end.
	output  sync.WaitGroup
	errRead chan struct{}
	ended   chan struct{}
	discard sync.Once

	// What ready made, for end, which comes after it.
	host  *link.Host
	stdio *link.Stdio
	// served: it was ready once.
	served bool
	// deaf: end had to do more than to close its input.
	deaf bool
	// portLost: somebody else has its port, who need not be waited for.
	portLost bool

	mu             sync.Mutex
	stderr, stdout tail
	noisy          bool // a stdio backend wrote what is no protocol to stdout
	waitingFor     string
}

func newProcessLife(r *processes, p plan, proc *process.Process) *processLife {
	l := &processLife{
		runner: r, plan: p, proc: proc,
		errRead: make(chan struct{}), ended: make(chan struct{}),
		stderr: tail{limit: outputTail}, stdout: tail{limit: outputTail},
	}
	l.output.Go(func() {
		defer close(l.errRead)
		l.pump(proc.Stderr(), "stderr", &l.stderr)
	})
	if p.launch.Transport != Stdio {
		l.output.Go(func() { l.pump(proc.Stdout(), "stdout", &l.stdout) })
	}
	return l
}

func (l *processLife) pump(r io.Reader, stream string, last *tail) {
	err := process.Lines(r, maxLine, func(line string) {
		l.mu.Lock()
		last.add(line)
		l.mu.Unlock()
		l.print(stream, line)
	})
	if err != nil {
		l.runner.log.Warn("reading the backend's output", slog.String("stream", stream), slog.Any("error", err))
	}
}

func (l *processLife) print(stream, line string) {
	if l.runner.config.Output != nil {
		l.runner.config.Output(l.plan.generation, stream, line)
	}
}

// release records the process and lets it become the command.
func (l *processLife) release(ctx context.Context) error {
	r := record{
		Process: l.proc.Identity(), Generation: l.plan.generation,
		Command: l.plan.launch.Command, StartedAt: time.Now(),
	}
	if l.plan.engine != nil {
		r.Engine = l.plan.engine.argv
	}
	if err := writeRecord(l.runner.config.RecordFile, r); err != nil {
		return fail(StartFailed, err.Error())
	}
	// A gate that somebody has stopped would hold up everything.
	stop := context.AfterFunc(ctx, func() { _ = l.proc.Kill() })
	defer stop()
	if err := l.proc.Release(); err != nil {
		return execFailure(err, l.plan.launch)
	}
	return nil
}

func (l *processLife) pid() int { return l.proc.PID() }

func (l *processLife) exited() <-chan struct{} { return l.ended }

// hasExited reports whether the leader has, whatever became of its group.
func (l *processLife) hasExited() bool {
	select {
	case <-l.proc.Done():
		return true
	default:
		return false
	}
}

// exit says how the process ended, or why it counts as ended.
func (l *processLife) exit() (status string, last []string) {
	switch {
	case l.hasExited() && l.isDaemon():
		status = l.proc.Exit().String() + " and left processes behind"
	case l.hasExited():
		status = l.proc.Exit().String()
	case l.stdio == nil || l.stdio.Err() == nil:
		status = "still runs"
	case errors.Is(l.stdio.Err(), link.ErrStdin):
		status = "closed its stdin"
	default:
		status = "closed its stdout"
	}
	return status, l.lastLines()
}

// isDaemon reports whether the leader went quietly while others of its group go on,
// as one does that puts itself or its server into the background. Whom it left
// behind nobody would know how to wait for, so they are ended as well.
func (l *processLife) isDaemon() bool {
	if !l.proc.Exit().Success() {
		return false
	}
	left, err := l.proc.Members()
	return err == nil && len(left) > 0
}

// lastLines are those on stderr, or on stdout for a server that logs there.
func (l *processLife) lastLines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lines := l.stderr.lines(); lines != nil {
		return lines
	}
	return l.stdout.lines()
}

// noise takes a line on stdout that is no protocol.
func (l *processLife) noise(line string) {
	l.mu.Lock()
	l.noisy = true
	l.mu.Unlock()
	l.print("stdout-noise", line)
}

// ignoredInput reports whether it did not end as its input did. It is asked after end.
func (l *processLife) ignoredInput() bool { return l.deaf }

func (l *processLife) waitFor(what string) {
	l.mu.Lock()
	l.waitingFor = what
	l.mu.Unlock()
	l.plan.note("waiting for " + what)
}

func (l *processLife) ready(ctx context.Context) (*Generation, error) {
	if l.plan.launch.Transport == Stdio {
		return l.readyStdio(ctx)
	}
	return l.readyHTTP(ctx)
}

// untilExit returns a context that ends a while after the process does.
func (l *processLife) untilExit(ctx context.Context, grace time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-l.proc.Done():
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(grace):
		case <-ctx.Done():
		}
		cancel(errExited)
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}

func (l *processLife) readyStdio(ctx context.Context) (*Generation, error) {
	shake, done := l.untilExit(ctx, lastBreath)
	defer done()
	greeting := l.runner.greeting(l.plan)
	order := l.runner.handshakeOrder(l.plan, greeting)
	l.waitFor(fmt.Sprintf("its answer to the %s handshake", order[0]))
	stdio, err := link.OpenStdio(shake, l.proc.Stdin(), l.proc.Stdout(), greeting, order, link.Options{
		Choice:     l.plan.launch.Era,
		MaxRequest: l.plan.launch.MaxRequest,
		Noise:      l.noise,
		Logger:     l.runner.log,
	})
	l.stdio = stdio
	if err != nil {
		if _, ok := errors.AsType[*link.RespawnError](err); ok {
			return nil, err
		}
		return nil, l.startFailure(shake, err)
	}
	if l.hasExited() || !process.Alive(l.pid()) { // it may have been reaped a moment ago
		return nil, l.startFailure(shake, errExited)
	}
	l.served = true
	facts := stdio.Facts()
	l.runner.snapshots.remember(l.plan.launch.Command, []era.Facts{facts}, spoilt(l.plan.first), greeting.Capabilities)
	l.watch(stdio.Done())
	return &Generation{
		number: l.plan.generation,
		facts:  facts,
		shared: func() bool { return true },
		open: func(_ context.Context, _ era.Peer, sink link.Sink) (link.Link, error) {
			if err := stdio.Err(); err != nil {
				return nil, fmt.Errorf("opening a link to the backend: %w", err)
			}
			stdio.Bind(sink)
			return stdio, nil
		},
	}, nil
}

// spoilt returns the era that made a respawn for the other one necessary.
func spoilt(respawnedFor era.Era) era.Era {
	switch respawnedFor {
	case era.Legacy:
		return era.Modern
	case era.Modern:
		return era.Legacy
	default:
		return era.None
	}
}

func (l *processLife) readyHTTP(ctx context.Context) (*Generation, error) {
	start, done := l.untilExit(ctx, 0)
	defer done()
	facts, err := l.connect(start)
	if err != nil {
		return nil, l.unlessPortTaken(ctx, l.startFailure(start, err))
	}
	l.watch(nil)
	return &Generation{
		number:  l.plan.generation,
		facts:   facts,
		factsOf: l.host.FactsOf,
		shared:  l.host.Shared,
		open:    l.host.Open,
	}, nil
}

// connect waits for the port, the health check and the handshake, in that order.
func (l *processLife) connect(ctx context.Context) (era.Facts, error) {
	launch := l.plan.launch
	l.waitFor(fmt.Sprintf("port %d to accept connections", l.plan.port))
	address, err := awaitAccept(ctx, l.plan.port)
	if err != nil {
		return era.Facts{}, err
	}
	if err := l.ownership(ctx, address); err != nil {
		return era.Facts{}, err
	}
	if launch.Health != "" {
		if err := l.awaitHealth(ctx, urlOf(address, launch.Health)); err != nil {
			return era.Facts{}, err
		}
	}
	endpoint := urlOf(address, launch.Endpoint)
	l.waitFor("the handshake at " + endpoint)
	options := link.Options{Choice: launch.Era, Logger: l.runner.log}
	if launch.Transport == SSE {
		l.host = link.NewSSE(endpoint, options)
	} else {
		l.host = link.NewHTTP(endpoint, options)
	}
	greeting := l.runner.greeting(l.plan)
	// The control link serves nobody who could be asked anything.
	greeting.Capabilities = nil
	facts, err := l.host.Connect(ctx, greeting)
	if err != nil {
		return era.Facts{}, err
	}
	l.runner.snapshots.remember(launch.Command, l.allFacts(facts), era.None, nil)
	return facts, nil
}

// allFacts are those of every era the backend offers, the main ones last.
func (l *processLife) allFacts(facts era.Facts) []era.Facts {
	var all []era.Facts
	for _, e := range facts.Eras {
		if e == facts.Era {
			continue
		}
		if other, ok := l.host.FactsOf(e); ok {
			all = append(all, other)
		}
	}
	return append(all, facts)
}

// unlessPortTaken returns why the start failed, as an errPortTaken if that is what
// became of a port which nobody has asked for. An engine's port is left out: who
// stands for the container there is the engine's to say.
func (l *processLife) unlessPortTaken(ctx context.Context, f *Failure) error {
	if l.plan.launch.Port != 0 || l.plan.engine != nil {
		return f
	}
	if f.Reason == ExitedAtStart {
		for _, host := range loopbacks() {
			taken, ok := errors.AsType[*Failure](l.ownership(ctx, netip.AddrPortFrom(host, uint16(l.plan.port))))
			if ok {
				taken.Exit, taken.Tail = f.Exit, f.Tail
				f = taken
				break
			}
		}
	}
	if f.Reason != PortInUse {
		return f
	}
	l.portLost = true
	return fmt.Errorf("%w: %w", errPortTaken, f)
}

// ownership checks that it is the backend who accepts there. A verdict against it
// must hold for a while: between two looks a process can fork, or end and take a
// socket with it that nobody holds any more.
func (l *processLife) ownership(ctx context.Context, address netip.AddrPort) error {
	for try := 1; ; try++ {
		members, err := l.proc.Members()
		if err != nil {
			// Whoever cannot list the group cannot tell a stranger from it.
			l.runner.log.Warn("checking who listens", slog.Any("error", err))
			return nil
		}
		stranger := checkOwner(address, members)
		if stranger != nil && l.plan.engine != nil {
			ours, err := l.servedByContainer(ctx, address)
			if err != nil {
				return err
			}
			if ours {
				return nil
			}
		}
		if stranger == nil || try == ownerTries {
			return stranger
		}
		select {
		case <-time.After(portPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// servedByContainer asks the engine whether the stranger on the port stands for
// the generation's container.
func (l *processLife) servedByContainer(ctx context.Context, address netip.AddrPort) (bool, error) {
	e := l.plan.engine
	l.waitFor(fmt.Sprintf("%s to say whose port %d is", e.name[0], address.Port()))
	ours, err := e.serves(ctx, l.runner.marker(l.plan.generation), address)
	switch {
	case err == nil:
		return ours, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	return false, fail(StartFailed, fmt.Sprintf("whether %s listens on port %d for the backend is not known: %v",
		port.HolderOf(int(address.Port())), address.Port(), err))
}

// awaitHealth waits for an answer 2xx.
func (l *processLife) awaitHealth(ctx context.Context, url string) error {
	// No proxy of the environment is asked about a server on this machine, and a
	// connection kept alive would be one more for the backend to close.
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: healthTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	l.waitFor("GET " + url + " to answer 2xx")
	for {
		answer, ok := checkHealth(ctx, client, url)
		if ok {
			return nil
		}
		if ctx.Err() == nil {
			l.waitFor(fmt.Sprintf("GET %s to answer 2xx (the last time: %s)", url, answer))
		}
		select {
		case <-time.After(healthPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func checkHealth(ctx context.Context, client *http.Client, url string) (answer string, ok bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error(), false
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error(), false
	}
	_ = response.Body.Close()
	return response.Status, response.StatusCode/100 == 2
}

func urlOf(address netip.AddrPort, path string) string {
	return "http://" + net.JoinHostPort(address.Addr().String(), fmt.Sprint(address.Port())) +
		"/" + strings.TrimPrefix(path, "/")
}

// watch closes ended when the process has ended, or its link without it.
func (l *processLife) watch(linkEnded <-chan struct{}) {
	l.output.Go(func() {
		defer close(l.ended)
		select {
		case <-linkEnded:
			wait(lastStep, l.proc.Done())
		case <-l.proc.Done():
		}
		if l.hasExited() {
			l.readRest()
		}
	})
}

// readRest waits until everything that the process wrote before its end is read:
// what it has answered is no loss, and its last lines explain the end.
func (l *processLife) readRest() {
	rest := []<-chan struct{}{l.errRead}
	if l.stdio != nil {
		rest = append(rest, l.stdio.Done())
	} else {
		rest = append(rest, l.host.InFlight()...)
	}
	wait(lastOutput, rest...)
}

// wait waits until all are closed, and no longer than the limit.
func wait(limit time.Duration, all ...<-chan struct{}) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, done := range all {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// startFailure says why the process is not ready. ctx is that of the start.
func (l *processLife) startFailure(ctx context.Context, err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errStartTimeout) {
		l.mu.Lock()
		what, noisy := l.waitingFor, l.noisy
		l.mu.Unlock()
		if l.plan.first != era.None {
			what += ", on a second process, for the first was silent to the other handshake"
		}
		f := fail(StartTimeout, fmt.Sprintf("the backend was not ready within %s; it waited for %s",
			l.plan.launch.StartTimeout, what))
		if l.plan.launch.Transport == Stdio && !noisy {
			f.Hint = httpHint + f.Hint
		}
		f.Tail = l.lastLines()
		return f
	}
	if cause == nil {
		// A pipe that breaks tells of the end a moment before the system does.
		wait(lastBreath, l.proc.Done())
	}
	if l.hasExited() {
		wait(lastOutput, l.errRead)
		status, last := l.exit()
		f := fail(ExitedAtStart, fmt.Sprintf("the backend %s before it was ready", status))
		f.Exit, f.Tail = status, last
		if l.isDaemon() {
			f.Hint = backgroundHint
		}
		return f
	}
	f := fail(HandshakeFailed, fmt.Sprintf("the handshake with the backend failed: %v", err))
	f.Tail = l.lastLines()
	return f
}

// end ends the group and everything that belonged to the generation. It may be
// called again when processes have survived it.
func (l *processLife) end(ctx context.Context) error {
	if l.host != nil {
		l.host.Close()
	}
	if l.stdio != nil {
		l.stdio.Close()
	} else if l.plan.launch.Transport == Stdio {
		// Nobody has read stdout yet, and a full pipe can keep a process alive.
		l.discard.Do(func() {
			l.output.Go(func() { _, _ = io.Copy(io.Discard, l.proc.Stdout()) })
		})
	}
	if err := l.terminate(ctx); err != nil {
		return fail(Survivors, fmt.Sprintf("processes of the backend cannot be ended: %v", err))
	}
	l.output.Wait()
	if e := l.plan.engine; e != nil {
		if err := l.runner.removeContainers(ctx, e); err != nil {
			return e.failure(err, Survivors)
		}
	}
	if l.stdio != nil {
		l.stdio.Wait()
	}
	if l.plan.port != 0 && !l.portLost {
		if err := awaitFree(ctx, l.plan.port); err != nil {
			l.runner.log.Warn("the backend is gone, but its port is not free", slog.Any("error", err))
		}
	}
	if err := removeRecord(l.runner.config.RecordFile); err != nil {
		l.runner.log.Warn("the backend is gone, but not its record", slog.Any("error", err))
	}
	return nil
}

// stdinPatience is how long an http or sse backend, and what a dead wrapper has
// left of any, gets to end because its stdin did, before it gets SIGTERM as well.
// Few of these look at their stdin, and a person who rebuilds waits for this; it
// still lets one that does look end by itself.
const stdinPatience = 250 * time.Millisecond

// terminate goes down the stop ladder. For a stdio backend that has served the end of
// its stdin is the order to end, so it gets the whole rung for that.
func (l *processLife) terminate(ctx context.Context) error {
	rung := l.plan.launch.StopTimeout
	switch {
	case l.plan.launch.Transport == Stdio && l.served && !l.hasExited():
		return l.terminateServing(ctx, rung)
	case rung <= stdinPatience:
		return l.proc.Terminate(ctx, rung)
	}
	ended := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		timer := time.NewTimer(stdinPatience)
		defer timer.Stop()
		select {
		case <-timer.C:
			if err := l.proc.Interrupt(); err != nil {
				l.runner.log.Debug("the backend cannot be asked to end", slog.Any("error", err))
			}
		case <-ended:
		}
	})
	err := l.proc.Terminate(ctx, rung)
	close(ended)
	asking.Wait()
	return err
}

// terminateServing also finds out whether the leader ended as its input did.
func (l *processLife) terminateServing(ctx context.Context, rung time.Duration) error {
	began, took := time.Now(), time.Duration(0)
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-l.proc.Done():
		case <-ended:
		}
		took = time.Since(began)
	})
	err := l.proc.Terminate(ctx, rung)
	close(ended)
	waiting.Wait()
	// The rung counts from the end of its input, which was a moment ago.
	if l.deaf = ctx.Err() == nil && took >= rung-min(rung/2, 50*time.Millisecond); l.deaf {
		l.runner.log.Warn("the server did not end when its input was closed; it got SIGTERM after [backend] stop_timeout",
			slog.Uint64("generation", l.plan.generation), slog.Duration("stop_timeout", rung))
	}
	return err
}
