package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// request is what a fake server got: a message, or a bare GET or DELETE.
type request struct {
	wire.Message
	verb   string
	header http.Header
	done   <-chan struct{} // the client has gone
}

// web is a fake server's side of one response.
type web struct {
	t *testing.T
	w http.ResponseWriter
	m wire.Message
}

func (w web) status(code int, text string) {
	w.w.WriteHeader(code)
	_, _ = io.WriteString(w.w, text) // whether the client still reads is up to the test
}

func (w web) json(code int, text string) {
	w.w.Header().Set("Content-Type", "application/json")
	w.status(code, text)
}

func (w web) result(text string) {
	w.json(http.StatusOK, fmt.Sprintf(`{"result":%s,"jsonrpc":"2.0","id":%s}`, text, w.m.ID))
}

func (w web) failure(code int, e string) {
	w.json(code, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, w.m.ID, e))
}

// stream begins an event stream, whose headers go out at once.
func (w web) stream() {
	w.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.w.WriteHeader(http.StatusOK)
	w.w.(http.Flusher).Flush()
}

func (w web) event(format string, args ...any) {
	fmt.Fprintf(w.w, "event: message\ndata: "+format+"\n\n", args...)
	w.w.(http.Flusher).Flush()
}

func (w web) sseResult(text string) {
	w.stream()
	w.event(`{"result":%s,"jsonrpc":"2.0","id":%s}`, text, w.m.ID)
}

// serveFake runs a fake server.
func serveFake(t *testing.T, handle func(w web, r request)) *httptest.Server {
	t.Helper()
	return serveHandler(t, handler(t, handle))
}

func serveHandler(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func handler(t *testing.T, handle func(w web, r request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req := request{verb: r.Method, header: r.Header, done: r.Context().Done()}
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				req.Message, err = wire.Parse(body)
			}
			if err != nil {
				t.Errorf("the server got %q: %v", body, err)
			}
			accept := r.Header.Get("Accept")
			if !strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream") ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("headers %v", r.Header)
			}
		}
		handle(web{t, w, req.Message}, req)
	}
}

// connect makes a host that is connected.
func connect(t *testing.T, url string, o Options, greeting era.Peer) *Host {
	t.Helper()
	h := NewHTTP(url, o)
	t.Cleanup(h.Close)
	if _, err := h.Connect(t.Context(), greeting); err != nil {
		t.Fatal(err)
	}
	return h
}

func openLink(t *testing.T, h *Host, peer era.Peer) (Link, recorder) {
	t.Helper()
	sink := newRecorder()
	l, err := h.Open(t.Context(), peer, sink)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, sink
}

// The servers that were seen, as far as their handshakes and their ways to refuse go.

const noSession = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`

type kind func(w web, r request)

func typescript2(w web, r request) {
	switch {
	case r.verb != http.MethodPost:
		w.json(http.StatusMethodNotAllowed, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Method not allowed."},"id":null}`)
	case r.Method == "server/discover":
		w.result(discoverResult)
	case r.Method == "initialize":
		w.sseResult(initializeResult)
	case r.Kind == wire.Notification:
		w.status(http.StatusAccepted, "")
	default:
		w.result(`{"resultType":"complete"}`)
	}
}

func typescript2Reject(w web, r request) {
	if r.Kind == wire.Request && r.header.Get(headerVersion) != era.ModernVersion {
		w.failure(http.StatusBadRequest, unsupported)
		return
	}
	typescript2(w, r)
}

func goStateless(w web, r request) {
	switch {
	case r.verb != http.MethodPost:
		w.status(http.StatusMethodNotAllowed, "Method Not Allowed\n")
	case r.Method == "server/discover":
		w.sseResult(`{"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{}}`)
	default:
		typescript2(w, r)
	}
}

