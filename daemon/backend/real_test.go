//go:build unix

package backend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/wire"
)

// longEnough is how long a test waits for something that takes milliseconds when
// all is well, on a machine that is busy with other tests.
const longEnough = 30 * time.Second

// house is a supervisor with real processes.
type house struct {
	*Supervisor

	t        *testing.T
	dir      string
	observer *recorder
	stop     context.CancelFunc
	stopped  chan error
	news     chan struct{} // the observer has heard something

	mu     sync.Mutex
	launch Launch
	output []string
	// What the watcher says before a start.
	missing     string
	baselineErr error
}

func newHouse(t *testing.T, l Launch) *house {
	t.Helper()
	return newHouseIn(t, t.TempDir(), markerOf(t), l)
}

// markerOf is a marker that no other run of this test has: a start ends whatever
// else carries its own.
func markerOf(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), os.Getpid()) }

func newHouseIn(t *testing.T, dir, marker string, l Launch) *house {
	t.Helper()
	h := &house{t: t, dir: dir, launch: l, stopped: make(chan error, 1), news: make(chan struct{}, 1)}
	h.observer = &recorder{react: func(string) {
		select {
		case h.news <- struct{}{}:
		default:
		}
	}}
	h.Supervisor = New(Config{
		Launch: func(context.Context) (Launch, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.launch, nil
		},
		Output: func(generation uint64, stream, line string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.output) > 1000 {
				return // it floods
			}
			h.output = append(h.output, fmt.Sprintf("%d %s: %s", generation, stream, line))
		},
		Baseline: func(context.Context) (string, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.missing, h.baselineErr
		},
		Observer:   h.observer,
		RecordFile: filepath.Join(dir, "backend.json"), SnapshotFile: filepath.Join(dir, "snapshot.json"),
		Marker: marker, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { h.stopped <- h.Run(ctx) }()
	t.Cleanup(func() {
		h.mustEnd()
		h.nothingLeft(marker)
	})
	return h
}

// mustEnd ends the supervisor; again is fine.
func (h *house) mustEnd() {
	h.t.Helper()
	h.stop()
	select {
	case err := <-h.stopped:
		if err != nil {
			h.t.Errorf("Run: %v", err)
		}
		h.stopped <- nil
	case <-time.After(longEnough):
		h.t.Fatal("Run does not return")
	}
}

// nothingLeft checks that no process of the project and no record of one is left.
func (h *house) nothingLeft(marker string) {
	h.t.Helper()
	if pids := marked(marker); len(pids) > 0 {
		h.t.Errorf("processes left: %v", pids)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "backend.json")); !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("the record is left: %v", err)
	}
}

// marked finds the processes whose environment carries the marker (Linux).
func marked(marker string) []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(environ), "\x00"+process.MarkerVariable+"="+marker+":") {
			found = append(found, filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

// await waits until the status is as wanted.
func (h *house) await(what string, wanted func(Status) bool) Status {
	h.t.Helper()
	deadline := time.After(longEnough)
	for {
		status, changed := h.Subscribe()
		if wanted(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			h.t.Fatalf("it is not %s but %+v\noutput: %q", what, status, h.lines())
		}
	}
}

func (h *house) awaitState(want State) Status {
	h.t.Helper()
	return h.await(want.String(), func(s Status) bool { return s.State == want })
}

func (h *house) awaitGeneration(want uint64) Status {
	h.t.Helper()
	return h.await(fmt.Sprintf("running as generation %d", want), func(s Status) bool {
		return s.State == Running && s.Generation == want
	})
}

func (h *house) mustStart() Status {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), longEnough)
	defer cancel()
	if err := h.Start(ctx, nil); err != nil {
		h.t.Fatalf("start: %v\noutput: %q", err, h.lines())
	}
	return h.Status()
}

// failedStart starts it and returns why that failed.
func (h *house) failedStart(want Reason) *Failure {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), longEnough)
	defer cancel()
	err := h.Start(ctx, nil)
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Reason != want {
		h.t.Fatalf("start: %v, want %s\noutput: %q", err, want, h.lines())
	}
	return f
}

