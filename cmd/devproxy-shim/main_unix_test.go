//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/instance"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/wire"
)

// patience bounds every wait for something that must come.
const patience = time.Minute

// The test binary is three programs, told apart by name: the tests, the shim,
// and a daemon in miniature that the shim finds beside itself.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "devproxy-shim":
		main()
	case "devproxyd":
		os.Exit(fakeDaemon())
	}
	goleak.VerifyTestMain(m)
}

// fakeDaemon serves a project as devproxyd run does, as far as a shim can tell.
func fakeDaemon() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	p, err := project.At(os.Args[slices.Index(os.Args, "--project")+1])
	if err != nil {
		log.Error("not serving", "error", err)
		return 1
	}
	if config, err := os.ReadFile(p.Config()); err != nil || strings.Contains(string(config), "comand") {
		_, _ = fmt.Fprintln(os.Stderr, "devproxy.toml:1: unknown key \"comand\"; did you mean \"command\"?")
		return 2
	}
	socket := ""
	if n := slices.Index(os.Args, "--socket"); n >= 0 {
		socket = os.Args[n+1]
	}
	lock, err := instance.Acquire(context.Background(), p, socket, log)
	if errors.Is(err, instance.ErrRunning) {
		return client.ExitRunning
	}
	if err != nil {
		log.Error("not serving", "error", err)
		return 1
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(client.MaxCallMessage), grpc.MaxSendMsgSize(client.MaxCallMessage),
		grpc.InitialWindowSize(client.WindowSize), grpc.InitialConnWindowSize(client.WindowSize))
	devproxyv1.RegisterAttachServiceServer(server, attachService{})
	if err := server.Serve(lock.Listener()); err != nil {
		return 1
	}
	return 0
}

type attachService struct {
	devproxyv1.UnimplementedAttachServiceServer
}

type attachStream = grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]

func (attachService) Attach(stream attachStream) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	welcome := &devproxyv1.Welcome{Contract: client.Contract, Version: "fake", Pid: int64(os.Getpid())}
	if err := stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	var message []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			closing := &devproxyv1.Closing{Reason: devproxyv1.CloseReason_CLOSE_REASON_DONE}
			return stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Closing{Closing: closing}})
		}
		if err != nil {
			return err
		}
		message = append(message, request.GetChunk().GetData()...)
		if !request.GetChunk().GetLast() {
			continue
		}
		if err := reply(stream, message); err != nil {
			return err
		}
		message = nil
	}
}

// reply does what the method says: hang, die, slow, echo, env; anything else is
// answered with the daemon's process id.
func reply(stream attachStream, frame []byte) error {
	m, err := wire.Parse(frame)
	if err != nil || m.Kind != wire.Request {
		return nil
	}
	result := []byte(`{"pid":` + strconv.Itoa(os.Getpid()) + `}`)
	switch m.Method {
	case "hang":
		return nil
	case "die":
		os.Exit(1)
	case "slow":
		time.Sleep(100 * time.Millisecond)
	case "echo":
		result = m.Params
	case "env":
		result = wire.Quote(strings.Join(os.Environ(), "\n"))
	}
	for rest := wire.NewResponse(m.ID, result).Bytes(); ; {
		piece := rest[:min(len(rest), client.ChunkSize)]
		rest = rest[len(piece):]
		chunk := &devproxyv1.Chunk{Data: piece, Last: len(rest) == 0}
		err := stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{Chunk: chunk}})
		if err != nil || len(rest) == 0 {
			return err
		}
	}
}

// site is a project with programs installed beside it and a home of its own.
type site struct {
	t       *testing.T
	dir     string // holds bin, home and project
	project project.Project
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{t: t, dir: dir}
	for _, sub := range []string{"bin", "home", "project", "elsewhere"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"devproxy-shim", "devproxyd"} {
		install(t, self, filepath.Join(dir, "bin", name))
	}
	s.configure("")
	t.Setenv("HOME", filepath.Join(dir, "home"))
	if s.project, err = project.At(filepath.Join(dir, "project")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.killDaemon)
	return s
}

