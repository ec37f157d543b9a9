package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/demo"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/shim"
)

// roleVariable makes the test binary the backend.
const roleVariable = "DAEMON_TEST_ROLE"

// patience bounds every wait of a test: what it waits for takes moments.
const patience = time.Minute

func TestMain(m *testing.M) {
	process.Main()
	switch os.Getenv(roleVariable) {
	case "wrapper":
		runWrapper()
	case "server":
		err := demo.ServeBackend(context.Background(), os.Args[1], os.Getenv("PORT"), os.Stdin, os.Stderr)
		fmt.Fprintln(os.Stderr, err)
	case "stray":
		time.Sleep(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

// runWrapper is what npx and the like are: the server is a child, which nobody tells of the end, and
// there are others.
func runWrapper() {
	for _, role := range []string{"stray", "server"} {
		command := exec.Command(os.Args[0], os.Args[1:]...)
		command.Env = append(os.Environ(), roleVariable+"="+role)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if role == "server" {
			// Its stdin stays open as long as we live, whatever becomes of ours.
			if _, err := command.StdinPipe(); err != nil {
				panic(err)
			}
		}
		if err := command.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, role, "is process", command.Process.Pid)
	}
	time.Sleep(time.Hour)
}

// hall is an entrance within this process, for systems without unix sockets.
type hall struct{ floor *bufconn.Listener }

func (h hall) Socket() string         { return "" }
func (h hall) Listener() net.Listener { return h.floor }

func (h hall) Watch(ctx context.Context, _ func(net.Listener)) error {
	<-ctx.Done()
	return nil
}

func (h hall) dial(ctx context.Context) (*client.Client, error) {
	conn, err := h.floor.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return client.New(ctx, conn)
}

// talk is a client that speaks through a shim.
type talk struct {
	t       *testing.T
	stdin   io.WriteCloser
	answers *bufio.Reader
	ended   chan error
}

func newTalk(t *testing.T, h hall) *talk {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	c := &talk{t: t, stdin: stdin, answers: bufio.NewReader(stdout), ended: make(chan error, 1)}
	go func() {
		c.ended <- shim.Run(context.WithoutCancel(t.Context()), shim.Config{
			Stdin: in, Stdout: out, Stderr: t.Output(), Version: "v1",
			Connect: func(ctx context.Context, _ bool) (shim.Daemon, error) { return h.dial(ctx) },
		})
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = stdout.Close()
		if err := <-c.ended; err != nil {
			t.Errorf("the shim: %v", err)
		}
	})
	return c
}

// ask sends a request and returns its answer, which must contain the texts.
func (c *talk) ask(id int, method, params string, want ...string) {
	c.t.Helper()
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
	if _, err := io.WriteString(c.stdin, request+"\n"); err != nil {
		c.t.Fatal(err)
	}
	for {
		line, err := c.answers.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if !strings.Contains(line, `"id":`+strconv.Itoa(id)+`,`) {
			continue
		}
		for _, text := range want {
			if !strings.Contains(line, text) {
				c.t.Fatalf("%s is answered %s, want %s in it", method, line, text)
			}
		}
		return
	}
}

// inProcess runs a daemon behind a hall.
func inProcess(t *testing.T, p project.Project) (hall, chan error) {
	t.Helper()
	c, err := config.Load(p.Root)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	h := hall{floor: bufconn.Listen(1 << 20)}
	d := &daemon{
		options: Options{Project: p, Version: "v1", Environ: os.Environ()}, buffer: logs.NewBuffer(logs.Limits{}),
		since: time.Now(), instance: "hall", quit: make(chan struct{}), log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := d.assemble(c, h); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, survivors := d.run(context.WithoutCancel(t.Context()), h)
		ended <- survivors
	}()
	t.Cleanup(func() {
		d.stop(errQuit)
		select {
		case err := <-ended:
			ended <- err
		case <-time.After(patience):
			t.Error("the daemon does not end")
		}
	})
	return h, ended
}

// members asks the log for the processes of a generation's tree.
func members(t *testing.T, c *client.Client, leader int64) []int {
	t.Helper()
	pids := []int{int(leader)}
	err := c.Logs(t.Context(), client.LogOptions{Sources: []string{"backend"}}, func(e *client.LogEntry) error {
		if _, pid, ok := strings.Cut(e.GetText(), " is process "); ok {
			n, err := strconv.Atoi(pid)
			pids = append(pids, n)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// The whole chain with real processes, but for the socket, which wine does not have: a client's
// messages through shim and daemon to a backend behind a wrapper, restarts, and its end.
func TestTheChain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	t.Setenv("LOCALAPPDATA", t.TempDir())
	toml := fmt.Sprintf("[backend]\ncommand = [%q, \"dist/tools.json\"]\nport = 0\nhealth = \"/health\"\nstop_timeout = \"300ms\"\n"+
		"env = { %s = \"wrapper\" }\n[watch]\npaths = [\"dist\"]\n", self, roleVariable)
	if err := errors.Join(
		os.WriteFile(filepath.Join(root, project.ConfigName), []byte(toml), 0o600),
		os.Mkdir(filepath.Join(root, "dist"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	build := func(tool string) {
		t.Helper()
		text := fmt.Sprintf(`[{"name":%q,"description":"d","reply":"%s says {text}"},{"name":"crash","description":"d","reply":""}]`, tool, tool)
		if err := os.WriteFile(filepath.Join(root, "dist", "tools.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build("first")
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	h, ended := inProcess(t, p)
	ctl, err := h.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ctl.Close() }()
	running := func(generation uint64) (leader int64) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			s, err := ctl.Status(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			b := s.GetBackend()
			if b.GetState() == devproxyv1.BackendState_BACKEND_STATE_RUNNING && b.GetGeneration() == generation {
				return b.GetPid()
			}
			if time.Now().After(deadline) {
				t.Fatalf("the backend is %v, want generation %d", b, generation)
			}
		}
	}
	gone := func(pids []int) {
		t.Helper()
		for _, pid := range pids {
			if process.Alive(pid) {
				t.Errorf("process %d (%s) lives on", pid, process.CommandLine(pid))
			}
		}
	}

	c := newTalk(t, h)
	c.ask(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`, `"serverInfo"`)
	c.ask(2, "tools/list", `{}`, `"first"`, `"dev_restart"`)
	c.ask(3, "tools/call", `{"name":"first","arguments":{"text":"hello"}}`, "first says hello")
	tree := members(t, ctl, running(1))
	if len(tree) != 3 {
		t.Fatalf("the tree is %v, want the wrapper, the stray and the server", tree)
	}

	if err := ctl.Restart(t.Context(), false, nil, func(*client.Step) {}); err != nil {
		t.Fatal(err)
	}
	running(2)
	gone(tree)
	c.ask(4, "tools/call", `{"name":"first","arguments":{"text":"again"}}`, "first says again")

	build("second")
	running(3)
	c.ask(5, "tools/call", `{"name":"second","arguments":{"text":"you"}}`, "second says you")

	tree = members(t, ctl, running(3))
	if _, err := ctl.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		ended <- err
		if err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the daemon does not end")
	}
	gone(tree)
}
