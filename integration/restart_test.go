//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// A rebuild reaches a session that goes on: it hears list_changed in its era's
// way, and sees the new tool.
func TestRebuildReachesTheSession(t *testing.T) {
	for _, name := range []string{"ts2-stdio", "go-http"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, name), `[watch]`, `paths = ["dist"]`, `settle = "100ms"`)
			p.rebuild(t)

			listening := newNodeClient(t, "ts2", object{"mode": "auto", "listChanged": true}, p.clientEnv(), p.shim(t)...)
			clients := []*client{p.client(t, "ts2-legacy"), p.client(t, "ts1"), p.client(t, "go"), p.client(t, "go-2025"), listening}
			for _, c := range clients {
				c.connect(t)
			}
			// The first start announces the lists too, to everybody.
			clients[0].tools(t)
			for _, c := range clients {
				awaitListChanged(t, c, "")
				c.forget()
			}
			p.rebuild(t, "shiny")
			for _, c := range clients {
				awaitListChanged(t, c, "shiny")
				if tools := c.tools(t); !slices.Contains(tools, "shiny") {
					t.Errorf("%s sees %v, without shiny", c.name, tools)
				}
				c.wantText(t, "shiny", "shiny", nil)
			}
			p.wantStarts(t, 2)
			if s := p.status(t); s.Backend.Generation != 2 || s.state() != "running" {
				t.Errorf("status is %+v", s.Backend)
			}
		})
	}
}

// awaitListChanged waits until a client heard that its tools changed; one whose
// SDK reads the list again by itself has to see the tool want in it.
func awaitListChanged(t *testing.T, c *client, want string) {
	t.Helper()
	changed := notification("notifications/tools/list_changed")
	c.await(t, "list_changed", func(e event) bool {
		return changed(e) || e.Event == "listChanged" && e.Kind == "tools" && (want == "" || slices.Contains(e.Names, want))
	})
}

// tsProject is a TypeScript project whose dist a real compiler writes.
func newTSProject(t *testing.T) *project {
	t.Helper()
	p := newProject(t)
	node := nodeDir(t)
	if err := os.CopyFS(p.root, os.DirFS(filepath.Join(node, "tsproject"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(node, "node_modules"), filepath.Join(p.root, "node_modules")); err != nil {
		t.Fatal(err)
	}
	p.configure(t, fmt.Sprintf("[backend]\ncommand = \"node dist/index.js\"\ntransport = \"stdio\"\nenv = { FIXTURE_STARTS = %q }\n"+
		"[build]\ncommand = \"npm run build\"\n[watch]\npaths = [\"dist\"]\nignore = [\"**/*.map\"]\n", p.startsFile()))
	return p
}

// tsc compiles the project as `npm run build` does.
func (p *project) tsc(t *testing.T) {
	t.Helper()
	command := exec.Command("node", "node_modules/.bin/tsc", "-p", ".")
	command.Dir = p.root
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, output)
	}
}

func (p *project) writeTools(t *testing.T, tools string) {
	t.Helper()
	p.write(t, "src/tools.ts", "export const tools: Record<string, string> = "+tools+";\n")
}

