//go:build unix

package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Three ways for a backend to learn its port, and the health check.
func TestPorts(t *testing.T) {
	fixed := freePort(t)
	for name, test := range map[string]struct {
		args []string
		toml string
		port int
	}{
		"placeholder":            {[]string{"-port", "{port}"}, "", 0},
		"placeholder and fixed":  {[]string{"-port", "{port}"}, fmt.Sprintf("port = %d\n", fixed), fixed},
		"environment, free port": {nil, "port = 0\n", 0},
		"health":                 {[]string{"-port={port}"}, "health = \"/health\"\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			command := append(append([]string{fixture(t, "goserver")}, test.args...), "http", "dist/features.json")
			p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"http\"\nenv = { FIXTURE_STARTS = %q }\n%s",
				tomlStrings(command), p.startsFile(), test.toml))
			p.rebuild(t)
			c := p.client(t, "go")
			c.connect(t)
			c.wantText(t, "hi", "echo", object{"text": "hi"})
			s := p.status(t)
			if s.Backend.Port == 0 || test.port != 0 && int(s.Backend.Port) != test.port {
				t.Errorf("the status has port %d, want %d", s.Backend.Port, test.port)
			}
			// The port is free again after a stop, and the next start works.
			p.ctl(t, "restart")
			c.wantText(t, "hi", "echo", object{"text": "hi"})
			p.wantStarts(t, 2)
		})
	}
}

// Somebody else on the port is named and left alone.
func TestStrangerOnThePort(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stranger.Close() })
	port := stranger.Addr().(*net.TCPAddr).Port
	p.use(t, backendNamed(t, "go-http"))
	config, err := os.ReadFile(filepath.Join(p.root, "devproxy.toml"))
	if err != nil {
		t.Fatal(err)
	}
	p.configure(t, fmt.Sprintf("%sport = %d\n", config, port))
	c := p.client(t, "ts2-auto")
	c.connect(t)
	result := c.tool(t, "echo", object{"text": "x"})
	for _, want := range []string{fmt.Sprint(port), fmt.Sprint(os.Getpid()), filepath.Base(os.Args[0])} {
		if !result.IsError || !strings.Contains(result.text(), want) {
			t.Errorf("echo gave %+v, want an error that names %s", result, want)
		}
	}
	if tools := c.tools(t); !slices.Equal(tools, devTools) {
		t.Errorf("tools are %v, want the dev tools alone", tools)
	}
	p.wantStarts(t, 0)
	// He is still there.
	connection, err := net.Dial("tcp", stranger.Addr().String())
	if err != nil {
		t.Fatalf("the stranger is gone: %v", err)
	}
	connection.Close()

	stranger.Close()
	p.ctl(t, "restart")
	c.wantText(t, "mine now", "echo", object{"text": "mine now"})
}

// A backend that cannot be started says why, to the model, in the status and
// in the log, and is not tried again for each request.
func TestBackendThatDoesNotStart(t *testing.T) {
	for name, test := range map[string]struct {
		command string
		want    []string
		starts  int
	}{
		"no such command": {`["no-such-command-anywhere", "x"]`, []string{"no-such-command-anywhere"}, 0},
		"exits at once": {
			`["/bin/sh", "-c", "echo start $$ >> $FIXTURE_STARTS; echo cannot open the database >&2; echo giving up >&2; exit 3"]`,
			[]string{"cannot open the database", "giving up", "3"}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\nenv = { FIXTURE_STARTS = %q }\n", test.command, p.startsFile()))
			c := p.client(t, "ts1")
			c.connect(t)
			result := c.tool(t, "echo", object{"text": "x"})
			p.awaitStarts(t, test.starts)
			starts := p.starts(t)
			if again := c.tool(t, "echo", object{"text": "x"}); !again.IsError {
				t.Errorf("the second call gave %+v", again)
			}
			p.wantStarts(t, starts)
			if tools := c.tools(t); !slices.Equal(tools, devTools) {
				t.Errorf("tools are %v, want the dev tools alone", tools)
			}
			p.wantStarts(t, starts)
			status := c.tool(t, "dev_server_status", nil)
			ctl := p.ctl(t, "status")
			started := p.run(t, "devproxyctl", "start")
			if started.code == 0 {
				t.Errorf("devproxyctl start: %v", started)
			}
			for _, want := range test.want {
				if !result.IsError || !strings.Contains(result.text(), want) {
					t.Errorf("the call gave %+v, want an error that names %q", result, want)
				}
				if status.IsError || !strings.Contains(status.text(), want) {
					t.Errorf("dev_server_status gave %+v, want %q in it", status, want)
				}
				if !strings.Contains(ctl, want) {
					t.Errorf("devproxyctl status does not name %q:\n%s", want, ctl)
				}
				if !strings.Contains(started.stderr, want) {
					t.Errorf("devproxyctl start does not name %q: %v", want, started)
				}
			}
		})
	}
}

