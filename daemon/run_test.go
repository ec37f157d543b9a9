//go:build unix

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/demo"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// The test binary is also the backend: what kind of one says roleVariable.
const roleVariable = "DAEMON_TEST_ROLE"

func TestMain(m *testing.M) {
	process.Main()
	switch os.Getenv(roleVariable) {
	case "example":
		fmt.Fprintf(os.Stderr, "MODE=%s, and the secret is %s\n", os.Getenv("MODE"), os.Getenv("MY_SECRET"))
		if err := demo.ServeBackend(context.Background(), os.Args[1], os.Getenv("PORT"), os.Stdin, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "stuck":
		signal.Ignore(syscall.SIGTERM)
		select {}
	default:
		// The log file's goroutine that removes old files lives as long as the process.
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
	}
}

// patience bounds every wait of a test: what it waits for takes milliseconds.
const patience = 30 * time.Second

func example(t *testing.T, more string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[backend]\ncommand = [%q, \"dist/tools.json\"]\nport = 0\nhealth = \"/health\"\nstop_timeout = \"2s\"\n"+
		"env = { %s = \"example\" }\n%s", self, roleVariable, more)
}

func stuck(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[backend]\ncommand = [%q]\ntransport = \"stdio\"\nstop_timeout = \"200ms\"\nenv = { %s = \"stuck\" }\n", self, roleVariable)
}

func tools(t *testing.T, p project.Project, name string) {
	t.Helper()
	write(t, filepath.Join(p.Root, "dist", "tools.json"), fmt.Sprintf(`[{"name":%q,"description":"d","reply":"{text}"}]`, name))
}

// daemonUnderTest is a Run and a client of it.
type daemonUnderTest struct {
	project project.Project
	client  *client.Client
	cancel  context.CancelCauseFunc
	ended   chan error
}

func runDaemon(t *testing.T, p project.Project, change func(*Options)) *daemonUnderTest {
	t.Helper()
	options := Options{Project: p, Version: "v1", Environ: []string{"PATH=" + os.Getenv("PATH"), "MODE=kept"}}
	if change != nil {
		change(&options)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	d := &daemonUnderTest{project: p, cancel: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- Run(ctx, options) }()
	t.Cleanup(func() {
		cancel(errors.New("the test is over"))
		select {
		case <-d.ended:
		case <-time.After(patience):
			t.Error("the daemon does not end")
		}
	})
	socket, err := p.Socket(options.Socket)
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the daemon serves", func() bool {
		select {
		case err := <-d.ended:
			d.ended <- err
			t.Fatalf("the daemon ended: %v", err)
		default:
		}
		d.client, err = client.Dial(t.Context(), socket)
		return err == nil
	})
	t.Cleanup(func() { _ = d.client.Close() })
	return d
}

func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// end waits for the end of Run.
func (d *daemonUnderTest) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-d.ended:
		d.ended <- err // for the cleanup
		return err
	case <-time.After(patience):
		t.Fatal("the daemon does not end")
		return nil
	}
}

func (d *daemonUnderTest) backend(t *testing.T) *client.Backend {
	t.Helper()
	s, err := d.client.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return s.GetBackend()
}

