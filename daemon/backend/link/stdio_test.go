package link

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// program is a backend on pipes in memory.
type program struct {
	t     *testing.T
	lines *bufio.Reader  // its stdin
	out   io.WriteCloser // its stdout
	in    *io.PipeReader
}

// start runs a program; what it returns from is its exit.
func start(t *testing.T, main func(p *program)) (in io.Writer, out io.Reader) {
	t.Helper()
	stdin, inWriter := io.Pipe()
	outReader, stdout := io.Pipe()
	p := &program{t: t, lines: bufio.NewReader(stdin), out: stdout, in: stdin}
	var running sync.WaitGroup
	running.Go(func() {
		defer stdout.Close()
		defer stdin.Close()
		main(p)
	})
	t.Cleanup(func() {
		inWriter.Close()
		stdin.Close()
		stdout.Close()
		outReader.Close()
		running.Wait()
	})
	return inWriter, outReader
}

// read returns the next message, and false at the end of input.
func (p *program) read() (wire.Message, bool) {
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return wire.Message{}, false
	}
	m, err := wire.Parse(line)
	if err != nil {
		p.t.Errorf("the backend got %q: %v", line, err)
	}
	return m, true
}

func (p *program) say(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func (p *program) answer(m wire.Message, result string) {
	p.say(`{"result":%s,"jsonrpc":"2.0","id":%s}`, result, m.ID)
}

func (p *program) refuse(m wire.Message, e string) {
	p.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, e)
}

// serve answers every message until the end of input.
func (p *program) serve(handle func(m wire.Message)) {
	for {
		m, ok := p.read()
		if !ok {
			return
		}
		handle(m)
	}
}

// exit is what a row of the handshake table says instead of an answer.
const (
	exit     = "exit"
	silence  = "silence"
	untagged = "untagged"
)

// scripted answers the n-th request of a method with the n-th text, the last one again and again: a result, an
// error if it has a code, or one of the words above.
func scripted(answers map[string][]string, asked *[]string) func(p *program) {
	return func(p *program) {
		for {
			m, ok := p.read()
			if !ok {
				return
			}
			*asked = append(*asked, m.Method)
			texts := answers[m.Method]
			if len(texts) == 0 {
				continue // a notification
			}
			text := texts[0]
			if len(texts) > 1 {
				answers[m.Method] = texts[1:]
			}
			switch {
			case text == exit:
				return
			case text == silence:
			case text == untagged:
				p.say(`{"id":%s,"result":%s}`, m.ID, initializeResult)
			case strings.HasPrefix(text, `{"code"`):
				p.refuse(m, text)
			default:
				p.answer(m, text)
			}
		}
	}
}

