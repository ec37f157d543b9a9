package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/build"
	"github.com/debugmcp/devproxy/daemon/devtools"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/daemon/instance"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/daemon/traffic"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/watch"
)

// Why a daemon ends without having failed.
var (
	errQuit     = errors.New("the daemon was asked to stop")
	errHandover = errors.New("another daemon takes over")
	errIdle     = errors.New("no client has been attached for idle_exit")
)

const (
	// successorGrace is how long a successor still tries to get the lock when its
	// predecessor has ended: many times the interval in which it tries.
	successorGrace = time.Second
	// successorPoll is how often it looks whether the predecessor has ended.
	successorPoll = 50 * time.Millisecond
)

// ErrRunning says that another process is the project's daemon.
var ErrRunning = instance.ErrRunning

// maxStreams bounds the calls on one connection: a shim makes one, and
// devproxyctl a few.
const maxStreams = 100

// graceForCalls bounds how long the gRPC server waits for its calls to end
// once everything behind them has. They have nothing left to wait for; what is
// cut off is a caller who does not read.
const graceForCalls = 2 * time.Second

// Options says which daemon to be.
type Options struct {
	Project project.Project
	// Socket overrides the project's socket path; empty does not.
	Socket string
	// Autostarted: a client's shim started it, not a person.
	Autostarted bool
	// Version is that of the build.
	Version string
	// Environ is the environment it was started with.
	Environ []string
	// Succeeds is the pid of a daemon that hands over to this one, which waits
	// for its end; 0 for none.
	Succeeds int
	// Log takes what the daemon logs, besides its own log; nil for nobody.
	Log slog.Handler
}

// Run is the daemon of a project from its start to its end. It returns nil when
// somebody ended it: ctx, devproxyd stop, or want of clients. Errors of the
// start: a *config.Error or config.Errors, one that is ErrRunning, a
// *project.UnsafeError. Any other error is what went wrong at the end, such as
// processes of the backend that could not be ended.
func Run(ctx context.Context, o Options) (err error) {
	c, err := config.Load(o.Project.Root)
	if err != nil {
		return err
	}
	if err := o.Project.EnsureDirs(); err != nil {
		return err
	}
	d := &daemon{
		options: o, buffer: logs.NewBuffer(logs.Limits{}), since: time.Now(), instance: rand.Text(),
		quit: make(chan struct{}),
	}
	file := logs.NewFile(o.Project.DaemonLog())
	defer func() { err = errors.Join(err, file.Close()) }()
	handlers := []slog.Handler{d.buffer.Handler(), file.Handler(d.mask)}
	if o.Log != nil {
		handlers = append(handlers, maskingHandler{next: o.Log, mask: d.mask})
	}
	d.log = slog.New(slog.NewMultiHandler(handlers...))

	lock, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	if err := d.assemble(c, lock); err != nil {
		return err
	}
	d.log.Info("the daemon serves", "version", o.Version, "project", o.Project.Root,
		"socket", d.socket, "environment", d.launcher.origin.String())
	cause, survivors := d.run(ctx, lock)
	d.log.Info("the daemon ended", "cause", cause)
	return errors.Join(d.settle(ctx, cause), survivors)
}

// acquire makes this process the project's daemon.
func (d *daemon) acquire(ctx context.Context) (*instance.Instance, error) {
	if d.options.Succeeds == 0 {
		return instance.Acquire(ctx, d.options.Project, d.options.Socket, d.log)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		// The lock is free when the predecessor has ended. If it is not, somebody
		// else was faster, and serves the project as well.
		if awaitEnd(ctx, d.options.Succeeds) {
			cancel(ErrRunning)
		}
	})
	return instance.AcquireWhenFree(ctx, d.options.Project, d.options.Socket, d.log)
}

// awaitEnd reports that a process, which is no child of ours, has been gone for
// successorGrace. It reports false when ctx ends before that.
func awaitEnd(ctx context.Context, pid int) bool {
	ticker := time.NewTicker(successorPoll)
	defer ticker.Stop()
	gone := time.Duration(0)
	for gone < successorGrace {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
		if !process.Alive(pid) {
			gone += successorPoll
		}
	}
	return true
}

