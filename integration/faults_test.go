//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// misbehave configures the project for the fixture that does wrong what its
// flags and the names of the tools that are called say.
func (p *project) misbehave(t testing.TB, transport string, flags ...string) {
	t.Helper()
	p.configure(t, p.misbehaving(t, transport, flags...))
}

func (p *project) misbehaving(t testing.TB, transport string, flags ...string) string {
	t.Helper()
	command := append([]string{fixture(t, "badserver")}, flags...)
	if transport != "stdio" {
		command = append(command, "-port", "{port}")
	}
	toml := fmt.Sprintf("[backend]\ncommand = %s\ntransport = %q\nstop_timeout = \"300ms\"\nenv = { FIXTURE_STARTS = %q }\n",
		tomlStrings(append(command, transport)), transport, p.startsFile())
	if transport == "sse" {
		toml += "path = \"/sse\"\n"
	}
	return toml
}

// callTool sends a tools/call without waiting for its answer.
func (c *rawClient) callTool(t testing.TB, id int, name string) {
	t.Helper()
	c.send(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, name)
}

// awaitTool waits for the answer to a tools/call.
func (c *rawClient) awaitTool(t testing.TB, id int) toolResult {
	t.Helper()
	answer := c.awaitID(t, fmt.Sprint(id))
	if answer.Error != nil {
		t.Fatalf("the call got %s, want a result", answer.line)
	}
	return decode[toolResult](t, answer.Result)
}

// wantTool calls a tool that answers with its own name.
func (c *rawClient) wantTool(t testing.TB, id int, name string) {
	t.Helper()
	c.callTool(t, id, name)
	if got := c.awaitTool(t, id); got.IsError || got.text() != name {
		t.Fatalf("tool %s gave %.200v", name, got)
	}
}

// wantNothingMore fails the test for whatever came besides the answers that were
// waited for and the announcement of lists that changed.
func (c *rawClient) wantNothingMore(t testing.TB) {
	t.Helper()
	c.send(t, `{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	c.awaitID(t, `"last"`)
	for _, line := range c.unread {
		if !strings.Contains(line, `/list_changed"`) {
			t.Errorf("the client also heard %.300s", line)
		}
	}
}

// deathLimit is how long after a death the calls in flight are answered.
func deathLimit() time.Duration {
	if testbed.Race {
		return 3 * time.Second
	}
	return time.Second
}

// A backend that is killed in the middle of an answer: the call gets the one
// answer that says so, in time, and nothing of the half that came.
func TestDeathInTheMiddleOfAnAnswer(t *testing.T) {
	const size = 8 << 20
	for _, test := range []struct{ transport, fault, start string }{
		{"stdio", "torn", ""}, {"stdio", "torn", "holder"}, {"http", "torn", ""}, {"http", "torn-event", ""},
		{"http", "torn-close-event", ""}, {"http", "hang", "holder"}, {"sse", "torn", ""},
	} {
		t.Run(strings.TrimSuffix(test.transport+"/"+test.fault+"/"+test.start, "/"), func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.misbehave(t, test.transport, "-at", "start="+test.start)
			c := p.raw(t)
			c.initialize(t)
			c.wantTool(t, 1, "ok")
			c.callTool(t, 2, fmt.Sprintf("%s:%d", test.fault, size))
			p.awaitLog(t, "backend", map[bool]string{true: "hanging as told", false: "torn after"}[test.fault == "hang"], 1)
			if err := syscall.Kill(p.startedPIDs(t)[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			got := c.awaitTool(t, 2)
			if took := time.Since(killed); took > deathLimit() {
				t.Errorf("answered %v after the death", took)
			}
			if !got.IsError || !strings.Contains(got.text(), "SIGKILL") {
				t.Errorf("the call gave %.300v, want an error that says how it ended", got)
			}
			c.wantTool(t, 3, "ok")
			c.wantNothingMore(t)
			p.wantStarts(t, 2)
		})
	}
}

// What a backend answered in full before it ended is delivered, however large it
// is and however fast the end came.
func TestAnswerBeforeTheEnd(t *testing.T) {
	size := 4 << 20
	if testbed.Race {
		size = 256 << 10 // the detector makes reading many times slower
	}
	for _, transport := range []string{"stdio", "http", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.misbehave(t, transport)
			c := p.raw(t)
			c.initialize(t)
			c.wantTool(t, 1, "ok")
			c.callTool(t, 2, fmt.Sprintf("large-exit:%d", size))
			if got := c.awaitTool(t, 2); got.IsError || len(got.text()) != size {
				t.Errorf("the call gave %.300v, want %d bytes", got, size)
			}
			c.wantTool(t, 3, "ok")
			c.wantNothingMore(t)
		})
	}
}