// stateful makes sessions with these ids, and refuses everything else without one.
func stateful(before func(w web, r request) bool) kind {
	var mu sync.Mutex
	n := 0
	return func(w web, r request) {
		if before != nil && before(w, r) {
			return
		}
		switch {
		case r.Method == "initialize":
			mu.Lock()
			n++
			w.w.Header().Set("Mcp-Session-Id", fmt.Sprintf("session-%d", n))
			mu.Unlock()
			w.sseResult(initializeResult)
		case r.header.Get("Mcp-Session-Id") == "":
			w.json(http.StatusBadRequest, noSession)
		case r.verb == http.MethodGet:
			w.stream()
			<-r.done
		case r.verb == http.MethodDelete:
			w.status(http.StatusOK, "")
		case r.Kind == wire.Notification || r.Kind == wire.Response || r.Kind == wire.Failure:
			w.status(http.StatusAccepted, "")
		default:
			w.sseResult(`{}`)
		}
	}
}

func goStateful() kind {
	return stateful(func(w web, r request) bool {
		if r.Method == "server/discover" {
			w.sseResult(legacyDiscover)
			return true
		}
		if r.header.Get(headerVersion) == era.ModernVersion {
			w.failure(http.StatusBadRequest, unsupportedOld)
			return true
		}
		return false
	})
}

func typescript1() kind { return stateful(nil) }

func typescript1Stateless(w web, r request) {
	if r.header.Get(headerVersion) == era.ModernVersion {
		w.json(http.StatusBadRequest,
			`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"},"id":null}`)
		return
	}
	if r.verb == http.MethodGet {
		w.stream()
		<-r.done
		return
	}
	typescript2(w, r)
}

func modernWithSessions() kind {
	return stateful(func(w web, r request) bool {
		if r.header.Get(headerVersion) == era.ModernVersion {
			typescript2(w, r)
			return true
		}
		return false
	})
}

func TestDetection(t *testing.T) {
	const legacy, modern = era.Legacy, era.Modern
	for _, tt := range []struct {
		name                  string
		kind                  kind
		choice                Choice
		eras                  string
		forLegacy, forModern  era.Era // the era of the link that a peer gets, and of the facts for it
		factsLegacy, factsAll era.Era
	}{
		{name: "TypeScript 2", kind: typescript2, eras: "modern legacy", forLegacy: modern, forModern: modern},
		{name: "TypeScript 2 without legacy", kind: typescript2Reject, eras: "modern", forLegacy: modern, forModern: modern},
		{name: "Go stateless", kind: goStateless, eras: "modern legacy", forLegacy: modern, forModern: modern},
		{name: "Go stateful", kind: goStateful(), eras: "legacy", forLegacy: legacy, forModern: legacy},
		{name: "TypeScript 1", kind: typescript1(), eras: "legacy", forLegacy: legacy, forModern: legacy},
		{name: "TypeScript 1 stateless", kind: typescript1Stateless, eras: "legacy", forLegacy: legacy, forModern: legacy},
		{name: "both with sessions", kind: modernWithSessions(), eras: "modern legacy", forLegacy: legacy, forModern: modern},
		{name: "legacy by choice", kind: modernWithSessions(), choice: LegacyOnly, eras: "legacy", forLegacy: legacy, forModern: legacy},
		{name: "modern by choice", kind: modernWithSessions(), choice: ModernOnly, eras: "modern", forLegacy: modern, forModern: modern},
		{name: "-32022 first", kind: func() kind {
			asked := false
			return func(w web, r request) {
				if r.Method == "server/discover" && !asked {
					asked = true
					w.failure(http.StatusBadRequest, unsupported)
					return
				}
				typescript2(w, r)
			}
		}(), eras: "modern legacy", forLegacy: modern, forModern: modern},
		{name: "an unknown path for discover", kind: stateful(func(w web, r request) bool {
			if r.Method == "server/discover" {
				w.status(http.StatusNotFound, "<html>not here</html>")
				return true
			}
			return false
		}), eras: "legacy", forLegacy: legacy, forModern: legacy},
		{name: "pretty-printed", kind: func(w web, r request) {
			if r.Method == "server/discover" {
				w.json(http.StatusOK, fmt.Sprintf("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": %s,\n  \"result\": %s\n}\n",
					r.ID, strings.ReplaceAll(discoverResult, ",", ",\n")))
				return
			}
			typescript2(w, r)
		}, eras: "modern legacy", forLegacy: modern, forModern: modern},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serveFake(t, tt.kind)
			for peer, want := range map[*era.Peer]era.Era{&legacyPeer: tt.forLegacy, &modernPeer: tt.forModern} {
				h := NewHTTP(s.URL+"/mcp", Options{Choice: tt.choice})
				defer h.Close()
				facts, err := h.Connect(t.Context(), *peer)
				if err != nil {
					t.Fatal(err)
				}
				if got := names(facts.Eras); got != tt.eras || facts.Era != want {
					t.Errorf("facts of %v for %v, eras %v, want %v and %v", facts.Era, peer.Era, got, want, tt.eras)
				}
				if bytesAgain := string(facts.Raw); strings.ContainsAny(bytesAgain, "\r\n") {
					t.Errorf("facts with a newline: %q", bytesAgain)
				}
				l, sink := openLink(t, h, *peer)
				if l.Facts().Era != want || l.Shared() || h.Shared() {
					t.Errorf("a link of %v for %v, want %v", l.Facts().Era, peer.Era, want)
				}
				l.Request(1, "tools/list", inEra(want, "tools/list", ""), *peer)
				sink.result(t, 1)
			}
		})
	}
}