func TestHandshakeOnStdio(t *testing.T) {
	both := map[era.Era][]era.Era{era.Legacy: {era.Legacy, era.Modern}, era.Modern: {era.Modern, era.Legacy}}
	const initialize, discover, initialized = "initialize", "server/discover", "notifications/initialized"
	for _, tt := range []struct {
		name    string
		order   []era.Era
		choice  Choice
		init    []string // answers to initialize
		disc    []string // answers to server/discover
		want    era.Era
		respawn era.Era // of the RespawnError
		asked   string  // by the handshake, in order
	}{
		{name: "modern", order: both[era.Modern], disc: []string{discoverResult}, want: era.Modern, asked: discover},
		{name: "modern behind -32022", order: both[era.Modern], disc: []string{unsupported, discoverResult},
			want: era.Modern, asked: discover + " " + discover},
		{name: "no modern version", order: both[era.Modern], disc: []string{legacyDiscover},
			respawn: era.Legacy, asked: discover},
		{name: "legacy by -32601", order: both[era.Modern], disc: []string{notFound}, init: []string{initializeResult},
			want: era.Legacy, asked: discover + " " + initialize + " " + initialized},
		{name: "legacy by -32022", order: both[era.Modern], disc: []string{unsupportedOld},
			init: []string{initializeResult}, want: era.Legacy, asked: discover + " " + initialize + " " + initialized},
		{name: "contradictory -32022", order: both[era.Modern], disc: []string{unsupported},
			init: []string{initializeResult}, want: era.Legacy,
			asked: discover + " " + discover + " " + initialize + " " + initialized},
		{name: "code 0 spoils the pipe", order: both[era.Modern], disc: []string{`{"code":0,"message":"no"}`},
			init: []string{`{"code":0,"message":"duplicate"}`}, respawn: era.Legacy, asked: discover + " " + initialize},
		{name: "the probe kills", order: both[era.Modern], disc: []string{exit}, respawn: era.Legacy, asked: discover},
		{name: "silence", order: both[era.Modern], disc: []string{silence}, respawn: era.Legacy, asked: discover},
		{name: "an answer without jsonrpc", order: both[era.Modern], disc: []string{untagged}, init: []string{untagged},
			respawn: era.Legacy, asked: discover + " " + initialize},
		{name: "nonsense as a result", order: both[era.Modern], disc: []string{`{"supportedVersions":7}`},
			respawn: era.Legacy, asked: discover},

		{name: "initialize first", order: both[era.Legacy], init: []string{initializeResult},
			want: era.Legacy, asked: initialize + " " + initialized},
		{name: "initialize first, modern only", order: both[era.Legacy], init: []string{unsupported},
			disc: []string{discoverResult}, want: era.Modern, asked: initialize + " " + discover},
		{name: "initialize first, other error", order: both[era.Legacy], init: []string{notFound},
			respawn: era.Modern, asked: initialize},
		{name: "initialize first, exit", order: both[era.Legacy], init: []string{exit},
			respawn: era.Modern, asked: initialize},
		{name: "initialize first, silence", order: both[era.Legacy], init: []string{silence},
			respawn: era.Modern, asked: initialize},
		{name: "initialize answers a modern version", order: both[era.Legacy],
			init:    []string{`{"protocolVersion":"2026-07-28","capabilities":{}}`},
			respawn: era.Modern, asked: initialize},
		{name: "an old version", order: both[era.Legacy],
			init: []string{`{"protocolVersion":"2024-10-07","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`},
			want: era.Legacy, asked: initialize + " " + initialized},

		{name: "one era is final", order: []era.Era{era.Legacy}, init: []string{unsupported}, asked: initialize},
		{name: "one era, exit", order: []era.Era{era.Modern}, disc: []string{exit}, asked: discover},
		{name: "legacy by choice", choice: LegacyOnly, order: both[era.Modern], init: []string{initializeResult},
			want: era.Legacy, asked: initialize + " " + initialized},
		{name: "modern by choice", choice: ModernOnly, order: both[era.Legacy], disc: []string{notFound}, asked: discover},
		{name: "nothing left by choice", choice: ModernOnly, order: []era.Era{era.Legacy}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				answers := map[string][]string{"initialize": tt.init, "server/discover": tt.disc}
				in, out := start(t, scripted(answers, &asked))
				begun := time.Now()
				s, err := OpenStdio(t.Context(), in, out, modernPeer, tt.order, Options{Choice: tt.choice})
				synctest.Wait()
				took := time.Since(begun)
				respawn, isRespawn := errors.AsType[*RespawnError](err)
				switch {
				case tt.want != era.None:
					if err != nil || s.Facts().Era != tt.want {
						t.Errorf("got %v, %v; want %v", s.Facts().Era, err, tt.want)
					}
				case tt.respawn != era.None:
					if !isRespawn || respawn.Next != tt.respawn {
						t.Errorf("got %v, want a respawn for %v", err, tt.respawn)
					}
				case err == nil || isRespawn:
					t.Errorf("got %v, want a final error", err)
				}
				if got := strings.Join(asked, " "); got != tt.asked {
					t.Errorf("asked %q, want %q", got, tt.asked)
				}
				if silent := len(tt.init)+len(tt.disc) > 0 && (append(tt.init, tt.disc...))[0] == silence; silent != (took >= maxSilence) {
					t.Errorf("took %v", took)
				}
				s.Close()
				in.(io.Closer).Close()
				s.Wait()
			})
		})
	}
}

