//go:build unix

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Exit codes of devproxyctl that only these commands have.
const exitAnswer, exitInterrupted = 4, 130

// The server is used without a client, from a project that nobody has started.
func TestCtlUsesTheServer(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))

	tools := p.ctl(t, "tools")
	for _, want := range []string{"echo ", "echo of the fixture", "dev_restart ", "env?: object, rebuild?: boolean", "(devproxy) Recent output"} {
		if !strings.Contains(tools, want) {
			t.Errorf("tools lacks %q:\n%s", want, tools)
		}
	}
	for command, want := range map[string]string{
		"call echo --arg text=hi": "hi\n", "call add --arg a:=1 --arg b:=2.5": "3.5\n", "call mirror --arg n:=1e400": `{"n":1e400}` + "\n",
		"call mirror --arg x=1": `{"x":"1"}` + "\n", `call mirror {"a":{}}`: `{"a":{}}` + "\n", "call ask": "decline\n",
		"resources read test://t/7": "t 7\n", "prompts get p --arg lang=go": "user:\ngo\n",
	} {
		if got := p.ctl(t, strings.Fields(command)...); got != want {
			t.Errorf("%s prints %q, want %q", command, got, want)
		}
	}
	if got := p.ctl(t, "resources"); !strings.Contains(got, "test://a ") || !strings.Contains(got, "test://t/{id}") {
		t.Errorf("resources prints\n%s", got)
	}
	if got := p.ctl(t, "call", "numbers", "--json"); !strings.Contains(got, `"zebra":12345678901234567890,"one":1.0,"huge":1e400`) || !json.Valid([]byte(got)) {
		t.Errorf("call --json prints %s", got)
	}
	for command, want := range map[string]outcome{
		"call fail":                                 {code: 1, stderr: "devproxyctl: the tool failed: failing as told\n"},
		"call ecko":                                 {code: 2, stderr: "did you mean echo?\n"},
		"call dev_restart --arg rebuild=x":          {code: 2, stderr: "want boolean (NAME:=JSON sends any JSON)\n"},
		"resources read test://none":                {code: exitAnswer, stderr: "the server answered with error -32602: Resource not found\n{\"uri\":\"test://none\"}\n"},
		"call slow --arg ms:=60000 --timeout 300ms": {code: 1, stderr: "devproxyctl: no answer within 300ms\n"},
	} {
		if o := p.run(t, "devproxyctl", strings.Fields(command)...); o.code != want.code || o.stdout != "" || !strings.HasSuffix(o.stderr, want.stderr) {
			t.Errorf("%s: %v", command, o)
		}
	}
	p.awaitLog(t, "backend", "fixture: slow was cancelled", 1)
	// All of it was one start of the daemon and of the server.
	p.wantStarts(t, 1)
	if s := p.awaitStatus(t, "the end of all sessions", func(s status) bool { return len(s.Sessions) == 0 }); s.Backend.Generation != 1 {
		t.Errorf("it was generation %d", s.Backend.Generation)
	}
	if list := p.ctl(t, "list"); !strings.Contains(list, p.root) || !strings.Contains(list, "running #1") {
		t.Errorf("list prints\n%s", list)
	}
}

// Ctrl-C cancels the call at the server. The daemon offers the legacy era only,
// whose clients ask for log messages in another way.
func TestCtlCancelsACall(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"), "[proxy]", `front = "legacy"`)
	call := exec.Command(program(t, "devproxyctl"), "call", "slow", "--arg", "ms:=60000", "--arg", "steps:=600")
	call.Dir, call.Env = p.root, p.terminalEnv()
	said := &lockedBuffer{}
	call.Stderr = said
	if err := call.Start(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, said, "progress 2/600\n")
	awaitText(t, said, `info slow: {"i":2}`)
	if err := call.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = call.Wait() // its exit code tells more
	if code := call.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, stderr\n%s", code, said)
	}
	p.awaitLog(t, "backend", "fixture: slow was cancelled", 1)
}

// A trace shows a call four times: as the client and as the server have it, who
// speak different eras here.
func TestCtlTracesACall(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-http"))
	p.startDaemon(t)
	trace := exec.Command(program(t, "devproxyctl"), "trace", "--json", "--method", "tools/*")
	trace.Dir, trace.Env = p.root, p.terminalEnv()
	traced, said := &lockedBuffer{}, &lockedBuffer{}
	trace.Stdout, trace.Stderr = traced, said
	if err := trace.Start(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, said, "tracing "+p.root)
	p.ctl(t, "call", "echo", "--arg", "text=hi", "--arg", "apiKey=abcdefgh")
	awaitText(t, traced, `"direction":"to-client","session":1,"client":"devproxyctl","era":"modern","kind":"result","method":"tools/call"`)
	if err := trace.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := trace.Wait(); err != nil { // Ctrl-C is how a trace ends
		t.Errorf("%v, stderr\n%s", err, said)
	}
	type crossing struct {
		Direction, Client, Era, Kind, Method string
		Session, Generation                  int
		LatencyMs                            *float64
		Message                              json.RawMessage
	}
	ways := map[string]crossing{}
	decoder := json.NewDecoder(strings.NewReader(traced.String()))
	for decoder.More() {
		var c crossing
		if err := decoder.Decode(&c); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(c.Method, "tools/") {
			t.Errorf("%s passes --method tools/*", c.Method)
		}
		if c.Method == "tools/call" {
			ways[c.Direction] = c
		}
	}
	for direction, want := range map[string]crossing{
		"from-client": {Era: "modern", Kind: "request"}, "to-backend": {Era: "legacy", Kind: "request", Generation: 1},
		"from-backend": {Era: "legacy", Kind: "result", Generation: 1}, "to-client": {Era: "modern", Kind: "result"},
	} {
		c := ways[direction]
		isResult := want.Kind == "result"
		if c.Era != want.Era || c.Kind != want.Kind || c.Generation != want.Generation || c.Session != 1 || c.Client != "devproxyctl" || (c.LatencyMs != nil) != isResult {
			t.Errorf("%s is %+v", direction, c)
		}
		if text := string(c.Message); strings.Contains(text, "abcdefgh") || !isResult && !strings.Contains(text, `"apiKey":"***"`) {
			t.Errorf("%s shows %s", direction, text)
		}
		// Only the modern era has its version in every request.
		if modern := strings.Contains(string(c.Message), "io.modelcontextprotocol/protocolVersion"); !isResult && modern != (want.Era == "modern") {
			t.Errorf("%s is %s", direction, c.Message)
		}
	}
}
