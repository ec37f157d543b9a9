//go:build unix

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var devTools = []string{"dev_server_status", "dev_restart", "dev_rebuild_and_restart", "dev_logs"}

// The first promise of the product, for every official client: its probe and
// its connect start nothing, its first tools/list starts exactly one backend.
func TestConnectStartsNothing(t *testing.T) {
	for _, kind := range clientKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, "go-stdio"))
			c := p.client(t, kind.name)
			got := c.connect(t)
			if got.Era != kind.era || kind.era == "modern" && got.Version != "2026-07-28" {
				t.Errorf("landed on the %s era, version %s", got.Era, got.Version)
			}
			p.wantStarts(t, 0)
			if s := p.status(t); s.state() != "idle" || s.Backend.Generation != 0 {
				t.Errorf("after connect the backend is %s, generation %d", s.state(), s.Backend.Generation)
			}
			// The dev tools' status starts nothing either.
			c.tool(t, "dev_server_status", nil)
			p.wantStarts(t, 0)

			tools := c.tools(t)
			p.wantStarts(t, 1)
			for _, want := range append([]string{"echo", "add"}, devTools...) {
				if !slices.Contains(tools, want) {
					t.Errorf("tools are %v, without %s", tools, want)
				}
			}
			// The dev tools come after the backend's own.
			if tail := tools[len(tools)-len(devTools):]; !slices.Equal(tail, devTools) {
				t.Errorf("the last tools are %v, want %v", tail, devTools)
			}
			c.wantText(t, "hi", "echo", object{"text": "hi"})
			p.wantStarts(t, 1)
		})
	}
}

// awaitLog waits until a text stands n times in the log of a source.
func (p *project) awaitLog(t testing.TB, source, text string, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%q %d times in the %s log", text, n, source), func() (bool, string) {
		output := p.ctl(t, "logs", "-n", "0", "--source", source)
		return strings.Count(output, text) >= n, output
	})
}

// Clients of both eras at once, on a backend whose one link they share: each
// gets its own answers and its own progress.
func TestClientsTogether(t *testing.T) {
	for _, name := range []string{"go-stdio", "ts1-stdio", "ts2-http"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, name))
			var clients []*client
			for _, kind := range clientKinds {
				c := p.client(t, kind.name)
				c.connect(t)
				clients = append(clients, c)
			}
			const rounds = 5
			var group sync.WaitGroup
			for i, c := range clients {
				group.Go(func() {
					for round := range rounds {
						want := fmt.Sprintf("client %d round %d", i, round)
						result, err := c.do(t.Context(), "callTool", toolCall("echo", object{"text": want}))
						if err != nil {
							t.Errorf("%s: %v", c.name, err)
							return
						}
						if got := decode[toolResult](t, result).text(); got != want {
							t.Errorf("%s got %q, want %q", c.name, got, want)
						}
					}
				})
			}
			group.Wait()

			var calls []*call
			for i, c := range clients {
				args := toolCall("slow", object{"ms": 100, "steps": i + 1})
				args["progress"] = true
				calls = append(calls, c.begin(t, "callTool", args))
			}
			for i, c := range clients {
				if result, err := calls[i].wait(t); err != nil || decode[toolResult](t, result).text() != "done" {
					t.Errorf("%s: slow gave %s, %v", c.name, result, err)
				}
				c.wantProgress(t, i+1)
				if more := c.heard(func(e event) bool { return e.Event == "progress" }); more > 0 {
					t.Errorf("%s heard %d progress notifications too many", c.name, more)
				}
			}
			p.wantStarts(t, 1)
		})
	}
}

// What becomes of one client, or what it brings with it, is nothing to another
// one, nor to the backend that both use: hosts start a server twice and kill one
// of the two.
func TestClientsLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	first := newRawClient(t, append(p.clientEnv(), "API_MODE=first"), p.shim(t)...)
	first.initialize(t)
	first.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	first.awaitID(t, "1")
	daemon := p.status(t).Daemon.PID

	second := newRawClient(t, append(p.clientEnv(), "API_MODE=second"), p.shim(t)...)
	second.initialize(t)
	// The warning names the variable; which value holds is the project's affair.
	p.awaitLog(t, "daemon", "API_MODE", 1)
	second.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"env","arguments":{"name":"API_MODE"}}}`)
	if answer := second.awaitID(t, "1"); !strings.Contains(string(answer.Result), `"first"`) {
		t.Errorf("the backend's environment is now that of the second client: %s", answer.line)
	}
	second.send(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"ms":500},"_meta":{"progressToken":1}}}`)
	for !strings.Contains(second.next(t), "notifications/progress") {
	}
	signalTo(t, first, syscall.SIGKILL)
	_ = first.awaitExit(t)
	if answer := second.awaitID(t, "2"); !strings.Contains(string(answer.Result), "done") {
		t.Errorf("with the first client's end the second one's call gave %s", answer.line)
	}
	p.wantStarts(t, 1)
	if s := p.awaitStatus(t, "one client", func(s status) bool { return len(s.Sessions) == 1 }); s.Daemon.PID != daemon || s.Backend.Generation != 1 {
		t.Errorf("the status is %+v", s)
	}
}
