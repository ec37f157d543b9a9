package link

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// oldServer is a fake server of HTTP+SSE, with one stream at a time.
type oldServer struct {
	endpoint string
	answer   func(s *oldServer, w web, r request) bool // true: the POST was dealt with

	mu     sync.Mutex
	stream chan string
	opened int
}

func (s *oldServer) send(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream <- fmt.Sprintf(format, args...)
}

func (s *oldServer) serve(w web, r request) {
	if r.verb == http.MethodGet {
		s.serveStream(w, r)
		return
	}
	if s.answer != nil && s.answer(s, w, r) {
		return
	}
	w.status(http.StatusAccepted, "Accepted")
	switch {
	case r.Method == "initialize":
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, strings.Replace(initializeResult, "2025-11-25", "2024-11-05", 1))
	case r.Kind == wire.Request:
		s.send("{\"jsonrpc\":\"2.0\",\ndata: \"id\":%s,\ndata: \"result\":{}}", r.ID)
	}
}

func (s *oldServer) serveStream(w web, r request) {
	stream := make(chan string, 100)
	s.mu.Lock()
	s.stream = stream
	s.opened++
	s.mu.Unlock()
	w.stream()
	fmt.Fprintf(w.w, ": hello\n\nevent: endpoint\ndata: %s\n\n", s.endpoint)
	w.w.(http.Flusher).Flush()
	for {
		select {
		case text := <-stream:
			if text == exit {
				return
			}
			w.event("%s", text)
		case <-r.done:
			return
		}
	}
}

// serveOld runs one under /sse, with its endpoint under /messages; everything else is 404.
func serveOld(t *testing.T, s *oldServer) string {
	t.Helper()
	mux := http.NewServeMux()
	fake := handler(t, s.serve)
	mux.HandleFunc("GET /sse", fake)
	mux.HandleFunc("POST /messages", fake)
	if s.endpoint == "" {
		s.endpoint = "/messages?sessionId=1"
	}
	return serveHandler(t, mux).URL + "/sse"
}

func TestSSE(t *testing.T) {
	for name, host := range map[string]func(string, Options) *Host{"configured": NewSSE, "found out": NewHTTP} {
		t.Run(name, func(t *testing.T) {
			old := &oldServer{}
			h := host(serveOld(t, old), Options{})
			defer h.Close()
			facts, err := h.Connect(t.Context(), modernPeer)
			if err != nil || facts.Era != era.Legacy || facts.Version != "2024-11-05" || !h.Shared() {
				t.Fatalf("got %+v, %v", facts, err)
			}
			old.send(`{"jsonrpc":"2.0","id":0,"method":"roots/list"}`)
			l, sink := openLink(t, h, modernPeer)
			if h := sink.note(t, "roots/list"); h.via != 0 {
				t.Errorf("got %v", h)
			}
			l.Request(1, "tools/list", nil, modernPeer)
			sink.result(t, 1)
			again, sink2 := openLink(t, h, legacyPeer)
			if again != l || !l.Shared() {
				t.Error("not one link for all")
			}
			l.Request(2, "tools/list", nil, modernPeer)
			sink2.result(t, 2)
			sink.silent(t)
		})
	}
}

// TestSSELost: the end of the stream ends the session, and the next one to ask gets another.
func TestSSELost(t *testing.T) {
	old := &oldServer{answer: func(s *oldServer, w web, r request) bool {
		if r.Method == "hangs" {
			w.status(http.StatusAccepted, "")
			s.send(exit)
			return true
		}
		return false
	}}
	h := NewSSE(serveOld(t, old), Options{})
	defer h.Close()
	if _, err := h.Connect(t.Context(), legacyPeer); err != nil {
		t.Fatal(err)
	}
	l, sink := openLink(t, h, legacyPeer)
	l.Request(1, "hangs", nil, legacyPeer)
	if err := sink.failure(t, 1); errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
	if h := sink.next(t); !h.lost {
		t.Errorf("got %v", h)
	}
	again, sink := openLink(t, h, legacyPeer)
	if again == l {
		t.Error("the lost link again")
	}
	again.Request(1, "tools/list", nil, legacyPeer)
	sink.result(t, 1)
	if old.opened != 2 {
		t.Errorf("%d streams", old.opened)
	}
}

