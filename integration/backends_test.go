//go:build unix

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// backend is a server that can stand behind devproxy.
type backend struct {
	name string
	// eras that it offers.
	eras string
	// transport of the [backend] section; stdio ones can also be started
	// directly by a client.
	transport string
	// command returns what starts it, with {port} where the transport has
	// one. It writes what the command needs into the project's dist folder.
	command func(t testing.TB, p *project) []string
	// path of the endpoint, if it is not /mcp.
	path string
}

// fixtureBackends all offer the same tools, resources and prompts.
var fixtureBackends = []backend{
	{name: "ts2-stdio", eras: "legacy+modern", transport: "stdio", command: nodeFixture("ts2.mjs", "stdio")},
	{name: "ts2-http", eras: "legacy+modern", transport: "http", command: nodeFixture("ts2.mjs", "http", "--port", "{port}")},
	{name: "ts2-modern-only", eras: "modern", transport: "stdio", command: nodeFixture("ts2.mjs", "stdio", "--modern-only")},
	{name: "ts1-stdio", eras: "legacy", transport: "stdio", command: nodeFixture("ts1.mjs", "stdio")},
	{name: "ts1-http", eras: "legacy", transport: "http", command: nodeFixture("ts1.mjs", "http", "--port", "{port}")},
	{name: "ts1-sse", eras: "legacy", transport: "sse", path: "/sse", command: nodeFixture("ts1.mjs", "sse", "--port", "{port}")},
	{name: "go-stdio", eras: "legacy+modern", transport: "stdio", command: goFixture("stdio")},
	{name: "go-http", eras: "legacy", transport: "http", command: goFixture("http")},
	{name: "go-http-stateless", eras: "legacy+modern", transport: "http", command: goFixture("http-stateless")},
}

func backendNamed(t testing.TB, name string) backend {
	t.Helper()
	for _, b := range fixtureBackends {
		if b.name == name {
			return b
		}
	}
	t.Fatalf("there is no fixture backend %s", name)
	return backend{}
}

// nodeFixture starts a server of testdata/node/servers through a file in dist,
// as a built project would.
func nodeFixture(script string, args ...string) func(testing.TB, *project) []string {
	return func(t testing.TB, p *project) []string {
		t.Helper()
		server := filepath.Join(nodeDir(t), "servers", script)
		p.write(t, "dist/index.mjs", fmt.Sprintf("import %q;\n", server))
		return append([]string{"node", "dist/index.mjs"}, args...)
	}
}

// goFixture starts internal/goserver; its dist is the features file.
func goFixture(mode string) func(testing.TB, *project) []string {
	return func(t testing.TB, p *project) []string {
		t.Helper()
		p.rebuild(t)
		command := []string{fixture(t, "goserver")}
		if strings.HasPrefix(mode, "http") {
			command = append(command, "-port", "{port}")
		}
		return append(command, mode, "dist/features.json")
	}
}

// use configures the project for a backend. More lines for [backend] and more
// sections may follow.
func (p *project) use(t testing.TB, b backend, more ...string) {
	t.Helper()
	toml := fmt.Sprintf("[backend]\ncommand = %s\ntransport = %q\nenv = { FIXTURE_STARTS = %q }\n",
		tomlStrings(b.command(t, p)), b.transport, p.startsFile())
	if b.path != "" {
		toml += fmt.Sprintf("path = %q\n", b.path)
	}
	p.configure(t, toml+strings.Join(more, "\n")+"\n")
}

// tomlStrings writes an array of strings; Go's quoting of them is also TOML's.
func tomlStrings(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = fmt.Sprintf("%q", value)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// direct returns the command that starts a stdio backend without devproxy,
// runnable from any directory.
func (b backend) direct(t testing.TB, p *project) []string {
	t.Helper()
	command := b.command(t, p)
	for i, arg := range command {
		if strings.HasPrefix(arg, "dist/") {
			command[i] = filepath.Join(p.root, arg)
		}
	}
	return command
}

// clientKind is a way to make a client.
type clientKind struct {
	name string
	// era that it lands on where both are offered.
	era string
	// modernOnly clients refuse a legacy server.
	modernOnly bool
	// goSDK: listens and lists roots by itself.
	goSDK bool
	make  func(t testing.TB, env []string, server ...string) *client
}

var clientKinds = []clientKind{
	{name: "ts2-auto", era: "modern", make: nodeClient("ts2", object{"mode": "auto"})},
	{name: "ts2-legacy", era: "legacy", make: nodeClient("ts2", object{"mode": "legacy"})},
	{name: "ts2-pin", era: "modern", modernOnly: true, make: nodeClient("ts2", object{"mode": "pin"})},
	{name: "ts1", era: "legacy", make: nodeClient("ts1", nil)},
	{name: "go", era: "modern", goSDK: true, make: goClient("")},
	{name: "go-2025", era: "legacy", goSDK: true, make: goClient("2025-11-25")},
}

func clientNamed(t testing.TB, name string) clientKind {
	t.Helper()
	for _, kind := range clientKinds {
		if kind.name == name {
			return kind
		}
	}
	t.Fatalf("there is no client %s", name)
	return clientKind{}
}

func nodeClient(sdk string, options object) func(testing.TB, []string, ...string) *client {
	return func(t testing.TB, env []string, server ...string) *client {
		t.Helper()
		return newNodeClient(t, sdk, options, env, server...)
	}
}

func goClient(version string) func(testing.TB, []string, ...string) *client {
	return func(t testing.TB, env []string, server ...string) *client {
		t.Helper()
		return newGoClient(t, version, env, server...)
	}
}

// shim is the command with which a client reaches the project's backend.
func (p *project) shim(t testing.TB) []string {
	t.Helper()
	return []string{program(t, "devproxy-shim"), "--project", p.root}
}

// client makes a client of the project, not connected yet.
func (p *project) client(t testing.TB, kind string) *client {
	t.Helper()
	return clientNamed(t, kind).make(t, p.clientEnv(), p.shim(t)...)
}

// raw starts a shim for lines written by hand.
func (p *project) raw(t testing.TB) *rawClient {
	t.Helper()
	return newRawClient(t, p.clientEnv(), p.shim(t)...)
}