// daemon is the parts and what joins them. Only its last fields change after
// assemble.
type daemon struct {
	options  Options
	config   *config.Config // of the start; the launcher knows the latest
	since    time.Time
	instance string
	socket   string
	log      *slog.Logger
	buffer   *logs.Buffer

	launcher   *launcher
	buildings  *buildings
	keeper     *build.Keeper
	supervisor *backend.Supervisor
	router     *relay.Router
	tap        traffic.Tap
	noise      noise
	watcher    *watch.Watcher
	controller *controller
	server     *grpc.Server
	serving    sync.WaitGroup // the listeners, and the pumps of attachments

	stopOnce sync.Once
	quit     chan struct{} // closed when the daemon is to end
	quitWhy  error         // set before that
	idleAt   atomic.Pointer[time.Time]
}

// entrance is where clients come in; *instance.Instance outside of tests.
type entrance interface {
	Socket() string
	Listener() net.Listener
	Watch(ctx context.Context, serve func(net.Listener)) error
}

// assemble makes the parts; nothing runs yet.
func (d *daemon) assemble(c *config.Config, in entrance) error {
	p := d.options.Project
	d.config, d.socket = c, in.Socket()
	var err error
	if d.launcher, err = newLauncher(c, p, origin{
		Terminal: !d.options.Autostarted, PID: os.Getppid(), Program: programName(os.Getppid()), Since: d.since,
		Variables: outsideBuilds(d.options.Environ),
	}, d.log); err != nil {
		return err
	}
	if d.watcher, err = watch.New(watch.Config{
		Root: c.Root, Paths: c.Watch.Paths, Ignore: c.Watch.Ignore, Settle: c.Watch.Settle,
		Entry: c.DeriveEntry(), Poll: c.Watch.Poll, Logger: d.log,
	}); err != nil {
		return err
	}
	d.buildings, d.keeper = newBuildings(d.watcher, d.log), d.newKeeper()
	tools := toolNames(c.Proxy.ToolPrefix)
	d.controller = &controller{
		launcher: d.launcher, buildings: d.buildings, keeper: d.keeper, buffer: d.buffer, look: d.look, handingOver: d.handingOver,
	}
	// Router and supervisor need each other. Neither calls the other before it
	// runs, so the router may be given a supervisor that is not there yet.
	d.router = relay.New(relay.Config{
		Backend: (*demand)(d), Facts: func(e era.Era) (era.Facts, bool) { return d.supervisor.Facts(e) },
		Tools: toolbox{devtools.New(c.Proxy.ToolPrefix, toolController{d.controller})}, Reword: tools.Replace, Mask: d.mask,
		RequestWait: c.Proxy.RequestWait, MaxMessage: c.Proxy.MaxMessage, Offer: offers[c.Proxy.Front],
		Instance: d.instance, Logger: d.log, Traffic: d.tap.See, Watched: d.tap.Watched,
	})
	d.supervisor = backend.New(backend.Config{
		Launch: d.launcher.launch, Command: c.Backend.Command, Greeting: d.router.Greeting,
		Build: d.build, Output: d.output, Baseline: d.buildings.baseline, Taken: d.watcher.Taken,
		Observer:   observer{router: d.router, watcher: d.watcher, mask: d.launcher.mask},
		RecordFile: p.Record(), SnapshotFile: p.Snapshot(), Marker: p.Hash, Logger: d.log,
	})
	d.controller.supervisor = d.supervisor
	d.server = d.newServer()
	return nil
}

var offers = map[config.Front]era.Offer{
	config.FrontBoth: era.Both, config.FrontLegacy: era.LegacyOnly, config.FrontModern: era.ModernOnly,
}

// demand is what the router asks of the supervisor.
type demand daemon

func (d *demand) Need(starter era.Peer)     { d.supervisor.Need(starter) }
func (d *demand) Drained(generation uint64) { d.supervisor.Drained(generation) }

// newServer makes the gRPC surface. There is no keepalive: the socket is local, so
// the end of a shim is seen at once, and one that its client has abandoned would
// answer. Those are told by status, which says since when each is attached and
// what it asked last.
func (d *daemon) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(client.MaxCallMessage), grpc.MaxSendMsgSize(client.MaxCallMessage),
		grpc.InitialWindowSize(client.WindowSize), grpc.InitialConnWindowSize(client.WindowSize),
		grpc.MaxConcurrentStreams(maxStreams), grpc.WaitForHandlers(true),
	)
	devproxyv1.RegisterAttachServiceServer(server, &attachService{
		router: d.router, version: d.options.Version, instance: d.instance, root: d.config.Root,
		environ: newEnvironment(d.launcher.origin.Variables), log: d.log, pumps: &d.serving,
	})
	devproxyv1.RegisterControlServiceServer(server, &controlService{
		controller: d.controller, tap: &d.tap, pumps: &d.serving, stop: d.stop, quit: d.quit,
	})
	healthServer := health.NewServer()
	healthServer.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, healthServer)
	reflection.Register(server)
	return server
}