// Answers that nobody asked for, or no more, reach nobody: a second one to the
// same request, some to requests that never were, one to a cancelled request.
// A batch is taken apart. Whatever else is on stdout goes to the log.
func TestStrayAnswers(t *testing.T) {
	for _, transport := range []string{"stdio", "http", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.misbehave(t, transport)
			c, other := p.raw(t), p.raw(t)
			for _, c := range []*rawClient{c, other} {
				c.initialize(t)
				c.wantTool(t, 1, "ok")
			}
			c.wantTool(t, 2, "twice")
			c.wantTool(t, 3, "never-asked")
			c.wantTool(t, 4, "batch")
			if transport == "stdio" {
				c.wantTool(t, 5, "noise")
				for _, line := range []string{"=== bad-fixture 0.0 ===", `{"level":"info","id":1,`, `"result":`, "done in 3 ms"} {
					p.awaitLog(t, "backend", line, 1)
				}
			}
			c.callTool(t, 6, "late")
			p.awaitLog(t, "backend", "waiting for a cancellation", 1)
			c.send(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`)
			p.awaitLog(t, "backend", "answered too late", 1)
			for _, c := range []*rawClient{c, other} {
				c.wantTool(t, 7, "ok")
				c.wantNothingMore(t)
			}
			p.wantStarts(t, 1)
		})
	}
}

// A server that has forgotten its sessions, and says so in one of the ways that
// were seen, is asked for another one, and once more for what it did not do.
func TestForgottenSessions(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.misbehave(t, "http")
	c := p.raw(t)
	c.initialize(t)
	for i, status := range []int{404, 400, 503} {
		c.wantTool(t, 2*i, fmt.Sprintf("forget:%d", status))
		c.wantTool(t, 2*i+1, "ok")
	}
	c.wantNothingMore(t)
	p.wantStarts(t, 1)
}

// A backend that closes one of its pipes but lives on has ended for its clients:
// the call in flight is told so in time, and the next one is served by another
// generation.
func TestClosedPipes(t *testing.T) {
	for fault, want := range map[string]string{"mute": "closed its stdout", "deaf": "closed its stdin"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.misbehave(t, "stdio", "-at", "EOF=hang")
			c := p.raw(t)
			c.initialize(t)
			if fault == "deaf" {
				// Nobody can know before something is written to it.
				c.wantTool(t, 2, fault)
				p.awaitLog(t, "backend", "staying in spite of the end of input", 1)
			}
			began := time.Now()
			c.callTool(t, 3, fault)
			got := c.awaitTool(t, 3)
			if took := time.Since(began); took > deathLimit() {
				t.Errorf("answered after %v", took)
			}
			if !got.IsError || !strings.Contains(got.text(), want) {
				t.Errorf("the call gave %v, want an error that says it %s", got, want)
			}
			c.wantTool(t, 4, "ok")
			c.wantNothingMore(t)
			p.wantStarts(t, 2)
		})
	}
}

// What goes wrong at a start is told to whoever waits for it, once, and nothing
// of it is left.
func TestFaultyStarts(t *testing.T) {
	for name, test := range map[string]struct {
		transport string
		flags     []string
		more      string // of the [backend] section
		want      []string
	}{
		"exits during the handshake":           {"stdio", []string{"-at", "initialize=exit:5", "-at", "server/discover=exit:5"}, "", []string{"exited with status 5", "exiting as told"}},
		"exits during the handshake over HTTP": {"http", []string{"-at", "initialize=exit:5"}, "", []string{"exited with status 5", "exiting as told"}},
		"never healthy":                        {"http", []string{"-at", "health=hang"}, "start_timeout = \"1500ms\"\nhealth = \"/health\"", []string{"not ready within 1.5s", "waited for GET", "hanging as told"}},
		"never answers":                        {"http", []string{"-at", "initialize=hang"}, `start_timeout = "1500ms"`, []string{"not ready within 1.5s", "waited for the handshake"}},
		"a daemon":                             {"http", []string{"-at", "start=daemon"}, "", []string{"exited with status 0", "in the foreground"}},
		"a daemon on the pipes":                {"stdio", []string{"-at", "start=daemon"}, "", []string{"exited with status 0", "in the foreground"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.configure(t, p.misbehaving(t, test.transport, test.flags...)+test.more+"\n")
			c := p.raw(t)
			c.initialize(t)
			c.callTool(t, 1, "ok")
			got := c.awaitTool(t, 1)
			for _, want := range test.want {
				if !got.IsError || !strings.Contains(got.text(), want) {
					t.Errorf("the call gave %v, want an error with %q", got, want)
				}
			}
			starts := p.starts(t)
			c.callTool(t, 2, "ok")
			if again := c.awaitTool(t, 2); !again.IsError {
				t.Errorf("the second call gave %v", again)
			}
			c.wantNothingMore(t)
			p.wantStarts(t, starts)
			p.awaitState(t, "failed")
			if left := p.liveNamed(t, fixture(t, "badserver")); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}

// A stop during a start, of the backend or of the daemon, answers who waits for it
// and leaves nothing of it.
func TestStopDuringAStart(t *testing.T) {
	for name, test := range map[string]struct {
		program   string
		transport string
		fault     string
		waiting   string // in the status
		want      string
	}{
		"waiting for the port":           {"devproxyctl", "http", "start=hang", "waiting for port", "the backend was stopped"},
		"negotiating":                    {"devproxyctl", "stdio", "initialize=hang", "waiting for its answer", "the backend was stopped"},
		"negotiating over HTTP":          {"devproxyd", "http", "initialize=hang", "waiting for the handshake", "shutting down"},
		"waiting for the port, shutdown": {"devproxyd", "http", "start=hang", "waiting for port", "shutting down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.misbehave(t, test.transport, "-at", test.fault)
			c := p.raw(t)
			c.initialize(t)
			c.callTool(t, 1, "ok")
			p.awaitStatus(t, test.waiting, func(s status) bool { return strings.Contains(s.Backend.Message, test.waiting) })
			p.mustRun(t, test.program, "stop")
			if left := p.backends(t); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if got := c.awaitTool(t, 1); !got.IsError || !strings.Contains(got.text(), test.want) {
				t.Errorf("the call gave %v, want an error that says %q", got, test.want)
			}
			c.wantNothingMore(t)
		})
	}
}

// A million lines a second on stderr cost the daemon no memory and its clients
// nothing that they would notice, and a stop is a stop.
func TestFloodOfOutput(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.misbehave(t, "stdio")
	flooded, other := p.raw(t), p.raw(t)
	for _, c := range []*rawClient{flooded, other} {
		c.initialize(t)
		c.wantTool(t, 1, "ok")
	}
	daemon := int(p.status(t).Daemon.PID)
	flooded.wantTool(t, 2, "flood:1000000")
	const long = time.Second
	began, before := time.Now(), cpuTime(t, daemon)
	for id := 3; time.Since(began) < long; id++ {
		for _, c := range []*rawClient{flooded, other} {
			asked := time.Now()
			c.wantTool(t, id, "ok")
			if took := time.Since(asked); took > 3*time.Second {
				t.Errorf("a call took %v", took)
			}
		}
	}
	// One reader of the output has no more than one processor, nor has the rest.
	if used, passed := cpuTime(t, daemon)-before, time.Since(began); used > 3*passed/2 {
		t.Errorf("the daemon used %v of processor time in %v", used, passed)
	}
	if used := peakMemory(t, daemon); used > 256<<20 {
		t.Errorf("the daemon used %d MiB", used>>20)
	}
	began = time.Now()
	p.ctl(t, "stop")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	other.wantTool(t, 1_000_000, "ok")
}

// cpuTime is the processor time that a process has used, 0 where the system does
// not tell.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	var ticks time.Duration
	for _, field := range fields[12:14] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * time.Second / 100
}

// peakMemory is the most bytes that a process has had in memory, 0 where the
// system does not tell or the process has ended.
func peakMemory(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		return 0 // it has ended, and nobody has asked how
	}
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A backend behind a wrapper ends as a whole: with its wrapper, and at a stop.
func TestWrappers(t *testing.T) {
	const uv = "#!/bin/sh\nshift\nexec 3<&0\n\"$@\" <&3 &\nwait $!\n" // as long as it is not installed
	for name, test := range map[string]struct {
		transport string
		command   func(t *testing.T, p *project, server string) []string
	}{
		"npm run": {"stdio", func(t *testing.T, p *project, server string) []string {
			p.write(t, "package.json", fmt.Sprintf(`{"name":"x","version":"1.0.0","scripts":{"serve":%q}}`, server))
			return []string{"npm", "run", "serve"}
		}},
		"npx": {"http", func(t *testing.T, p *project, server string) []string {
			p.write(t, "package.json", `{"name":"x","version":"1.0.0"}`)
			p.script(t, "node_modules/.bin/served", "#!/bin/sh\n"+server+"\n")
			return []string{"npx", "--no", "served"}
		}},
		"uv run": {"stdio", func(t *testing.T, p *project, server string) []string {
			if path, err := exec.LookPath("uv"); err == nil {
				return append([]string{path, "run", "--no-project", "--offline"}, strings.Fields(server)...)
			}
			p.script(t, "uv", uv)
			return append([]string{"./uv", "run"}, strings.Fields(server)...)
		}},
		"sh -c": {"http", func(_ *testing.T, _ *project, server string) []string {
			return []string{"sh", "-c", server + "; true"}
		}},
		"sh -c exec": {"stdio", func(_ *testing.T, _ *project, server string) []string {
			return []string{"sh", "-c", "exec " + server}
		}},
		"a session of its own": {"http", func(_ *testing.T, _ *project, server string) []string {
			return strings.Fields(strings.Replace(server, " -at ", " -at start=detached -at ", 1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(name, "np") {
				nodeDir(t) // or there is no npm
			}
			p := newProject(t)
			// The fixture takes its port from the environment. It ignores the end of
			// its input, as most servers do.
			server := fixture(t, "badserver") + " -at EOF=hang " + test.transport
			p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = %q\nport = 0\nstop_timeout = \"500ms\"\nenv = { FIXTURE_STARTS = %q }\n",
				tomlStrings(test.command(t, p, server)), test.transport, p.startsFile()))
			c := p.raw(t)
			c.initialize(t)
			c.wantTool(t, 1, "ok")
			first := p.backends(t)
			leader := int(p.status(t).Backend.PID)
			if len(first) < 2 && name != "sh -c exec" {
				t.Errorf("there is no wrapper: %v", first)
			}
			if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.awaitStarts(t, 2)
			for _, old := range first {
				if alive(t, old.PID) {
					t.Errorf("process %d of generation 1 is alive: %s", old.PID, old.Command)
				}
			}
			c.wantTool(t, 2, "ok")
			p.ctl(t, "stop")
			if left := p.backends(t); len(left) > 0 {
				t.Errorf("processes are left after a stop: %v", left)
			}
			c.wantNothingMore(t)
		})
	}
}

// script writes a program of the project.
func (p *project) script(t testing.TB, name, content string) {
	t.Helper()
	p.write(t, name, content)
	if err := os.Chmod(filepath.Join(p.root, name), 0o755); err != nil {
		t.Fatal(err)
	}
}

// backends returns the live processes of the project's backend.
func (p *project) backends(t testing.TB) []testbed.Process {
	t.Helper()
	return slices.DeleteFunc(p.live(t), func(live testbed.Process) bool {
		_, marked := live.Variable("DEVPROXY_BACKEND")
		return !marked
	})
}