// mustHear waits until the observer has heard that. It hears of a state after
// that was published.
func (h *house) mustHear(want string) {
	h.t.Helper()
	deadline := time.After(longEnough)
	for heard := ""; ; {
		heard = strings.TrimPrefix(heard+", "+h.observer.take(), ", ")
		heard = strings.TrimSuffix(heard, ", ")
		if heard == want {
			return
		}
		select {
		case <-h.news:
		case <-deadline:
			h.t.Fatalf("heard %q, want %q", heard, want)
		}
	}
}

func (h *house) lines() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.output)
}

func (h *house) change(change func(*Launch)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.launch)
}

// answers is a sink that hands on the answers.
type answers chan wire.Message

func (a answers) Message(m wire.Message, _ int64) { a <- m }
func (a answers) Failed(int64, error)             {}
func (a answers) Writable()                       {}
func (a answers) Lost(error)                      {}

// open opens a link to the running generation.
func (h *house) open(t *testing.T, sink link.Sink) link.Link {
	t.Helper()
	up := h.published.Load().up
	if up == nil {
		t.Fatal("nothing is up")
	}
	l, err := up.Open(t.Context(), legacyClient, sink)
	if err != nil {
		t.Fatalf("opening a link: %v", err)
	}
	return l
}

// ask opens a link to the running generation and asks it for its environment.
func (h *house) ask() map[string]any {
	h.t.Helper()
	got := make(answers, 10)
	l := h.open(h.t, got)
	defer l.Close()
	l.Request(1, "env", nil, legacyClient)
	select {
	case m := <-got:
		var env map[string]any
		if err := json.Unmarshal(m.Result, &env); err != nil {
			h.t.Fatalf("answer %s: %v", m.Bytes(), err)
		}
		return env
	case <-time.After(longEnough):
		h.t.Fatal("no answer")
		return nil
	}
}

func TestAnHTTPBackend(t *testing.T) {
	t.Parallel()
	l := selfAs("http")
	l.Health = "/health"
	l.Command = append(l.Command, "--port={port}")
	h := newHouse(t, l)
	h.Need(legacyClient)
	status := h.awaitGeneration(1)
	if status.PID == 0 || status.Port == 0 || status.Shared || status.Facts.Version != "2025-06-18" {
		t.Errorf("status = %+v", status)
	}
	env := h.ask()
	port := strconv.Itoa(status.Port)
	if env["PORT"] != port || env["exit"] != "1" || env["marker"] != markerOf(t)+":1" || fmt.Sprint(env["args"]) != "[--port="+port+"]" {
		t.Errorf("the backend sees %v", env)
	}
	if !slices.Contains(h.lines(), "1 stdout: listening on "+port) {
		t.Errorf("output = %q", h.lines())
	}
	// The next daemon knows the process, and what it said.
	r, found, err := readRecord(filepath.Join(h.dir, "backend.json"))
	if !found || err != nil || r.Process.PID != status.PID || r.Generation != 1 {
		t.Errorf("record %+v, %v, %v", r, found, err)
	}
	if err := h.Stop(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := h.Status(); got.State != Idle || got.PID != 0 || got.LastExit.Status != "exited with status 0" {
		t.Errorf("status = %+v", got)
	}
	if f, ok := loadSnapshots(filepath.Join(h.dir, "snapshot.json"), l.Command, discard()).facts(era.Legacy); !ok || f.Version != "2025-06-18" {
		t.Errorf("kept facts = %+v", f)
	}
	if f, ok := h.Facts(era.Legacy); !ok || f.Version != "2025-06-18" {
		t.Errorf("facts while idle = %+v", f)
	}
}

func TestABackendOnTheOtherLoopback(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here")
	} else {
		_ = l.Close()
	}
	h := newHouse(t, selfAs("http", "v6"))
	h.mustStart()
	h.ask()
}