// install puts the program self at path, under a link that the kernel does not
// resolve if it can.
func install(t *testing.T, self, path string) {
	t.Helper()
	if os.Link(self, path) == nil {
		return
	}
	program, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(path, program, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) configure(content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "project", project.ConfigName), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// daemonPID is the process id that the daemon wrote down, 0 for none.
func (s *site) daemonPID() int {
	note, err := os.ReadFile(s.project.PIDFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(note)))
	if err != nil {
		s.t.Errorf("pid file: %v", err)
	}
	return pid
}

// killDaemon ends the daemon without a chance to tidy up.
func (s *site) killDaemon() {
	if pid := s.daemonPID(); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// six is the environment that SDK clients give a server.
func (s *site) six() []string {
	return []string{
		"HOME=" + filepath.Join(s.dir, "home"), "LOGNAME=tester", "PATH=/usr/bin:/bin",
		"SHELL=/bin/sh", "TERM=xterm", "USER=tester",
	}
}

// spawned is a shim with a client on its pipes.
type spawned struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File
	lines  *bufio.Reader
	stderr *lockedBuffer
	exited chan struct{}
}

type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// spawn starts a shim as a client does, with --project unless dir lies in one.
func (s *site) spawn(environ []string, args ...string) *spawned {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.dir, "bin", "devproxy-shim"), args...)
	cmd.Dir = filepath.Join(s.dir, "elsewhere")
	// The race detector would make every exit last a second.
	cmd.Env = append(environ, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, write, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := stdout.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	p := &spawned{
		t: s.t, cmd: cmd, stdin: stdin, stdout: stdout, lines: bufio.NewReader(stdout),
		stderr: &lockedBuffer{}, exited: make(chan struct{}),
	}
	cmd.Stdout, cmd.Stderr = write, p.stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	_ = write.Close()
	go func() {
		defer close(p.exited)
		_ = cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		<-p.exited
		_ = stdout.Close()
	})
	return p
}

func (p *spawned) write(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("writing to the shim: %v; stderr: %s", err, p.stderr)
	}
}

func (p *spawned) read() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatalf("reading from the shim: %q, %v; stderr: %s", line, err, p.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

// awaitStderr waits until the shim has told the person something.
func (p *spawned) awaitStderr(part string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.stderr.String(), part); {
		if time.Now().After(deadline) {
			p.t.Fatalf("stderr lacks %q: %s", part, p.stderr)
		}
		time.Sleep(time.Millisecond)
	}
}

// ask sends a request and returns the answer to it.
func (p *spawned) ask(id int, method string) wire.Message {
	p.t.Helper()
	p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method))
	m, err := wire.Parse([]byte(p.read()))
	if n, ok := m.ID.Int(); err != nil || !ok || n != int64(id) {
		p.t.Fatalf("the answer to %s is %+v, %v", method, m, err)
	}
	return m
}

// pid asks the daemon for its process id.
func (p *spawned) pid(id int) int {
	p.t.Helper()
	result := string(p.ask(id, "tools/list").Result)
	pid, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(result, `{"pid":`), "}"))
	if err != nil {
		p.t.Fatalf("the daemon says %s", result)
	}
	return pid
}

// exit waits for the end of the shim and returns its code and how long it took.
func (p *spawned) exit() (code int, took time.Duration) {
	p.t.Helper()
	began := time.Now()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("the shim does not end; stderr: %s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode(), time.Since(began)
}

func TestAShimFindsTheDaemonOfAFullEnvironment(t *testing.T) {
	s := newSite(t)
	full := append(os.Environ(),
		"XDG_STATE_HOME="+t.TempDir(), "XDG_RUNTIME_DIR="+t.TempDir(), "TMPDIR="+t.TempDir(),
		"https_proxy=http://127.0.0.1:1", "API_TOKEN=from the client")
	first := s.spawn(full, "--project", filepath.Join(s.dir, "project"))
	pid := first.pid(1)
	if env := string(first.ask(2, "env").Result); !strings.Contains(env, "API_TOKEN=from the client") {
		t.Errorf("the daemon's environment is %s", env)
	}
	link := filepath.Join(s.dir, "link")
	if err := os.Symlink(s.project.Root, link); err != nil {
		t.Fatal(err)
	}
	second := s.spawn(s.six(), "--project", link)
	if got := second.pid(1); got != pid || got != s.daemonPID() {
		t.Errorf("daemons %d and %d, recorded %d", pid, got, s.daemonPID())
	}
}

func TestProjectIsFoundUpwards(t *testing.T) {
	s := newSite(t)
	deep := filepath.Join(s.project.Root, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(s.dir, "bin", "devproxy-shim"))
	cmd.Dir, cmd.Env = deep, s.six()
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize"}` + "\n")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", output, err)
	}
	if _, err := os.Stat(s.project.StartLog()); err != nil {
		t.Errorf("no daemon was started for the project: %v", err)
	}
}

