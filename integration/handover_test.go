//go:build unix

package integration

import (
	"strings"
	"syscall"
	"testing"
)

// A daemon may be replaced, or killed, under its clients: their connections go
// on in both eras, what was in flight is answered once, they hear that lists
// may have changed, and no two backends meet.
func TestClientsOutliveTheirDaemon(t *testing.T) {
	for name, replace := range map[string]func(*testing.T, *project){
		"restart": func(t *testing.T, p *project) {
			if out := p.mustRun(t, "devproxyd", "restart"); !strings.Contains(out.stdout, "took over from pid") {
				t.Errorf("devproxyd restart says %v", out)
			}
		},
		"kill -9": func(t *testing.T, p *project) {
			if err := syscall.Kill(int(p.status(t).Daemon.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, "go-http"))
			p.startDaemon(t)
			listening := newNodeClient(t, "ts2.mjs", []string{"--mode", "auto", "--list-changed"}, p.clientEnv(), p.shim(t)...)
			clients := []*client{listening, p.client(t, "ts1"), p.client(t, "go")}
			for _, c := range clients {
				c.connect(t)
			}
			clients[0].tools(t)
			var calls []*call
			for _, c := range clients {
				awaitListChanged(t, c, "")
				c.wantText(t, "before", "echo", object{"text": "before"})
				args := toolCall("slow", object{"ms": 60_000, "steps": 1000})
				args["progress"] = true
				calls = append(calls, c.begin(t, "callTool", args))
				c.await(t, "progress", func(e event) bool { return e.Event == "progress" })
				c.forget()
			}
			first := p.status(t)

			replace(t, p)

			for i, c := range clients {
				result, err := calls[i].wait(t)
				if err != nil {
					t.Errorf("%s: the call failed with %v, want a result with isError", c.name, err)
				} else if got := decode[toolResult](t, result); !got.IsError {
					t.Errorf("%s: the call in flight gave %s", c.name, result)
				}
				c.wantText(t, "after", "echo", object{"text": "after"})
			}
			for _, c := range clients {
				awaitListChanged(t, c, "")
			}
			second := p.status(t)
			if second.Daemon.PID == first.Daemon.PID || second.Daemon.Instance == first.Daemon.Instance {
				t.Errorf("the daemon is still %+v", second.Daemon)
			}
			if daemons := p.daemons(t); len(daemons) != 1 {
				t.Errorf("daemons are %v, want one", daemons)
			}
			if alive(t, int(first.Backend.PID)) {
				t.Errorf("the first backend, pid %d, is alive", first.Backend.PID)
			}
			p.wantStarts(t, 2)
		})
	}
}

// A faulty configuration does not cost the daemon that runs.
func TestRestartOfTheDaemonIsRefusedForAFaultyFile(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.startDaemon(t)
	before := p.status(t)
	p.configure(t, "[backend]\ncomand = \"x\"\n")
	if out := p.run(t, "devproxyd", "restart"); out.code != 2 || !strings.Contains(out.stderr, "devproxy.toml:2: backend.comand") {
		t.Errorf("devproxyd restart: %v", out)
	}
	if after := p.status(t); after.Daemon.PID != before.Daemon.PID {
		t.Errorf("daemon %d became %d", before.Daemon.PID, after.Daemon.PID)
	}
}