func TestAStdioBackend(t *testing.T) {
	t.Parallel()
	h := newHouse(t, selfAs("stdio"))
	h.Need(legacyClient)
	status := h.awaitGeneration(1)
	if status.Port != 0 || !status.Shared || status.Facts.Era != era.Legacy {
		t.Errorf("status = %+v", status)
	}
	if env := h.ask(); env["PORT"] != "" || env["exit"] != "1" || env["marker"] != markerOf(t)+":1" {
		t.Errorf("the backend sees %v", env)
	}
	if !slices.Contains(h.lines(), "1 stdout-noise: a banner") {
		t.Errorf("output = %q", h.lines())
	}
	if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if env := h.ask(); env["marker"] != markerOf(t)+":2" {
		t.Errorf("the next one sees %v", env)
	}
}

func TestAServerThatDiesOfTheProbe(t *testing.T) {
	t.Parallel()
	h := newHouse(t, selfAs("stdio", "touchy"))
	h.Need(era.Peer{Era: era.Modern, Version: era.ModernVersion})
	status := h.awaitGeneration(2)
	if status.Facts.Era != era.Legacy || status.LastExit.Status != "exited with status 6" {
		t.Errorf("status = %+v", status)
	}
	if err := h.Stop(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// It is remembered: no second process is wasted on it.
	h.Need(era.Peer{Era: era.Modern, Version: era.ModernVersion})
	h.awaitGeneration(3)
	if spoils := loadSnapshots(filepath.Join(h.dir, "snapshot.json"), nil, discard()).spoils(h.launch.Command); spoils != era.Modern {
		t.Errorf("spoils = %v", spoils)
	}
}

func TestACrashIsRepaired(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"http", "stdio"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, selfAs(role))
			status := h.mustStart()
			h.observer.take()
			if err := syscall.Kill(status.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			h.await("told", func(s Status) bool { return s.State != Running })
			if d := time.Since(killed); d > time.Second {
				t.Errorf("told after %v", d)
			}
			status = h.awaitGeneration(2)
			if e := status.LastExit; e.Reason != "crash" || e.Status != "ended by SIGKILL" || e.Generation != 1 {
				t.Errorf("last exit = %+v", e)
			}
			h.mustHear("Down 1 backend-lost, Unavailable backend-retrying waiting, Starting 2, Up 2")
			h.ask()
		})
	}
}

func TestARealCrashLoop(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the delays add up to 8 s")
	}
	h := newHouse(t, selfAs("http", "crash"))
	h.mustStart()
	status := h.awaitState(Failed)
	if f := status.Failure; f.Reason != CrashLoop || f.Exit != "exited with status 2" || !slices.Contains(f.Tail, "panic: oh dear") {
		t.Errorf("failure = %+v", status.Failure)
	}
	if status.Generation != crashLimit {
		t.Errorf("%d generations", status.Generation)
	}
}

func TestABackendThatExitsAtOnce(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"http", "stdio"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, selfAs(role, "exit"))
			f := h.failedStart(ExitedAtStart)
			if f.Exit != "exited with status 3" || !slices.Contains(f.Tail, "Error: cannot find module 'x'") || f.Hint == "" {
				t.Errorf("failure = %+v", f)
			}
			h.change(func(l *Launch) { *l = selfAs(role) })
			h.Changed(0)
			h.awaitState(Running)
		})
	}
}

func TestABackendThatHangsAtStart(t *testing.T) {
	t.Parallel()
	for role, waiting := range map[string]string{"http": "it waited for port ", "stdio": "it waited for its answer to the "} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			l := selfAs(role, "hang")
			// Half of it is for the other handshake, on a process of its own.
			l.StartTimeout = 2 * time.Second
			// What has never served gets no time to end in order.
			l.StopTimeout = time.Hour
			h := newHouse(t, l)
			f := h.failedStart(StartTimeout)
			if !strings.Contains(f.Message, "not ready within 2s") || !strings.Contains(f.Message, waiting) {
				t.Errorf("message = %q", f.Message)
			}
			if len(f.Tail) == 0 {
				t.Errorf("its output is not shown: %+v", f)
			}
			if strings.Contains(f.Hint, `transport = "http"`) != (role == "stdio") {
				t.Errorf("hint = %q", f.Hint)
			}
			if strings.Contains(f.Message, "a second process") != (role == "stdio") {
				t.Errorf("message = %q", f.Message)
			}
		})
	}
}