func TestManyShimsOnAColdMachine(t *testing.T) {
	s := newSite(t)
	var shims []*spawned
	for range 20 {
		shims = append(shims, s.spawn(s.six(), "--project", s.project.Root))
	}
	pid := shims[0].pid(1)
	for _, shim := range shims[1:] {
		if got := shim.pid(1); got != pid {
			t.Errorf("served by %d and by %d", pid, got)
		}
	}
	log, err := os.ReadFile(s.project.StartLog())
	if starts := strings.Count(string(log), " starts "); err != nil || starts != 1 {
		t.Errorf("%d daemons were started, %v", starts, err)
	}
}

func TestBadConfigurationIsTheAnswerUntilItIsMended(t *testing.T) {
	s := newSite(t)
	s.configure("comand = 1")
	shim := s.spawn(s.six(), "--project", s.project.Root)
	const says = `devproxy.toml:1: unknown key`
	answer := shim.ask(1, "initialize")
	if answer.Kind != wire.Failure || !strings.Contains(string(answer.Error), says) {
		t.Fatalf("the answer is %s", answer.Error)
	}
	shim.awaitStderr(says)
	s.configure("")
	for id := 2; ; id++ {
		if answer := shim.ask(id, "initialize"); answer.Kind == wire.Response {
			break
		}
		time.Sleep(100 * time.Millisecond) // a client that asks again and again
	}
}

func TestMissingConfigurationIsTheAnswer(t *testing.T) {
	s := newSite(t)
	for _, args := range [][]string{nil, {"--project", filepath.Join(s.dir, "elsewhere")}, {"--project", "/nowhere"}} {
		shim := s.spawn(s.six(), args...)
		answer := shim.ask(1, "server/discover")
		if answer.Kind != wire.Failure || !strings.Contains(string(answer.Error), `devproxy.toml`) &&
			!strings.Contains(string(answer.Error), "/nowhere") {
			t.Errorf("%v: the answer is %s", args, answer.Error)
		}
		_ = shim.stdin.Close()
		if code, _ := shim.exit(); code != exitOK || shim.stderr.String() == "" {
			t.Errorf("%v: exit %d, stderr %s", args, code, shim.stderr)
		}
	}
}

func TestNoAutostartFindsADaemon(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--no-autostart", "--project", s.project.Root)
	if answer := shim.ask(1, "ping"); string(answer.Result) != "{}" {
		t.Errorf("the answer is %s", answer.Result)
	}
	s.spawn(s.six(), "--project", s.project.Root).pid(1) // it finds what others start
	shim.pid(2)
}

func TestNoAutostartStartsNone(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--no-autostart", "--project", s.project.Root)
	shim.ask(1, "ping")
	_ = shim.stdin.Close()
	shim.exit()
	if pid := s.daemonPID(); pid != 0 {
		t.Errorf("a daemon runs: %d", pid)
	}
}

func TestSocketOverride(t *testing.T) {
	s := newSite(t)
	socket := filepath.Join(s.dir, "home", "my.sock")
	shim := s.spawn(append(s.six(), "DEVPROXY_SOCKET="+socket), "--project", s.project.Root)
	pid := shim.pid(1)
	if s.project.RecordedSocket() != socket {
		t.Errorf("the daemon serves %s", s.project.RecordedSocket())
	}
	if got := s.spawn(s.six(), "--project", s.project.Root).pid(1); got != pid {
		t.Errorf("daemons %d and %d", pid, got)
	}
}

