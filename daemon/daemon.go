package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
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
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/watch"
)

// Why a daemon ends without having failed.
var (
	errQuit = errors.New("the daemon was asked to stop")
	errIdle = errors.New("no client has been attached for idle_exit")
)

// ErrRunning says that another process is the project's daemon.
var ErrRunning = instance.ErrRunning

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
	// Log takes what the daemon logs, besides its own log; nil for nobody.
	Log slog.Handler
}

// Run is the daemon of a project from its start to its end. It returns nil when
// somebody ended it: ctx, devproxyd stop, or want of clients. Errors of the
// start: a *config.Error or config.Errors, one that is ErrRunning, a
// *project.UnsafeError.
func Run(ctx context.Context, o Options) (err error) {
	c, err := config.Load(o.Project.Root)
	if err != nil {
		return err
	}
	if err := o.Project.EnsureDirs(); err != nil {
		return err
	}
	d := &daemon{options: o, buffer: logs.NewBuffer(logs.Limits{}), since: time.Now(), instance: rand.Text(), quit: make(chan struct{})}
	file := logs.NewFile(o.Project.DaemonLog())
	defer func() { err = errors.Join(err, file.Close()) }()
	handlers := []slog.Handler{d.buffer.Handler(), file.Handler(d.mask)}
	if o.Log != nil {
		handlers = append(handlers, o.Log)
	}
	d.log = slog.New(slog.NewMultiHandler(handlers...))

	lock, err := instance.Acquire(ctx, o.Project, o.Socket, d.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	if err := d.assemble(c, lock); err != nil {
		return err
	}
	d.log.Info("the daemon serves", "version", o.Version, "project", o.Project.Root, "socket", lock.Socket(), "environment", d.launcher.environment.origin())
	cause := d.run(ctx, c, lock)
	d.log.Info("the daemon ended", "cause", cause)
	return d.settle(cause)
}

// daemon is the parts and what joins them. Only its last fields change after
// assemble.
type daemon struct {
	options  Options
	since    time.Time
	instance string
	socket   string
	log      *slog.Logger
	buffer   *logs.Buffer

	launcher   *launcher
	supervisor *backend.Supervisor
	router     *relay.Router
	watcher    *watch.Watcher
	controller *controller
	server     *grpc.Server
	attached   sync.WaitGroup // the pumps of attachments

	stopOnce sync.Once
	quit     chan struct{} // closed when somebody asked the daemon to stop
	idleAt   atomic.Pointer[time.Time]
}

// assemble makes the parts; nothing runs yet.
func (d *daemon) assemble(c *config.Config, lock *instance.Instance) error {
	p := d.options.Project
	d.socket = lock.Socket()
	terminalPath, err := d.terminalPath()
	if err != nil {
		return err
	}
	env, err := adoptEnvironment(p.Environment(), environment{
		Terminal: !d.options.Autostarted, PID: os.Getppid(), Since: d.since, Variables: d.options.Environ,
	})
	if err != nil {
		return err
	}
	if d.launcher, err = newLauncher(c, p.Overrides(), env, terminalPath, d.log); err != nil {
		return err
	}
	if d.watcher, err = watch.New(watch.Config{
		Root: c.Root, Paths: c.Watch.Paths, Ignore: c.Watch.Ignore, Settle: c.Watch.Settle,
		Entry: c.DeriveEntry(), Poll: c.Watch.Poll, Logger: d.log,
	}); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	// Router and supervisor need each other. Neither calls the other before it
	// runs, so the router may be given a supervisor that is not there yet.
	d.router = relay.New(relay.Config{
		Backend: (*demand)(d), Facts: func(e era.Era) (era.Facts, bool) { return d.supervisor.Facts(e) },
		Tools:       toolbox{devtools.New(c.Proxy.ToolPrefix, toolController{d.control()})},
		RequestWait: c.Proxy.RequestWait, MaxMessage: c.Proxy.MaxMessage, Offer: offers[c.Proxy.Front],
		Instance: d.instance, Logger: d.log,
	})
	d.supervisor = backend.New(backend.Config{
		Launch: d.launcher.launch, Command: c.Backend.Command, Greeting: d.router.Greeting,
		Build: d.build(c), Output: d.output, Baseline: d.watcher.Baseline,
		Observer:   observer{router: d.router, watcher: d.watcher, mask: d.launcher.mask},
		RecordFile: p.Record(), SnapshotFile: p.Snapshot(), Marker: p.Hash, Logger: d.log,
	})
	d.controller.supervisor = d.supervisor
	d.server = d.newServer(c)
	return nil
}

var offers = map[config.Front]era.Offer{
	config.FrontBoth: era.Both, config.FrontLegacy: era.LegacyOnly, config.FrontModern: era.ModernOnly,
}

// demand is what the router asks of the supervisor.
type demand daemon

func (d *demand) Need(starter era.Peer)     { d.supervisor.Need(starter) }
func (d *demand) Drained(generation uint64) { d.supervisor.Drained(generation) }

func (d *daemon) control() *controller {
	d.controller = &controller{launcher: d.launcher, buffer: d.buffer, look: d.look}
	return d.controller
}

// terminalPath returns the PATH of the last start from a terminal, which is
// this one's if it is one. It outlives a stop: a GUI client may be the next to
// start a daemon.
func (d *daemon) terminalPath() (string, error) {
	file := filepath.Join(d.options.Project.StateDir, "terminal-path.json")
	if !d.options.Autostarted {
		path := lookup(d.options.Environ, "PATH")
		if err := writeJSON(file, path); err != nil {
			return "", fmt.Errorf("keeping the terminal's PATH: %w", err)
		}
		return path, nil
	}
	path, _, err := readJSON[string](file)
	if err != nil {
		return "", fmt.Errorf("reading the terminal's PATH: %w", err)
	}
	return path, nil
}

func (d *daemon) newServer(c *config.Config) *grpc.Server {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(client.MaxCallMessage), grpc.MaxSendMsgSize(client.MaxCallMessage),
		grpc.InitialWindowSize(client.WindowSize), grpc.InitialConnWindowSize(client.WindowSize),
		grpc.WaitForHandlers(true),
	)
	devproxyv1.RegisterAttachServiceServer(server, &attachService{
		router: d.router, version: d.options.Version, instance: d.instance, root: c.Root,
		environ: d.launcher.environment.Variables, log: d.log, pumps: &d.attached,
	})
	devproxyv1.RegisterControlServiceServer(server, &controlService{controller: d.controller, stop: d.stop, quit: d.quit})
	healthServer := health.NewServer()
	healthServer.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, healthServer)
	reflection.Register(server)
	return server
}

