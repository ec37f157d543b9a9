//go:build unix

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
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