// A daemon keeps nothing of the client's: no pipe of it, no process group.
func TestTheDaemonIsOnItsOwn(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--project", s.project.Root)
	pid := shim.pid(1)
	if err := syscall.Kill(-shim.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	shim.exit()
	if rest, err := io.ReadAll(shim.lines); err != nil || len(rest) > 0 {
		t.Errorf("after the shim's end stdout gives %q, %v", rest, err)
	}
	if got := s.spawn(s.six(), "--project", s.project.Root).pid(1); got != pid {
		t.Errorf("the daemon died with the shim's group: %d, now %d", pid, got)
	}
}

func TestDaemonIsKilledUnderAClient(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--project", s.project.Root)
	first := shim.pid(1)
	shim.write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}`)
	_ = shim.read()
	shim.write(`{"jsonrpc":"2.0","id":3,"method":"hang"}`)
	// The daemon has got what comes before something that it answers.
	shim.pid(4)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := shim.read(); !strings.Contains(got, `"id":3,"error"`) || !strings.Contains(got, "daemon-lost") {
		t.Errorf("the answer is %s", got)
	}
	if second := shim.pid(5); second == first {
		t.Error("the daemon lives")
	}
}

func TestLargeMessages(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--project", s.project.Root)
	text := `{"s":"` + strings.Repeat("é", 6<<20) + `"}`
	go func() { // ends with the write
		_, _ = io.WriteString(shim.stdin, `{"jsonrpc":"2.0","id":1,"method":"echo","params":`+text+"}\n")
	}()
	if got := shim.read(); got != `{"jsonrpc":"2.0","id":1,"result":`+text+`}` {
		t.Errorf("%d bytes came back of %d", len(got), len(text))
	}
}

// within runs a shim's end a few times: a busy machine may be late once.
func within(t *testing.T, s *site, end func(*spawned)) {
	t.Helper()
	const promised = 250 * time.Millisecond
	var took time.Duration
	for range 5 {
		shim := s.spawn(s.six(), "--project", s.project.Root)
		shim.pid(1)
		end(shim)
		var code int
		if code, took = shim.exit(); code != exitOK {
			t.Fatalf("exit code %d; stderr: %s", code, shim.stderr)
		}
		if took < promised {
			return
		}
	}
	t.Errorf("the end took %s, promised are %s", took, promised)
}

func TestEndOfInput(t *testing.T) {
	s := newSite(t)
	within(t, s, func(p *spawned) { _ = p.stdin.Close() })
	within(t, s, func(p *spawned) {
		p.write(`{"jsonrpc":"2.0","id":2,"method":"hang"}`)
		_ = p.stdin.Close()
	})
}

func TestRequestsThatWereReadAreAnswered(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--project", s.project.Root)
	shim.pid(1) // it is attached: the time that it has for its end is not spent on that
	shim.write(`{"jsonrpc":"2.0","id":2,"method":"slow"}`)
	_ = shim.stdin.Close()
	if got := shim.read(); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("the answer is %s", got)
	}
	if code, _ := shim.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestSignals(t *testing.T) {
	s := newSite(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		within(t, s, func(p *spawned) {
			p.write(`{"jsonrpc":"2.0","id":2,"method":"hang"}`)
			if err := p.cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLostStdout(t *testing.T) {
	s := newSite(t)
	within(t, s, func(p *spawned) {
		_ = p.stdout.Close()
		p.write(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	})
}

// A client that pauses loses nothing.
func TestPausedClient(t *testing.T) {
	s := newSite(t)
	shim := s.spawn(s.six(), "--project", s.project.Root)
	shim.pid(1)
	text := `{"s":"` + strings.Repeat("x", 1<<20) + `"}`
	const n = 20
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for id := range n {
			_, _ = fmt.Fprintf(shim.stdin, `{"jsonrpc":"2.0","id":%d,"method":"echo","params":%s}`+"\n", id, text)
		}
	}()
	time.Sleep(200 * time.Millisecond) // the pause
	for id := range n {
		if got := shim.read(); got != fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, text) {
			t.Fatalf("answer %d has %d bytes", id, len(got))
		}
	}
	<-asked
}

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"--version"}, exitOK, "devproxy-shim ", ""},
		{[]string{"-h"}, exitOK, "", "--project"},
		{[]string{"--nonsense"}, exitUsage, "", "nonsense"},
		{[]string{"stray"}, exitUsage, "", `unexpected argument "stray"`},
	} {
		var stdout, stderr strings.Builder
		code := run(t.Context(), test.args, strings.NewReader(""), &stdout, &stderr)
		if code != test.code || !strings.Contains(stdout.String(), test.stdout) ||
			!strings.Contains(strings.ReplaceAll(stderr.String(), "  -", "  --"), test.stderr) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", test.args, code, stdout.String(), stderr.String())
		}
	}
}
