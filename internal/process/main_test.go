package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain makes the test binary all that the tests need: the gate, the helpers they start, and
// the tests themselves, after which no goroutine and no process may be left.
func TestMain(m *testing.M) {
	Main()
	// The race detector makes every helper wait a second at its exit otherwise.
	must(os.Setenv("GORACE", "atexit_sleep_ms=0"))
	if len(os.Args) > 1 && os.Args[1] == "helper" {
		runHelper(os.Args[2], os.Args[3:])
		return
	}
	code := m.Run()
	if code == 0 {
		if err := errors.Join(goleak.Find(), leftProcesses()); err != nil {
			fmt.Fprintln(os.Stderr, "left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// runHelper is what a started process does. "ready" on stdout says that it has got there.
func runHelper(mode string, args []string) {
	switch mode {
	case "touch":
		must(os.WriteFile(args[0], nil, 0o600))
	case "exit":
		code, err := strconv.Atoi(args[0])
		must(err)
		os.Exit(code)
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		must(err)
	case "flood":
		flood(args[0])
	case "sleep":
		sleepForever()
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		sleepForever()
	case "tree": // a chain of processes, each the parent of the next
		depth, err := strconv.Atoi(args[0])
		must(err)
		fmt.Println(os.Getpid())
		if depth > 1 {
			spawn(os.Stdout, "tree", strconv.Itoa(depth-1))
		}
		sleepForever()
	case "orphan": // leaves a child in the group that holds the pipes, and exits
		fmt.Println(spawn(os.Stdout, "sleep-quietly").Process.Pid)
	case "orphan-echo": // leaves a child that holds nothing, and exits
		fmt.Println(spawn(nil, "sleep-quietly").Process.Pid)
	case "sleep-quietly":
		time.Sleep(time.Hour)
	case "daemon":
		runDaemon(args)
	default:
		runSystemHelper(mode, args)
	}
}

func sleepForever() {
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// flood writes one MiB to each output, line by line in turn.
func flood(mark string) {
	out, err := strings.Repeat(mark, 127)+"\n", strings.Repeat("E", 127)+"\n"
	for range 8 << 10 {
		fmt.Print(out)
		fmt.Fprint(os.Stderr, err)
	}
}

func spawn(stdout io.Writer, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"helper"}, args...)...)
	cmd.Stdout = stdout
	must(cmd.Start())
	return cmd
}

// runDaemon starts a helper as the daemon does, says who it is, and waits to be killed.
func runDaemon(args []string) {
	p, err := Start(Spec{
		Path:   os.Args[0],
		Args:   append([]string{"helper"}, args[2:]...),
		Env:    os.Environ(),
		Marker: args[1],
	})
	must(err)
	if args[0] == "release" {
		must(p.Release())
		_, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		must(err)
	}
	must(json.NewEncoder(os.Stdout).Encode(p.Identity()))
	time.Sleep(time.Hour)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

var lastMarker atomic.Int64

// newMarker gives a marker of its own project to each caller, recognisable by leftProcesses.
func newMarker() string {
	return fmt.Sprintf("test%d-%d:1", os.Getpid(), lastMarker.Add(1))
}

// helper is the Spec of a helper in this binary.
func helper(args ...string) Spec {
	return Spec{
		Path:   os.Args[0],
		Args:   append([]string{"helper"}, args...),
		Env:    os.Environ(),
		Marker: newMarker(),
	}
}

// start starts spec, still behind its gate, and ends it with the test.
func start(t *testing.T, spec Spec) *Process {
	t.Helper()
	p, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drain(t, p)
		if err := p.Terminate(context.Background(), 0); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return p
}

// run starts and releases spec.
func run(t *testing.T, spec Spec) *Process {
	t.Helper()
	p := start(t, spec)
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	return p
}

// drain reads what nobody else reads of the outputs, to their end, so that neither a writer nor
// Terminate has to wait.
func drain(t *testing.T, p *Process) {
	t.Helper()
	var readers sync.WaitGroup
	for _, r := range []io.Reader{p.Stdout(), p.Stderr()} {
		readers.Go(func() { _, _ = io.Copy(io.Discard, r) })
	}
	t.Cleanup(readers.Wait)
}

// nextLine reads one line, and nothing behind it.
func nextLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("reading a line: %v after %q", err, line)
		}
		if b[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r")
		}
		line = append(line, b[0])
	}
}

func nextPID(t *testing.T, r io.Reader) int {
	t.Helper()
	pid, err := strconv.Atoi(nextLine(t, r))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// patience is how long anything may take that must happen. It is only ever waited out by a
// failing test.
const patience = 20 * time.Second

func awaitDone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("the leader does not end")
	}
}

// await polls for what no event tells.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waiting in vain until %s", what)
		}
	}
}

// terminate must succeed, and take less than limit.
func terminate(t *testing.T, p *Process, rung, limit time.Duration) {
	t.Helper()
	drain(t, p)
	began := time.Now()
	if err := p.Terminate(t.Context(), rung); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > limit {
		t.Errorf("Terminate took %v, want less than %v", took, limit)
	}
	if members, err := p.Members(); err != nil || len(members) > 0 {
		t.Errorf("members after Terminate: %v, %v", members, err)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// lives reports whether the process that id means is there and not a zombie.
func lives(id Identity) bool {
	now, err := identify(id.PID)
	return err == nil && now.same(id) && Alive(id.PID)
}

func identity(t *testing.T, pid int) Identity {
	t.Helper()
	id, err := identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