func TestHandshakePatience(t *testing.T) {
	for _, tt := range []struct {
		name   string
		main   func(p *program)
		limit  time.Duration // of the context, 0 for none
		wait   time.Duration
		isDone error // the cause of ctx is the error
	}{
		{name: "nothing at all", main: func(p *program) { p.read(); p.read() }, wait: maxSilence},
		{name: "half of what there is", main: func(p *program) { p.read(); p.read() },
			limit: 30 * time.Second, wait: 15 * time.Second},
		{name: "a banner and nothing more", main: func(p *program) { p.say("server is up"); p.read(); p.read() },
			wait: maxQuiet},
		{name: "a package runner at work", main: func(p *program) {
			for range 4 {
				p.say("installing…")
				time.Sleep(5 * time.Second)
			}
			p.read()
			p.read()
		}, wait: 15*time.Second + maxQuiet},
		{name: "noise for ever", main: func(p *program) {
			for range 40 {
				p.say("tick")
				time.Sleep(5 * time.Second)
			}
		}, wait: maxSilence},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				in, out := start(t, tt.main)
				begun := time.Now()
				s, err := OpenStdio(ctx, in, out, modernPeer, nil, Options{})
				if respawn, ok := errors.AsType[*RespawnError](err); !ok || respawn.Next != era.Legacy {
					t.Errorf("got %v", err)
				}
				if took := time.Since(begun); took != tt.wait {
					t.Errorf("took %v, want %v", took, tt.wait)
				}
				out.(io.Closer).Close()
				s.Wait()
			})
		})
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the start took too long")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		in, out := start(t, func(p *program) { p.read(); p.read() })
		s, err := OpenStdio(ctx, in, out, legacyPeer, []era.Era{era.Legacy}, Options{})
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		out.(io.Closer).Close()
		s.Wait()
	})
}

// open opens a legacy link to a program that goes on with main after the handshake.
func open(t *testing.T, o Options, main func(p *program)) (*Stdio, io.Writer) {
	t.Helper()
	in, out := start(t, func(p *program) {
		m, _ := p.read()
		p.answer(m, initializeResult)
		p.read()
		main(p)
	})
	s, err := OpenStdio(t.Context(), in, out, legacyPeer, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		in.(io.Closer).Close()
		s.Wait()
	})
	return s, in
}