func names(eras []era.Era) string {
	var out []string
	for _, e := range eras {
		out = append(out, e.String())
	}
	return strings.Join(out, " ")
}

func TestDetectionErrors(t *testing.T) {
	status := func(code int) kind { return func(w web, r request) { w.status(code, "go away") } }
	for _, tt := range []struct {
		name   string
		kind   kind
		choice Choice
		words  []string
	}{
		{name: "401", kind: status(401), words: []string{"401", "go away"}},
		{name: "403", kind: status(403), words: []string{"403"}},
		{name: "500", kind: status(500), words: []string{"500", "go away"}},
		{name: "404 all over", kind: status(404), words: []string{"404", "event stream"}},
		{name: "HTML", kind: func(w web, r request) {
			w.w.Header().Set("Content-Type", "text/html")
			w.status(200, "<html>hello</html>")
		}, words: []string{"text/html", "<html>hello"}},
		{name: "an empty answer", kind: status(202), words: []string{"go away"}},
		{name: "broken JSON", kind: func(w web, r request) { w.json(200, `{"jsonrpc":`) }, words: []string{"unreadable"}},
		{name: "not modern", kind: typescript1(), choice: ModernOnly, words: []string{"does not speak the modern era"}},
		{name: "not legacy", kind: typescript2Reject, choice: LegacyOnly, words: []string{"unsupported"}},
		{name: "500 at initialize", kind: func(w web, r request) {
			if r.Method == "server/discover" {
				w.failure(200, notFound)
			} else {
				w.failure(500, `{"code":-32603,"message":"boom"}`)
			}
		}, words: []string{"boom"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHTTP(serveFake(t, tt.kind).URL, Options{Choice: tt.choice})
			defer h.Close()
			_, err := h.Connect(t.Context(), modernPeer)
			contains(t, err, tt.words...)
		})
	}
}