// TestSSERefusals: what the endpoint says to a POST is told to whoever waits for its answer.
func TestSSERefusals(t *testing.T) {
	old := &oldServer{answer: func(_ *oldServer, w web, r request) bool {
		switch r.Method {
		case "500":
			w.status(500, "boom")
		case "gone":
			w.status(404, "Session not found")
		default:
			return false
		}
		return true
	}}
	h := NewSSE(serveOld(t, old), Options{})
	defer h.Close()
	if _, err := h.Connect(t.Context(), legacyPeer); err != nil {
		t.Fatal(err)
	}
	l, sink := openLink(t, h, legacyPeer)
	l.Request(1, "500", nil, legacyPeer)
	contains(t, sink.failure(t, 1), "500", "boom")
	l.Request(2, "tools/list", nil, legacyPeer)
	sink.result(t, 2)
	l.Request(3, "gone", nil, legacyPeer)
	if err := sink.failure(t, 3); !errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
	if h := sink.next(t); !h.lost {
		t.Errorf("got %v", h)
	}
}

func TestSSEConnectErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		old   *oldServer
		words []string
	}{
		"a stranger as endpoint":      {&oldServer{endpoint: "http://192.0.2.1/messages"}, []string{"loopback"}},
		"a stranger without a scheme": {&oldServer{endpoint: "//example.org/messages"}, []string{"loopback", "example.org"}},
		"a stranger behind a name":    {&oldServer{endpoint: "http://localhost@example.org/messages"}, []string{"loopback", "example.org"}},
		"a name that only begins so":  {&oldServer{endpoint: "http://127.0.0.1.example.org/"}, []string{"loopback"}},
		"another scheme":              {&oldServer{endpoint: "file:///etc/passwd"}, []string{"must begin with http://"}},
		"refused handshake": {&oldServer{answer: func(_ *oldServer, w web, r request) bool {
			w.status(400, "no sessionId")
			return true
		}}, []string{"initialize", "400"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewSSE(serveOld(t, tt.old), Options{})
			defer h.Close()
			_, err := h.Connect(t.Context(), legacyPeer)
			contains(t, err, tt.words...)
		})
	}
	h := NewSSE(serveFake(t, typescript2).URL, Options{})
	defer h.Close()
	_, err := h.Connect(t.Context(), legacyPeer)
	contains(t, err, "405")
	h = NewSSE("http://127.0.0.1:1", Options{Choice: ModernOnly})
	defer h.Close()
	_, err = h.Connect(t.Context(), modernPeer)
	contains(t, err, "legacy era only")
}

// TestSSEOrder: each message is accepted before the next one is sent, so they arrive in order.
func TestSSEOrder(t *testing.T) {
	got := make(chan string, 100)
	old := &oldServer{answer: func(_ *oldServer, _ web, r request) bool {
		if r.Kind == wire.Request && r.Method == "m" {
			got <- string(r.ID)
		}
		return false
	}}
	h := NewSSE(serveOld(t, old), Options{})
	defer h.Close()
	if _, err := h.Connect(t.Context(), legacyPeer); err != nil {
		t.Fatal(err)
	}
	l, sink := openLink(t, h, legacyPeer)
	for id := range int64(50) {
		l.Request(id+1, "m", nil, legacyPeer)
	}
	for id := range int64(50) {
		sink.result(t, id+1)
		if first := <-got; first != fmt.Sprint(id+1) {
			t.Fatalf("%s came at the place of %d", first, id+1)
		}
	}
}
