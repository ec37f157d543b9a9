//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// dialect is how a client of an era puts its messages.
type dialect struct {
	name             string
	hello, confirm   string // the request that opens the conversation, and what follows the answer
	version          string
	helloMethod      string
	meta             string // member that every request's params have
	headersByMessage bool
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}`

var (
	legacy = dialect{
		name: "legacy", version: "2025-11-25", helloMethod: "initialize",
		hello: `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
			`"capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}`,
		confirm: `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	}
	modern = dialect{
		name: "modern", version: "2026-07-28", helloMethod: "server/discover",
		hello: `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + modernMeta + `}}`,
		meta:  modernMeta, headersByMessage: true,
	}
)

// request returns a request; members are those of its params.
func (d dialect) request(id int, method, members string) []byte {
	if d.meta != "" && members != "" {
		members += ","
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s}}`, id, method, members, d.meta)
}

// tool returns the call of one.
func (d dialect) tool(id int, name, arguments string) []byte {
	return d.request(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":{%s}`, name, arguments))
}

// echo returns the small call of all measurements.
func (d dialect) echo(id int) []byte { return d.tool(id, "echo", `"text":"hello"`) }

// caller is a connection on which one request is open at a time.
type caller interface {
	// call sends a request and returns the answer, which is valid until the next.
	call(t testing.TB, frame []byte) []byte
}

// peer is a process that answers lines, such as a server or a shim. It costs as
// little as a client can: an answer is told by what it is not.
type peer struct {
	command *exec.Cmd
	in      *os.File
	out     *bufio.Reader
	files   []io.Closer
	said    *tail
	line    []byte
	reading *os.File
	until   time.Time // the deadline of reading
}

// tail keeps the beginning of what a process says on stderr.
type tail struct{ text []byte }

// Write implements io.Writer.
func (w *tail) Write(data []byte) (int, error) {
	const most = 4 << 10
	if len(w.text) < most {
		w.text = append(w.text, data...)
	}
	return len(data), nil
}

// start starts a process. It must be ended.
func start(t testing.TB, env []string, command ...string) *peer {
	t.Helper()
	p := &peer{command: exec.Command(command[0], command[1:]...), said: &tail{}}
	p.command.Dir, p.command.Env, p.command.Stderr = "/", env, p.said
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.command.Stdin, p.command.Stdout = stdin, stdout
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	stdout.Close()
	p.in, p.out, p.files, p.reading = in, bufio.NewReaderSize(out, 64<<10), []io.Closer{in, out}, out
	return p
}

// open starts a server or shim and does the handshake.
func open(t testing.TB, d dialect, env []string, command ...string) *peer {
	t.Helper()
	p := start(t, env, command...)
	p.greet(t, d)
	return p
}

func (p *peer) greet(t testing.TB, d dialect) {
	t.Helper()
	mustSucceed(t, p.call(t, []byte(d.hello)))
	if d.confirm != "" {
		p.send(t, []byte(d.confirm))
	}
}

func (p *peer) pid() int { return p.command.Process.Pid }

func (p *peer) send(t testing.TB, frame []byte) {
	t.Helper()
	p.line = append(append(p.line[:0], frame...), '\n')
	if _, err := p.in.Write(p.line); err != nil {
		t.Fatalf("writing to %s: %v\n%s", p.command.Path, err, p.said.text)
	}
}

// next returns the next response.
func (p *peer) next(t testing.TB) []byte {
	t.Helper()
	if now := time.Now(); p.reading != nil && p.until.Sub(now) < patience/2 { // not for each line
		p.until = now.Add(patience)
		if err := p.reading.SetReadDeadline(p.until); err != nil {
			t.Fatal(err)
		}
	}
	for {
		line, err := p.out.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			line = bytes.Clone(line)
			rest, more := p.out.ReadBytes('\n')
			line, err = append(line, rest...), more
		}
		if err != nil {
			t.Fatalf("reading from %s: %v\n%s", p.command.Path, err, p.said.text)
		}
		if !isRequest(line) {
			return line
		}
	}
}

// isRequest reports whether a line asks or tells something. What stands far
// behind is in a result.
func isRequest(line []byte) bool {
	const head = 120
	return bytes.Contains(line[:min(len(line), head)], []byte(`"method":`))
}

func (p *peer) call(t testing.TB, frame []byte) []byte {
	t.Helper()
	p.send(t, frame)
	return p.next(t)
}

// end closes the process's input and waits until it has ended. It returns how
// long that took.
func (p *peer) end(t testing.TB) time.Duration {
	t.Helper()
	began := time.Now()
	p.in.Close()
	kill := time.AfterFunc(patience, func() { _ = p.command.Process.Kill() })
	defer kill.Stop()
	for {
		if _, err := p.out.Discard(1); err != nil {
			break
		}
	}
	_ = p.command.Wait() // how it ends is its own matter
	took := time.Since(began)
	for _, file := range p.files {
		file.Close()
	}
	return took
}

// mustSucceed fails the test unless the line is a result, without isError.
func mustSucceed(t testing.TB, line []byte) {
	t.Helper()
	if !bytes.Contains(line, []byte(`"result":`)) || bytes.Contains(line, []byte(`"isError":true`)) {
		t.Fatalf("not a result: %.300s", line)
	}
}

// web is a client of a Streamable HTTP server, without an SDK.
type web struct {
	url     string
	dialect dialect
	session string
	client  *http.Client
}

// browse opens a conversation with the server at url.
func browse(t testing.TB, d dialect, url string) *web {
	t.Helper()
	w := &web{url: url, dialect: d, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}}
	mustSucceed(t, w.call(t, []byte(d.hello)))
	if d.confirm != "" {
		w.call(t, []byte(d.confirm))
	}
	return w
}

func (w *web) call(t testing.TB, frame []byte) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url, bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	header := request.Header
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	if w.session != "" {
		header.Set("Mcp-Session-Id", w.session)
	}
	if !bytes.Contains(frame, []byte(`"initialize"`)) {
		header.Set("Mcp-Protocol-Version", w.dialect.version)
	}
	if w.dialect.headersByMessage {
		w.describe(header, string(frame))
	}
	response, err := w.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if session := response.Header.Get("Mcp-Session-Id"); session != "" {
		w.session = session
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		t.Fatalf("%s: %d %v %.300s", w.url, response.StatusCode, err, body)
	}
	return body
}

// describe sets the headers in which a modern request says what it is.
func (w *web) describe(header http.Header, frame string) {
	text := func(name string) string {
		_, after, _ := strings.Cut(frame, `"`+name+`":"`)
		value, _, _ := strings.Cut(after, `"`)
		return value
	}
	header.Set("Mcp-Method", text("method"))
	if strings.Contains(frame, `"tools/call"`) {
		header.Set("Mcp-Name", text("name"))
	}
}

func (w *web) close() { w.client.CloseIdleConnections() }
