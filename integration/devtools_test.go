//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// devStatus is what dev_server_status says, as far as tests ask.
type devStatus struct {
	State           string
	Message         string
	Generation      int
	PID             int
	Port            int
	UptimeSeconds   *float64
	Transport       string
	Command         []string
	ProtocolEra     *string
	ProtocolVersion *string
	EnvOverrides    map[string]string
	LastExit        *struct{ Status, Reason string }
}

func (c *client) devStatus(t *testing.T) devStatus {
	t.Helper()
	result := c.tool(t, "dev_server_status", nil)
	if result.IsError {
		t.Fatalf("%s: dev_server_status gave %+v", c.name, result)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result.StructuredContent, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"protocolEra", "protocolVersion"} {
		if members[name] == nil {
			t.Errorf("%s: dev_server_status has no member %s", c.name, name)
		}
	}
	return decode[devStatus](t, result.StructuredContent)
}

// The dev tools are there and truthful whatever the backend does.
func TestDevTools(t *testing.T) {
	for _, kind := range []string{"ts2-auto", "ts1", "go"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, "go-http"))
			c := p.client(t, kind)
			c.connect(t)

			idle := c.devStatus(t)
			if idle.State != "idle" || idle.Generation != 0 || idle.ProtocolEra != nil || idle.ProtocolVersion != nil ||
				idle.Transport != "http" || len(idle.Command) == 0 || !strings.Contains(idle.Message, "first request") {
				t.Errorf("while idle the status is %+v", idle)
			}
			p.wantStarts(t, 0)

			if result := c.tool(t, "dev_restart", object{"env": object{"MODE": "one"}}); result.IsError {
				t.Fatalf("dev_restart gave %+v", result)
			}
			c.wantText(t, "one", "env", object{"name": "MODE"})
			running := c.devStatus(t)
			if running.State != "running" || running.Generation != 1 || running.PID == 0 || running.Port == 0 ||
				running.ProtocolEra == nil || running.ProtocolVersion == nil || running.EnvOverrides["MODE"] != "one" {
				t.Errorf("while running the status is %+v", running)
			}

			// Omitted keeps the set, given replaces it, {} clears it.
			for _, step := range []struct {
				args       object
				mode, kind string
			}{
				{nil, "one", ""},
				{object{"env": object{"KIND": "two"}}, "", "two"},
				{object{"env": object{}}, "", ""},
			} {
				tool := "dev_restart"
				if step.args == nil {
					// An older name.
					tool = "dev_restart_debugger"
				}
				if result := c.tool(t, tool, step.args); result.IsError {
					t.Errorf("%s %v gave %+v", tool, step.args, result)
				}
				c.wantText(t, step.mode, "env", object{"name": "MODE"})
				c.wantText(t, step.kind, "env", object{"name": "KIND"})
			}
			p.wantStarts(t, 4)

			// There is no build command.
			if result := c.tool(t, "dev_rebuild_and_restart", nil); !result.IsError || !strings.Contains(result.text(), "build") {
				t.Errorf("dev_rebuild_and_restart gave %+v", result)
			}
			if result := c.tool(t, "dev_restart", object{"environment": object{}}); !result.IsError {
				t.Errorf("a misspelled argument gave %+v", result)
			}
			p.wantStarts(t, 4)

			if crashed := c.tool(t, "crash", nil); !crashed.IsError {
				t.Errorf("crash gave %+v", crashed)
			}
			p.awaitState(t, "running")
			logs := c.tool(t, "dev_logs", object{"source": "backend", "lines": 20})
			if logs.IsError || !strings.Contains(logs.text(), "crashing as told") {
				t.Errorf("dev_logs gave %+v", logs)
			}
			if after := c.devStatus(t); after.LastExit == nil || !strings.Contains(after.LastExit.Status, "7") {
				t.Errorf("after a crash the status is %+v", after)
			}
		})
	}
}

// A tool of the backend's that has a dev tool's name stays the backend's.
func TestBackendKeepsItsNames(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.rebuild(t, "dev_logs", "dev_own")
	c := p.client(t, "go")
	c.connect(t)
	tools := c.tools(t)
	if count := len(slices.DeleteFunc(slices.Clone(tools), func(name string) bool { return name != "dev_logs" })); count != 1 {
		t.Errorf("tools are %v, want dev_logs once", tools)
	}
	c.wantText(t, "dev_logs", "dev_logs", nil)
	c.wantText(t, "dev_own", "dev_own", nil)
	// A person is told whose it is, and that it hides one.
	if o := p.run(t, "devproxyctl", "tools", "--json"); strings.Contains(o.stdout[strings.LastIndex(o.stdout, `"devTools"`):], "dev_logs") {
		t.Errorf("dev_logs is said to be devproxy's: %s", o.stdout)
	}
	const hides = "hide devproxy's: dev_logs"
	for _, command := range []string{"status", "doctor"} {
		if o := p.run(t, "devproxyctl", command); !strings.Contains(o.stdout, hides) {
			t.Errorf("%s does not say that a tool is hidden:\n%s", command, o.stdout)
		}
	}
}

// The prefix of the dev tools is the project's to choose.
func TestToolPrefix(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"), `[proxy]`, `tool_prefix = "proxy_"`)
	c := p.client(t, "go")
	c.connect(t)
	tools := c.tools(t)
	if !slices.Contains(tools, "proxy_restart") || slices.Contains(tools, "dev_restart") {
		t.Errorf("tools are %v", tools)
	}
}

// eager starts the backend with the daemon; env_file and env reach it.
func TestEagerAndEnvironment(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	config, err := os.ReadFile(filepath.Join(p.root, "devproxy.toml"))
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "settings.env", "FROM_FILE=file\nBOTH=file\n")
	p.configure(t, strings.Replace(string(config), "env = {", "start = \"eager\"\nenv_file = \"settings.env\"\nenv = { BOTH = \"toml\",", 1))
	p.startDaemon(t)
	p.awaitState(t, "running")
	p.wantStarts(t, 1)
	c := p.client(t, "go")
	c.connect(t)
	for name, want := range map[string]string{"FROM_FILE": "file", "BOTH": "toml", "FROM_TERMINAL": "yes", "MCP_EXIT_ON_STDIN_CLOSE": "1"} {
		c.wantText(t, want, "env", object{"name": name})
	}
}

// Nobody drops the tools of a server that has many, and the dev tools come behind
// all of them.
func TestManyTools(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	var many []string
	for i := range 900 { // a page of the Go SDK has 1000, and not every client turns it
		many = append(many, fmt.Sprintf("tool%04d", i))
	}
	p.rebuild(t, many...)
	for _, kind := range []string{"ts2-auto", "ts1", "go"} {
		c := p.client(t, kind)
		c.connect(t)
		tools := c.tools(t)
		known := map[string]bool{}
		for _, tool := range tools {
			known[tool] = true
		}
		for _, want := range many {
			if !known[want] {
				t.Fatalf("%s sees %d tools, without %s", kind, len(tools), want)
			}
		}
		if tail := tools[max(0, len(tools)-len(devTools)):]; !slices.Equal(tail, devTools) {
			t.Errorf("%s: the last tools are %v, want %v", kind, tail, devTools)
		}
		c.wantText(t, many[len(many)-1], many[len(many)-1], nil)
	}
	p.wantStarts(t, 1)
}
