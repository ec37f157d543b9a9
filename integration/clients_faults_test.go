//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// oddLines is what a client may write, of any era. The id is that of the one
// answer, "" for none; want is a part of it.
func oddLines(params string) []struct{ name, line, id, want string } {
	call := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}` + params + `}}`
	}
	const hi, unreadable, invalid = `"text":"hi"`, `"code":-32700`, `"code":-32600`
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	return []struct{ name, line, id, want string }{
		{"an id with a fraction", call(`1.5`), `1.5`, hi},
		{"an id with an exponent", call(`1e3`), `1e3`, hi},
		{"an id beyond all integers", call(`123456789012345678901234567890`), `123456789012345678901234567890`, hi},
		{"an id with escapes", call(`"a\u0062\n\/\u2028"`), `"a\u0062\n\/\u2028"`, hi},
		{"an empty id", call(`""`), `""`, hi},
		{"a null id", call(`null`), "", ""},
		{"an object as id", call(`{}`), "", ""},
		{"a line end of Windows", call(`1`) + "\r", `1`, hi},
		{"spaces around", "\t " + call(`2`) + " ", `2`, hi},
		{"an empty line", "", "", ""},
		{"a line of spaces", " \t \r", "", ""},
		{"a NUL", "\x00", `null`, unreadable},
		{"a NUL inside", strings.Replace(call(`3`), `"hi"`, "\"h\x00i\"", 1), `3`, unreadable},
		{"invalid UTF-8", "\xff\xfe\xfd", `null`, unreadable},
		{"invalid UTF-8 inside", strings.Replace(call(`4`), `"hi"`, "\"\xff\xfe\"", 1), `4`, unreadable},
		{"half a message", call(`5`)[:60], `5`, unreadable},
		{"something behind", call(`6`) + "x", `6`, unreadable},
		{"a value too deep", strings.Replace(call(`7`), `"hi"`, deep, 1), `7`, unreadable},
		{"a value too deep in front", `{"method":"a","params":{"x":` + deep + `},"jsonrpc":"2.0","id":8}`, `8`, unreadable},
		{"nothing but brackets", deep, `null`, unreadable},
		{"another version", `{"jsonrpc":"1.0","id":9,"method":"ping"}`, `9`, invalid},
		{"a method that is a number", `{"jsonrpc":"2.0","id":10,"method":7}`, `10`, invalid},
		{"a request that is an answer", `{"jsonrpc":"2.0","id":11,"method":"ping","result":{}}`, `11`, invalid},
		{"two ids", `{"jsonrpc":"2.0","id":12,"id":13,"method":"ping"}`, `13`, `"result":{}`},
		{"two methods", `{"jsonrpc":"2.0","id":14,"method":"nope","method":"ping"}`, `14`, `"result":{}`},
		{"a number", "42", "", ""},
		{"an unknown notification", `{"jsonrpc":"2.0","method":"notifications/nobody/knows","params":{"a":[1.0]}}`, "", ""},
		{"a notification that is a request", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"crash"}}`, "", ""},
		{"an answer to nothing", `{"jsonrpc":"2.0","id":15,"result":{}}`, "", ""},
		{"an error to nothing", `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`, "", ""},
		{"an error without an id", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, "", ""},
		{"a cancellation of nothing", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, "", ""},
		{"the id of an answered request", call(`1`), `1`, hi},
	}
}

