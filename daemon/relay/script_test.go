package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// TestConversations runs the scripts in testdata/script. A line says who does
// what, or what must have come out:
//
//	facts legacy {caps}          what is remembered of the backend (before up)
//	starting | up legacy|modern shared|own {caps} | draining
//	down REASON text | unavailable REASON text | waiting REASON text
//	shutdown | restart | stop    of the daemon (stop ends Run)
//	attach A [resumed]           a client attaches
//	A> frame                     it sends a frame
//	A< pattern                   it gets this frame next
//	A eof | A gone | A ended     end of input, lost connection, session must be over
//	L1< pattern                  the first link that was opened gets this message
//	L1>  frame | L1>7 frame      the backend sends; via request 7
//	L1 failed 7 text | L1 session 7 | L1 version 7 text | L1 answer 7 code text | L1 lost | L1 closed
//	L1 congested | L1 writable
//	open fails text | open refuses code text | open works | open shares [frame]
//	needs N | drained N          how often the backend was asked for, told drained
//	wait 5s                      time passes
//	let NAME text                ${NAME} stands for text from here on
//	quiet                        nothing that was not asked for has come out
//
// In patterns $name matches one JSON value and stands for it from there on, and
// $* matches anything. What has come out at the end and was not asked for is an
// error: nobody hears what is not for him.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { newWorld(t, Config{}).run(string(text)) })
		})
	}
}

const (
	metaCaps  = `"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}`
	testNonce = "nonce"
)

// world is a router with scripted clients on one side and a scripted backend on
// the other.
type world struct {
	t       *testing.T
	router  *Router
	cancel  context.CancelCauseFunc
	vars    map[string]string
	clients map[string]*testClient
	stopped chan struct{}

	mu      sync.Mutex
	links   []*testLink
	needs   int
	drained int
	facts   map[era.Era]era.Facts
	gen     *testGeneration
	number  uint64
	openErr error
	shares  bool
	late    string   // what the backend says in an Open that its end is too late for
	failure *Failure // what Need is answered with
}

func newWorld(t *testing.T, config Config) *world {
	t.Helper()
	w := &world{
		t: t, clients: make(map[string]*testClient), facts: make(map[era.Era]era.Facts), stopped: make(chan struct{}),
		vars: map[string]string{
			"INIT":    `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{` + metaCaps + `},"clientInfo":{"name":"old","version":"1"}}}`,
			"READY":   `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			"M":       modernMeta(metaCaps),
			"BARE":    modernMeta(""),
			"RESULT":  `"resultType":"complete"`,
			"SUB":     `io.modelcontextprotocol/subscriptionId`,
			"LEVEL":   `"io.modelcontextprotocol/logLevel"`,
			"ALL":     `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`,
			"TOOLS":   `{"tools":{}}`,
			"CHANGED": `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			"nonce":   testNonce,
		},
	}
	config.Backend = w
	config.Facts = w.knownFacts
	config.Instance = testNonce
	if config.Tools == nil {
		config.Tools = testTools{}
	}
	w.router = New(config)
	ctx, cancel := context.WithCancelCause(context.Background())
	w.cancel = cancel
	go func() {
		defer close(w.stopped)
		if err := w.router.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { w.stop(ErrShutdown) })
	return w
}