func TestAHealthCheckThatStaysRed(t *testing.T) {
	t.Parallel()
	l := selfAs("http", "sick")
	l.Health, l.StartTimeout = "/health", 2*time.Second
	h := newHouse(t, l)
	if f := h.failedStart(StartTimeout); !strings.Contains(f.Message, "503 Service Unavailable") {
		t.Errorf("message = %q", f.Message)
	}
}

func TestABackendThatIgnoresEverySign(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"http", "stdio"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			l := selfAs(role, "deaf", "grandchild")
			l.StopTimeout = 200 * time.Millisecond
			h := newHouse(t, l)
			h.mustStart()
			if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
				t.Fatal(err)
			}
			if e := h.Status().LastExit; e.Status != "ended by SIGKILL" || e.Reason != "restart" {
				t.Errorf("last exit = %+v", e)
			}
			h.ask()
		})
	}
}

// What a backend does with its pipes, or somebody with its processes, holds up no
// stop.
func TestStopsThatAreHard(t *testing.T) {
	t.Parallel()
	freeze := func(t *testing.T, h *house) {
		if err := syscall.Kill(-h.Status().PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	// A request larger than the pipe, which nobody reads.
	stuff := func(t *testing.T, h *house) {
		h.open(t, make(answers, 10)).Request(1, "x", []byte(`{"x":"`+strings.Repeat("y", 1<<20)+`"}`), legacyClient)
	}
	for name, test := range map[string]struct {
		role   string
		tricks []string
		before func(*testing.T, *house)
		want   string // how it ends
	}{
		"frozen stdio":           {"stdio", []string{"no-stdin"}, freeze, "ended by SIGTERM"},
		"frozen http":            {"http", []string{"no-stdin"}, freeze, "ended by SIGTERM"},
		"frozen and deaf":        {"http", []string{"deaf", "grandchild"}, freeze, "ended by SIGKILL"},
		"flooding stderr":        {"http", []string{"flood", "no-stdin"}, nil, "ended by SIGTERM"},
		"flooding stdout":        {"stdio", []string{"flood-stdout"}, nil, "exited with status 0"},
		"flooding and deaf":      {"stdio", []string{"flood", "flood-stdout", "deaf"}, nil, "ended by SIGKILL"},
		"not reading":            {"stdio", []string{"unreading"}, stuff, "ended by SIGTERM"},
		"not reading and deaf":   {"stdio", []string{"unreading", "deaf"}, stuff, "ended by SIGKILL"},
		"not reading and frozen": {"stdio", []string{"unreading"}, func(t *testing.T, h *house) { stuff(t, h); freeze(t, h) }, "ended by SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := selfAs(test.role, test.tricks...)
			l.StopTimeout = 300 * time.Millisecond
			h := newHouse(t, l)
			h.mustStart()
			if test.before != nil {
				test.before(t, h)
			}
			began := time.Now()
			if err := h.Stop(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > longEnough/3 {
				t.Errorf("took %v", took)
			}
			if e := h.Status().LastExit; e.Status != test.want || e.Reason != "stop" {
				t.Errorf("last exit = %+v, want %s", e, test.want)
			}
		})
	}
}

// Most http servers do not look at their stdin, and what a wrapper leaves behind
// may not either. A stop must not wait a whole rung for that.
func TestWhoIgnoresHisStdinGetsSIGTERMSoon(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role   string
		script string
		end    func(*testing.T, *house)
		want   string
	}{
		"an http server": {"http", "", func(t *testing.T, h *house) {
			if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
				t.Fatal(err)
			}
		}, "ended by SIGTERM"},
		"a stdio server whose wrapper died": {"stdio", `exec 3<&0; "$0" <&3 & wait`, func(t *testing.T, h *house) {
			if err := syscall.Kill(h.Status().PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, "ended by SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := selfAs(test.role, "no-stdin")
			l.StopTimeout = time.Hour
			if test.script != "" {
				l.Path, l.Command = "/bin/sh", []string{"sh", "-c", test.script, os.Args[0]}
			}
			h := newHouse(t, l)
			h.mustStart()
			// The second one may end as fast as it can.
			h.change(func(l *Launch) { l.StopTimeout = 200 * time.Millisecond })
			test.end(t, h)
			h.awaitGeneration(2)
			if e := h.Status().LastExit; e.Status != test.want {
				t.Errorf("last exit = %+v", e)
			}
		})
	}
}

// A stdio server that goes on though its input has ended costs stop_timeout each time,
// and is told of.
func TestAServerThatIgnoresTheEndOfItsInput(t *testing.T) {
	t.Parallel()
	for trick, deaf := range map[string]bool{"no-stdin": true, "well-behaved": false} {
		t.Run(trick, func(t *testing.T) {
			t.Parallel()
			l := selfAs("stdio", trick)
			l.StopTimeout = 500 * time.Millisecond
			if !deaf {
				l.StopTimeout = 10 * time.Second
			}
			h := newHouse(t, l)
			h.mustStart()
			if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
				t.Fatal(err)
			}
			if e := h.Status().LastExit; e == nil || e.Reason != "restart" || e.Deaf != deaf {
				t.Errorf("last exit = %+v", e)
			}
		})
	}
}

