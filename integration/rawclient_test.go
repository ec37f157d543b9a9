//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawClient writes lines to a server on stdio and reads its lines, without an
// SDK's opinion about either.
type rawClient struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string // closed at the end of the output
	stderr  *lockedBuffer
	// unread holds lines that a wait for another one passed over.
	unread []string
	wait   func() error
}

// newRawClient starts server with the environment env.
func newRawClient(t testing.TB, env []string, server ...string) *rawClient {
	t.Helper()
	command := exec.Command(server[0], server[1:]...)
	command.Dir, command.Env = "/", env
	stderr := &lockedBuffer{}
	command.Stderr = stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	// Enough for whatever a test leaves unread.
	c := &rawClient{command: command, stdin: stdin, lines: make(chan string, 1024), stderr: stderr}
	c.wait = sync.OnceValue(command.Wait)
	go func() {
		defer close(c.lines)
		reader := bufio.NewReaderSize(stdout, 1<<16)
		for {
			line, err := reader.ReadString('\n')
			if line != "" {
				c.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		c.stdin.Close()
		// How a server ends that the test did not end is not its subject.
		_ = c.awaitExit(t)
		checkRaces(t, "the shim", stderr.String())
		if t.Failed() {
			t.Logf("raw client's stderr: %s", stderr)
		}
	})
	return c
}

// send writes one line.
func (c *rawClient) send(t testing.TB, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(c.stdin, format+"\n", args...); err != nil {
		t.Fatalf("writing to the server: %v\nstderr: %s", err, c.stderr)
	}
}

// next returns the next line, which has to be one whole JSON-RPC message.
func (c *rawClient) next(t testing.TB) string {
	t.Helper()
	select {
	case line, open := <-c.lines:
		if !open {
			t.Fatalf("the output has ended\nstderr: %s", c.stderr)
		}
		var envelope struct{ JSONRPC string }
		if err := json.Unmarshal([]byte(line), &envelope); err != nil || envelope.JSONRPC != "2.0" || !strings.HasSuffix(line, "}\n") {
			t.Fatalf("the output has a line that is no message: %q (%v)", line, err)
		}
		return strings.TrimSuffix(line, "\n")
	case <-time.After(patience):
		t.Fatalf("no message within %v\nstderr: %s", patience, c.stderr)
		return ""
	}
}

// reply is a response as it came.
type reply struct {
	line   string
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    json.Number
		Message string
		Data    json.RawMessage
	}
}

// awaitID returns the response whose id is the JSON text id, passing over
// whatever else comes first.
func (c *rawClient) awaitID(t testing.TB, id string) reply {
	t.Helper()
	for i, line := range c.unread {
		if r, ok := responseTo(t, line, id); ok {
			c.unread = append(c.unread[:i], c.unread[i+1:]...)
			return r
		}
	}
	for {
		line := c.next(t)
		if r, ok := responseTo(t, line, id); ok {
			return r
		}
		c.unread = append(c.unread, line)
	}
}

func responseTo(t testing.TB, line, id string) (reply, bool) {
	t.Helper()
	var r struct {
		reply
		Method string
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatalf("decoding %q: %v", line, err)
	}
	r.line = line
	return r.reply, r.Method == "" && string(r.ID) == id
}

// initialize does the legacy handshake.
func (c *rawClient) initialize(t testing.TB) reply {
	t.Helper()
	c.send(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`)
	answer := c.awaitID(t, `"init"`)
	if answer.Error != nil {
		t.Fatalf("initialize: %s", answer.line)
	}
	c.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return answer
}

// echo calls the fixture's tool of that name.
func (c *rawClient) echo(t testing.TB, id int, text string) {
	t.Helper()
	if got := c.call(t, id, "echo", fmt.Sprintf(`{"text":%q}`, text)); got != text {
		t.Fatalf("echo gave %q, want %q", got, text)
	}
}

// call calls a tool and returns the text of its result.
func (c *rawClient) call(t testing.TB, id int, tool, arguments string) string {
	t.Helper()
	c.send(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
	answer := c.awaitID(t, strconv.Itoa(id))
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(answer.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("calling %s: %s", tool, answer.line)
	}
	return result.Content[0].Text
}

// endInput closes the server's input.
func (c *rawClient) endInput(t testing.TB) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
}

// awaitExit waits for the server's end and returns its exit error. Output that
// nobody read is thrown away.
func (c *rawClient) awaitExit(t testing.TB) error {
	t.Helper()
	kill := time.AfterFunc(patience, func() {
		t.Errorf("the server did not end within %v", patience)
		_ = c.command.Process.Kill()
	})
	defer kill.Stop()
	for range c.lines {
	}
	return c.wait()
}