func modernMeta(caps string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"new","version":"2"},"io.modelcontextprotocol/clientCapabilities":{` + caps + `}}`
}

func (w *world) stop(cause error) {
	w.cancel(cause)
	<-w.stopped
	for _, c := range w.clients {
		<-c.over
	}
}

// Need and Drained implement Backend.
func (w *world) Need(era.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needs++
	if w.failure != nil {
		w.router.Unavailable(*w.failure)
	}
}

func (w *world) Drained(uint64) { w.mu.Lock(); w.drained++; w.mu.Unlock() }

func (w *world) knownFacts(e era.Era) (era.Facts, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gen != nil {
		return w.gen.facts, true
	}
	f, ok := w.facts[e]
	return f, ok
}

// testTools is one dev tool, with an alias.
type testTools struct{}

func (testTools) Definitions() [][]byte {
	return [][]byte{[]byte(`{"name":"dev_status","inputSchema":{"type":"object"}}`)}
}

func (testTools) Has(name string) bool { return name == "dev_status" || name == "dev_slow" }

func (testTools) Call(ctx context.Context, name string, arguments []byte, progress func(string)) ToolAnswer {
	if name == "dev_slow" {
		progress("working")
		<-ctx.Done()
		return ToolAnswer{Text: context.Cause(ctx).Error(), IsError: true}
	}
	return ToolAnswer{Text: "all well", Structured: []byte(`{"ok":true}`)}
}

// testClient is a client with somebody who reads for it.
type testClient struct {
	session *Session
	mu      sync.Mutex
	got     []string
	over    chan struct{}
	err     error
}

func (w *world) attach(name string, shim Shim) *testClient {
	w.t.Helper()
	s, err := w.router.Attach(shim)
	if err != nil {
		w.t.Fatalf("attaching %s: %v", name, err)
	}
	c := &testClient{session: s, over: make(chan struct{})}
	w.clients[name] = c
	go func() {
		defer close(c.over)
		for {
			frame, err := s.Next(context.Background())
			if err != nil {
				c.err = err
				return
			}
			c.mu.Lock()
			c.got = append(c.got, string(frame))
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *testClient) pop() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return popFirst(&c.got)
}

func popFirst(list *[]string) (string, bool) {
	if len(*list) == 0 {
		return "", false
	}
	first := (*list)[0]
	*list = (*list)[1:]
	return first, true
}

// testGeneration opens testLinks.
type testGeneration struct {
	w      *world
	number uint64
	facts  era.Facts
	shared bool
}

func (g *testGeneration) Number() uint64   { return g.number }
func (g *testGeneration) Facts() era.Facts { return g.facts }
func (g *testGeneration) Shared() bool     { return g.shared }

func (g *testGeneration) Open(ctx context.Context, peer era.Peer, s Sink) (Link, error) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	late := g.w.late
	if late != "" { // just too fast for whoever gives it up
		g.w.mu.Unlock()
		<-ctx.Done()
		g.w.mu.Lock()
	}
	if g.w.openErr != nil {
		return nil, g.w.openErr
	}
	if g.w.shares {
		g.shared = true
		if n := len(g.w.links); n > 0 {
			l := g.w.links[n-1]
			if m, err := wire.Parse([]byte(late)); err == nil {
				l.sink = s
				s.Message(m, 0)
			}
			return l, nil
		}
	}
	l := &testLink{g: g, sink: s, peer: peer, shared: g.shared}
	g.w.links = append(g.w.links, l)
	return l, nil
}

// testLink notes what the router says to the backend.
type testLink struct {
	g         *testGeneration
	sink      Sink
	peer      era.Peer
	shared    bool
	mu        sync.Mutex
	got       []string
	closed    bool
	congested bool
}

func (l *testLink) Facts() era.Facts { return l.g.facts }
func (l *testLink) Shared() bool     { return l.shared }

func (l *testLink) note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, line)
}

func (l *testLink) Request(id int64, method string, params []byte, _ era.Peer) {
	l.note(string(wire.NewRequest(wire.IntID(id), method, params).Bytes()))
}

func (l *testLink) Notify(method string, params []byte) {
	l.note(string(wire.NewNotification(method, params).Bytes()))
}

func (l *testLink) Respond(id wire.ID, result []byte, e *wire.Error) {
	m := wire.NewResponse(id, result)
	if e != nil {
		m = wire.NewFailure(id, e)
	}
	l.note(string(m.Bytes()))
}

func (l *testLink) Cancel(id int64, reason []byte) {
	l.note(strings.TrimSpace(fmt.Sprintf("cancel %d %s", id, reason)))
}

func (l *testLink) Congested() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.congested
}

func (l *testLink) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *testLink) pop() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return popFirst(&l.got)
}

// run performs a script.
func (w *world) run(script string) {
	w.t.Helper()
	lines := bufio.NewScanner(strings.NewReader(script))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		synctest.Wait()
		if err := w.step(line); err != nil {
			w.t.Fatalf("line %d: %s\n%v", n, line, err)
		}
	}
	synctest.Wait()
	if err := w.quiet(); err != nil {
		w.t.Fatalf("at the end: %v", err)
	}
}

// must performs one line of a script.
func (w *world) must(line string) {
	w.t.Helper()
	if err := w.step(line); err != nil {
		w.t.Fatalf("%s\n%v", line, err)
	}
}

// quiet reports what came out and was not asked for.
func (w *world) quiet() error {
	var rest []string
	for name, c := range w.clients {
		for frame, ok := c.pop(); ok; frame, ok = c.pop() {
			rest = append(rest, name+"< "+frame)
		}
	}
	for i := range w.links {
		for frame, ok := w.links[i].pop(); ok; frame, ok = w.links[i].pop() {
			rest = append(rest, fmt.Sprintf("L%d< %s", i+1, frame))
		}
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		return errors.New("unexpected:\n" + strings.Join(rest, "\n"))
	}
	return nil
}

var (
	sending  = regexp.MustCompile(`^(\w+)>(\d*) (.*)$`)
	getting  = regexp.MustCompile(`^(\w+)< (.*)$`)
	variable = regexp.MustCompile(`\\\$(\w+|\\\*)`)
)

func (w *world) step(line string) error {
	if rest, ok := strings.CutPrefix(line, "let "); ok {
		name, text, _ := strings.Cut(rest, " ")
		w.vars[name] = w.expand(text)
		return nil
	}
	line = w.expand(line)
	if m := sending.FindStringSubmatch(line); m != nil {
		return w.send(m[1], m[2], w.substitute(m[3]))
	}
	if m := getting.FindStringSubmatch(line); m != nil {
		return w.expect(m[1], m[2])
	}
	words := strings.Fields(w.substitute(line))
	if c := w.clients[words[0]]; c != nil {
		return w.clientStep(c, words[1:])
	}
	if l := w.link(words[0]); l != nil {
		return w.linkStep(l, words[1:])
	}
	return w.worldStep(words)
}

// expand replaces ${NAME}.
func (w *world) expand(text string) string {
	for name, value := range w.vars {
		text = strings.ReplaceAll(text, "${"+name+"}", value)
	}
	return text
}

// substitute replaces $name in what is sent.
func (w *world) substitute(text string) string {
	for name, value := range w.vars {
		text = strings.ReplaceAll(text, "$"+name, value)
	}
	return text
}

func (w *world) link(name string) *testLink {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "L"))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || !strings.HasPrefix(name, "L") || n > len(w.links) {
		return nil
	}
	return w.links[n-1]
}

func (w *world) send(who, via, frame string) error {
	if c := w.clients[who]; c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		return c.session.Receive(ctx, []byte(frame))
	}
	l := w.link(who)
	if l == nil {
		return fmt.Errorf("there is no %s", who)
	}
	m, err := wire.Parse([]byte(frame))
	if err != nil {
		return err
	}
	n, _ := strconv.ParseInt(via, 10, 64)
	l.sink.Message(m, n)
	return nil
}

func (w *world) expect(who, pattern string) error {
	var frame string
	var ok bool
	if c := w.clients[who]; c != nil {
		frame, ok = c.pop()
	} else if l := w.link(who); l != nil {
		frame, ok = l.pop()
	} else {
		return fmt.Errorf("there is no %s", who)
	}
	if !ok {
		return fmt.Errorf("%s got nothing", who)
	}
	return w.match(pattern, frame)
}

// match compares a frame with a pattern and binds its variables.
func (w *world) match(pattern, frame string) error {
	var names []string
	expr := variable.ReplaceAllStringFunc(regexp.QuoteMeta(pattern), func(v string) string {
		name := strings.TrimPrefix(v, `\$`)
		if name == `\*` {
			return `.*`
		}
		if value, bound := w.vars[name]; bound {
			return regexp.QuoteMeta(value)
		}
		if slices.Contains(names, name) {
			return `.*`
		}
		names = append(names, name)
		return `("(?:[^"\\]|\\.)*"|-?[0-9.]+|[a-z]+)`
	})
	m := regexp.MustCompile("^" + expr + "$").FindStringSubmatch(frame)
	if m == nil {
		return fmt.Errorf("got  %s\nwant %s", frame, pattern)
	}
	for i, name := range names {
		w.vars[name] = m[i+1]
	}
	return nil
}