func TestStdioCarriesMessages(t *testing.T) {
	s, _ := open(t, Options{}, func(p *program) {
		p.say(`{"jsonrpc":"2.0","id":9007199254740993,"method":"roots/list"}`)
		p.serve(func(m wire.Message) {
			switch m.Method {
			case "tools/call":
				p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1.0}}`)
				p.answer(m, `{"content":[ ],"n":1e400}`)
			case "notifications/roots/list_changed":
				p.say(`{"jsonrpc":"2.0","method":"notifications/heard","params":{}}`)
			case "":
				p.say(`{"jsonrpc":"2.0","method":"notifications/answered","params":%s}`, m.Result)
			}
		})
	})
	sink := newRecorder()
	s.Bind(sink)
	if h := sink.note(t, "roots/list"); h.m.ID != "9007199254740993" || h.via != 0 {
		t.Errorf("got %v", h)
	}
	s.Respond("9007199254740993", []byte(`{"roots":[]}`), nil)
	if h := sink.note(t, "notifications/answered"); string(h.m.Params) != `{"roots":[]}` {
		t.Errorf("got %v", h)
	}
	s.Request(1, "tools/call", []byte(`{"name":"x"}`), legacyPeer)
	sink.note(t, "notifications/progress")
	if got := sink.result(t, 1); got != `{"content":[ ],"n":1e400}` {
		t.Errorf("got %s", got)
	}
	s.Notify("notifications/roots/list_changed", nil)
	sink.note(t, "notifications/heard")
	if !s.Shared() || s.Congested() || s.Facts().Version != "2025-11-25" {
		t.Error("wrong about itself")
	}
}

// TestIDsMadeStrings: a server may answer request 7 with the id "7".
func TestIDsMadeStrings(t *testing.T) {
	in, out := start(t, func(p *program) {
		p.serve(func(m wire.Message) {
			switch m.Method {
			case "initialize":
				p.say(`{"jsonrpc":"2.0","id":"%s","result":%s}`, m.ID, initializeResult)
			case "tools/call":
				p.say(`{"jsonrpc":"2.0","id":"%s","result":{}}`, m.ID)
			case "tools/list":
				p.say(`{"jsonrpc":"2.0","id":"%s"}`, m.ID)
			}
		})
	})
	s, err := OpenStdio(t.Context(), in, out, legacyPeer, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		in.(io.Closer).Close()
		s.Wait()
	})
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "tools/call", nil, legacyPeer)
	if h := sink.next(t); h.m.Kind != wire.Response || h.m.ID != `"1"` {
		t.Errorf("got %v", h)
	}
	s.Request(2, "tools/list", nil, legacyPeer)
	contains(t, sink.failure(t, 2), "unreadable")
}

// TestStdoutNoise: what is no message goes to Noise as it is and hurts nobody.
func TestStdoutNoise(t *testing.T) {
	noise := make(chan string, 100)
	s, _ := open(t, Options{Noise: func(line string) { noise <- line }}, func(p *program) {
		p.say("plain text")
		p.say("")
		p.say(`{"level":"info","id":3,"method":"GET","path":"/x"}`)
		p.say(`{"half":`)
		p.say("\x1b[32mcolour\x1b[0m\r")
		p.say("%s", strings.Repeat("x", maxNoise)+"ü")
		p.say(`[1,2]`)
		p.say(`[{"jsonrpc":"2.0","method":"notifications/a"},{"jsonrpc":"2.0","method":"notifications/b"}]`)
		p.serve(func(m wire.Message) { p.answer(m, `{}`) })
	})
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "tools/list", nil, legacyPeer)
	sink.note(t, "notifications/a")
	sink.note(t, "notifications/b")
	sink.result(t, 1)
	for _, want := range []string{
		"plain text", `{"level":"info","id":3,"method":"GET","path":"/x"}`, `{"half":`, "\x1b[32mcolour\x1b[0m",
		strings.Repeat("x", maxNoise) + "…", "1", "2",
	} {
		if got := <-noise; got != want {
			t.Errorf("noise %q, want %q", got, want)
		}
	}
}

// TestMalformedMessages: whoever waits for a frame that cannot be read is told so.
func TestMalformedMessages(t *testing.T) {
	refused := make(chan wire.Message, 10)
	s, _ := open(t, Options{}, func(p *program) {
		p.serve(func(m wire.Message) {
			switch {
			case m.Kind == wire.Failure:
				refused <- m
			case m.Method == "tools/call":
				p.say(`{"id":%s,"result":{}}`, m.ID)
			case m.Method == "prompts/get":
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"x"}}`, m.ID)
			case m.Method == "resources/read":
				p.say(`{"jsonrpc":"2.0","id":%s}`, m.ID)
			default:
				p.say(`{"jsonrpc":"2.0","id":4,"method":7}`)
				p.say(`{"jsonrpc":"2.0","id":"p","method":"x","params":3}`)
			}
		})
	})
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "tools/call", nil, legacyPeer)
	err := sink.failure(t, 1)
	contains(t, err, "unreadable", "jsonrpc")
	if answer, ok := errors.AsType[interface {
		error
		Answer() *wire.Error
	}](err); !ok || answer.Answer().Code != wire.CodeInternal {
		t.Error("it is not told as an answer")
	}
	s.Request(2, "prompts/get", nil, legacyPeer)
	contains(t, sink.failure(t, 2), "both a result and an error")
	s.Request(3, "resources/read", nil, legacyPeer)
	contains(t, sink.failure(t, 3), "unreadable", "neither")
	s.Notify("notifications/go", nil)
	for _, id := range []wire.ID{"4", `"p"`} {
		if m := <-refused; m.ID != id {
			t.Errorf("refused %s, want %s", m.ID, id)
		}
	}
	sink.silent(t)
}

func TestPingIsAnsweredByTheLink(t *testing.T) {
	answered := make(chan wire.Message, 1)
	s, _ := open(t, Options{}, func(p *program) {
		p.say(`{"jsonrpc":"2.0","id":"k","method":"ping"}`)
		p.serve(func(m wire.Message) { answered <- m })
	})
	if m := <-answered; m.ID != `"k"` || string(m.Result) != `{}` {
		t.Errorf("got %s", m.Bytes())
	}
	sink := newRecorder()
	s.Bind(sink)
	sink.silent(t)
}

