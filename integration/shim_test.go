//go:build unix

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}`

// Twenty clients at once on a machine where nothing runs: one daemon, one
// backend, all served.
func TestTwentyShims(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	clients := make([]*rawClient, 20)
	for i := range clients {
		clients[i] = p.raw(t)
		// No wait for an answer: a client may pipeline.
		clients[i].send(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`)
		clients[i].send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		clients[i].send(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	}
	for i, c := range clients {
		if answer := c.awaitID(t, "2"); !strings.Contains(string(answer.Result), `"echo"`) {
			t.Errorf("client %d got %s", i, answer.line)
		}
	}
	p.wantStarts(t, 1)
	if daemons := p.daemons(t); len(daemons) != 1 {
		t.Errorf("there are %d daemons: %v", len(daemons), daemons)
	}
	if s := p.status(t); len(s.Sessions) != len(clients) {
		t.Errorf("status knows %d clients, want %d", len(s.Sessions), len(clients))
	}
}

// What an SDK client passes on of its environment is enough to find the daemon
// that a terminal with a full environment started, and the other way round.
func TestTerminalAndClientMeet(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.startDaemon(t)
	before := p.status(t).Daemon
	c := p.client(t, "ts2-auto")
	c.connect(t)
	c.wantText(t, "yes", "env", object{"name": "FROM_TERMINAL"})
	if after := p.status(t).Daemon; after.PID != before.PID || len(p.daemons(t)) != 1 {
		t.Errorf("the client found another daemon: %+v, before %+v", after, before)
	}
}

func TestShimStartsTheDaemon(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	env := append(p.clientEnv(), "API_MODE=from-client")
	c := newRawClient(t, env, p.shim(t)...)
	c.initialize(t)
	s := p.status(t)
	if s.Daemon.ProjectRoot != p.root || len(s.Sessions) != 1 {
		t.Errorf("status is %+v", s)
	}
	// A key of the client's configuration reaches the backend.
	c.send(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"env","arguments":{"name":"API_MODE"}}}`)
	if answer := c.awaitID(t, "2"); !strings.Contains(string(answer.Result), "from-client") {
		t.Errorf("the backend does not see the client's environment: %s", answer.line)
	}
	// The daemon outlives the client that started it.
	c.endInput(t)
	if err := c.awaitExit(t); err != nil {
		t.Errorf("the shim ended with %v", err)
	}
	if after := p.status(t); after.Daemon.PID != s.Daemon.PID || len(after.Sessions) != 0 {
		t.Errorf("after the client's end the status is %+v", after)
	}
}

// The shim needs no working directory, and without --project it looks upwards.
func TestShimFindsItsProject(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	below := filepath.Join(p.root, "src", "deep")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	shell := fmt.Sprintf("cd %s && exec %s", below, program(t, "devproxy-shim"))
	c := newRawClient(t, p.clientEnv(), "/bin/sh", "-c", shell)
	c.initialize(t)
	if s := p.status(t); len(s.Sessions) != 1 {
		t.Errorf("status is %+v", s)
	}
}

// Answered without a backend, and in no time.
func TestAnsweredLocally(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	c := p.raw(t)
	c.send(t, `{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{%s}}`, modernMeta)
	discovered := c.awaitID(t, `"server-discover-probe-1"`)
	for _, want := range []string{`"2026-07-28"`, `"capabilities"`, `"resultType":"complete"`} {
		if !strings.Contains(string(discovered.Result), want) {
			t.Errorf("server/discover gave %s, without %s", discovered.line, want)
		}
	}
	c.send(t, `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	if answer := c.awaitID(t, `"p"`); string(answer.Result) != "{}" {
		t.Errorf("ping gave %s", answer.line)
	}
	// The same pipe may still go legacy: in-place probing does.
	initialized := c.initialize(t)
	if !strings.Contains(string(initialized.Result), `"protocolVersion":"2025-11-25"`) {
		t.Errorf("initialize gave %s", initialized.line)
	}
	c.send(t, `{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"info"}}`)
	if answer := c.awaitID(t, `"l"`); answer.Error != nil {
		t.Errorf("logging/setLevel gave %s", answer.line)
	}
	p.wantStarts(t, 0)
}