func (w *world) clientStep(c *testClient, words []string) error {
	switch words[0] {
	case "eof":
		c.session.EndOfInput()
	case "gone":
		c.session.Close(errors.New("connection lost"))
	case "ended":
		select {
		case <-c.session.Done():
		default:
			return errors.New("the session has not ended")
		}
	case "alive":
		if err := c.session.Err(); err != nil {
			return fmt.Errorf("the session has ended: %w", err)
		}
	case "blocked":
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := c.session.Receive(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/nothing"}`)); err == nil {
			return errors.New("the client was not made to wait")
		}
	default:
		return fmt.Errorf("what is %q", words[0])
	}
	return nil
}

func (w *world) linkStep(l *testLink, words []string) error {
	id := func() int64 {
		n, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		return n
	}
	switch words[0] {
	case "failed":
		l.sink.Failed(id(), errors.New(strings.Join(words[2:], " ")))
	case "oversize":
		l.sink.Failed(id(), overLimitError(strings.Join(words[2:], " ")))
	case "session":
		l.sink.Failed(id(), fmt.Errorf("404: %w", era.ErrSessionLost))
	case "version":
		refusal := &wire.Error{Code: era.CodeUnsupportedVersion, Message: strings.Join(words[2:], " ")}
		l.sink.Failed(id(), errors.Join(era.ErrSessionLost, refusal))
	case "answer":
		code, _ := strconv.ParseInt(words[2], 10, 64)
		l.sink.Failed(id(), fmt.Errorf("http: %w", &wire.Error{Code: code, Message: strings.Join(words[3:], " ")}))
	case "lost":
		l.sink.Lost(errors.New("pipe closed"))
	case "closed":
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed {
			return errors.New("the link is open")
		}
	case "congested", "writable":
		l.mu.Lock()
		l.congested = words[0] == "congested"
		l.mu.Unlock()
		l.sink.Writable()
	default:
		return fmt.Errorf("what is %q", words[0])
	}
	return nil
}