// newScriptedHouse has a backend that a script of the shell starts, as $0.
func newScriptedHouse(t *testing.T, script string) *house {
	t.Helper()
	if strings.Contains(script, "setsid") && runtime.GOOS != "linux" {
		t.Skip("what leaves the group is not found here")
	}
	l := selfAs("http", "deaf")
	l.Command = []string{"sh", "-c", script, os.Args[0]}
	l.Path = "/bin/sh"
	l.StopTimeout = 200 * time.Millisecond
	return newHouse(t, l)
}

// A wrapper that dies leaves the server behind, with the port: in its group, or in
// a session of its own, where the marker finds it, also as the owner of the port.
func TestAWrapperThatDies(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"in its group":                    `"$0" & echo server $! >&2; wait`,
		"in a session of its own":         `setsid "$0" & wait`,
		"in a session without a parent":   `(setsid "$0" &); while :; do sleep 1; done`,
		"behind a wrapper that is frozen": `"$0" & kill -STOP $$; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newScriptedHouse(t, script)
			status := h.mustStart()
			first := marked(markerOf(t))
			if err := syscall.Kill(status.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.awaitGeneration(2)
			for _, pid := range marked(markerOf(t)) {
				if slices.Contains(first, pid) {
					t.Errorf("process %s of generation 1 is there", pid)
				}
			}
			h.ask()
		})
	}
}

// What puts itself into the background has not started, and is not left there.
func TestABackendThatLeavesTheForeground(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"in its group":            `"$0" &`,
		"in a session of its own": `setsid "$0" &`,
		"as a daemon":             `(setsid "$0" <&- >&- 2>&- &)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newScriptedHouse(t, script)
			f := h.failedStart(ExitedAtStart)
			if f.Exit != "exited with status 0 and left processes behind" || !strings.Contains(f.Hint, "must stay in the foreground") {
				t.Errorf("failure = %+v", f)
			}
			h.awaitState(Failed)
			if left := marked(markerOf(t)); len(left) > 0 {
				t.Errorf("processes left: %v", left)
			}
		})
	}
}

