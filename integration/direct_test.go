//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Every client straight on every stdio fixture: what the other tests expect of
// a client behind devproxy is what it gets without.
func TestDirectly(t *testing.T) {
	for _, b := range fixtureBackends {
		if b.transport != "stdio" {
			continue
		}
		for _, kind := range clientKinds {
			t.Run(b.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				p := newFolders(t)
				server := b.direct(t, p)
				c := kind.make(t, p.clientEnv(), server...)
				era := landingEra(kind, b)
				if era == "" {
					if got, err := c.try(t, "connect", nil); err == nil {
						t.Fatalf("%s connected to %s: %s", kind.name, b.name, got)
					}
					return
				}
				if got := c.connect(t); got.Era != era {
					t.Fatalf("%s landed on %+v, want the %s era", kind.name, got, era)
				}
				pair := cell{client: c, kind: kind, era: era, pushes: era == "legacy", cannot: cannotDirectly(kind, b)}
				pair.basics(t)
				pair.cancels(t, func() { awaitText(t, c.stderr, "fixture: slow was cancelled") })
				pair.changes(t)
				pair.asks(t)
				pair.logs(t)
			})
		}
	}
}

// The go-sdk's client straight on the HTTP fixtures.
func TestDirectlyOverHTTP(t *testing.T) {
	for _, b := range fixtureBackends {
		if b.transport == "stdio" {
			continue
		}
		for _, kind := range clientKinds {
			if !kind.goSDK || b.transport == "sse" && kind.era == "modern" {
				continue
			}
			t.Run(b.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				p := newFolders(t)
				url, stderr := serve(t, p, b)
				version := map[string]string{"legacy": "2025-11-25"}[kind.era]
				c := newGoClientOver(t, version, httpTransport(b, url), stderr)
				era := landingEra(kind, b)
				if got := c.connect(t); got.Era != era {
					t.Fatalf("%s landed on %+v, want the %s era", kind.name, got, era)
				}
				stateless := era == "legacy" && strings.Contains(b.eras, "modern")
				pair := cell{
					client: c, kind: kind, era: era, cannot: cannotDirectly(kind, b),
					pushes: era == "legacy" && !stateless, statelessLegacy: stateless,
				}
				pair.basics(t)
				if !stateless {
					pair.cancels(t, func() { awaitText(t, stderr, "fixture: slow was cancelled") })
				}
				pair.changes(t)
				pair.asks(t)
				if !stateless {
					pair.logs(t)
				}
			})
		}
	}
}

// landingEra returns the era in which a client and a server meet without
// devproxy, or "" if they do not.
func landingEra(kind clientKind, b backend) string {
	if strings.Contains(b.eras, kind.era) {
		return kind.era
	}
	if kind.era == "modern" && !kind.modernOnly {
		return "legacy"
	}
	return ""
}

// cannotDirectly names what fails between a client and a server for reasons of
// their SDKs.
func cannotDirectly(kind clientKind, b backend) map[string]string {
	if kind.name == "go" && strings.HasPrefix(b.name, "ts2") {
		return map[string]string{
			"roots": "go-sdk 1.8.0 fails on an input request without params, which is how TypeScript 2.4.0 asks for roots",
		}
	}
	if kind.goSDK && b.transport == "http" && strings.HasPrefix(b.name, "go") && landingEra(kind, b) == "legacy" {
		return map[string]string{
			"unknown method": "go-sdk 1.8.0's server answers 400 with plain text, and its client gives up the session",
		}
	}
	return nil
}

// serve starts an HTTP fixture and returns its endpoint when it answers.
func serve(t *testing.T, p *project, b backend) (url string, stderr *lockedBuffer) {
	t.Helper()
	port := freePort(t)
	args := b.direct(t, p)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "{port}", fmt.Sprint(port))
	}
	command := exec.Command(args[0], args[1:]...)
	command.Env = p.clientEnv()
	stderr = &lockedBuffer{}
	command.Stderr = stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	await(t, "the server's health", func() (bool, string) {
		response, err := http.Get(base + "/health")
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return err == nil && bytes.Equal(body, []byte("ok")), string(body)
	})
	if b.path == "" {
		return base + "/mcp", stderr
	}
	return base + b.path, stderr
}

func httpTransport(b backend, url string) mcp.Transport {
	if b.transport == "sse" {
		return &mcp.SSEClientTransport{Endpoint: url}
	}
	return &mcp.StreamableClientTransport{Endpoint: url}
}

// freePort returns a port that was free a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// awaitText waits until the text stands in what a process wrote.
func awaitText(t testing.TB, output fmt.Stringer, text string) {
	t.Helper()
	await(t, fmt.Sprintf("%q", text), func() (bool, string) {
		written := output.String()
		return strings.Contains(written, text), written
	})
}
