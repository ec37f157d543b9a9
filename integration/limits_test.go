//go:build unix

package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Whoever meets a limit is told which one, and with its key if it has one; the
// session goes on.
func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"), `[proxy]`, `max_message = "64KiB"`, `max_request = "64KiB"`)
	c := p.raw(t)
	c.initialize(t)
	c.echo(t, 1, "x")
	x := strings.Repeat("x", 64<<10)
	for _, test := range []struct {
		what, line string
		want       []string
	}{
		{
			"a result that is too large",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"big","arguments":{"n":65536}}}`,
			[]string{"[proxy] max_message", "65536", `"isError":true`},
		},
		{
			"a request that is too large",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + x + `"}}}`,
			[]string{"[proxy] max_request", "65536", `"isError":true`},
		},
		{
			"one that is no call of a tool",
			`{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"` + x + `"}}`,
			[]string{"[proxy] max_request", "65536", `"reason":"over-limit"`},
		},
		{
			"a line that is too long",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"` + strings.Repeat(x, 1<<10) + `"}}`,
			[]string{"67108864", "671089", `"reason":"line-too-long"`},
		},
		{
			"a batch that is too long",
			"[" + strings.Repeat(`{"jsonrpc":"2.0","method":"a"},`, 10_000) + `{"jsonrpc":"2.0","id":7,"method":"ping"}]`,
			[]string{"10001", "10000", `"reason":"too-many-requests"`},
		},
		{
			"a subscription that is too long",
			`{"jsonrpc":"2.0","id":7,"method":"resources/subscribe","params":{"uri":"` + strings.Repeat(x, 65) + `"}}`,
			[]string{"4194304", `"reason":"too-many-subscriptions"`},
		},
	} {
		c.send(t, "%s", test.line)
		id := "7"
		if strings.HasPrefix(test.line, "[") {
			id = "null"
		}
		line := c.awaitID(t, id).line
		for _, want := range test.want {
			if !strings.Contains(line, want) {
				t.Errorf("%s: %.500s, want %q in it", test.what, line, want)
			}
		}
		c.echo(t, 8, test.what)
	}
	talker := p.raw(t)
	talker.send(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},`+
		`"clientInfo":{"name":%q,"version":"0"}}}`, strings.Repeat(x, 17))
	if answer := talker.awaitID(t, "1"); answer.Error == nil || !strings.Contains(answer.Error.Message, "1048576") {
		t.Errorf("a client that says too much of itself: %.500s", answer.line)
	}
	talker.initialize(t)
	p.wantStarts(t, 1)
	if s := p.status(t); len(s.Sessions) != 2 {
		t.Errorf("the status is %+v", s)
	}
}

// A file that is far too large is not read, and named with its limit, at once.
func TestLargeFilesAreNotRead(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"), `env_file = ".env"`)
	huge := func(name string) {
		t.Helper()
		path := filepath.Join(p.root, name)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			p.write(t, name, "")
		}
		if err := os.Truncate(path, 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	huge(".env")
	c := p.raw(t)
	c.initialize(t)
	began := time.Now()
	if text := c.call(t, 1, "echo", `{"text":"x"}`); !strings.Contains(text, "env_file of [backend]") || !strings.Contains(text, "larger than 1048576 bytes") {
		t.Errorf("with a huge env_file: %q", text)
	}
	huge("devproxy.toml")
	if o := p.run(t, "devproxyctl", "restart"); o.code == 0 || !strings.Contains(o.stderr, "devproxy.toml is larger than 262144 bytes") {
		t.Errorf("with a huge devproxy.toml: %v", o)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("that took %v", took)
	}
	p.wantStarts(t, 0)
}