// Whatever a client writes, each request gets one answer, nothing else gets any,
// and the session goes on. Only the oldest versions know batches.
func TestOddLines(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	const call = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}%s}}`
	for era, version := range map[string]string{"oldest": "2025-03-26", "legacy": "2025-11-25", "modern": ""} {
		t.Run(era, func(t *testing.T) {
			c, params := p.raw(t), ""
			if version == "" {
				params = "," + modernMeta
			} else {
				// A byte order mark, too, as some shells write it.
				c.send(t, "\xEF\xBB\xBF"+`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":%q,"capabilities":{},`+
					`"clientInfo":{"name":"raw","version":"0"}}}`, version)
				c.awaitID(t, `"i"`)
				c.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			}
			c.send(t, call, `"up"`, params)
			c.awaitID(t, `"up"`)
			batch := "[" + fmt.Sprintf(call, `"b1"`, params) + "," + fmt.Sprintf(call, `"b2"`, params) + "]"
			lines := oddLines(params)
			if era == "oldest" {
				c.send(t, "%s", batch)
				if answers := <-c.lines; !strings.HasPrefix(answers, "[") || strings.Count(answers, `"text":"hi"`) != 2 ||
					!strings.Contains(answers, `"b1"`) || !strings.Contains(answers, `"b2"`) {
					t.Errorf("a batch gave %s", answers)
				}
			} else {
				lines = append(lines, struct{ name, line, id, want string }{"a batch", batch, `null`, `"code":-32600`})
			}
			c.unread = nil // what the start announced
			for i, odd := range lines {
				c.send(t, "%s", odd.line)
				if odd.id != "" {
					if answer := c.next(t); !strings.Contains(answer, `"id":`+odd.id+`,`) || !strings.Contains(answer, odd.want) {
						t.Errorf("%s gave %s", odd.name, answer)
					}
				}
				// What had been answered as well would come first.
				c.send(t, `{"jsonrpc":"2.0","id":"then%d","method":"ping"}`, i)
				if answer := c.next(t); answer != fmt.Sprintf(`{"jsonrpc":"2.0","id":"then%d","result":{}}`, i) {
					t.Errorf("%s gave %s", odd.name, answer)
				}
			}
			// The end in the middle of a line.
			if _, err := io.WriteString(c.stdin, `{"jsonrpc":"2.0","id":"half","method":"to`); err != nil {
				t.Fatal(err)
			}
			c.endInput(t)
			if answer := c.next(t); !strings.Contains(answer, `"id":"half","error":{"code":-32700`) {
				t.Errorf("half a line gave %s", answer)
			}
			if err := c.awaitExit(t); err != nil {
				t.Errorf("the shim ended with %v", err)
			}
		})
	}
	p.wantStarts(t, 1)
}

// A line of 200 MiB is an error that names the limit. It costs no more memory
// than the limit, and nobody else anything.
func TestHugeLine(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	c, other := p.raw(t), p.raw(t)
	c.initialize(t)
	other.initialize(t)
	const head, tail = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"`, `"}}}` + "\n"
	written := make(chan error, 1)
	go func() {
		_, err := io.Copy(c.stdin, io.MultiReader(strings.NewReader(head),
			io.LimitReader(endless('x'), 200<<20), strings.NewReader(tail)))
		written <- err
	}()
	if answer := c.awaitID(t, "7"); answer.Error == nil || answer.Error.Code != "-31958" ||
		!strings.Contains(answer.Error.Message, fmt.Sprint(200<<20+len(head)+len(tail)-1)) || !strings.Contains(answer.Error.Message, "67108864") {
		t.Errorf("the line gave %s", answer.line)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	for _, client := range []*rawClient{c, other} {
		client.echo(t, 8, "hi")
	}
	wantMemory(t, "the shim", c.command.Process.Pid, 192<<20)
	wantMemory(t, "the daemon", int(p.status(t).Daemon.PID), 96<<20)
}

// endless reads as one byte again and again.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// wantMemory fails the test if a process has ever used more. The race detector
// has needs of its own.
func wantMemory(t *testing.T, who string, pid, most int) {
	t.Helper()
	if used := peakMemory(t, pid); !testbed.Race && used > most {
		t.Errorf("%s used %d MiB, want at most %d", who, used>>20, most>>20)
	}
}

// A client that asks a hundred thousand times and reads nothing costs a bounded
// amount of memory and nobody else anything; when it reads it gets every answer.
func TestFloodOfRequests(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	requests := 100_000
	if testbed.Race {
		requests /= 10
	}
	flood, other := newMute(t, p), p.raw(t)
	other.initialize(t)
	asked := make(chan error, 1)
	go func() {
		lines := bufio.NewWriterSize(flood.stdin, 1<<16)
		for id := range requests {
			method := `"ping"`
			if id%10 == 0 {
				method = `"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}`
			}
			fmt.Fprintf(lines, `{"jsonrpc":"2.0","id":%d,"method":%s}`+"\n", id, method)
		}
		asked <- lines.Flush()
	}()
	slowest := time.Duration(0)
	for id, done := 0, false; !done; id++ {
		began := time.Now()
		other.echo(t, id, "hi")
		slowest = max(slowest, time.Since(began))
		select {
		case err := <-asked:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	if slowest > 5*time.Second {
		t.Errorf("a call beside the flood took %v", slowest)
	}
	answered := map[string]int{}
	lines := bufio.NewScanner(flood.stdout)
	for len(answered) < requests && lines.Scan() {
		r, isAnswer := responseTo(t, lines.Text(), idOf(t, lines.Text()))
		if isAnswer {
			answered[string(r.ID)]++
		}
	}
	for id := range requests {
		if n := answered[strconv.Itoa(id)]; n != 1 {
			t.Fatalf("request %d has %d answers", id, n)
		}
	}
	wantMemory(t, "the shim", flood.command.Process.Pid, 96<<20)
	wantMemory(t, "the daemon", int(p.status(t).Daemon.PID), 128<<20)
}

// idOf returns the id of a message as it is written.
func idOf(t *testing.T, line string) string {
	t.Helper()
	_, rest, found := strings.Cut(line, `"id":`)
	if !found {
		return ""
	}
	return rest[:strings.IndexAny(rest, ",}")]
}

// mute is a client that reads nothing unless the test does.
type mute struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.Reader
	stderr  *lockedBuffer
	ended   chan error
}

