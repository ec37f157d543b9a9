//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tinyServer is an MCP server that needs nothing but Node. Its build copies it.
const tinyServer = `
import { createInterface } from "node:readline";
const results = {
  initialize: () => ({ protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "weather", version: "1" } }),
  ping: () => ({}),
  "tools/list": () => ({ tools: [{ name: "TOOL", inputSchema: { type: "object" } }] }),
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = results[method]?.();
  const error = result ? undefined : { code: -32601, message: "unknown method " + method };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result, error }) + "\n");
});
`

// What a person does who has a server and devproxy, and nothing else: init, build,
// register. What comes out works, and is watched.
func TestFromNothingToTools(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm:", err)
	}
	p := newProject(t)
	p.write(t, "package.json", `{"name": "weather", "type": "module", "bin": "dist/server.js", "scripts": {"build": "node build.mjs"}}`)
	p.write(t, "build.mjs", `import { cpSync } from "node:fs"; cpSync("src", "dist", { recursive: true });`)
	p.write(t, "src/server.js", strings.Replace(tinyServer, "TOOL", "forecast", 1))
	if said := p.ctl(t, "init"); !strings.Contains(said, "npm run build") {
		t.Errorf("init says\n%s", said)
	}
	p.startDaemon(t)
	p.ctl(t, "restart", "--rebuild")
	for _, client := range []string{"claude-code", "codex"} {
		p.ctl(t, "register", client)
	}
	var file struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}
	written, err := os.ReadFile(filepath.Join(p.root, ".mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	if printed := p.ctl(t, "register", "claude-code", "--print"); printed != string(written) {
		t.Errorf("--print shows\n%s\nand this is written\n%s", printed, written)
	}
	if err := json.Unmarshal(written, &file); err != nil || len(file.MCPServers) != 1 {
		t.Fatalf("%v\n%s", err, written)
	}
	for _, server := range file.MCPServers {
		c := newRawClient(t, p.clientEnv(), append([]string{server.Command}, server.Args...)...)
		c.initialize(t)
		wantTool(t, c, "1", "forecast")
		p.write(t, "dist/server.js", strings.Replace(tinyServer, "TOOL", "almanac", 1))
		p.awaitStatus(t, "a restart for what changed in dist", func(s status) bool {
			return s.Backend.Generation == 2 && s.state() == "running"
		})
		wantTool(t, c, "2", "almanac")
	}
	p.ctl(t, "unregister", "claude-code", "codex")
	if left, err := os.ReadFile(filepath.Join(p.root, ".mcp.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of the file that register made, unregister leaves %s, %v", left, err)
	}
}

func wantTool(t *testing.T, c *rawClient, id, name string) {
	t.Helper()
	c.send(t, `{"jsonrpc":"2.0","id":%s,"method":"tools/list"}`, id)
	if answer := c.awaitID(t, id); !strings.Contains(string(answer.Result), `"name":"`+name+`"`) {
		t.Errorf("tools/list has no tool %s: %s", name, answer.line)
	}
}
