//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// world is a project with a home, and so a daemon, of its own.
type world struct {
	base, home, root string
	env              []string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	base, err := testbed.ShortTempDir("dpb")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{base: base, home: base + "/h", root: base + "/p"}
	for _, dir := range []string{w.home, w.root, w.root + "/dist"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// What SDK clients give a server: six variables and no more.
	w.env = []string{"HOME=" + w.home, "LOGNAME=bench", "PATH=" + os.Getenv("PATH"), "SHELL=/bin/sh", "TERM=dumb", "USER=bench"}
	t.Cleanup(func() {
		w.stop(t)
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	return w
}

// server is a backend that is measured.
type server struct {
	name      string
	transport string
	args      []string // with {port}
}

// node is a server of the TypeScript SDKs, started as a built project's would.
func (w *world) node(t testing.TB, script string, args ...string) server {
	t.Helper()
	path := filepath.Join(nodeDir(t), "servers", script)
	w.write(t, "dist/index.mjs", fmt.Sprintf("import %q;\n", path))
	return server{
		name: strings.TrimSuffix(script, ".mjs"), transport: args[0],
		args: append([]string{"node", filepath.Join(w.root, "dist/index.mjs")}, args...),
	}
}

// raw is the server that costs next to nothing.
func (w *world) raw(t testing.TB) server {
	t.Helper()
	w.write(t, "dist/built", "1")
	return server{name: "raw", transport: "stdio", args: []string{program(t, "rawserver")}}
}

// sdk is a server on the go-sdk.
func (w *world) sdk(t testing.TB, mode string) server {
	t.Helper()
	w.write(t, "dist/features.json", "{}")
	s := server{name: "go-sdk", transport: "stdio", args: []string{program(t, "goserver")}}
	if mode != "stdio" {
		s.transport = "http"
		s.args = append(s.args, "-port", "{port}")
	}
	s.args = append(s.args, mode, filepath.Join(w.root, "dist/features.json"))
	return s
}

// nodeDir is the Node side of the tests.
func nodeDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(moduleRoot, "integration/testdata/node"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		t.Fatalf("%v: make integration installs the packages", err)
	}
	return dir
}

// use makes s the world's backend.
func (w *world) use(t testing.TB, s server, more ...string) {
	t.Helper()
	command, err := json.Marshal(s.args) // also TOML
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "devproxy.toml", fmt.Sprintf("[backend]\ncommand = %s\ntransport = %q\n%s\n[watch]\npaths = [\"dist\"]\n",
		command, s.transport, strings.Join(more, "\n")))
}

func (w *world) write(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.root, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// do runs one of the programs to its end.
func (w *world) do(t testing.TB, name string, args ...string) string {
	t.Helper()
	output, err := w.try(t, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
	return output
}

func (w *world) try(t testing.TB, name string, args ...string) (string, error) {
	t.Helper()
	// Not t.Context: cleanups stop daemons after it has ended.
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("it takes too long"))
	defer cancel()
	command := exec.CommandContext(ctx, program(t, name), args...)
	command.Dir, command.Env = w.root, w.env
	command.WaitDelay = time.Second // a detached daemon that kept the pipes would keep Output from returning
	output, err := command.Output()
	return string(output), err
}

// stop stops the world's daemon, if there is one.
func (w *world) stop(t testing.TB) {
	t.Helper()
	if w.pid(t) != 0 {
		w.do(t, "devproxyd", "stop", "--project", w.root)
	}
}

// pid is the daemon's, 0 if there is none.
func (w *world) pid(t testing.TB) int {
	t.Helper()
	output, err := w.try(t, "devproxyctl", "status", "--json")
	if err != nil {
		return 0
	}
	var document struct {
		Status struct{ Daemon struct{ PID json.Number } }
	}
	if err := json.Unmarshal([]byte(output), &document); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	pid, err := document.Status.Daemon.PID.Int64()
	if err != nil {
		t.Fatal(err)
	}
	return int(pid)
}

// shim is the command line of the world's shim.
func (w *world) shim(t testing.TB) []string {
	t.Helper()
	return []string{program(t, "devproxy-shim"), "--project", w.root}
}

// attach starts a shim and does the handshake.
func (w *world) attach(t testing.TB, d dialect) *peer {
	t.Helper()
	return open(t, d, w.env, w.shim(t)...)
}

// serve starts an HTTP server without devproxy and returns its endpoint.
func (w *world) serve(t testing.TB, s server) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	args := make([]string, len(s.args))
	for i, arg := range s.args {
		args[i] = strings.ReplaceAll(arg, "{port}", port)
	}
	p := start(t, w.env, args...)
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		p.end(t)
	})
	base := "http://127.0.0.1:" + port
	await(t, "the server's health", func() bool {
		response, err := http.Get(base + "/health")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return base + "/mcp"
}

// await waits for a fact that nobody announces.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-interrupted:
			t.Fatalf("interrupted while waiting for %s", what)
		case <-deadline:
			t.Fatalf("waited %v for %s", patience, what)
		case <-ticker.C:
		}
	}
}