// TestOversizedLines: whose message was dropped is told by the ends of the line, else everybody may be meant.
func TestOversizedLines(t *testing.T) {
	const limit = 1000
	long := strings.Repeat("x", 8<<10) // more than is kept of its ends
	refused := make(chan wire.Message, 1)
	s, _ := open(t, Options{MaxReply: limit}, func(p *program) {
		p.serve(func(m wire.Message) {
			switch m.Method {
			case "head":
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"x":%q}}`, m.ID, long)
			case "tail":
				p.say(`{"result":{"x":%q},"jsonrpc":"2.0","id":%s}`, long, m.ID)
			case "middle":
				p.say(`{"result":{"x":%q},"id":%s,"x":[]}`, long, m.ID)
			case "question":
				p.say(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"x":%q}}`, long)
			case "note":
				p.say(`{"method":"notifications/message","params":{"x":%q}}`, long)
				p.say("%s", long)
				p.answer(m, `{}`)
			case "":
				refused <- m
			}
		})
	})
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "wait", nil, legacyPeer)
	s.Request(2, "head", nil, legacyPeer)
	contains(t, sink.failure(t, 2), replyLimit, "1000 bytes")
	s.Request(3, "note", nil, legacyPeer)
	sink.result(t, 3)
	s.Request(4, "question", nil, legacyPeer)
	if m := <-refused; m.ID != `"q"` || m.Kind != wire.Failure {
		t.Errorf("got %s", m.Bytes())
	}
	s.Cancel(4, nil)
	s.Request(6, "tail", nil, legacyPeer)
	contains(t, sink.failure(t, 6), replyLimit)
	sink.silent(t)
	s.Request(5, "middle", nil, legacyPeer)
	failed := map[int64]bool{}
	for range 2 {
		h := sink.next(t)
		if _, ok := errors.AsType[*TooLargeError](h.err); !ok {
			t.Errorf("got %v", h)
		}
		failed[h.failed] = true
	}
	if !failed[1] || !failed[5] {
		t.Errorf("failed %v, want those that waited", failed)
	}
	sink.silent(t)
}

func TestMaxRequest(t *testing.T) {
	s, _ := open(t, Options{MaxRequest: 100}, func(p *program) {
		p.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		p.serve(func(m wire.Message) {
			if m.Kind == wire.Failure {
				p.say(`{"jsonrpc":"2.0","method":"notifications/refused","params":%s}`, m.Error)
				return
			}
			p.answer(m, `{}`)
		})
	})
	sink := newRecorder()
	s.Bind(sink)
	sink.note(t, "roots/list")
	long := []byte(`{"x":"` + strings.Repeat("y", 100) + `"}`)
	s.Request(1, "tools/call", long, legacyPeer)
	contains(t, sink.failure(t, 1), "[proxy] max_request", "100 bytes")
	s.Notify("notifications/x", long)
	s.Respond("1", long, nil)
	if h := sink.note(t, "notifications/refused"); !strings.Contains(string(h.m.Params), "max_request") {
		t.Errorf("got %v", h)
	}
	fits := []byte(`{"x":"` + strings.Repeat("y", 100-1-len(`{"jsonrpc":"2.0","id":2,"method":"m","params":{"x":""}}`)) + `"}`)
	s.Request(2, "m", fits, legacyPeer)
	sink.result(t, 2)
	s.Request(3, "mm", fits, legacyPeer)
	contains(t, sink.failure(t, 3), "max_request")
}