// TestConnectWaitsForTheServer: refused connections and "not yet" are no errors until the context ends.
func TestConnectWaitsForTheServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	h := NewHTTP("http://"+address+"/mcp", Options{})
	defer h.Close()
	type outcome struct {
		facts era.Facts
		err   error
	}
	got := make(chan outcome, 1)
	go func() {
		facts, err := h.Connect(t.Context(), modernPeer)
		got <- outcome{facts, err}
	}()
	time.Sleep(3 * firstRetry) // as long as a start takes
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Skip("the port was taken meanwhile")
	}
	early := 2
	s := httptest.NewUnstartedServer(handler(t, func(w web, r request) {
		if early > 0 {
			early--
			w.status(http.StatusServiceUnavailable, "starting")
			return
		}
		typescript2(w, r)
	}))
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	defer s.Close()
	if o := <-got; o.err != nil || o.facts.Era != era.Modern {
		t.Errorf("got %v, %v", o.facts.Era, o.err)
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	why := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*firstRetry, why)
	defer cancel()
	h := NewHTTP("http://"+listener.Addr().String(), Options{})
	defer h.Close()
	if _, err := h.Connect(ctx, modernPeer); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyLoopbackIsDialled(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://127.0.0.1:1/mcp": true, "http://127.9.8.7:1": true, "http://[::1]:1": true, "http://LocalHost:1": true,
		"http://[::ffff:127.0.0.1]:1": true,
		"http://example.org/mcp":      false, "http://10.0.0.1:80": false, "http://0.0.0.0:1": false, "http://[::]:1": false,
		"http://localhost.example.org": false, "https://127.0.0.1": false, "http://": false, "://": false, "http://127.1:1": false,
		"http://[::ffff:10.0.0.1]:1": false,
	} {
		if _, err := parseTarget(url); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
	h := NewHTTP("http://192.0.2.1/mcp", Options{})
	defer h.Close()
	_, err := h.Connect(t.Context(), modernPeer)
	contains(t, err, "loopback")

	t.Setenv("HTTP_PROXY", "http://192.0.2.1:3128")
	for _, elsewhere := range []string{"http://192.0.2.1/mcp", "//example.org/mcp", "http://localhost@example.org/", "https://example.org/"} {
		redirect := serveFake(t, func(w web, r request) {
			w.w.Header().Set("Location", elsewhere)
			w.status(http.StatusTemporaryRedirect, "")
		})
		h := NewHTTP(redirect.URL, Options{})
		_, err := h.Connect(t.Context(), modernPeer)
		h.Close()
		contains(t, err, "loopback")
	}
}