// A project whose configuration is wrong is told to the person on stderr and
// to the model in the answer, and the shim stays while its client does.
func TestShimWithBadConfig(t *testing.T) {
	for name, test := range map[string]struct {
		toml string
		want []string
	}{
		"unknown key": {"[backend]\ncommand = \"true\"\ntransprot = \"stdio\"\n", []string{"devproxy.toml", "3", "transprot"}},
		"wrong type":  {"[backend]\ncommand = \"true\"\nport = \"x\"\n", []string{"devproxy.toml", "3", "port"}},
		"no command":  {"[backend]\ntransport = \"stdio\"\n", []string{"devproxy.toml", "command"}},
		"no TOML":     {"[backend\n", []string{"devproxy.toml", "1"}},
		"missing":     {"", []string{"devproxy.toml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			if test.toml != "" {
				p.configure(t, test.toml)
			}
			c := p.raw(t)
			c.send(t, `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
				`"capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`)
			answer := c.awaitID(t, "7")
			if answer.Error == nil {
				t.Fatalf("initialize gave %s, want an error", answer.line)
			}
			awaitText(t, c.stderr, "devproxy.toml")
			for _, want := range test.want {
				if !strings.Contains(answer.Error.Message, want) {
					t.Errorf("the error does not name %q: %s", want, answer.line)
				}
				if !strings.Contains(c.stderr.String(), want) {
					t.Errorf("stderr does not name %q: %s", want, c.stderr)
				}
			}
			// A later request is answered too: the shim is still there.
			c.send(t, `{"jsonrpc":"2.0","id":8,"method":"tools/list"}`)
			if answer := c.awaitID(t, "8"); answer.Error == nil {
				t.Errorf("tools/list gave %s, want an error", answer.line)
			}
			started := p.run(t, "devproxyd", "start", "--project", p.root)
			if started.code == 0 {
				t.Errorf("devproxyd start: %v", started)
			}
			for _, want := range test.want {
				if !strings.Contains(started.stderr, want) {
					t.Errorf("devproxyd start does not name %q: %v", want, started)
				}
			}
		})
	}
}

func TestInvalidJSON(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	c := p.raw(t)
	c.initialize(t)
	// Who waits for an answer gets one, if the line tells who.
	for line, id := range map[string]string{`{"jsonrpc":"2.0","id":1,`: "1", `hello`: "null", "\x00\xff\xfe": "null"} {
		c.send(t, "%s", line)
		if answer := c.awaitID(t, id); answer.Error == nil || answer.Error.Code != "-32700" {
			t.Errorf("%q gave %s, want -32700 with id %s", line, answer.line, id)
		}
	}
	c.send(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"still here"}}}`)
	if answer := c.awaitID(t, "2"); !strings.Contains(string(answer.Result), "still here") {
		t.Errorf("after invalid JSON the session gave %s", answer.line)
	}
}

func TestDuplicateID(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	c := p.raw(t)
	c.initialize(t)
	c.send(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":800}}}`)
	c.send(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"text":"no"}}}`)
	if first := c.awaitID(t, "5"); first.Error == nil || first.Error.Code != "-32600" {
		t.Errorf("the duplicate gave %s, want -32600", first.line)
	}
	if second := c.awaitID(t, "5"); !strings.Contains(string(second.Result), "done") {
		t.Errorf("the original gave %s", second.line)
	}
	// The number is free again.
	c.send(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"text":"again"}}}`)
	if third := c.awaitID(t, "5"); !strings.Contains(string(third.Result), "again") {
		t.Errorf("the id's second use gave %s", third.line)
	}
}