func TestCancelOnStdio(t *testing.T) {
	cancelled := make(chan string, 1)
	s, _ := open(t, Options{}, func(p *program) {
		p.serve(func(m wire.Message) {
			switch m.Method {
			case "notifications/cancelled":
				cancelled <- string(m.Params)
			case "late":
				p.answer(m, `{"late":true}`)
			}
		})
	})
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "tools/call", nil, legacyPeer)
	s.Request(2, "late", nil, legacyPeer)
	sink.result(t, 2)
	s.Cancel(1, []byte(`"enough"`))
	if got := <-cancelled; got != `{"requestId":1,"reason":"enough"}` {
		t.Errorf("got %s", got)
	}
	s.Cancel(1, nil)
	s.Cancel(99, nil)
	s.Request(3, "late", nil, legacyPeer)
	sink.result(t, 3)
	select {
	case got := <-cancelled:
		t.Errorf("cancelled again: %s", got)
	default:
	}
}

// TestBackpressure: a backend that does not read makes the link congested, and what is withdrawn in the meantime is
// never sent.
func TestBackpressure(t *testing.T) {
	proceed := make(chan struct{})
	var got []string
	s, in := open(t, Options{}, func(p *program) {
		<-proceed
		p.serve(func(m wire.Message) {
			got = append(got, m.Method)
			if m.Kind == wire.Request {
				p.answer(m, `{}`)
			}
		})
	})
	sink := newRecorder()
	s.Bind(sink)
	big := []byte(`{"x":"` + strings.Repeat("y", HighWater/2) + `"}`)
	s.Request(1, "first", big, legacyPeer)
	if s.Congested() {
		t.Error("congested too early")
	}
	s.Request(2, "second", big, legacyPeer)
	s.Request(3, "withdrawn", nil, legacyPeer)
	if !s.Congested() {
		t.Error("not congested")
	}
	s.Cancel(3, nil)
	sink.silent(t)
	close(proceed)
	order := []string{}
	for range 3 {
		if h := sink.next(t); h.writable {
			order = append(order, "writable")
		} else {
			order = append(order, string(h.m.ID))
		}
	}
	if strings.Join(order, " ") != "1 writable 2" && strings.Join(order, " ") != "1 2 writable" {
		t.Errorf("heard %v", order)
	}
	if s.Congested() {
		t.Error("still congested")
	}
	s.Close()
	in.(io.Closer).Close()
	s.Wait()
	if strings.Join(got, " ") != "first second" {
		t.Errorf("the backend got %v", got)
	}
}

func TestQueueFull(t *testing.T) {
	proceed := make(chan struct{})
	s, _ := open(t, Options{}, func(p *program) {
		<-proceed
		_, _ = io.Copy(io.Discard, p.lines)
	})
	sink := newRecorder()
	s.Bind(sink)
	for i := range int64(11) { // a little more than fits
		s.Request(i+1, "m", []byte(`{"x":"`+strings.Repeat("y", maxQueue/10)+`"}`), legacyPeer)
	}
	close(proceed)
	for {
		if h := sink.next(t); !h.writable {
			if h.failed != 11 || !errors.Is(h.err, ErrQueueFull) {
				t.Errorf("got %v", h)
			}
			return
		}
	}
}

// TestUnreadAnswers: a backend that asks without end and reads nothing does not take the daemon's memory. What is
// dropped is told once, until it reads again.
func TestUnreadAnswers(t *testing.T) {
	var log bytes.Buffer
	proceed := make(chan struct{})
	s, _ := open(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(p *program) {
		<-proceed
		_, _ = io.Copy(io.Discard, p.lines)
	})
	s.Bind(newRecorder())
	big := []byte(`"` + strings.Repeat("x", maxQueue/100) + `"`)
	for id := range int64(200) {
		s.Respond(wire.IntID(id), big, nil)
	}
	s.Notify("dropped too", nil)
	if got := strings.Count(log.String(), "are dropped for now"); got != 1 {
		t.Errorf("it is told %d times that something is dropped:\n%s", got, log.String())
	}
	close(proceed)

	if size := (item{m: wire.NewResponse("1", nil)}).size(); size < itemBytes {
		t.Errorf("an answer that says nothing counts as %d bytes", size)
	}
	b, answer := newOutbox(), item{m: wire.NewResponse("1", big[:16<<10])}
	for try := range 2 {
		dropped := 0
		for range 2 * maxQueue / answer.size() {
			if b.put(answer) {
				dropped++
			}
		}
		if b.bytes > maxQueue+answer.size() || dropped != 1 {
			t.Errorf("try %d: %d bytes are queued, told %d times", try, b.bytes, dropped)
		}
		for len(b.items) > 0 {
			it, _ := b.next()
			b.sent(it)
		}
		if b.bytes != 0 {
			t.Errorf("an empty queue has %d bytes", b.bytes)
		}
	}
}