// A dist folder that a real compiler writes, removes and writes again: one
// restart for each changed result, none for the same.
func TestRealCompiler(t *testing.T) {
	t.Parallel()
	p := newTSProject(t)
	c := p.client(t, "ts1")
	c.connect(t)

	// Nothing is started before the first build has written the entry file;
	// the request waits for it.
	first := c.begin(t, "listTools", nil)
	waiting := p.awaitStatus(t, "the missing entry in the status", func(s status) bool { return s.Watch.EntryMissing })
	if !strings.Contains(waiting.Watch.Entry, "index.js") {
		t.Errorf("the status names the entry %q", waiting.Watch.Entry)
	}
	p.wantStarts(t, 0)
	p.tsc(t)
	if tools, err := first.wait(t); err != nil || !strings.Contains(string(tools), `"first"`) {
		t.Fatalf("the request that waited for the build gave %s, %v", tools, err)
	}
	p.wantStarts(t, 1)

	// A changed source.
	c.forget()
	p.writeTools(t, `{ first: 'one', second: 'two' }`)
	p.tsc(t)
	c.awaitNotification(t, "notifications/tools/list_changed")
	c.wantText(t, "two", "second", nil)
	p.wantStarts(t, 2)

	// A clean build, as many projects do it.
	c.forget()
	p.writeTools(t, `{ first: 'one', third: 'three' }`)
	if err := os.RemoveAll(filepath.Join(p.root, "dist")); err != nil {
		t.Fatal(err)
	}
	p.tsc(t)
	c.awaitNotification(t, "notifications/tools/list_changed")
	c.wantText(t, "three", "third", nil)
	p.wantStarts(t, 3)

	// The same again changes times but no content; only the build after it
	// restarts anything.
	p.tsc(t)
	if err := os.RemoveAll(filepath.Join(p.root, "dist")); err != nil {
		t.Fatal(err)
	}
	p.tsc(t)
	c.forget()
	p.writeTools(t, `{ fourth: 'four' }`)
	p.tsc(t)
	c.awaitNotification(t, "notifications/tools/list_changed")
	c.wantText(t, "four", "fourth", nil)
	p.wantStarts(t, 4)
}

// The build command: its output is shown, a failure leaves the backend alone,
// and both ways to ask for it do the same.
func TestRebuildCommand(t *testing.T) {
	t.Parallel()
	p := newTSProject(t)
	p.tsc(t)
	p.startDaemon(t)
	c := p.client(t, "ts2-auto")
	c.connect(t)
	c.wantText(t, "one", "first", nil)
	pid := p.status(t).Backend.PID

	p.write(t, "src/tools.ts", "export const tools: Record<string, string> = { first: 1 };\n")
	failed := p.run(t, "devproxyctl", "restart", "--rebuild")
	if failed.code == 0 || !strings.Contains(failed.stdout+failed.stderr, "TS2322") {
		t.Errorf("a build that fails gave %v", failed)
	}
	result := c.tool(t, "dev_rebuild_and_restart", nil)
	if !result.IsError || !strings.Contains(result.text(), "TS2322") {
		t.Errorf("a build that fails gave %+v", result)
	}
	s := p.status(t)
	if s.Backend.PID != pid || s.Build == nil || s.Build.OK {
		t.Errorf("after failed builds the status is %+v, build %+v", s.Backend, s.Build)
	}
	c.wantText(t, "one", "first", nil)

	p.writeTools(t, `{ first: 'uno' }`)
	rebuilt := p.mustRun(t, "devproxyctl", "restart", "--rebuild")
	if !strings.Contains(rebuilt.stdout+rebuilt.stderr, "tsc -p .") {
		t.Errorf("restart --rebuild does not show the build: %v", rebuilt)
	}
	c.wantText(t, "uno", "first", nil)
	p.wantStarts(t, 2)

	p.writeTools(t, `{ first: 'eins' }`)
	if result := c.tool(t, "dev_restart", object{"rebuild": true}); result.IsError {
		t.Errorf("dev_restart with rebuild gave %+v", result)
	}
	c.wantText(t, "eins", "first", nil)
	// What the build wrote restarts nothing a second time.
	p.wantStarts(t, 3)
	if build := p.ctl(t, "logs", "--source", "build"); !strings.Contains(build, "TS2322") {
		t.Errorf("the build log is %s", build)
	}
}

