//go:build unix

package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// publishedServers are servers from npm that know nothing of devproxy.
func publishedServers(t *testing.T) map[string]struct {
	backend backend
	tool    string
	args    object
	want    string
} {
	t.Helper()
	modules := filepath.Join(nodeDir(t), "node_modules")
	everything := filepath.Join(modules, "@modelcontextprotocol", "server-everything", "dist", "index.js")
	// mcp-debugger is what this tool was first conceived for.
	debugger := filepath.Join(modules, "@debugmcp", "mcp-debugger", "dist", "cli")
	node := func(args ...string) func(testing.TB, *project) []string {
		return func(testing.TB, *project) []string { return append([]string{"node"}, args...) }
	}
	type published = struct {
		backend backend
		tool    string
		args    object
		want    string
	}
	return map[string]published{
		"everything-stdio": {
			backend{transport: "stdio", command: node(everything, "stdio")},
			"echo", object{"message": "hi"}, "Echo: hi",
		},
		// It takes its port from $PORT alone.
		"everything-http": {
			backend{transport: "http", command: node(everything, "streamableHttp")},
			"echo", object{"message": "hi"}, "Echo: hi",
		},
		"everything-sse": {
			backend{transport: "sse", path: "/sse", command: node(everything, "sse")},
			"echo", object{"message": "hi"}, "Echo: hi",
		},
		"debugger-stdio": {
			backend{transport: "stdio", command: node(debugger, "stdio")},
			"list_supported_languages", object{}, "javascript",
		},
		"debugger-http": {
			backend{transport: "http", command: node(debugger, "http", "--port", "{port}")},
			"list_supported_languages", object{}, "javascript",
		},
	}
}

func TestPublishedServers(t *testing.T) {
	for name, server := range publishedServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			more := []string{}
			if strings.HasPrefix(name, "everything") && server.backend.transport != "stdio" {
				more = append(more, "port = 0")
			}
			p.use(t, server.backend, more...)
			modern, legacy := p.client(t, "ts2-auto"), p.client(t, "ts1")
			for _, c := range []*client{modern, legacy} {
				c.connect(t)
				if tools := c.tools(t); !slices.Contains(tools, server.tool) || !slices.Contains(tools, "dev_restart") {
					t.Errorf("%s: tools are %v", c.name, tools)
				}
				wantIn(t, c, server.want, server.tool, server.args)
			}
			if result := modern.tool(t, "dev_restart", nil); result.IsError {
				t.Fatalf("dev_restart gave %+v", result)
			}
			for _, c := range []*client{modern, legacy} {
				wantIn(t, c, server.want, server.tool, server.args)
			}
			if s := p.status(t); s.Backend.Generation != 2 || s.state() != "running" {
				t.Errorf("status is %+v", s.Backend)
			}
		})
	}
}

// wantIn calls a tool whose answer has to contain a text.
func wantIn(t *testing.T, c *client, want, tool string, args object) {
	t.Helper()
	result := c.tool(t, tool, args)
	if result.IsError || !strings.Contains(result.text(), want) {
		t.Errorf("%s: %s gave %s, want %q in it", c.name, tool, fmt.Sprint(result), want)
	}
}
