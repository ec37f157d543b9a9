//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// example is a project of examples/, and what a newcomer does with it.
type example struct {
	folder string
	// build builds it; none where saving is enough.
	build []string
	// client is a kind of client, and era what the server is known to speak once
	// that one has come.
	client, era string
	// tool is called with these arguments of call.
	tool string
	args []string
	want string
	// source has a text that the tool's result shows, and it is changed to another.
	source, before, after string
	// ready is what the server writes to stderr.
	ready string
}

var examples = []example{
	{
		folder: "typescript", build: []string{"npm", "run", "build"}, client: "ts1", era: "legacy",
		tool: "greet", args: []string{"--arg", "name=you"}, want: "Hello, you!",
		source: "src/greet.ts", before: "Hello", after: "Welcome", ready: "notes: ready",
	},
	{
		folder: "go", build: []string{"go", "build", "-o", "bin/dice", "."}, client: "ts2-auto", era: "modern+legacy",
		tool: "roll", args: []string{"--arg", "sides=1", "--arg", "times=2"}, want: "rolled [1 1]",
		source: "main.go", before: "rolled %v", after: "it fell %v", ready: "dice: ready",
	},
	{
		folder: "http", client: "ts2-auto", era: "legacy",
		tool: "add", args: []string{"--arg", "by=2"}, want: "The counter stands at 2.",
		source: "src/describe.js", before: "stands at", after: "has come to", ready: "counter: listens on port",
	},
}