func TestAStrangerOnThePort(t *testing.T) {
	t.Parallel()
	stranger, port := mustListen(t, "tcp", "127.0.0.1:0")
	l := selfAs("http")
	l.Port = port
	h := newHouse(t, l)
	f := h.failedStart(PortInUse)
	if !strings.Contains(f.Message, fmt.Sprintf("port %d is in use by ", port)) {
		t.Errorf("message = %q", f.Message)
	}
	if runtime.GOOS == "linux" && !strings.Contains(f.Message, fmt.Sprintf("pid %d (%s", os.Getpid(), os.Args[0])) {
		t.Errorf("message = %q", f.Message)
	}
	conn, err := net.Dial("tcp", stranger.Addr().String())
	if err != nil {
		t.Fatalf("the stranger was not left alone: %v", err)
	}
	_ = conn.Close()
	_ = stranger.Close()
	if got := h.mustStart(); got.Port != port {
		t.Errorf("port %d, want %d", got.Port, port)
	}
}

// He may even pass the health check.
func TestAStrangerWhoTakesThePortDuringTheStart(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("who listens is not told here")
	}
	l := selfAs("http", "hang")
	l.Health, l.StopTimeout = "/health", 200*time.Millisecond
	var err error
	if l.Port, err = choosePort(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, l)
	started := make(chan error, 1)
	go func() { started <- h.Start(context.Background(), nil) }()
	status := h.await("spawned", func(s Status) bool { return s.PID != 0 })
	stranger, _ := mustListen(t, "tcp", fmt.Sprintf("127.0.0.1:%d", status.Port))
	healthy := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = healthy.Listener.Close()
	healthy.Listener = stranger
	healthy.Start()
	defer healthy.Close()
	f, ok := errors.AsType[*Failure](<-started)
	if !ok || f.Reason != PortInUse || !strings.Contains(f.Message, fmt.Sprintf("was taken by pid %d", os.Getpid())) {
		t.Errorf("start: %+v", f)
	}
}

// A port that nobody asked for is no reason to fail: the start goes on with another.
func TestAChosenPortThatIsTaken(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("who listens is not told here")
	}
	for name, told := range map[string]bool{"and the server says so": true, "and the server hangs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := selfAs("http", "hang")
			l.StopTimeout = 200 * time.Millisecond
			h := newHouse(t, l)
			started := make(chan error, 1)
			go func() { started <- h.Start(context.Background(), nil) }()
			var taken []int
			for range portTries - 1 {
				status := h.await("spawned", func(s Status) bool { return s.PID != 0 && !slices.Contains(taken, s.Port) })
				mustListen(t, "tcp", fmt.Sprintf("127.0.0.1:%d", status.Port))
				taken = append(taken, status.Port)
				if told {
					h.goOn(status.PID)
				}
			}
			status := h.await("spawned", func(s Status) bool { return s.PID != 0 && !slices.Contains(taken, s.Port) })
			h.goOn(status.PID)
			if err := <-started; err != nil {
				t.Fatal(err)
			}
			status = h.Status()
			if slices.Contains(taken, status.Port) || status.Generation != 1 || len(status.History) != 1 {
				t.Errorf("after %v were taken it is %+v", taken, status)
			}
			h.ask()
		})
	}
}

// It ends where every one is taken, with the last holder's name.
func TestEveryChosenPortIsTaken(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("who listens is not told here")
	}
	l := selfAs("http", "hang")
	l.StopTimeout = 200 * time.Millisecond
	h := newHouse(t, l)
	started := make(chan error, 1)
	go func() { started <- h.Start(context.Background(), nil) }()
	var taken []int
	for range portTries {
		status := h.await("spawned", func(s Status) bool { return s.PID != 0 && !slices.Contains(taken, s.Port) })
		mustListen(t, "tcp", fmt.Sprintf("127.0.0.1:%d", status.Port))
		taken = append(taken, status.Port)
		h.goOn(status.PID)
	}
	f, ok := errors.AsType[*Failure](<-started)
	if !ok || f.Reason != PortInUse || !strings.Contains(f.Message, fmt.Sprintf("port %d was taken by pid %d", taken[portTries-1], os.Getpid())) {
		t.Errorf("start: %+v", f)
	}
}