// build runs the build command as it is at that time.
func (d *daemon) build(ctx context.Context, out func(string)) error {
	spec, err := d.launcher.build()
	if err != nil {
		return err
	}
	// The watcher waits: what a build leaves half done must start nothing.
	release := d.buildings.begin()
	d.log.Info("building", "command", spec.String())
	result := build.Run(ctx, spec, func(line string) {
		d.buffer.Append(logs.Entry{Source: logs.Build, Stream: "output", Text: line})
		out(line)
	})
	if result.Err != nil {
		d.log.Warn("the build failed; a backend that runs is left alone", "error", result.Err)
	}
	d.buildings.finish(ctx, release, result.Err != nil)
	return result.Err
}

// output keeps a line of the backend.
func (d *daemon) output(generation uint64, stream, line string) {
	if stream == "stdout-noise" {
		d.noise.heard(generation, line)
	}
	d.buffer.Append(logs.Entry{Source: logs.Backend, Stream: stream, Generation: generation, Text: line})
}

// mask hides secrets in what is logged. Before there is a launcher it knows the
// usual forms of credentials only.
func (d *daemon) mask(text string) string {
	if d.launcher == nil {
		return (*logs.Masker)(nil).Mask(text)
	}
	return d.launcher.mask().Mask(text)
}

// handingOver reports whether the daemon ends because another one follows.
func (d *daemon) handingOver() bool {
	select {
	case <-d.quit:
		return errors.Is(d.quitWhy, errHandover)
	default:
		return false
	}
}

// stop asks the daemon to end.
func (d *daemon) stop(cause error) {
	d.stopOnce.Do(func() {
		d.quitWhy = cause
		close(d.quit)
	})
}

// run runs the parts until the daemon is to end, then ends them in the order
// in which they need each other. It returns why, and what is left of the
// backend's processes if anything is.
func (d *daemon) run(ctx context.Context, in entrance) (cause, survivors error) {
	// The parts outlive ctx, each until it is its turn.
	base := context.WithoutCancel(ctx)
	failed := make(chan error, 4) // one for each part that can fail

	aids := spawn(base, func(ctx context.Context, aids *sync.WaitGroup) {
		aids.Go(func() { report(failed, process.Subreaper(ctx)) })
		aids.Go(func() { report(failed, d.watcher.Run(ctx)) })
		aids.Go(func() { d.passChanges(ctx) })
		if d.config.Backend.Start == config.Eager {
			aids.Go(func() { d.startEagerly(ctx) })
		}
	})
	router := spawn(base, func(ctx context.Context, router *sync.WaitGroup) {
		router.Go(func() { report(failed, d.router.Run(ctx)) })
	})
	var watcherSurvivors error
	watcher := spawn(base, func(ctx context.Context, watcher *sync.WaitGroup) {
		watcher.Go(func() { watcherSurvivors = d.keeper.Run(ctx) })
	})
	supervisor := spawn(base, func(ctx context.Context, supervisor *sync.WaitGroup) {
		supervisor.Go(func() { survivors = d.supervisor.Run(ctx) })
	})
	door := spawn(base, func(ctx context.Context, door *sync.WaitGroup) {
		door.Go(func() { report(failed, in.Watch(ctx, d.serve)) })
	})
	d.serve(in.Listener())

	cause = d.await(ctx, failed)

	d.stop(cause) // for calls that would last, such as a followed log
	goodbye := relay.ErrShutdown
	if errors.Is(cause, errHandover) {
		goodbye = relay.ErrRestart
	}
	// Whoever comes from now on starts the next daemon, which waits for the end
	// of this one.
	door.end(cause)
	_ = in.Listener().Close()
	quiet := d.router.Shutdown(goodbye)
	if errors.Is(cause, errHandover) {
		d.drain(ctx, quiet)
	}
	watcher.cancel(cause)
	supervisor.end(cause)
	watcher.end(cause)
	router.end(goodbye)
	aids.end(cause)
	d.endServer()
	d.serving.Wait()
	if survivors != nil {
		survivors = fmt.Errorf("ending the backend: %w", survivors)
	}
	return cause, errors.Join(survivors, watcherSurvivors)
}