// build returns what runs the build command as it is at that time.
func (d *daemon) build(c *config.Config) func(context.Context, func(string)) error {
	if !c.Build.Configured() {
		return nil
	}
	return func(ctx context.Context, out func(string)) error {
		// The watcher waits: what a build leaves half done must start nothing.
		release := d.watcher.Hold()
		defer release()
		c := d.launcher.reload()
		env, err := d.launcher.variables(c)
		if err != nil {
			return err
		}
		result := build.Run(ctx, build.Spec{
			Command: c.Build.Script, Argv: c.Build.Argv, Dir: c.Root, Env: pairs(env), Timeout: c.Build.Timeout,
			Marker: d.options.Project.Hash + ":build",
		}, func(line string) {
			d.buffer.Append(logs.Entry{Source: logs.Build, Stream: "output", Text: line})
			out(line)
		})
		return result.Err
	}
}

// output keeps a line of the backend.
func (d *daemon) output(generation uint64, stream, line string) {
	d.buffer.Append(logs.Entry{Source: logs.Backend, Stream: stream, Generation: generation, Text: line})
}

// mask hides secrets in what goes to disk.
func (d *daemon) mask(text string) string {
	if d.launcher == nil {
		return text
	}
	return d.launcher.mask().Mask(text)
}

// stop asks the daemon to end.
func (d *daemon) stop() { d.stopOnce.Do(func() { close(d.quit) }) }