func (d *daemonUnderTest) text(t *testing.T, o client.LogOptions) string {
	t.Helper()
	var text strings.Builder
	if err := d.client.Logs(t.Context(), o, func(e *client.LogEntry) error {
		text.WriteString(e.GetText() + "\n")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func quiet(*client.Step) {}

// attach opens an attachment and sends it messages.
func (d *daemonUnderTest) attach(t *testing.T, messages ...string) attachStream {
	t.Helper()
	stream, err := d.client.Attach().Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(helloOf(func(h *devproxyv1.Hello) { h.ProjectRoot = d.project.Root })); err != nil {
		t.Fatal(err)
	}
	if _, response, err := next(t, stream); response.GetWelcome() == nil {
		t.Fatalf("instead of a welcome: %v, %v", response, err)
	}
	for _, message := range messages {
		if err := stream.Send(chunkOf(message)); err != nil {
			t.Fatal(err)
		}
	}
	return stream
}

// answer returns the response with that id.
func answer(t *testing.T, stream attachStream, id string) string {
	t.Helper()
	for {
		frame, other, err := next(t, stream)
		if err != nil || other != nil {
			t.Fatalf("instead of an answer: %v, %v", other, err)
		}
		if strings.Contains(frame, `"id":`+id+`,`) {
			return frame
		}
	}
}

// A connection with too many calls gets no more of the daemon, and whoever has
// another one is served.
func TestCallsOnOneConnection(t *testing.T) {
	p := newProject(t, stuck(t))
	d := runDaemon(t, p, nil)
	var last context.CancelFunc
	for range maxStreams {
		var ctx context.Context
		ctx, last = context.WithCancel(t.Context())
		t.Cleanup(last)
		stream, err := d.client.Control().WatchStatus(ctx, &devproxyv1.WatchStatusRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.client.Status(ctx, false); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("one call more gives %v", err)
	}
	other, err := client.Dial(t.Context(), d.client.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := other.Status(t.Context(), false); err != nil {
		t.Errorf("on another connection: %v", err)
	}
	last()
	if _, err := d.client.Status(t.Context(), false); err != nil {
		t.Errorf("once a call has ended: %v", err)
	}
}

func TestTheLifeOfADaemon(t *testing.T) {
	p := newProject(t, example(t, ""))
	tools(t, p, "first")
	d := runDaemon(t, p, nil)
	if b := d.backend(t); b.GetState() != devproxyv1.BackendState_BACKEND_STATE_IDLE || b.GetMessage() != "starts on the first request that needs it" || b.GetGeneration() != 0 {
		t.Errorf("before the first request: %v", b)
	}
	stream := d.attach(t, initialize, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if list := answer(t, stream, "2"); !strings.Contains(list, `"first"`) || !strings.Contains(list, `"dev_restart"`) {
		t.Errorf("tools/list: %s", list)
	}
	b := d.backend(t)
	if b.GetState() != devproxyv1.BackendState_BACKEND_STATE_RUNNING || b.GetGeneration() != 1 || b.GetServerName() != "devproxy-example" {
		t.Errorf("after it: %v", b)
	}

	// A change of the output restarts it under the client.
	tools(t, p, "second")
	within(t, "generation 2 runs", func() bool {
		b := d.backend(t)
		return b.GetGeneration() == 2 && b.GetState() == devproxyv1.BackendState_BACKEND_STATE_RUNNING
	})
	if err := stream.Send(chunkOf(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)); err != nil {
		t.Fatal(err)
	}
	if list := answer(t, stream, "3"); !strings.Contains(list, `"second"`) {
		t.Errorf("tools/list after the change: %s", list)
	}

	pid := int(d.backend(t).GetPid())
	if _, err := d.client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.end(t); err != nil {
		t.Errorf("Run = %v", err)
	}
	if process.Alive(pid) {
		t.Errorf("the backend, pid %d, outlived its daemon", pid)
	}
	socket, _ := p.Socket("")
	for _, file := range []string{p.Environment(), p.Overrides(), p.Record(), p.PIDFile(), socket} {
		if there(t, file) {
			t.Errorf("%s is left", file)
		}
	}
	closed := false
	for {
		_, response, err := next(t, stream)
		if err != nil {
			break
		}
		closed = closed || response.GetClosing().GetReason() == devproxyv1.CloseReason_CLOSE_REASON_SHUTDOWN
	}
	if !closed {
		t.Error("the client was not told of the shutdown")
	}
}

func TestOverridesAndSecrets(t *testing.T) {
	p := newProject(t, example(t, ""))
	tools(t, p, "first")
	d := runDaemon(t, p, nil)
	if err := d.client.Restart(t.Context(), false, map[string]string{"MODE": "override", "MY_SECRET": "hush-hush"}, quiet); err != nil {
		t.Fatal(err)
	}
	backendLog := client.LogOptions{Sources: []string{"backend"}}
	within(t, "the backend's line", func() bool { return strings.Contains(d.text(t, backendLog), "MODE=override, and the secret is ***") })
	b := d.backend(t)
	if o := b.GetEnvironmentOverrides(); o["MODE"] != "override" || o["MY_SECRET"] != "***" {
		t.Errorf("the status shows the overrides %v", o)
	}
	if shown, err := d.client.Status(t.Context(), true); err != nil || shown.GetBackend().GetEnvironmentOverrides()["MY_SECRET"] != "hush-hush" {
		t.Errorf("who asks for secrets gets %v, %v", shown.GetBackend().GetEnvironmentOverrides(), err)
	}

	// Without overrides given those there are stay, also for the next daemon.
	if err := d.client.Restart(t.Context(), false, nil, quiet); err != nil {
		t.Fatal(err)
	}
	d.cancel(errors.New("terminated"))
	if err := d.end(t); err != nil {
		t.Errorf("Run = %v", err)
	}
	d = runDaemon(t, p, func(o *Options) { o.Autostarted, o.Environ = true, []string{"MODE=of another client"} })
	if o := d.backend(t).GetEnvironmentOverrides(); o["MODE"] != "override" {
		t.Errorf("the successor has the overrides %v", o)
	}

	// What an earlier generation printed stays masked once its override is gone.
	if err := d.client.Start(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	if err := d.client.Restart(t.Context(), false, map[string]string{}, quiet); err != nil {
		t.Fatal(err)
	}
	within(t, "the line of both generations", func() bool { return strings.Contains(d.text(t, backendLog), "MODE=kept, and the secret is \n") })
	if text := d.text(t, client.LogOptions{}); strings.Contains(text, "hush-hush") {
		t.Errorf("the secret is shown:\n%s", text)
	}
	backendLog.ShowSecrets = true
	if text := d.text(t, backendLog); !strings.Contains(text, "MODE=override, and the secret is hush-hush") {
		t.Errorf("who asks for secrets gets\n%s", text)
	}
	// Nor can it be guessed at by what is searched for.
	guess := client.LogOptions{Sources: []string{"backend"}, Pattern: "secret is hush"}
	if text := d.text(t, guess); text != "" {
		t.Errorf("a search for the secret finds\n%s", text)
	}
	guess.ShowSecrets = true
	if text := d.text(t, guess); strings.Count(text, "\n") != 1 {
		t.Errorf("a search of who asks for secrets finds\n%s", text)
	}
	if text := d.text(t, client.LogOptions{Sources: []string{"backend"}, Pattern: "^MODE=", Generation: 1, Tail: 1, Since: time.Now().Add(-time.Hour)}); text != "MODE=override, and the secret is ***\n" {
		t.Errorf("generation 1 said\n%s", text)
	}
	if text := d.text(t, client.LogOptions{Since: time.Now().Add(time.Hour)}); text != "" {
		t.Errorf("the future has said\n%s", text)
	}
	if err := d.client.Logs(t.Context(), client.LogOptions{Pattern: "["}, nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a pattern that is none: %v", err)
	}
	if h := d.backend(t).GetHistory(); len(h) != 2 || h[0].GetExit().GetReason() != "restart" || h[1].GetExit() != nil || h[1].GetPid() != d.backend(t).GetPid() || h[1].GetReadyTime() == nil {
		t.Errorf("the history is %v", h)
	}
	if o := d.backend(t).GetEnvironmentOverrides(); len(o) != 0 {
		t.Errorf("overrides that were cleared are %v", o)
	}
	if err := d.client.Restart(t.Context(), false, map[string]string{"A=B": "x"}, quiet); err == nil || !strings.Contains(err.Error(), "nothing was restarted") {
		t.Errorf("an override that no environment can hold: %v", err)
	}
}

func TestRestartIsRefusedForAFaultyFile(t *testing.T) {
	p := newProject(t, example(t, ""))
	tools(t, p, "first")
	d := runDaemon(t, p, nil)
	if err := d.client.Start(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	pid := d.backend(t).GetPid()
	write(t, p.Config(), "[backend]\ncommand = 7\n")
	for name, err := range map[string]error{
		"restart": d.client.Restart(t.Context(), false, map[string]string{"A": "1"}, quiet),
		"rebuild": d.client.Restart(t.Context(), true, nil, quiet),
	} {
		if _, ok := errors.AsType[*client.OutcomeError](err); !ok || !strings.Contains(err.Error(), "devproxy.toml:2") {
			t.Errorf("%s: %v, want the line", name, err)
		}
	}
	if b := d.backend(t); b.GetPid() != pid || len(b.GetEnvironmentOverrides()) != 0 {
		t.Errorf("the backend is now %v", b)
	}
	for name, file := range map[string]string{"missing": "no-such-program", "no program": p.Config()} {
		write(t, p.Config(), strings.Replace(example(t, ""), "command = [", "command = ["+strconv.Quote(file)+", ", 1))
		err := d.client.Restart(t.Context(), false, nil, quiet)
		if err == nil || !strings.Contains(err.Error(), "nothing was restarted") || !strings.Contains(err.Error(), file) {
			t.Errorf("a program that is %s: %v", name, err)
		}
	}
	if b := d.backend(t); b.GetPid() != pid {
		t.Errorf("the backend is now %v", b)
	}
	write(t, p.Config(), "[backend]\ncommand = 7\n")
	// It goes on as it is when it has to start by itself, and says so.
	if err := d.client.Stop(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	if err := d.client.Start(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), "nothing was started") {
		t.Errorf("start: %v", err)
	}
	answer(t, d.attach(t, initialize, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`), "2")
	if b := d.backend(t); b.GetState() != devproxyv1.BackendState_BACKEND_STATE_RUNNING || !strings.Contains(b.GetMessage(), "devproxy.toml:2") {
		t.Errorf("started for a request it is %v", b)
	}
	// A build that was not there when the daemon started.
	write(t, p.Config(), example(t, ""))
	if err := d.client.Restart(t.Context(), true, nil, quiet); err == nil || !strings.Contains(err.Error(), "no build command") {
		t.Errorf("without a build: %v", err)
	}
	write(t, p.Config(), example(t, "[build]\ncommand = \"echo built it\"\n"))
	if err := d.client.Restart(t.Context(), true, nil, quiet); err != nil {
		t.Errorf("with a build: %v", err)
	}
	if text := d.text(t, client.LogOptions{Sources: []string{"build"}}); text != "built it\n" {
		t.Errorf("the build printed %q", text)
	}
	if b := d.backend(t); b.GetMessage() != "" {
		t.Errorf("after the correction it says %q", b.GetMessage())
	}
}

// A failed build leaves the backend alone, and its output is told once.
func TestFailedBuild(t *testing.T) {
	p := newProject(t, example(t, "[build]\ncommand = \"printf 'broken \\\\377\\\\n'; exit 3\"\n"))
	tools(t, p, "first")
	d := runDaemon(t, p, nil)
	if err := d.client.Start(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	var output []string
	err := d.client.Restart(t.Context(), true, map[string]string{"A": "1"}, func(s *client.Step) {
		if line := s.GetBuildOutput(); line != "" {
			output = append(output, line)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "the build failed: exited with status 3") || strings.Contains(err.Error(), "broken") {
		t.Errorf("restart: %v", err)
	}
	if len(output) != 1 || output[0] != "broken \uFFFD" {
		t.Errorf("the output was %q", output)
	}
	s, err := d.client.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if b := s.GetBackend(); b.GetGeneration() != 1 || b.GetState() != devproxyv1.BackendState_BACKEND_STATE_RUNNING || len(b.GetEnvironmentOverrides()) != 0 {
		t.Errorf("the backend is now %v", b)
	}
	if build := s.GetBuild(); build.GetOk() || build.GetRunning() || len(build.GetTail()) != 1 {
		t.Errorf("the build is told as %v", build)
	}
}

// Compilers write output in spite of errors: it starts nothing, though the next
// good build does.
func TestFailedBuildThatWrites(t *testing.T) {
	p := newProject(t, example(t, "[build]\ncommand = \"sh build.sh\"\n"))
	tools(t, p, "first")
	d := runDaemon(t, p, nil)
	if err := d.client.Start(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{1, 2, 2, 3} {
		failing := i%2 == 0
		script := fmt.Sprintf("echo '[{\"name\":\"build%d\",\"description\":\"d\",\"reply\":\"r\"}]' > dist/tools.json\n", i)
		if failing {
			script += "exit 1\n"
		}
		write(t, filepath.Join(p.Root, "build.sh"), script)
		if err := d.client.Restart(t.Context(), true, nil, quiet); (err != nil) != failing {
			t.Fatalf("build %d: %v", i, err)
		}
		if failing {
			// As long as the watcher would take to notice.
			time.Sleep(time.Second)
		}
		s, err := d.client.Status(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if b := s.GetBackend(); b.GetGeneration() != want || b.GetState() != devproxyv1.BackendState_BACKEND_STATE_RUNNING {
			t.Errorf("after build %d the backend is %v, generation %d, want %d", i, b.GetState(), b.GetGeneration(), want)
		}
	}
}

// Whatever the daemon is in the middle of, an end is an end: for the backend,
// for those who wait and for those who watch.
func TestStopInTheMiddle(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		begin  func(context.Context, *client.Client) error
		state  devproxyv1.BackendState
	}{
		"of a start": {stuck(t), func(ctx context.Context, c *client.Client) error { return c.Start(ctx, quiet) },
			devproxyv1.BackendState_BACKEND_STATE_STARTING},
		"of a build": {stuck(t) + "[build]\ncommand = \"sleep 600\"\n",
			func(ctx context.Context, c *client.Client) error { return c.Restart(ctx, true, nil, quiet) },
			devproxyv1.BackendState_BACKEND_STATE_BUILDING},
	} {
		for by, told := range map[string]string{
			"request": "shutting down", "signal": "shutting down", "handover": "replaced by another",
		} {
			t.Run(name+" by "+by, func(t *testing.T) {
				p := newProject(t, test.config)
				d := runDaemon(t, p, nil)
				waiting, watching, following := make(chan error, 1), make(chan error, 1), make(chan error, 1)
				go func() { waiting <- test.begin(t.Context(), d.client) }()
				go func() {
					following <- d.client.Logs(t.Context(), client.LogOptions{Follow: true}, func(*client.LogEntry) error { return nil })
				}()
				watch, err := d.client.Control().WatchStatus(t.Context(), &devproxyv1.WatchStatusRequest{})
				if err != nil {
					t.Fatal(err)
				}
				reached := make(chan struct{})
				go func() {
					seen := false
					for {
						response, err := watch.Recv()
						if err != nil {
							watching <- err
							return
						}
						if b := response.GetStatus().GetBackend(); !seen && b.GetState() == test.state && (b.GetPid() != 0) == (name == "of a start") {
							seen = true
							close(reached)
						}
					}
				}()
				select {
				case <-reached:
				case <-time.After(patience):
					t.Fatalf("the backend is %v", d.backend(t))
				}
				pid := int(d.backend(t).GetPid())
				if by == "signal" {
					d.cancel(errors.New("terminated signal received"))
				} else if _, err := d.client.Control().Shutdown(t.Context(), &devproxyv1.ShutdownRequest{Handover: by == "handover"}); err != nil {
					t.Fatal(err)
				}
				if err := d.end(t); err != nil {
					t.Errorf("Run = %v", err)
				}
				if err := <-waiting; err == nil || !strings.Contains(err.Error(), told) {
					t.Errorf("who waits is told %v", err)
				}
				if err := <-watching; !errors.Is(err, io.EOF) {
					t.Errorf("who watches is told %v", err)
				}
				if err := <-following; err != nil {
					t.Errorf("who follows the log is told %v", err)
				}
				if pid != 0 && process.Alive(pid) {
					t.Errorf("the backend, pid %d, is left", pid)
				}
				if kept := there(t, p.Environment()); kept == (by == "request") {
					t.Errorf("the environment is kept: %v", kept)
				}
			})
		}
	}
}

func TestEagerStart(t *testing.T) {
	p := newProject(t, example(t, "start = \"eager\"\n"))
	tools(t, p, "first")
	d := runDaemon(t, p, nil)
	within(t, "it runs", func() bool { return d.backend(t).GetState() == devproxyv1.BackendState_BACKEND_STATE_RUNNING })
}

func TestIdleExit(t *testing.T) {
	p := newProject(t, example(t, "[proxy]\nidle_exit = \"300ms\"\n"))
	shims := func(o *Options) { o.Autostarted = true }
	d := runDaemon(t, p, shims)
	stream := d.attach(t)
	within(t, "the client is there and no end is foretold", func() bool {
		s, err := d.client.Status(t.Context(), false)
		return err == nil && len(s.GetSessions()) == 1 && s.GetDaemon().GetIdleDeadline() == nil
	})
	select {
	case err := <-d.ended:
		t.Fatalf("the daemon ended with a client attached: %v", err)
	case <-time.After(600 * time.Millisecond):
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := d.end(t); err != nil || there(t, p.Environment()) {
		t.Errorf("Run = %v, the environment is kept: %v", err, there(t, p.Environment()))
	}
	// One that a person started stays, and so does what succeeds it.
	d = runDaemon(t, p, nil)
	d.cancel(errors.New("killed"))
	if err := d.end(t); err != nil {
		t.Fatal(err)
	}
	d = runDaemon(t, p, shims)
	select {
	case err := <-d.ended:
		t.Fatalf("the successor of a person's daemon ended: %v", err)
	case <-time.After(600 * time.Millisecond):
	}
}

// A start that cannot be leaves nothing that stands in the way of the next.
func TestStartThatFails(t *testing.T) {
	p := newProject(t, example(t, ""))
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	options := Options{Project: p, Version: "v1", Environ: []string{"A=1"}}
	write(t, socket, "no socket")
	if _, ok := errors.AsType[*project.UnsafeError](Run(t.Context(), options)); !ok {
		t.Error("a plain file in place of the socket is taken")
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	write(t, p.Config(), "[backend]\ncomand = \"x\"\n")
	if err := Run(t.Context(), options); err == nil || !strings.Contains(err.Error(), "devproxy.toml:2") {
		t.Errorf("with a faulty file: %v", err)
	}
	if there(t, p.Environment()) {
		t.Error("a start that failed replaced the environment")
	}
	write(t, p.Config(), example(t, ""))
	d := runDaemon(t, p, nil)
	if err := Run(t.Context(), options); !errors.Is(err, ErrRunning) {
		t.Errorf("beside another one: %v", err)
	}
	if s, err := d.client.Status(t.Context(), false); err != nil || s.GetDaemon().GetProjectRoot() != p.Root {
		t.Errorf("the other one: %v, %v", s, err)
	}
}

// Who comes while a daemon ends finds nobody, so that he starts the next one.
func TestEndingDaemonServesNobody(t *testing.T) {
	p := newProject(t, strings.Replace(stuck(t), "200ms", "1s", 1))
	d := runDaemon(t, p, nil)
	go func() { _ = d.client.Start(t.Context(), quiet) }()
	within(t, "it starts", func() bool { return d.backend(t).GetPid() != 0 })
	if _, err := d.client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "nobody listens", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-d.ended:
		t.Fatalf("it ended before: %v", err)
	default: // its backend is still on the ladder
	}
	if err := Run(t.Context(), Options{Project: p, Version: "v1"}); !errors.Is(err, ErrRunning) {
		t.Errorf("a start beside it: %v", err)
	}
	if err := d.end(t); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// Hints name the dev tools as this project calls them.
func TestToolPrefix(t *testing.T) {
	p := newProject(t, "[backend]\ncommand = [\"no-such-server\"]\ntransport = \"stdio\"\n[proxy]\ntool_prefix = \"my_\"\n")
	d := runDaemon(t, p, nil)
	stream := d.attach(t, initialize)
	for id, request := range map[string]string{
		"2": `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"my_restart"}}`,
		"3": `{"jsonrpc":"2.0","id":3,"method":"prompts/list"}`,
	} {
		if err := stream.Send(chunkOf(request)); err != nil {
			t.Fatal(err)
		}
		if text := answer(t, stream, id); !strings.Contains(text, "no-such-server") || strings.Contains(text, "dev_") {
			t.Errorf("answer %s: %s", id, text)
		}
	}
	if b := d.backend(t); strings.Contains(b.GetMessage(), "dev_") || !strings.Contains(b.GetMessage(), "no-such-server") {
		t.Errorf("the status says %q", b.GetMessage())
	}
}
