//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
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
		"kill -9": killDaemon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, "go-http"))
			p.startDaemon(t)
			listening := newNodeClient(t, "ts2", object{"mode": "auto", "listChanged": true}, p.clientEnv(), p.shim(t)...)
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

func killDaemon(t *testing.T, p *project) {
	t.Helper()
	if err := syscall.Kill(int(p.status(t).Daemon.PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Every kind of request that can be in flight is answered once when its daemon
// ends: with its result if it is safe to ask again, else with what happened. The
// client's session is resumed, in both eras, and the backend of the daemon that
// was killed is gone, though it did not react to anything.
func TestEverythingInFlightAtTheEndOfADaemon(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*testing.T, *project)
		told string
	}{
		"restart": {func(t *testing.T, p *project) { p.mustRun(t, "devproxyd", "restart") },
			"the backend was restarted while it worked on this request"},
		"kill -9": {killDaemon, "the devproxy daemon ended while it worked on this request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, "go-stdio"), `stop_timeout = "200ms"`)
			p.startDaemon(t)
			legacy, modern := p.raw(t), p.raw(t)
			legacy.initialize(t)
			legacy.send(t, `{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"test://a"}}`)
			legacy.awaitID(t, `"s"`)
			modern.send(t, `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":`+
				`{"toolsListChanged":true,"resourceSubscriptions":["test://a"]},%s}}`, modernMeta)
			modern.awaitNote(t, "notifications/subscriptions/acknowledged")
			touched(t, legacy, modern)
			first := p.status(t)
			if err := syscall.Kill(int(first.Backend.PID), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			safe := []string{
				`"tools/list"`, `"prompts/list"`, `"resources/list"`, `"resources/templates/list"`,
				`"resources/read","params":{"uri":"test://a"}`,
			}
			unsafe := []string{
				`"tools/call","params":{"name":"echo","arguments":{"text":"x"}}`, `"vendor/x"`,
				`"prompts/get","params":{"name":"p","arguments":{"lang":"go"}}`,
				`"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"lang","value":"g"}}`,
			}
			all := slices.Concat(safe, unsafe)
			for i, request := range all {
				legacy.send(t, `{"jsonrpc":"2.0","id":%d,"method":%s}`, i, request)
				params := `,"params":{` + modernMeta + "}"
				if strings.Contains(request, `"params":{`) {
					params, request = "", strings.Replace(request, `"params":{`, `"params":{`+modernMeta+",", 1)
				}
				modern.send(t, `{"jsonrpc":"2.0","id":%d,"method":%s%s}`, i, request, params)
			}
			p.awaitStatus(t, "all requests in flight", func(s status) bool {
				return len(s.Sessions) == 2 && s.Sessions[0].InFlight == number(len(all)) && s.Sessions[1].InFlight == number(len(all))
			})

			test.end(t, p)

			for _, c := range []*rawClient{legacy, modern} {
				for i, request := range all {
					answer := c.awaitID(t, fmt.Sprint(i))
					if i < len(safe) && answer.Error != nil || i >= len(safe) && !strings.Contains(answer.line, test.told) {
						t.Errorf("%s gave %s", request, answer.line)
					}
				}
			}
			touched(t, legacy, modern)
			p.wantStarts(t, 2)
			if second := p.status(t); second.Daemon.PID == first.Daemon.PID || alive(t, int(first.Backend.PID)) {
				t.Errorf("daemon %d became %d; the first backend lives: %v",
					first.Daemon.PID, second.Daemon.PID, alive(t, int(first.Backend.PID)))
			}
			for _, c := range []*rawClient{legacy, modern} {
				for _, line := range c.unread {
					if strings.Contains(line, `"id":`) || strings.Contains(line, "subscriptions/acknowledged") {
						t.Errorf("a client got %s", line)
					}
				}
			}
		})
	}
}

// touched fails the test unless both clients hear of a change, each in the way
// of its era.
func touched(t *testing.T, legacy, modern *rawClient) {
	t.Helper()
	legacy.send(t, `{"jsonrpc":"2.0","id":"t","method":"tools/call","params":{"name":"touch","arguments":{}}}`)
	if answer := legacy.awaitID(t, `"t"`); !strings.Contains(string(answer.Result), `"touched"`) {
		t.Fatalf("touch gave %s", answer.line)
	}
	legacy.awaitNote(t, `"method":"notifications/resources/updated","params":{"uri":"test://a"`)
	modern.awaitNote(t, `"method":"notifications/resources/updated","params":{"uri":"test://a","_meta":{"io.modelcontextprotocol/subscriptionId":"l"`)
	modern.awaitNote(t, `"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"`)
}

// awaitNote takes messages up to one that has part in it.
func (c *rawClient) awaitNote(t *testing.T, part string) {
	t.Helper()
	for i, line := range c.unread {
		if strings.Contains(line, part) {
			c.unread = slices.Delete(c.unread, i, i+1)
			return
		}
	}
	for {
		line := c.next(t)
		if strings.Contains(line, part) {
			return
		}
		c.unread = append(c.unread, line)
	}
}

// The program of a daemon that runs is replaced by a newer one: devproxyd restart
// takes that over, and the shims that are there go on and say that they are older.
func TestRestartToANewerBinary(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	installed, next := filepath.Join(p.base, "bin"), filepath.Join(p.base, "next")
	for _, dir := range []string{installed, next} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"devproxyd", "devproxy-shim"} {
		if err := os.Link(program(t, name), filepath.Join(installed, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := newRawClient(t, p.clientEnv(), filepath.Join(installed, "devproxy-shim"), "--project", p.root)
	c.initialize(t)
	c.echo(t, 1, "hi")

	const version = "v99.0.0"
	if err := testbed.Build(moduleRoot, next, testbed.Race, "-ldflags=-X main.version="+version, "./cmd/devproxyd"); err != nil {
		t.Fatal(err)
	}
	daemon := filepath.Join(installed, "devproxyd")
	if err := os.Rename(filepath.Join(next, "devproxyd"), daemon); err != nil {
		t.Fatal(err)
	}
	c.echo(t, 2, "hi") // nothing happens by itself
	if s := p.status(t); s.Daemon.Version == version {
		t.Fatal("the daemon was replaced before anybody asked")
	}
	restart := exec.Command(daemon, "restart", "--project", p.root)
	restart.Env = p.terminalEnv()
	if output, err := restart.CombinedOutput(); err != nil || !strings.Contains(string(output), "took over from pid") {
		t.Fatalf("devproxyd restart: %v: %s", err, output)
	}
	c.echo(t, 3, "hi")
	o := p.mustRun(t, "devproxyctl", "status", "--json")
	if s := parseStatus(t, o.stdout); s.Daemon.Version != version || len(s.Sessions) != 1 {
		t.Errorf("status is %+v", s)
	}
	if !strings.Contains(o.stderr, "talks to the running devproxyd "+version) {
		t.Errorf("devproxyctl does not say that the daemon is another version: %v", o)
	}
	awaitText(t, c.stderr, "talks to devproxyd "+version)
	p.awaitLog(t, "daemon", "a client's shim has another version than this daemon", 1)
	if daemons := p.liveNamed(t, daemon); len(daemons) != 1 {
		t.Errorf("daemons are %v", daemons)
	}
	p.wantStarts(t, 2)
}

// Whatever the moment in which a daemon ends, each call succeeds, or is told that
// the backend worked on it then; and it has its effect once. A call that had not
// reached the backend is none of the losses.
func TestCallsThroughTheEndOfADaemon(t *testing.T) {
	restart := func(t *testing.T, p *project) { p.mustRun(t, "devproxyd", "restart") }
	kill := func(t *testing.T, p *project) {
		killDaemon(t, p)
		p.awaitDaemon(t)
	}
	for name, test := range map[string]struct {
		backend string
		end     func(*testing.T, *project)
		told    string
	}{
		"restart, stdio": {"go-stdio", restart, "restarted while it worked on this request"},
		"restart, http":  {"go-http", restart, "restarted while it worked on this request"},
		"kill -9, stdio": {"go-stdio", kill, "daemon ended while it worked on this request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, test.backend))
			p.startDaemon(t)
			effects := filepath.Join(p.base, "effects")
			var answered atomic.Int64
			var callers []*caller
			for i := range 6 {
				c := &caller{rawClient: p.raw(t), answered: &answered, name: fmt.Sprint("client-", i), file: effects, told: test.told, calls: map[string]bool{}}
				if i%2 == 0 {
					c.initialize(t)
				} else {
					c.meta = "," + modernMeta
				}
				callers = append(callers, c)
			}
			stop := make(chan struct{})
			var calling sync.WaitGroup
			for _, c := range callers {
				calling.Go(func() {
					if err := c.callUntil(stop); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
				})
			}
			for range 4 {
				// In the middle of it.
				before := answered.Load()
				await(t, "some more calls", func() (bool, string) {
					now := answered.Load()
					return now >= before+30, fmt.Sprint(now - before)
				})
				test.end(t, p)
			}
			close(stop)
			calling.Wait()

			had := effectsIn(t, effects)
			calls, lost := 0, 0
			for _, c := range callers {
				for call, succeeded := range c.calls {
					calls++
					if !succeeded {
						lost++
					}
					if had[call] > 1 || succeeded && had[call] == 0 {
						t.Errorf("%s succeeded: %v, and had its effect %d times", call, succeeded, had[call])
					}
				}
			}
			t.Logf("%d calls, %d of them in flight at the end of a daemon", calls, lost)
		})
	}
}

// caller is a client that calls a tool with an effect, a few calls at a time.
type caller struct {
	*rawClient

	name, file, told string
	meta             string          // of the modern era
	calls            map[string]bool // whether it succeeded
	answered         *atomic.Int64   // of all clients
}

// callUntil returns the first answer that must not be.
func (c *caller) callUntil(stop <-chan struct{}) error {
	const together = 4
	for n := 0; ; n += together {
		select {
		case <-stop:
			return nil
		default:
		}
		for i := range together {
			_, err := fmt.Fprintf(c.stdin, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"record",`+
				`"arguments":{"file":%q,"text":"%s-%d","ms":%d}%s}}`+"\n", n+i, c.file, c.name, n+i, 5*i, c.meta)
			if err != nil {
				return err
			}
		}
		for answered := 0; answered < together; {
			isAnswer, err := c.take(<-c.lines)
			if err != nil {
				return err
			}
			if isAnswer {
				answered++
			}
		}
	}
}

// take takes a line of the server into account.
func (c *caller) take(line string) (isAnswer bool, err error) {
	var answer struct {
		ID     json.RawMessage
		Method string
		Result toolResult
	}
	if err := json.Unmarshal([]byte(line), &answer); err != nil {
		return false, fmt.Errorf("reading %q: %w", line, err)
	}
	if answer.Method != "" {
		return false, nil // changed lists
	}
	call := fmt.Sprintf("%s-%s", c.name, answer.ID)
	if _, twice := c.calls[call]; twice {
		return false, fmt.Errorf("a second answer: %s", line)
	}
	succeeded := !answer.Result.IsError && answer.Result.text() == call
	if !succeeded && !strings.Contains(answer.Result.text(), c.told) {
		return false, fmt.Errorf("the answer is %s", line)
	}
	c.calls[call] = succeeded
	c.answered.Add(1)
	return true, nil
}

// effectsIn counts the lines of a file that may not be there.
func effectsIn(t *testing.T, file string) map[string]int {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	had := map[string]int{}
	for line := range strings.Lines(string(content)) {
		had[strings.TrimSpace(line)]++
	}
	return had
}

// Before a daemon hands over, what is in flight may finish, for drain_timeout as
// before any restart.
func TestHandoverDrains(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"), `drain_timeout = "3s"`)
	p.startDaemon(t)
	c := p.raw(t)
	c.initialize(t)
	c.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000},"_meta":{"progressToken":1}}}`)
	c.send(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"ms":1000},"_meta":{"progressToken":2}}}`)
	for _, token := range []string{`"progressToken":1`, `"progressToken":2`} {
		for line := ""; !strings.Contains(line, token); {
			line = c.next(t)
		}
	}
	p.mustRun(t, "devproxyd", "restart")
	if answer := c.awaitID(t, "2"); !strings.Contains(string(answer.Result), `"done"`) {
		t.Errorf("a call that ends in time gave %s", answer.line)
	}
	if answer := c.awaitID(t, "1"); !strings.Contains(string(answer.Result), "restarted while it worked on this request") {
		t.Errorf("a call that does not gave %s", answer.line)
	}
}

// Several people restart the daemon at once: each gets one that serves. No other
// waits for its chance behind it, to serve when that one is stopped at the end.
func TestRestartsOfTheDaemonAtOnce(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.startDaemon(t)
	c := p.raw(t)
	c.initialize(t)
	for round := range 3 {
		outcomes := make([]outcome, 3)
		var restarts sync.WaitGroup
		for i := range outcomes {
			restarts.Go(func() { outcomes[i] = p.run(t, "devproxyd", "restart") })
		}
		restarts.Wait()
		for _, o := range outcomes {
			if o.code != 0 {
				t.Errorf("devproxyd restart: %v", o)
			}
		}
		c.echo(t, round, "hi")
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