// goOn ends the wait of a process that does the trick "hang".
func (h *house) goOn(pid int) {
	h.t.Helper()
	h.awaitOutside("a process that hangs", func() bool {
		return slices.ContainsFunc(h.lines(), func(line string) bool { return strings.HasSuffix(line, fmt.Sprint("hangs as ", pid)) })
	})
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		h.t.Fatal(err)
	}
}

// A port that somebody lets go of a moment after the backend's end costs the next
// generation no more than that.
func TestAPortThatIsFreedLate(t *testing.T) {
	t.Parallel()
	h := newHouse(t, selfAs("http", "reuseport"))
	status := h.mustStart()
	h.change(func(l *Launch) { l.Port = status.Port })
	late, err := reusePort(status.Port)
	if err != nil {
		t.Fatal(err)
	}
	freed := make(chan time.Time, 1)
	go func() {
		h.await("stopping", func(s Status) bool { return s.State == Stopping })
		time.Sleep(portFreeWait / 4) // as long as it is held
		freed <- time.Now()
		_ = late.Close()
	}()
	if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if at := h.Status().ReadyAt; at.Before(<-freed) {
		t.Error("the next one was up before")
	}
	h.ask()
}

func TestRealRestartsCoalesce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, selfAs("stdio"))
	h.mustStart()
	var restarts sync.WaitGroup
	for range 5 {
		restarts.Go(func() {
			if err := h.Restart(context.Background(), RestartOptions{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	restarts.Wait()
	status := h.awaitState(Running)
	if n := status.Generation; n < 2 || n > 6 {
		t.Errorf("generation %d", n)
	}
	if pids := marked(markerOf(t)); runtime.GOOS == "linux" && len(pids) != 1 {
		t.Errorf("processes: %v", pids)
	}
}

// A stop, a shutdown and a restart end a start wherever it is, and its processes.
func TestAStartIsEndedWhereverItIs(t *testing.T) {
	t.Parallel()
	for phase, test := range map[string]struct {
		role, trick, health string
		message             string // of the status
	}{
		"waiting for the port":      {"http", "hang", "", "waiting for port "},
		"waiting for its health":    {"http", "sick", "/health", " to answer 2xx"},
		"negotiating over HTTP":     {"http", "speechless", "", "waiting for the handshake at "},
		"negotiating":               {"stdio", "hang", "", "waiting for its answer to the "},
		"negotiating with the deaf": {"stdio", "deaf hang", "", "waiting for its answer to the "},
	} {
		for _, end := range []string{"stop", "shutdown", "restart"} {
			t.Run(end+" while "+phase, func(t *testing.T) {
				t.Parallel()
				l := selfAs(test.role, test.trick)
				l.Health, l.StopTimeout = test.health, 200*time.Millisecond
				h := newHouse(t, l)
				h.Need(legacyClient)
				pid := h.await(phase, func(s Status) bool {
					return s.PID != 0 && strings.Contains(s.Message, test.message)
				}).PID
				began := time.Now()
				switch end {
				case "stop":
					if err := h.Stop(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					h.awaitState(Idle)
				case "shutdown":
					h.mustEnd()
				case "restart":
					h.change(func(l *Launch) { *l = selfAs(test.role) })
					if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
						t.Fatal(err)
					}
					h.awaitGeneration(2)
				}
				if took := time.Since(began); took > longEnough/2 {
					t.Errorf("took %v", took)
				}
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("it lives: %v", err)
				}
			})
		}
	}
}

// killedDaemon lets a daemon start the backend, kills the daemon with SIGKILL,
// and returns the backend's pid.
func killedDaemon(t *testing.T, dir, marker string, l Launch) int {
	t.Helper()
	launch, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(os.Args[0], dir, marker, string(launch))
	daemon.Env = append(os.Environ(), roleVariable+"=daemon")
	stdout, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	pid, notNumber := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || notNumber != nil {
		t.Fatalf("the daemon says %q, %v", line, err)
	}
	return pid
}

func TestTheOrphanOfADeadDaemonIsEnded(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("started as a child of this test, it would count as one of ours")
	}
	dir, marker := t.TempDir(), markerOf(t)
	pid := killedDaemon(t, dir, marker, selfAs("stdio", "deaf"))
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("it has not outlived its daemon: %v", err)
	}
	h := newHouseIn(t, dir, marker, selfAs("stdio"))
	h.mustStart()
	if pids := marked(marker); len(pids) != 1 || pids[0] == strconv.Itoa(pid) {
		t.Errorf("processes: %v; the orphan was %d", pids, pid)
	}
}

func TestABackendThatClosesAPipe(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{"mute": "closed its stdout", "deafen": "closed its stdin"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			l := selfAs("stdio")
			l.RestartOnCrash, l.StopTimeout = false, 200*time.Millisecond
			h := newHouse(t, l)
			h.mustStart()
			got := make(answers, 10)
			up := h.published.Load().up
			lnk, err := up.Open(t.Context(), legacyClient, got)
			if err != nil {
				t.Fatal(err)
			}
			lnk.Request(1, method, nil, legacyClient)
			if method == "deafen" {
				<-got
				lnk.Notify("anybody there?", nil)
			}
			status := h.awaitState(Failed)
			if f := status.Failure; f.Reason != Crashed || f.Exit != want {
				t.Errorf("failure = %+v", f)
			}
			if _, err := up.Open(t.Context(), legacyClient, got); err == nil {
				t.Error("a link opens to a backend that is gone")
			}
		})
	}
}