// A request waits for a start as long as it may, then is told the state and
// what to do; tools/list shows what there is, and list_changed follows.
func TestRequestsWaitForTheStart(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.rebuild(t)
	open := filepath.Join(p.base, "open")
	// The server that takes its time.
	shell := fmt.Sprintf("while ! test -e %s; do sleep 0.05; done; exec %s stdio dist/features.json", open, fixture(t, "goserver"))
	p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\nenv = { FIXTURE_STARTS = %q }\n[proxy]\nrequest_wait = \"700ms\"\n",
		tomlStrings([]string{"/bin/sh", "-c", shell}), p.startsFile()))
	modern, legacy := p.client(t, "go"), p.client(t, "ts1")
	for _, c := range []*client{modern, legacy} {
		c.connect(t)
		if tools := c.tools(t); !slices.Equal(tools, devTools) {
			t.Errorf("%s: tools are %v, want the dev tools alone", c.name, tools)
		}
		if result := c.tool(t, "echo", object{"text": "x"}); !result.IsError || !strings.Contains(result.text(), "starting") {
			t.Errorf("%s: echo gave %+v, want an error that names the state", c.name, result)
		}
		if status := c.devStatus(t); status.State != "starting" || status.ProtocolEra != nil {
			t.Errorf("%s: while starting the status is %+v", c.name, status)
		}
		if _, err := c.try(t, "readResource", object{"params": object{"uri": "test://a"}}); err == nil || !strings.Contains(err.Error(), "starting") {
			t.Errorf("%s: reading gave %v, want an error that names the state", c.name, err)
		}
	}
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{modern, legacy} {
		c.awaitNotification(t, "notifications/tools/list_changed")
		if tools := c.tools(t); !slices.Contains(tools, "echo") {
			t.Errorf("%s: tools are %v", c.name, tools)
		}
	}
	p.wantStarts(t, 1)
}

// The whole group of a backend ends with it, wrappers and grandchildren too.
func TestWholeGroupEnds(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.rebuild(t)
	grandchild := filepath.Join(p.base, "grandchild")
	shell := fmt.Sprintf("(trap '' TERM; echo $$ > %s; exec sleep 1000) & %s stdio dist/features.json", grandchild, fixture(t, "goserver"))
	p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\nstop_timeout = \"300ms\"\nenv = { FIXTURE_STARTS = %q }\n",
		tomlStrings([]string{"/bin/sh", "-c", shell}), p.startsFile()))
	c := p.client(t, "go")
	c.connect(t)
	c.wantText(t, "hi", "echo", object{"text": "hi"})
	sleepers := func() []process { return p.liveNamed(t, "sleep 1000") }
	if n := len(sleepers()); n != 1 {
		t.Fatalf("there are %d grandchildren, want 1", n)
	}
	old := sleepers()[0].PID
	p.ctl(t, "restart")
	if alive(t, old) {
		t.Error("the grandchild of generation 1 outlived it")
	}
	c.wantText(t, "hi", "echo", object{"text": "hi"})
	p.ctl(t, "stop")
	if left := sleepers(); len(left) > 0 {
		t.Errorf("after a stop these are left: %v", left)
	}
}
