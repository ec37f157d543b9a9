//go:build linux

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/daemon"
	"github.com/debugmcp/devproxy/integration/internal/testbed"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/wire"
	"github.com/debugmcp/devproxy/shim"
)

// budgetFile has a line for each thing that is counted: how many of it there may
// be, and what it is.
const budgetFile = "testdata/budget.txt"

// slack is how much more than measured -update allows: a timer, or a garbage
// collection that empties gRPC's pools of buffers, must not fail a test.
const slack = 1.2

// TestBudget counts what a message costs: whoever makes one dearer has to say so
// in testdata/budget.txt. To write it anew: go test ./integration/bench -run
// TestBudget -update.
func TestBudget(t *testing.T) {
	if testbed.Race {
		t.Skip("the race detector allocates too; make test counts without it")
	}
	var all []count
	for _, part := range []struct {
		name  string
		count func(*testing.T) []count
	}{
		{"wire", countWire},
		{"daemon", countDaemon},
		{"shim", countShim},
		{"system calls", countSystemCalls},
	} {
		t.Run(part.name, func(t *testing.T) { all = append(all, part.count(t)...) })
	}
	if t.Failed() {
		return
	}
	if *updateFlag {
		writeBudget(t, all)
		return
	}
	budget := readBudget(t)
	for _, c := range all {
		most, known := budget[c.what]
		delete(budget, c.what)
		switch {
		case !known:
			t.Errorf("%s: %.1f, and %s has no line for it", c.what, c.n, budgetFile)
		case c.n > most:
			t.Errorf("%s: %.1f, and the budget is %.1f", c.what, c.n, most)
		default:
			t.Logf("%s: %.1f of %.1f", c.what, c.n, most)
		}
	}
	for what := range budget {
		t.Errorf("%s has a line for %q, which nothing counts", budgetFile, what)
	}
}

// count is how many of something there are.
type count struct {
	what string
	n    float64
}

func readBudget(t *testing.T) map[string]float64 {
	t.Helper()
	data, err := os.ReadFile(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		number, what, _ := strings.Cut(line, " ")
		if budget[strings.TrimSpace(what)], err = strconv.ParseFloat(number, 64); err != nil {
			t.Fatalf("%s: %v", budgetFile, err)
		}
	}
	return budget
}

func writeBudget(t *testing.T, all []count) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# What a message may cost, counted by TestBudget and written with its -update:\n# a fifth more than was counted.\n")
	for _, c := range all {
		most := math.Ceil(c.n * slack)
		switch {
		case strings.HasPrefix(c.what, "wire: "):
			most = c.n // nothing else runs meanwhile
		case c.n < 10:
			most = math.Ceil(c.n*slack*10) / 10
		}
		fmt.Fprintf(&text, "%-6g %s\n", most, c.what)
	}
	if err := os.WriteFile(budgetFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func countWire(t *testing.T) []count {
	request := modern.echo(1)
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}],"resultType":"complete"}}`)
	parsed := func(frame []byte) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, err := wire.Parse(frame); err != nil {
				t.Fatal(err)
			}
		})
	}
	message, err := wire.Parse(request)
	if err != nil {
		t.Fatal(err)
	}
	return []count{
		{"wire: allocations of a scan of a request", parsed(request)},
		{"wire: allocations of a scan of a response", parsed(answer)},
		{"wire: allocations of writing a request", testing.AllocsPerRun(100, func() { _ = message.Bytes() })},
	}
}

const (
	// countedCalls are enough that what happens once does not count.
	countedCalls = 2000
	// countedSessions are how many are attached to count what one has.
	countedSessions = 10
	countedBytes    = 1 << 20
)

// ways of a message through this process, which is one of the programs.
func countCalls(t *testing.T, who string, p *peer) []count {
	t.Helper()
	frames := make([][]byte, countedCalls)
	for id := range frames {
		frames[id] = legacy.echo(1 + id)
	}
	warm(t, p, legacy.echo)
	allocations, bytes := allocated(func() {
		for _, frame := range frames {
			p.call(t, frame)
		}
	})
	const times = 10
	big := legacy.tool(0, "big", fmt.Sprintf(`"n":%d`, countedBytes))
	p.call(t, big)
	// The client's own reading of it is not counted: it goes through a buffer.
	_, large := allocated(func() {
		for range times {
			p.send(t, big)
			for {
				if line, err := p.out.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
					if err != nil {
						t.Fatalf("%v after %d bytes", err, len(line))
					}
					break
				}
			}
		}
	})
	return []count{
		{who + ": allocations per small call", allocations / countedCalls},
		{who + ": bytes allocated per small call", bytes / countedCalls},
		{who + ": bytes allocated per byte of a large result", large / times / countedBytes},
	}
}

func allocated(do func()) (objects, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
}

// rawWorld is a project with the server that costs nothing.
func rawWorld(t *testing.T) (*world, project.Project) {
	t.Helper()
	program(t, "rawserver")
	w := newWorld(t)
	w.use(t, w.raw(t))
	t.Setenv("HOME", w.home) // where the state of what runs in this process is
	p, err := project.At(w.root)
	if err != nil {
		t.Fatal(err)
	}
	return w, p
}

// countDaemon has the daemon in this process, and shims of their own.
func countDaemon(t *testing.T) []count {
	w, p := rawWorld(t)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, daemon.Options{Project: p, Version: "bench", Environ: w.env}) }()
	t.Cleanup(func() {
		cancel(errors.New("the test is over"))
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the daemon", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	first := w.attach(t, legacy)
	defer first.end(t)
	counts := countCalls(t, "daemon", first)
	before := runtime.NumGoroutine()
	for range countedSessions {
		p := w.attach(t, legacy)
		defer p.end(t)
		mustSucceed(t, p.call(t, legacy.echo(1)))
	}
	return append(counts, count{"daemon: goroutines per client", float64(runtime.NumGoroutine()-before) / countedSessions})
}

// countShim has a shim in this process, and a daemon of its own.
func countShim(t *testing.T) []count {
	w, _ := rawWorld(t)
	w.do(t, "devproxyd", "start")
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	ended := make(chan error, 1)
	go func() {
		ended <- shim.Run(t.Context(), shim.Config{
			Stdin: stdin, Stdout: stdout, Stderr: io.Discard, ProjectDir: w.root, NoAutostart: true, Version: "bench", Environ: w.env,
		})
	}()
	p := &peer{command: &exec.Cmd{Path: "the shim"}, in: in, out: bufio.NewReaderSize(out, 64<<10), said: &tail{}}
	p.greet(t, legacy)
	counts := countCalls(t, "shim", p)
	counts = append(counts, count{"shim: goroutines", float64(runtime.NumGoroutine() - before - 1)}) // less the one that waits for it
	in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, file := range []*os.File{stdin, stdout, out} {
		file.Close()
	}
	return counts
}

// countSystemCalls counts the reads and writes of the real programs. What they
// wait with depends on how busy the machine is and is not counted.
func countSystemCalls(t *testing.T) []count {
	w, _ := rawWorld(t)
	p := w.attach(t, legacy)
	defer p.end(t)
	warm(t, p, legacy.echo)
	counts := make([]count, 0, 2)
	for _, program := range []struct {
		name string
		pid  int
	}{{"shim", p.pid()}, {"daemon", w.pid(t)}} {
		before := systemCalls(t, program.pid)
		for id := range countedCalls {
			p.call(t, legacy.echo(1+id))
		}
		n := float64(systemCalls(t, program.pid)-before) / countedCalls
		counts = append(counts, count{program.name + ": reads and writes per small call", n})
	}
	return counts
}