func TestCommandsThatCannotRun(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte{0, 1, 2}, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Launch)
		want   Reason
	}{
		"no program":     {func(l *Launch) { l.Path, l.Command = garbage, []string{"garbage"} }, StartFailed},
		"no file":        {func(l *Launch) { l.Path = "/no/such/program" }, CommandNotFound},
		"no interpreter": {func(l *Launch) { l.Path = script }, CommandNotFound},
		"a folder":       {func(l *Launch) { l.Path = os.TempDir() }, CommandNotFound},
		"no cwd":         {func(l *Launch) { l.Dir = "/no/such/folder" }, ConfigInvalid},
		"no command":     {func(l *Launch) { l.Command = nil }, ConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := selfAs("stdio")
			test.change(&l)
			h := newHouse(t, l)
			// Nothing ran that could have printed something.
			f := h.failedStart(test.want)
			if f.Message == "" || f.Hint == "" || strings.Contains(f.Hint, "its output") {
				t.Errorf("failure = %+v", f)
			}
			if status := h.Status(); !status.NeverRan || name == "no program" && !slices.Equal(status.Command, []string{"garbage"}) {
				t.Errorf("status = %+v", status)
			}
		})
	}
}

func TestNothingRunsUnrecorded(t *testing.T) {
	t.Parallel()
	// The folder of the record is not there.
	dir := filepath.Join(t.TempDir(), "missing")
	ran := filepath.Join(t.TempDir(), "ran")
	l := selfAs("stdio")
	l.Path, l.Command = "/bin/sh", []string{"sh", "-c", "touch " + ran}
	h := newHouseIn(t, dir, markerOf(t), l)
	if f := h.failedStart(StartFailed); !strings.Contains(f.Message, filepath.Join(dir, "backend.json")) {
		t.Errorf("message = %q", f.Message)
	}
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}

func TestAnEntryThatIsNotBuiltYet(t *testing.T) {
	t.Parallel()
	h := newHouse(t, selfAs("stdio"))
	watch := func(missing string, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.missing, h.baselineErr = missing, err
	}
	watch("dist/index.js", nil)
	if f := h.failedStart(EntryMissing); !f.Waiting || f.Message != "dist/index.js is missing or empty" {
		t.Errorf("failure = %+v", f)
	}
	watch("", errors.New("dist: permission denied"))
	if f := h.failedStart(StartFailed); !strings.Contains(f.Message, "dist: permission denied") {
		t.Errorf("failure = %+v", f)
	}
	watch("", nil)
	h.Changed(0)
	// What never had a process has used up no number.
	h.awaitGeneration(1)
}