// newExample copies an example to a project of its own, with the packages that
// the tests have installed already.
func newExample(t *testing.T, e example) *project {
	t.Helper()
	p := newProject(t)
	if err := os.CopyFS(p.root, os.DirFS(filepath.Join(moduleRoot, "examples", e.folder))); err != nil {
		t.Fatal(err)
	}
	if ignored, err := os.ReadFile(filepath.Join(p.root, ".gitignore")); err != nil || !strings.Contains(string(ignored), "\n.mcp.json\n") {
		t.Errorf("whoever copies the example commits what register writes: %v", err)
	}
	if _, err := os.Stat(filepath.Join(p.root, "package.json")); err == nil {
		if err := os.Symlink(filepath.Join(nodeDir(t), "node_modules"), filepath.Join(p.root, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// make builds an example with the tools of who runs the tests, whose caches are
// in their home.
func (p *project) make(t *testing.T, command ...string) {
	t.Helper()
	if len(command) == 0 {
		return
	}
	c := exec.Command(command[0], command[1:]...)
	c.Dir = p.root
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, output)
	}
}

// edit changes a text of a source file.
func (p *project) edit(t *testing.T, name, before, after string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(p.root, name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(source, []byte(before)) {
		t.Fatalf("%s has no %q", name, before)
	}
	p.write(t, name, strings.ReplaceAll(string(source), before, after))
}

// keys are the lines of a devproxy.toml that decide something.
func keys(toml string) []string {
	var lines []string
	for line := range strings.Lines(toml) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '[' {
			lines = append(lines, line)
		}
	}
	return lines
}

// The examples are what a newcomer meets first, so each does all that its README
// says, and all else that one would try.
func TestExamples(t *testing.T) {
	for _, e := range examples {
		t.Run(e.folder, func(t *testing.T) {
			t.Parallel()
			p := newExample(t, e)

			committed, err := os.ReadFile(filepath.Join(p.root, "devproxy.toml"))
			if err != nil {
				t.Fatal(err)
			}
			if decided := p.ctl(t, "init", "--dry-run"); !slices.Equal(keys(decided), keys(string(committed))) {
				t.Errorf("init would decide\n%s\nand devproxy.toml says\n%s", decided, committed)
			}
			p.make(t, e.build...)

			printed := p.ctl(t, "register", "claude-code", "--print")
			p.ctl(t, "register", "claude-code")
			written, err := os.ReadFile(filepath.Join(p.root, ".mcp.json"))
			if err != nil || string(written) != printed {
				t.Errorf(".mcp.json is %s, %v, and --print says %s", written, err, printed)
			}
			var registered struct {
				Servers map[string]struct {
					Command string   `json:"command"`
					Args    []string `json:"args"`
				} `json:"mcpServers"`
			}
			if err := json.Unmarshal(written, &registered); err != nil || len(registered.Servers) != 1 {
				t.Fatalf(".mcp.json has %v, %v", registered.Servers, err)
			}

			// The client starts what it was told, and that starts the daemon.
			var c *client
			for _, entry := range registered.Servers {
				c = clientNamed(t, e.client).make(t, p.clientEnv(), append([]string{entry.Command}, entry.Args...)...)
			}
			c.connect(t)
			if tools := c.tools(t); !slices.Contains(tools, e.tool) {
				t.Errorf("the client has the tools %v, without %s", tools, e.tool)
			}
			call := append([]string{"call", e.tool}, e.args...)
			if got := strings.TrimSpace(p.ctl(t, call...)); got != e.want {
				t.Errorf("%v gave %q, want %q", call, got, e.want)
			}
			if tools := p.ctl(t, "tools"); !strings.Contains(tools, e.tool) || !strings.Contains(tools, "dev_restart") {
				t.Errorf("the tools are\n%s", tools)
			}
			s := p.status(t)
			if s.state() != "running" || s.Backend.Generation != 1 || s.Backend.ProtocolEra != e.era || len(s.Sessions) != 1 {
				t.Errorf("the status is %+v with %d clients", s.Backend, len(s.Sessions))
			}
			if shown := p.ctl(t, "status"); !strings.Contains(shown, "running") {
				t.Errorf("status shows\n%s", shown)
			}

			// A changed source is served to the same client.
			c.forget()
			p.edit(t, e.source, e.before, e.after)
			p.make(t, e.build...)
			p.awaitStatus(t, "the restart", func(s status) bool { return s.Backend.Generation == 2 && s.state() == "running" })
			if e.client == "ts1" { // which hears of it without listening
				c.awaitNotification(t, "notifications/tools/list_changed")
			}
			want := strings.Replace(e.want, strings.TrimSuffix(e.before, " %v"), strings.TrimSuffix(e.after, " %v"), 1)
			if got := strings.TrimSpace(p.ctl(t, call...)); got != want {
				t.Errorf("after the change %v gave %q, want %q", call, got, want)
			}
			if tools := c.tools(t); !slices.Contains(tools, e.tool) {
				t.Errorf("after the change the client has the tools %v, without %s", tools, e.tool)
			}
			p.awaitLog(t, "backend", e.ready, 2)

			p.ctl(t, "stop")
			if s := p.status(t); s.state() != "idle" {
				t.Errorf("after the stop the server is %s", s.state())
			}
			p.ctl(t, "unregister", "claude-code")
			if s := p.mustRun(t, "devproxyd", "stop").stdout; !strings.Contains(s, "stopped") {
				t.Errorf("devproxyd stop says %q", s)
			}
		})
	}
}

// With a compiler that the daemon keeps running, a save is all that a person does.
func TestExampleIsWatched(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm:", err)
	}
	e := examples[0]
	p := newExample(t, e)
	p.edit(t, "devproxy.toml", "[build]", "[build]\nwatch = \"npm run watch\"")
	p.startDaemon(t)
	call := append([]string{"call", e.tool}, e.args...)
	if got := strings.TrimSpace(p.ctl(t, call...)); got != e.want {
		t.Errorf("%v gave %q, want %q", call, got, e.want)
	}
	p.edit(t, e.source, e.before, e.after)
	p.awaitStatus(t, "the restart", func(s status) bool { return s.Backend.Generation == 2 && s.state() == "running" })
	if got, want := strings.TrimSpace(p.ctl(t, call...)), strings.Replace(e.want, e.before, e.after, 1); got != want {
		t.Errorf("after the change %v gave %q, want %q", call, got, want)
	}
}