func (w *world) worldStep(words []string) error {
	rest := strings.Join(words[1:], " ")
	switch words[0] {
	case "facts":
		e, _ := parseEra(words[1])
		w.mu.Lock()
		w.facts[e] = testFacts(e, words[2])
		w.mu.Unlock()
	case "attach":
		w.attach(words[1], Shim{PID: 1, Version: "test", Resumed: len(words) > 2})
	case "starting":
		w.fail(nil)
		w.router.Starting(w.number + 1)
	case "up":
		w.up(words[1], words[2], words[3])
	case "draining":
		w.router.Draining(w.number)
	case "down":
		w.down(Failure{Reason: words[1], Message: strings.Join(words[2:], " ")})
	case "unavailable", "waiting":
		w.fail(&Failure{Reason: words[1], State: "failed", Message: strings.Join(words[2:], " "), Waiting: words[0] == "waiting"})
	case "shutdown":
		w.router.Shutdown(ErrShutdown)
	case "restart":
		w.router.Shutdown(ErrRestart)
	case "stop":
		cause := ErrShutdown
		if rest == "restart" {
			cause = ErrRestart
		}
		w.stop(cause)
	case "open":
		w.open(words[1:])
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		time.Sleep(d)
	case "needs", "drained":
		return w.counted(words[0], rest)
	case "quiet":
		return w.quiet()
	default:
		return fmt.Errorf("what is %q", words[0])
	}
	return nil
}

func (w *world) open(words []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.openErr, w.shares, w.late = nil, false, ""
	switch words[0] {
	case "fails":
		w.openErr = errors.New(strings.Join(words[1:], " "))
	case "refuses":
		code, _ := strconv.ParseInt(words[1], 10, 64)
		w.openErr = fmt.Errorf("handshake: %w", &wire.Error{Code: code, Message: strings.Join(words[2:], " ")})
	case "shares":
		w.shares, w.late = true, strings.Join(words[1:], " ")
	}
}

func (w *world) counted(what, want string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.needs
	if what == "drained" {
		got = w.drained
	}
	if strconv.Itoa(got) != want {
		return fmt.Errorf("got %d", got)
	}
	return nil
}

func parseEra(word string) (era.Era, string) {
	if word == "modern" {
		return era.Modern, era.ModernVersion
	}
	return era.Legacy, era.LegacyVersion
}

func testFacts(e era.Era, caps string) era.Facts {
	f := era.Facts{Era: e, Eras: []era.Era{e}, Version: era.LegacyVersion, Capabilities: []byte(caps), Info: []byte(`{"name":"srv","version":"3"}`)}
	if e == era.Modern {
		f.Version = era.ModernVersion
	}
	return f
}

func (w *world) up(eraWord, sharing, caps string) {
	e, _ := parseEra(eraWord)
	w.number++
	g := &testGeneration{w: w, number: w.number, facts: testFacts(e, caps), shared: sharing == "shared"}
	w.mu.Lock()
	w.gen = g
	w.failure = nil
	w.mu.Unlock()
	w.router.Starting(w.number)
	w.router.Up(g)
}

// fail sets what whoever needs the backend is told, and tells it.
func (w *world) fail(why *Failure) {
	w.mu.Lock()
	w.failure = why
	if why != nil && why.Reason == reasonStopped {
		w.failure = nil // the next request starts it again
	}
	w.mu.Unlock()
	if why != nil {
		w.router.Unavailable(*why)
	}
}

func (w *world) down(why Failure) {
	w.mu.Lock()
	if w.gen != nil {
		w.facts[w.gen.facts.Era] = w.gen.facts
	}
	w.gen = nil
	w.mu.Unlock()
	w.router.Down(w.number, why)
}

// overLimitError is what a link says of a message that passed a limit.
type overLimitError string

func (e overLimitError) Error() string { return string(e) }
func (overLimitError) OverLimit()      {}