// TestLossOnStdio: what was written is lost, what was not may be sent again, and Lost is the last word.
func TestLossOnStdio(t *testing.T) {
	s, _ := open(t, Options{}, func(p *program) {
		m, _ := p.read()
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		p.answer(m, `{"last":"words"}`)
		p.read()
		_, _ = p.lines.ReadByte()                        // the third is on its way
		fmt.Fprint(p.out, `{"jsonrpc":"2.0","id":2,"re`) // torn
	})
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "a", nil, legacyPeer)
	sink.note(t, "notifications/message")
	sink.result(t, 1)
	s.Request(2, "b", nil, legacyPeer)
	s.Request(3, "c", []byte(`{"x":"`+strings.Repeat("y", 1<<20)+`"}`), legacyPeer)
	s.Request(4, "d", nil, legacyPeer)
	errs := map[int64]error{}
	for range 3 {
		h := sink.next(t)
		errs[h.failed] = h.err
	}
	if h := sink.next(t); !h.lost || !errors.Is(h.err, io.EOF) {
		t.Errorf("got %v, want lost", h)
	}
	for id, unsent := range map[int64]bool{2: false, 3: false, 4: true} {
		if errs[id] == nil || errors.Is(errs[id], era.ErrSessionLost) != unsent {
			t.Errorf("request %d: %v", id, errs[id])
		}
	}
	ends(t.Context(), t, s.Done())
	if s.Err() == nil {
		t.Error("no error")
	}
	s.Request(5, "e", nil, legacyPeer)
	s.Cancel(5, nil)
	s.Notify("n", nil)
	sink.silent(t)
}

// TestClosedStdin: a backend that closes its stdin has a moment for its last answers, and no more.
func TestClosedStdin(t *testing.T) {
	closed, end := make(chan struct{}), make(chan struct{})
	s, _ := open(t, Options{}, func(p *program) {
		m, _ := p.read()
		p.in.Close()
		<-closed
		p.answer(m, `{}`)
		<-end
	})
	t.Cleanup(func() { close(end) })
	sink := newRecorder()
	s.Bind(sink)
	s.Request(1, "a", nil, legacyPeer)
	s.Request(2, "b", nil, legacyPeer)
	close(closed)
	sink.result(t, 1)
	contains(t, sink.failure(t, 2), "stdin")
	if h := sink.next(t); !h.lost {
		t.Errorf("got %v", h)
	}
}

// TestUnbound: what comes before there is a sink waits for it, within bounds.
func TestUnbound(t *testing.T) {
	refusals := make(chan wire.ID, 2)
	s, _ := open(t, Options{}, func(p *program) {
		for i := range maxEarly + 5 {
			p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"i":%d}}`, i)
		}
		p.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		m, _ := p.read()
		refusals <- m.ID
	})
	if id := <-refusals; id != "1" {
		t.Errorf("refused %s", id)
	}
	ends(t.Context(), t, s.Done())
	sink := newRecorder()
	s.Bind(sink)
	for i := range maxEarly {
		if h := sink.next(t); string(h.m.Params) != fmt.Sprintf(`{"i":%d}`, i) {
			t.Fatalf("got %v, want number %d", h, i)
		}
	}
	if h := sink.next(t); !h.lost {
		t.Errorf("got %v", h)
	}
	sink.silent(t)
}

func TestCloseIsTheLastWord(t *testing.T) {
	s, in := open(t, Options{}, func(p *program) {
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		p.read()
		p.read()
	})
	sink := newRecorder()
	s.Bind(sink)
	sink.note(t, "notifications/message")
	s.Request(1, "x", nil, legacyPeer)
	s.Close()
	in.(io.Closer).Close()
	ends(t.Context(), t, closedWhenJoined(s))
	sink.silent(t)
}

func closedWhenJoined(s *Stdio) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		s.Wait()
	}()
	return c
}