// A call in flight when its generation dies is answered at once with what
// happened; the next one waits for the restart and succeeds.
func TestCallInFlight(t *testing.T) {
	// From the moment the stop begins or the exit is seen; a person's command
	// to restart takes its time too.
	limit := time.Second
	if testbed.Race {
		limit *= 3
	}
	for _, name := range []string{"go-stdio", "ts1-http", "ts2-http"} {
		for end, test := range map[string]struct {
			// die begins the end of a generation and returns how to wait for
			// what began it.
			die  func(*testing.T, *project, int) (wait func() error)
			says string
		}{
			"restart": {func(t *testing.T, p *project, _ int) func() error {
				command := exec.Command(program(t, "devproxyctl"), "restart")
				command.Dir, command.Env = p.root, p.terminalEnv()
				if err := command.Start(); err != nil {
					t.Fatal(err)
				}
				return command.Wait
			}, "restart"},
			"crash": {func(t *testing.T, _ *project, backend int) func() error {
				if err := syscall.Kill(backend, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				return func() error { return nil }
			}, "SIGKILL"},
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				t.Parallel()
				p := newProject(t)
				p.use(t, backendNamed(t, name))
				modern, legacy := p.client(t, "ts2-auto"), p.client(t, "ts1")
				var calls []*call
				for _, c := range []*client{modern, legacy} {
					c.connect(t)
					args := toolCall("slow", object{"ms": 60_000, "steps": 1000})
					args["progress"] = true
					calls = append(calls, c.begin(t, "callTool", args))
					c.await(t, "progress", func(e event) bool { return e.Event == "progress" })
				}
				backend := int(p.status(t).Backend.PID)
				began := time.Now()
				wait := test.die(t, p, backend)
				for _, running := range calls {
					if _, _ = running.wait(t); time.Since(began) > limit {
						t.Errorf("a call was answered %v after the death, want less than %v", time.Since(began), limit)
					}
				}
				if err := wait(); err != nil {
					t.Errorf("devproxyctl restart: %v", err)
				}
				for i, c := range []*client{modern, legacy} {
					result, err := calls[i].wait(t)
					if err != nil {
						t.Errorf("%s: the call failed with %v, want a result with isError", c.name, err)
						continue
					}
					if got := decode[toolResult](t, result); !got.IsError || !strings.Contains(got.text(), test.says) {
						t.Errorf("%s: the call gave %s, want an error that says %s", c.name, result, test.says)
					}
					c.wantText(t, "on we go", "echo", object{"text": "on we go"})
				}
				p.wantStarts(t, 2)
				if s := p.status(t); s.Backend.LastExit == nil || s.Backend.LastExit.Generation != 1 {
					t.Errorf("status is %+v", s.Backend)
				}
			})
		}
	}
}

// A crash inside a call: the model reads what happened, can ask for the last
// words of the server, and the session goes on.
func TestCrash(t *testing.T) {
	for _, name := range []string{"go-stdio", "ts2-stdio", "ts1-http"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, name))
			c := p.client(t, "ts2-auto")
			c.connect(t)
			c.tools(t)
			result := c.tool(t, "crash", nil)
			if !result.IsError || !strings.Contains(result.text(), "status 7") {
				t.Errorf("crash gave %+v, want the exit code", result)
			}
			if status := c.tool(t, "dev_server_status", nil); !strings.Contains(status.text(), "crashing as told") {
				t.Errorf("dev_server_status gave %+v, want the last words of the server", status)
			}
			c.wantText(t, "back", "echo", object{"text": "back"})
			p.wantStarts(t, 2)
			if s := p.status(t); s.state() != "running" || s.Backend.LastExit == nil || !strings.Contains(s.Backend.LastExit.Status, "7") {
				t.Errorf("status is %+v", s.Backend)
			}
		})
	}
}

// A backend that crashes again and again is given up, says so, and gets
// another chance when its files change.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"), `[watch]`, `paths = ["dist"]`, `settle = "100ms"`)
	c := p.client(t, "go")
	c.connect(t)
	c.tools(t)
	given := p.awaitStatus(t, "the end of restarts", func(s status) bool {
		if s.state() == "running" {
			if err := syscall.Kill(int(s.Backend.PID), syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				t.Fatal(err)
			}
		}
		return s.state() == "failed"
	})
	if given.Backend.Message == "" || given.Backend.Crashes < 2 {
		t.Errorf("status is %+v", given.Backend)
	}
	starts := p.starts(t)
	// Given up: a request does not start it again, and hears why.
	result := c.tool(t, "echo", object{"text": "x"})
	if !result.IsError || !strings.Contains(result.text(), "crash") {
		t.Errorf("echo gave %+v", result)
	}
	if tools := c.tools(t); !slices.Equal(tools, devTools) {
		t.Errorf("tools are %v, want the dev tools alone", tools)
	}
	p.wantStarts(t, starts)

	c.forget()
	p.rebuild(t, "mended")
	c.awaitNotification(t, "notifications/tools/list_changed")
	c.wantText(t, "mended", "mended", nil)
	p.wantStarts(t, starts+1)
}