// drain lets what is in flight on the backend finish, as before every restart.
func (d *daemon) drain(ctx context.Context, quiet <-chan struct{}) {
	c, _ := d.launcher.current()
	timer := time.NewTimer(c.Backend.DrainTimeout)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// await returns why the daemon is to end.
func (d *daemon) await(ctx context.Context, failed <-chan error) error {
	idle := make(chan error, 1)
	// One that succeeds a daemon from a terminal stays as that one did.
	if limit := d.config.Proxy.IdleExit; limit > 0 && !d.launcher.origin.Terminal {
		var waiting sync.WaitGroup
		defer waiting.Wait()
		idleCtx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		clients := func() int { return len(d.router.Snapshot()) }
		waiting.Go(func() {
			if awaitIdle(idleCtx, limit, clients, func(at time.Time) { d.idleAt.Store(&at) }) {
				idle <- errIdle
			}
		})
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.quit:
		return d.quitWhy
	case err := <-idle:
		return err
	case err := <-failed:
		return err
	}
}

// settle forgets what only lasts until somebody stops the daemon, and tells an
// orderly end from a failure.
func (d *daemon) settle(ctx context.Context, cause error) error {
	p := d.options.Project
	switch {
	case errors.Is(cause, errQuit):
		return errors.Join(forget(p.Environment()), forget(p.Overrides()))
	case errors.Is(cause, errIdle):
		// Nobody is attached who could expect the old environment.
		return forget(p.Environment())
	case errors.Is(cause, errHandover):
		return nil
	case ctx.Err() != nil && errors.Is(cause, context.Cause(ctx)):
		return nil
	}
	return cause
}

func (d *daemon) startEagerly(ctx context.Context) {
	if err := d.supervisor.Start(ctx, nil); err != nil && ctx.Err() == nil {
		d.log.Warn("the backend did not start", "error", err)
	}
}

// passChanges tells the supervisor of new build output.
func (d *daemon) passChanges(ctx context.Context) {
	for {
		select {
		case change := <-d.watcher.Changes():
			d.supervisor.Changed(change.Number)
		case <-ctx.Done():
			return
		}
	}
}

// serve serves a listener until it is closed; d.serving counts it.
func (d *daemon) serve(listener net.Listener) {
	d.serving.Go(func() {
		if err := d.server.Serve(listener); err != nil && !errors.Is(err, net.ErrClosed) {
			d.log.Warn("serving ended", "error", err)
		}
	})
}

func (d *daemon) endServer() {
	ended := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		d.server.GracefulStop()
		close(ended)
	})
	timer := time.NewTimer(graceForCalls)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		d.server.Stop()
	}
	ending.Wait()
}

// report hands over the error of a part that ended by itself.
func report(failed chan<- error, err error) {
	if err != nil {
		failed <- err
	}
}

// part is some goroutines with one end.
type part struct {
	cancel context.CancelCauseFunc
	group  *sync.WaitGroup
}

func spawn(base context.Context, start func(context.Context, *sync.WaitGroup)) part {
	ctx, cancel := context.WithCancelCause(base)
	p := part{cancel: cancel, group: new(sync.WaitGroup)}
	start(ctx, p.group)
	return p
}

// end ends the goroutines and waits for them.
func (p part) end(cause error) {
	p.cancel(cause)
	p.group.Wait()
}

// look takes a view of everything.
func (d *daemon) look(show bool) view {
	c, notice := d.launcher.current()
	v := view{
		daemon: daemonView{
			version: d.options.Version, root: d.config.Root, socket: d.socket, logFile: d.options.Project.DaemonLog(),
			configFile: d.options.Project.Config(), instance: d.instance, origin: d.launcher.origin.String(),
			pid: os.Getpid(), since: d.since,
		},
		backend: d.supervisor.Status(), sessions: d.router.Snapshot(), watch: d.watcher.Status(),
		buildWatch: d.keeper.Status(),
		command:    c.Backend.Command, transport: string(c.Backend.Transport), build: c.Build.Command.String(), notice: notice,
		overrides: d.launcher.currentOverrides(), mask: masking{masker: d.launcher.mask(), show: show},
		tools: toolNames(d.config.Proxy.ToolPrefix), hidden: d.router.HiddenTools(),
	}
	v.noise, v.firstNoise = d.noise.of(v.backend.Generation)
	// Whoever waits for the end looks only now and then whether a client came.
	if at := d.idleAt.Load(); at != nil && len(v.sessions) == 0 {
		v.daemon.idleDeadline = *at
	}
	v.callerBuild, v.startWaits = d.buildings.look()
	return v
}