// TestRedirect: a slash too few is no reason to fail, as the method and the body stay.
func TestRedirect(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/mcp/", handler(t, typescript2))
	mux.Handle("/mcp", http.RedirectHandler("/mcp/", http.StatusTemporaryRedirect))
	s := httptest.NewServer(mux)
	defer s.Close()
	h := connect(t, s.URL+"/mcp", Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	l.Request(1, "tools/list", inEra(era.Modern, "tools/list", ""), modernPeer)
	sink.result(t, 1)
}

// TestModernHeaders: each message says in its headers what it says in its body.
func TestModernHeaders(t *testing.T) {
	got := make(chan request, 10)
	s := serveFake(t, func(w web, r request) {
		if r.Method != "server/discover" && r.Method != "initialize" && r.Method != "tools/list" {
			got <- r
		}
		if r.Method == "tools/list" {
			w.result(`{"tools":[{"name":"n","inputSchema":{"type":"object","properties":{
				"region":{"type":"string","x-mcp-header":"Region"},
				"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}}]}`)
			return
		}
		typescript2(w, r)
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	for i, tt := range []struct{ method, params, name string }{
		{"tools/call", `{"name":"n","arguments":{"region":"süd","deep":{"n":42}}}`, "n"},
		{"prompts/get", `{"name":"a b"}`, "a b"},
		{"resources/read", `{"uri":"file:///x?q=1"}`, "file:///x?q=1"},
		{"tasks/get", `{"taskId":"t1"}`, "t1"},
		{"tools/call", `{"name":" ünï"}`, "=?base64?IMO8bsOv?="},
		{"vendor/x", `{}`, ""},
	} {
		id := int64(i + 1)
		l.Request(id, tt.method, inEra(era.Modern, tt.method, tt.params), modernPeer)
		sink.result(t, id)
		r := <-got
		if r.header.Get("Mcp-Method") != tt.method || r.header.Get("Mcp-Name") != tt.name ||
			r.header.Get("MCP-Protocol-Version") != era.ModernVersion || r.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %v", tt.method, r.header)
		}
		if i == 0 && (r.header.Get("Mcp-Param-Region") != "=?base64?c8O8ZA==?=" || r.header.Get("Mcp-Param-N") != "42") {
			t.Errorf("no argument headers: %v", r.header)
		}
	}
	l.Notify("notifications/vendor", []byte(`{"a":1}`))
	if r := <-got; r.header.Get("Mcp-Method") != "notifications/vendor" || r.Kind != wire.Notification ||
		r.header.Get("MCP-Protocol-Version") != era.ModernVersion {
		t.Errorf("got %v", r)
	}
}

const mismatch = `{"code":-32020,"message":"header mismatch"}`

// TestHeaderMismatch: the two ways to write a name are tried once, and the right one is remembered.
func TestNamesAsPlainBytes(t *testing.T) {
	var names []string
	s := serveFake(t, func(w web, r request) {
		if r.Method != "tools/call" {
			goStateless(w, r)
			return
		}
		name := r.header.Get("Mcp-Name")
		names = append(names, name)
		if want, _ := era.NameHeader(r.Method, r.Params); name != want {
			w.failure(http.StatusBadRequest, mismatch)
			return
		}
		w.result(`{}`)
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	for id := range int64(2) {
		l.Request(id+1, "tools/call", inEra(era.Modern, "tools/call", `{"name":"ünï"}`), modernPeer)
		sink.result(t, id+1)
	}
	if want := []string{"=?base64?w7xuw68=?=", "ünï", "ünï"}; !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
	names = nil
	l.Request(3, "tools/call", inEra(era.Modern, "tools/call", `{"name":"a\nb"}`), modernPeer)
	if h := sink.next(t); h.m.Kind != wire.Failure || len(names) != 1 {
		t.Errorf("got %v after %q: what cannot be a header must not be tried", h, names)
	}
	l.Request(4, "tools/call", inEra(era.Modern, "tools/call", `{"name":"plain"}`), modernPeer)
	sink.result(t, 4)
}

// TestArgumentHeaders: a tool whose schema has changed costs one repetition, and one that is never content no more
// than that.
func TestArgumentHeaders(t *testing.T) {
	var mu sync.Mutex
	header, listed, called := "Old", 0, 0
	s := serveFake(t, func(w web, r request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case "tools/list":
			listed++
			if !strings.Contains(string(r.Params), `"cursor":"2"`) {
				w.result(`{"tools":[{"name":"other","inputSchema":{"type":"object"}}],"nextCursor":"2"}`)
				return
			}
			w.result(fmt.Sprintf(`{"tools":[{"name":"n","inputSchema":{"type":"object","properties":{"a":{"type":"boolean","x-mcp-header":%q}}}}]}`, header))
		case "tools/call":
			called++
			if r.header.Get("Mcp-Param-"+header) != "true" {
				w.failure(http.StatusBadRequest, mismatch)
				return
			}
			w.result(`{}`)
		default:
			typescript2(w, r)
		}
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	call := func(id int64, params string) {
		l.Request(id, "tools/call", inEra(era.Modern, "tools/call", params), modernPeer)
	}
	count := func(wantListed, wantCalled int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if listed != wantListed || called != wantCalled {
			t.Errorf("listed %d pages and called %d times, want %d and %d", listed, called, wantListed, wantCalled)
		}
		listed, called = 0, 0
	}
	call(1, `{"name":"n","arguments":{"a":true}}`)
	sink.result(t, 1)
	count(2, 1)
	call(2, `{"name":"n","arguments":{"a":true}}`)
	sink.result(t, 2)
	count(0, 1)
	mu.Lock()
	header = "New"
	mu.Unlock()
	call(3, `{"name":"n","arguments":{"a":true}}`)
	sink.result(t, 3)
	count(2, 2)
	call(4, `{"name":"n","arguments":{"a":false}}`)
	if h := sink.next(t); h.m.Kind != wire.Failure || !strings.Contains(string(h.m.Error), "-32020") {
		t.Errorf("got %v", h)
	}
	count(2, 1)
}

// TestAnswersInEveryShape: a JSON-RPC error is one whatever the status, the type and the id, and everything else is
// told with its status.
func TestAnswersInEveryShape(t *testing.T) {
	s := serveFake(t, func(w web, r request) {
		switch r.Method {
		case "404":
			w.failure(http.StatusNotFound, notFound)
		case "null":
			w.json(http.StatusBadRequest, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"no"},"id":null}`)
		case "bare":
			w.status(http.StatusBadRequest, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"no"}}`)
		case "text":
			w.status(http.StatusBadRequest, "JSON RPC not handled: \"vendor/x\" unsupported\n")
		case "202":
			w.status(http.StatusAccepted, "")
		case "html":
			w.w.Header().Set("Content-Type", "text/html")
			w.status(http.StatusOK, "<p>")
		case "ended":
			w.stream()
			w.event(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		case "stranger":
			w.json(http.StatusOK, `{"jsonrpc":"2.0","id":99,"result":{}}`)
		case "junk event":
			w.stream()
			w.event(`junk`)
		case "after junk":
			w.stream()
			w.event(`junk`)
			fmt.Fprint(w.w, ": keepalive\n\nevent: ping\ndata: {}\n\ndata:\n\n")
			w.event("{\ndata: \"jsonrpc\":\"2.0\",\"id\":%s,\ndata: \"result\":{}}", r.ID)
		case "batch":
			w.json(http.StatusOK, fmt.Sprintf(`[{"jsonrpc":"2.0","method":"notifications/message"},{"jsonrpc":"2.0","id":%s,"result":{}}]`, r.ID))
		case "long":
			w.result(`{"x":"` + strings.Repeat("y", 5000) + `"}`)
		case "long event":
			w.sseResult(`{"x":"` + strings.Repeat("y", 5000) + `"}`)
		case "id":
			w.json(http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s.0,"result":{}}`, r.ID))
		case "id as text":
			w.json(http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","result":{}}`, r.ID))
		default:
			typescript2(w, r)
		}
	})
	h := connect(t, s.URL, Options{MaxReply: 4000}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	id := int64(0)
	ask := func(method string) int64 {
		id++
		l.Request(id, method, inEra(era.Modern, method, ""), modernPeer)
		return id
	}
	for _, method := range []string{"404", "null", "bare"} {
		ask(method)
		if h := sink.next(t); h.m.Kind != wire.Failure || h.via != id {
			t.Errorf("%s: %v", method, h)
		}
	}
	for method, words := range map[string][]string{
		"text": {"400", "not handled"}, "html": {"200", "text/html", "<p>"}, "202": {"without an answer"},
		"stranger": {"without an answer"}, "junk event": {"unreadable"}, "long": {replyLimit}, "long event": {replyLimit},
	} {
		ask(method)
		contains(t, sink.failure(t, id), words...)
	}
	ask("ended")
	if h := sink.note(t, "notifications/message"); h.via != id {
		t.Errorf("via %d, want %d", h.via, id)
	}
	if err := sink.failure(t, id); !errors.Is(err, ErrStreamEnded) || errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
	for _, method := range []string{"after junk", "id", "id as text"} {
		ask(method)
		if h := sink.next(t); h.m.Kind != wire.Response {
			t.Errorf("%s: %v", method, h)
		}
	}
	ask("batch")
	sink.note(t, "notifications/message")
	sink.result(t, id)
	sink.silent(t)
}

// TestHTTPLimits: what a server says around its answers is bounded, and what it is asked for.
func TestHTTPLimits(t *testing.T) {
	var mu sync.Mutex
	redirected, pages := 0, 0
	s := serveFake(t, func(w web, r request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case "headers":
			for range maxHeaders >> 10 {
				w.w.Header().Add("X-Long", strings.Repeat("x", 1<<10))
			}
			w.result(`{}`)
		case "text":
			w.status(http.StatusInternalServerError, strings.Repeat("x", 2*maxErrorBody))
		case "redirects":
			redirected++
			w.w.Header().Set("Location", fmt.Sprintf("/%d", redirected))
			w.status(http.StatusTemporaryRedirect, "")
		case "tools/list":
			pages++
			w.result(fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, pages))
		default:
			typescript2(w, r)
		}
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	ask := func(id int64, method, params string) {
		l.Request(id, method, inEra(era.Modern, method, params), modernPeer)
	}
	ask(1, "headers", "")
	contains(t, sink.failure(t, 1), "headers exceeded 1048576 bytes")
	ask(2, "text", "")
	if err := sink.failure(t, 2); len(err.Error()) > 2*maxErrorText {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	ask(3, "redirects", "")
	contains(t, sink.failure(t, 3), "307")
	ask(4, "tools/call", `{"name":"n"}`)
	sink.result(t, 4)
	if redirected != maxRedirects+1 || pages != maxToolPages {
		t.Errorf("%d requests for one with redirects, and %d for a list without end", redirected, pages)
	}
}

// TestErrorsAreRaw: the router tells answers from losses by what an error is.
func TestStatusErrorIsAnAnswer(t *testing.T) {
	err := &StatusError{Status: 418, Type: "text/plain", Body: "short and stout"}
	if got := string(err.Answer().Bytes()); !strings.Contains(got, `"data":{"status":418,"body":"short and stout"}`) {
		t.Errorf("got %s", got)
	}
}

func TestModernCancel(t *testing.T) {
	begun, stopped := make(chan struct{}, 3), make(chan struct{}, 3)
	s := serveFake(t, func(w web, r request) {
		switch r.Method {
		case "tools/call":
			begun <- struct{}{}
			<-r.done
			stopped <- struct{}{}
		case "subscriptions/listen":
			w.stream()
			w.event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
			<-r.done
			stopped <- struct{}{}
		default:
			typescript2(w, r)
		}
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	l.Request(1, "tools/call", inEra(era.Modern, "tools/call", `{"name":"n"}`), modernPeer)
	<-begun
	l.Cancel(1, nil)
	l.Cancel(1, nil)
	if err := sink.failure(t, 1); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v", err)
	}
	<-stopped
	l.Request(2, "subscriptions/listen", inEra(era.Modern, "subscriptions/listen", `{"notifications":{}}`), modernPeer)
	sink.note(t, "notifications/subscriptions/acknowledged")
	l.Cancel(2, nil)
	if err := sink.failure(t, 2); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v", err)
	}
	<-stopped
	l.Cancel(3, nil)
	sink.silent(t)
}

// TestListenComesFirst: later requests wait for the acknowledgement, and not for the end.
func TestListenComesFirst(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	s := serveFake(t, func(w web, r request) {
		switch r.Method {
		case "subscriptions/listen":
			time.Sleep(50 * time.Millisecond) // a server that is slow to get at it
			note("listening")
			w.stream()
			w.event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
			<-r.done
		case "resources/list":
			note("call")
			w.result(`{}`)
		default:
			typescript2(w, r)
		}
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	l.Request(1, "subscriptions/listen", inEra(era.Modern, "subscriptions/listen", `{"notifications":{}}`), modernPeer)
	l.Request(2, "resources/list", inEra(era.Modern, "resources/list", ""), modernPeer)
	sink.note(t, "notifications/subscriptions/acknowledged")
	sink.result(t, 2)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, []string{"listening", "call"}) {
		t.Errorf("got %v", order)
	}
}

// TestRefusedConnection: a request that no server took may be sent again.
func TestRefusedConnection(t *testing.T) {
	s := serveFake(t, typescript2)
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	s.Close()
	h.client.CloseIdleConnections()
	l.Request(1, "tools/list", inEra(era.Modern, "tools/list", ""), modernPeer)
	if err := sink.failure(t, 1); !errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
}

// TestBrokenConnection: one that a server took before it died may not.
func TestBrokenConnection(t *testing.T) {
	s := serveFake(t, func(w web, r request) {
		if r.Method == "tools/call" {
			conn, _, err := w.w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		typescript2(w, r)
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	l.Request(1, "tools/call", inEra(era.Modern, "tools/call", `{"name":"n"}`), modernPeer)
	if err := sink.failure(t, 1); errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
}

// TestCutAnswers: an answer that stops in its middle, as it does when its server dies, is a loss and no answer,
// however its end would have been told.
func TestCutAnswers(t *testing.T) {
	const whole = `{"jsonrpc":"2.0","id":7,"result":{"text":"ä\u00e4","on":false}}`
	var raw string
	s := serveFake(t, func(w web, r request) {
		if r.Method != "tools/call" {
			typescript2(w, r)
			return
		}
		conn, _, err := w.w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, raw)
		_ = conn.Close()
	})
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	id := int64(0)
	for name, frame := range map[string]func(part string) string{
		"a length": func(part string) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(whole), part)
		},
		"chunks": func(part string) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(part), part)
		},
		"its connection": func(part string) string { return "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + part },
		"a chunk of events": func(part string) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\ndata: %s", len(whole)+10, part)
		},
		"events with their connection": func(part string) string {
			return "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: message\ndata: " + part
		},
	} {
		for cut := range len(whole) {
			raw = frame(whole[:cut])
			id++
			l.Request(id, "tools/call", inEra(era.Modern, "tools/call", `{"name":"n"}`), modernPeer)
			err := sink.failure(t, id)
			if answer, ok := errors.AsType[interface {
				error
				Answer() *wire.Error
			}](err); ok || errors.Is(err, era.ErrSessionLost) {
				t.Errorf("%s, %q: %v, %v", name, whole[:cut], err, answer)
			}
		}
	}
	raw = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"jsonrpc":"2.0","id":oops,"result":{}}`
	l.Request(id+1, "tools/call", inEra(era.Modern, "tools/call", `{"name":"n"}`), modernPeer)
	contains(t, sink.failure(t, id+1), "the backend's answer is unreadable")
}

func TestHostClose(t *testing.T) {
	var mu sync.Mutex
	deleted := map[string]bool{}
	sessions := stateful(func(w web, r request) bool {
		if r.Method == "tools/call" {
			<-r.done
			return true
		}
		if r.verb == http.MethodDelete {
			mu.Lock()
			defer mu.Unlock()
			deleted[r.header.Get("Mcp-Session-Id")] = true
		}
		return false
	})
	h := connect(t, serveFake(t, sessions).URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	l.Request(1, "tools/call", nil, legacyPeer)
	h.Close()
	sink.silent(t)
	mu.Lock()
	defer mu.Unlock()
	if !deleted["session-1"] || !deleted["session-2"] {
		t.Errorf("deleted %v", deleted)
	}
	if _, err := h.Open(t.Context(), legacyPeer, sink); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := h.Connect(t.Context(), legacyPeer); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	l.Request(2, "tools/call", nil, legacyPeer)
	l.Close()
	sink.silent(t)
}

// TestCloseDuringConnect: a host that is closed waits for nobody.
func TestCloseDuringConnect(t *testing.T) {
	asked := make(chan struct{}, 1)
	s := serveFake(t, func(w web, r request) {
		asked <- struct{}{}
		<-r.done
	})
	h := NewHTTP(s.URL, Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := h.Connect(t.Context(), modernPeer)
		failed <- err
	}()
	<-asked
	h.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}