// newMute starts one, which has shaken hands.
func newMute(t *testing.T, p *project) *mute {
	t.Helper()
	shim := p.shim(t)
	command := exec.Command(shim[0], shim[1:]...)
	m := &mute{command: command, stderr: &lockedBuffer{}, ended: make(chan error, 1)}
	command.Dir, command.Env, command.Stderr = "/", p.clientEnv(), m.stderr
	var err error
	if m.stdin, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if m.stdout, err = command.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		state, err := command.Process.Wait()
		if err == nil && !state.Success() {
			err = fmt.Errorf("%v", state)
		}
		m.ended <- err
	}()
	t.Cleanup(func() {
		_ = m.stdin.Close()
		_ = command.Process.Kill()
		<-over
		_, _ = io.Copy(io.Discard, m.stdout)
		checkRaces(t, "the shim", m.stderr.String())
	})
	if _, err := io.WriteString(m.stdin, `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"mute","version":"0"}}}`+"\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1<<16)
	if n, err := m.stdout.Read(answer); err != nil || !bytes.Contains(answer[:n], []byte(`"protocolVersion"`)) {
		t.Fatalf("initialize gave %s, %v", answer[:n], err)
	}
	return m
}

// A client that does not read what it asked for, more than its outbox holds and
// for longer than anybody pauses, is given up: its shim says so and fails. One
// that pauses with less loses nothing, and nobody else notices either.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	never, paused, other := newMute(t, p), newMute(t, p), p.raw(t)
	other.initialize(t)
	const size = 1 << 20
	for who, n := range map[*mute]int{never: 45, paused: 20} {
		for id := range n {
			if _, err := fmt.Fprintf(who.stdin, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"big","arguments":{"n":%d}}}`+"\n", id, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The shim looks 35 s after the last byte whether the daemon has given its
	// client up, which takes 30 s.
	const within = 35*time.Second + patience
	deadline, ticker := time.After(within), time.NewTicker(time.Second)
	defer ticker.Stop()
	for id, over := 0, false; !over; id++ {
		wantMemory(t, "the shim", never.command.Process.Pid, 96<<20)
		other.echo(t, id, "hi")
		select {
		case err := <-never.ended:
			if over = true; err == nil || !strings.Contains(err.Error(), "exit status 1") {
				t.Errorf("the shim ended with %v", err)
			}
		case <-deadline:
			t.Fatalf("the shim is there after %v; stderr: %s", within, never.stderr)
		case <-ticker.C:
		}
	}
	awaitText(t, never.stderr, "the client does not read: the session is closed and not resumed")
	p.awaitLog(t, "daemon", "client does not read its messages and is closed", 1)
	if s := p.status(t); len(s.Sessions) != 2 {
		t.Errorf("%d clients are attached, want the two others", len(s.Sessions))
	}
	lines := bufio.NewReaderSize(paused.stdout, size)
	for range 20 {
		line, err := lines.ReadString('\n')
		for err == nil && strings.Contains(line, `"method"`) {
			line, err = lines.ReadString('\n')
		}
		if len(line) < size || err != nil {
			t.Fatalf("after a pause came %.200s, %v", line, err)
		}
	}
	wantMemory(t, "the daemon", int(p.status(t).Daemon.PID), 256<<20)
}