// run runs the parts until the daemon is to end, then ends them in the order
// in which they need each other, and returns why.
func (d *daemon) run(ctx context.Context, c *config.Config, lock *instance.Instance) error {
	// The parts outlive ctx, each until it is its turn.
	base := context.WithoutCancel(ctx)
	failed := make(chan error, 4) // one for each part that can fail

	aids := spawn(base, func(ctx context.Context, aids *sync.WaitGroup) {
		aids.Go(func() { d.report(failed, process.Subreaper(ctx)) })
		aids.Go(func() { d.report(failed, d.watcher.Run(ctx)) })
		aids.Go(func() { d.passChanges(ctx) })
		aids.Go(func() { d.report(failed, lock.Watch(ctx, d.serve)) })
		if c.Backend.Start == config.Eager {
			aids.Go(func() { d.startEagerly(ctx) })
		}
	})
	router := spawn(base, func(ctx context.Context, router *sync.WaitGroup) {
		router.Go(func() { d.report(failed, d.router.Run(ctx)) })
	})
	var survivors error
	supervisor := spawn(base, func(ctx context.Context, supervisor *sync.WaitGroup) {
		supervisor.Go(func() { survivors = d.supervisor.Run(ctx) })
	})
	d.serve(lock.Listener())

	cause := d.await(ctx, c, failed)

	d.stop() // for calls that would last, such as a followed log
	d.router.Shutdown(relay.ErrShutdown)
	supervisor.end(cause)
	router.end(relay.ErrShutdown)
	aids.end(cause)
	d.endServer()
	d.attached.Wait()
	if survivors != nil {
		return fmt.Errorf("ending the backend: %w", survivors)
	}
	return cause
}

// await returns why the daemon is to end.
func (d *daemon) await(ctx context.Context, c *config.Config, failed <-chan error) error {
	idle := make(chan error, 1)
	if d.options.Autostarted && !d.launcher.environment.Terminal && c.Proxy.IdleExit > 0 {
		idleCtx, cancel := context.WithCancelCause(ctx)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel(nil)
		waiting.Go(func() {
			idle <- awaitIdle(idleCtx, c.Proxy.IdleExit, func() int { return len(d.router.Snapshot()) }, func(at time.Time) { d.idleAt.Store(&at) })
		})
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.quit:
		return errQuit
	case err := <-idle:
		if err == nil {
			err = errIdle
		}
		return err
	case err := <-failed:
		return err
	}
}

// settle forgets what only lasts until somebody stops the daemon, and tells an
// orderly end from a failure.
func (d *daemon) settle(cause error) error {
	p := d.options.Project
	switch {
	case errors.Is(cause, errQuit):
		return errors.Join(forget(p.Environment()), forget(p.Overrides()))
	case errors.Is(cause, errIdle):
		// Nobody is attached who could expect the old environment.
		return forget(p.Environment())
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
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
		case <-d.watcher.Changes():
			d.supervisor.Changed()
		case <-ctx.Done():
			return
		}
	}
}

// serve serves a listener until it is closed; d.endServer waits for that.
func (d *daemon) serve(listener net.Listener) {
	d.attached.Go(func() {
		if err := d.server.Serve(listener); err != nil && !errors.Is(err, net.ErrClosed) {
			d.log.Warn("serving ended", "error", err)
		}
	})
}

func (d *daemon) endServer() {
	timer := time.AfterFunc(graceForCalls, d.server.Stop)
	defer timer.Stop()
	d.server.GracefulStop()
}

// report hands over the error of a part that ended by itself.
func (d *daemon) report(failed chan<- error, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errQuit) || errors.Is(err, errIdle) || errors.Is(err, relay.ErrShutdown) {
		return
	}
	failed <- err
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
	c := d.launcher.current()
	v := view{
		daemon: daemonView{
			version: d.options.Version, root: c.Root, socket: d.socket, logFile: d.options.Project.DaemonLog(),
			configFile: d.options.Project.Config(), instance: d.instance, origin: d.launcher.environment.origin(),
			pid: os.Getpid(), since: d.since,
		},
		backend: d.supervisor.Status(), sessions: d.router.Snapshot(), watch: d.watcher.Status(),
		command: c.Backend.Command, transport: string(c.Backend.Transport), build: c.Build.String(),
		overrides: d.launcher.currentOverrides(), mask: masking{masker: d.launcher.mask(), show: show},
	}
	if at := d.idleAt.Load(); at != nil {
		v.daemon.idleDeadline = *at
	}
	return v
}