// Ids, params, results and error data go through as they were written.
func TestNothingIsRewritten(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	wire := filepath.Join(p.base, "wire")
	raw := backend{name: "raw", transport: "stdio", command: goFixture("raw")}
	p.use(t, raw)
	config, err := os.ReadFile(filepath.Join(p.root, "devproxy.toml"))
	if err != nil {
		t.Fatal(err)
	}
	p.configure(t, strings.Replace(string(config), "env = {", fmt.Sprintf("env = { FIXTURE_WIRE = %q,", wire), 1))
	c := p.raw(t)
	c.initialize(t)
	const exotic = `{"zebra":12345678901234567890,"one":1.0,"huge":1e400,"small":-0.000,` +
		`"alpha":"a\u2028 <b> & \u00e9 \/","twice":[1,1.00,10e-1],"null":null}`
	for i, id := range []string{"1", `"1"`, "9007199254740993", `"\u00fc/\/"`, "0", "-5", `""`} {
		params := fmt.Sprintf(`{"name":"exotic","arguments":{"n":%d.0,"x":%s}}`, i, exotic)
		c.send(t, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, params)
		answer := c.awaitID(t, id)
		want := `{"vendorResult":1.0,"content":[{"vendorBlock":1e400,"type":"text","text":"\u003ctext\/\u003e"}],` +
			`"structuredContent":{"numbers":` + exotic + `,"params":` + params + `},"resultType":"complete"}`
		if string(answer.Result) != want {
			t.Errorf("id %s: the result is\n%s\nwant\n%s", id, answer.Result, want)
		}
	}
	c.send(t, `{"jsonrpc":"2.0","id":20,"method":"vendor/fail","params":{"b":1.0,"a":2}}`)
	if failed := c.awaitID(t, "20"); failed.Error == nil || failed.Error.Code != "-31999" || string(failed.Error.Data) != exotic {
		t.Errorf("vendor/fail gave %s", failed.line)
	}
	c.send(t, `{"jsonrpc":"2.0","id":21,"method":"vendor/echo","params":{"b":1.0,"a":%s}}`, exotic)
	if echoed := c.awaitID(t, "21"); string(echoed.Result) != `{"params":{"b":1.0,"a":`+exotic+`},"resultType":"complete"}` {
		t.Errorf("vendor/echo gave %s", echoed.line)
	}
	received, err := os.ReadFile(wire)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"params":{"b":1.0,"a":` + exotic + `}`; !strings.Contains(string(received), want) {
		t.Errorf("the backend received\n%s\nwithout %s", received, want)
	}
}

// A client's end is the shim's end, at once, idle or not; what it had asked
// for is cancelled with the backend.
func TestShimEndsWithItsClient(t *testing.T) {
	limit := 250 * time.Millisecond
	if testbed.Race {
		// The detector alone takes longer to end a program.
		limit = 2 * time.Second
	}
	for name, end := range map[string]func(*testing.T, *rawClient){
		"end of input": func(t *testing.T, c *rawClient) { c.endInput(t) },
		"SIGTERM":      func(t *testing.T, c *rawClient) { signalTo(t, c, syscall.SIGTERM) },
		"SIGINT":       func(t *testing.T, c *rawClient) { signalTo(t, c, syscall.SIGINT) },
		"SIGHUP":       func(t *testing.T, c *rawClient) { signalTo(t, c, syscall.SIGHUP) },
		// Not the shim's doing; the daemon notices.
		"kill -9": func(t *testing.T, c *rawClient) { signalTo(t, c, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, "go-stdio"))
			c := p.raw(t)
			c.initialize(t)
			c.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow",`+
				`"arguments":{"ms":60000},"_meta":{"progressToken":1}}}`)
			for !strings.Contains(c.next(t), "notifications/progress") {
			}
			began := time.Now()
			end(t, c)
			_ = c.awaitExit(t)
			if took := time.Since(began); took > limit {
				t.Errorf("the shim took %v to end, want less than %v", took, limit)
			}
			p.awaitLog(t, "backend", "fixture: slow was cancelled", 1)
			p.awaitStatus(t, "no client", func(s status) bool { return len(s.Sessions) == 0 })
		})
	}
}

// Hosts give up servers that are slow to say hello. Nothing runs yet, and the
// backend does not work: the first answer is there at once all the same.
func TestFirstAnswerComesAtOnce(t *testing.T) {
	limit := time.Second
	if testbed.Race {
		limit = 5 * time.Second
	}
	var took time.Duration
	for range 3 { // a busy machine may be late
		p := newProject(t)
		p.configure(t, "[backend]\ncommand = [\"/bin/sh\", \"-c\", \"exit 3\"]\ntransport = \"stdio\"\n")
		began := time.Now()
		c := p.raw(t)
		c.initialize(t)
		if took = time.Since(began); took < limit {
			return
		}
	}
	t.Errorf("the answer to initialize took %v, want less than %v", took, limit)
}

func signalTo(t *testing.T, c *rawClient, signal os.Signal) {
	t.Helper()
	if err := c.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Requests that arrive together, before anything runs, start one backend.
func TestSingleFlight(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "ts2-http"))
	clients := []*client{p.client(t, "ts2-auto"), p.client(t, "ts1"), p.client(t, "go")}
	for _, c := range clients {
		c.connect(t)
	}
	var group sync.WaitGroup
	for _, c := range clients {
		for range 5 {
			group.Go(func() {
				if _, err := c.do(t.Context(), "listTools", nil); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			})
		}
	}
	group.Wait()
	p.wantStarts(t, 1)
	if s := p.status(t); s.Backend.Generation != 1 || s.Backend.Port == 0 || !slices.Contains(p.startedPIDs(t), int(s.Backend.PID)) {
		t.Errorf("status is %+v, started were %v", s.Backend, p.startedPIDs(t))
	}
}
