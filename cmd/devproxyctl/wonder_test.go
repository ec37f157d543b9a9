package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
)

func TestWhatIsWaitedFor(t *testing.T) {
	p := project.Project{Root: t.TempDir()}
	const file = "[backend]\ncommand = [\"node\", \"dist/x.js\"]\ntransport = \"stdio\"\n[build]\ncommand = \"make all\"\n"
	if err := os.WriteFile(filepath.Join(p.Root, project.ConfigName), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := &client.Watch{Entry: "dist/x.js", EntryMissing: true}
	state := func(s devproxyv1.BackendState, message string) *client.Backend {
		return &client.Backend{State: s, Message: message}
	}
	for name, test := range map[string]struct {
		status   *client.Status
		says     string
		hopeless bool
	}{
		"no daemon": {nil, "", false},
		"running":   {&client.Status{Backend: state(devproxyv1.BackendState_BACKEND_STATE_RUNNING, ""), Watch: missing}, "", false},
		"no entry":  {&client.Status{Backend: state(devproxyv1.BackendState_BACKEND_STATE_IDLE, ""), Watch: missing}, "dist/x.js, which is missing or empty: build it (make all", true},
		"building": {
			&client.Status{Backend: state(devproxyv1.BackendState_BACKEND_STATE_BUILDING, ""), Build: &client.BuildRun{Command: "make all", Running: true}, Watch: missing},
			"the build: make all", false,
		},
		"starting": {&client.Status{Backend: state(devproxyv1.BackendState_BACKEND_STATE_STARTING, "waiting for port 3001\nx")}, "the server: waiting for port 3001", false},
		"backoff":  {&client.Status{Backend: state(devproxyv1.BackendState_BACKEND_STATE_BACKOFF, "")}, "the server: backoff", false},
	} {
		reason, hopeless := waitingFor(test.status, p)
		if hopeless != test.hopeless || test.says == "" && reason != "" || !strings.HasPrefix(reason, test.says) {
			t.Errorf("%s: %q, %v; want %q, %v", name, reason, hopeless, test.says, test.hopeless)
		}
	}
}

// Who hears something does not wonder.
func TestPending(t *testing.T) {
	incoming, server := io.Pipe()
	_, outgoing := io.Pipe()
	c := newConnection(outgoing, incoming, nil)
	if method, _ := c.pending(); method != "" {
		t.Errorf("%q is pending", method)
	}
	id, err := jsonrpc.MakeID("1")
	if err != nil {
		t.Fatal(err)
	}
	_ = outgoing.Close() // the write fails; the question stands
	_ = c.Write(t.Context(), &jsonrpc.Request{ID: id, Method: "tools/call"})
	if method, since := c.pending(); method != "tools/call" || since.IsZero() {
		t.Errorf("%q is pending, since %v", method, since)
	}
	go func() {
		_, _ = io.WriteString(server, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`+"\n")
		_ = server.Close()
	}()
	if _, err := c.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if method, _ := c.pending(); method != "" {
		t.Errorf("%q is pending after its progress was heard", method)
	}
}
