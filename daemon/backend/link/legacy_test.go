package link

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// TestLegacySession: a session's messages carry its id and version, the GET stream brings what belongs to no
// request, and what the backend asks on the stream of a request names that request.
func TestLegacySession(t *testing.T) {
	stream := make(chan string, 10)
	got := make(chan request, 20)
	s := serveFake(t, stateful(func(w web, r request) bool {
		session := r.header.Get("Mcp-Session-Id")
		if session == "session-2" {
			if r.header.Get("MCP-Protocol-Version") != "2025-11-25" {
				t.Errorf("%s %s without version: %v", r.verb, r.Method, r.header)
			}
			got <- r
		}
		switch {
		case r.verb == http.MethodGet && session == "session-2":
			w.stream()
			for {
				select {
				case text := <-stream:
					w.event("%s", text)
				case <-r.done:
					return true
				}
			}
		case r.Method == "tools/call":
			w.stream()
			w.event(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}`)
			w.event(`{"jsonrpc":"2.0","id":"k","method":"ping"}`)
			w.event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
			w.event(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, r.ID)
			return true
		}
		return false
	}))
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	next := func() request {
		t.Helper()
		select {
		case r := <-got:
			return r
		case <-time.After(patienceLimit):
			t.Fatal("the server gets nothing")
			return request{}
		}
	}
	if r := next(); r.Method != "notifications/initialized" {
		t.Errorf("%s came first", r.Method)
	}
	if r := next(); r.verb != http.MethodGet || r.header.Get("Accept") != "text/event-stream" {
		t.Errorf("%s %s came second", r.verb, r.Method)
	}
	stream <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	if h := sink.note(t, "notifications/tools/list_changed"); h.via != 0 {
		t.Errorf("got %v", h)
	}
	l.Request(7, "tools/call", []byte(`{"name":"ask"}`), legacyPeer)
	if h := sink.note(t, "elicitation/create"); h.via != 7 || h.m.ID != "0" {
		t.Errorf("got %v", h)
	}
	if h := sink.note(t, "notifications/progress"); h.via != 7 {
		t.Errorf("got %v", h)
	}
	if h := sink.next(t); h.via != 7 || h.m.Kind != wire.Response {
		t.Errorf("got %v", h)
	}
	l.Respond("0", nil, &wire.Error{Code: -1, Message: "no"})
	l.Notify("notifications/roots/list_changed", nil)
	seen := map[string]bool{}
	for range 4 {
		r := next()
		seen[fmt.Sprint(r.Kind, r.ID, r.Method)] = true
	}
	for _, want := range []string{"request7tools/call", `response"k"`, "failure0", "notificationnotifications/roots/list_changed"} {
		if !seen[want] {
			t.Errorf("the server lacks %q: %v", want, seen)
		}
	}
	l.Close()
	for r := next(); r.verb != http.MethodDelete; r = next() {
	}
	sink.silent(t)
}

// TestNoStream: a server without a GET stream is as good as any.
func TestNoStream(t *testing.T) {
	for name, status := range map[string]int{"405": 405, "404": 404, "400": 400, "200 without a stream": 200} {
		t.Run(name, func(t *testing.T) {
			gets := make(chan struct{}, 10)
			s := serveFake(t, stateful(func(w web, r request) bool {
				if r.verb == http.MethodGet && r.header.Get("Mcp-Session-Id") == "session-2" {
					gets <- struct{}{}
					w.status(status, "no")
					return true
				}
				return false
			}))
			h := connect(t, s.URL, Options{}, legacyPeer)
			l, sink := openLink(t, h, legacyPeer)
			for id := range int64(3) {
				l.Request(id+1, "tools/list", nil, legacyPeer)
				sink.result(t, id+1)
			}
			if len(gets) != 1 {
				t.Errorf("asked %d times", len(gets))
			}
		})
	}
}

// TestStreamComesBack: 409 and the end of the GET stream are tried again, from where it was.
func TestStreamComesBack(t *testing.T) {
	var mu sync.Mutex
	var lastIDs []string
	s := serveFake(t, stateful(func(w web, r request) bool {
		if r.verb != http.MethodGet || r.header.Get("Mcp-Session-Id") != "session-2" {
			return false
		}
		mu.Lock()
		lastIDs = append(lastIDs, r.header.Get("Last-Event-ID"))
		n := len(lastIDs)
		mu.Unlock()
		switch n {
		case 1:
			w.stream()
			fmt.Fprint(w.w, "retry: 20\nid: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/one\"}\n\n")
		case 2:
			w.status(http.StatusConflict, "")
		default:
			w.stream()
			w.event(`{"jsonrpc":"2.0","method":"notifications/two"}`)
			<-r.done
		}
		return true
	}))
	h := connect(t, s.URL, Options{}, legacyPeer)
	_, sink := openLink(t, h, legacyPeer)
	sink.note(t, "notifications/one")
	sink.note(t, "notifications/two")
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(lastIDs, []string{"", "e1", "e1"}) {
		t.Errorf("got %q", lastIDs)
	}
}

// TestStreamIsOpenBeforeTheFirstRequest: what a server says beside an answer is lost where there is no GET stream yet.
func TestStreamIsOpenBeforeTheFirstRequest(t *testing.T) {
	var mu sync.Mutex
	open := false
	s := serveFake(t, stateful(func(w web, r request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.header.Get("Mcp-Session-Id") != "session-2" {
			return false
		}
		if r.verb == http.MethodGet {
			open = true
			w.stream()
			mu.Unlock()
			<-r.done
			mu.Lock()
			return true
		}
		if r.Method == "tools/list" && !open {
			t.Error("the request came first")
		}
		return false
	}))
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	l.Request(1, "tools/list", nil, legacyPeer)
	sink.result(t, 1)
}

// TestResumption: a stream that ends before the answer is continued behind its last event.
func TestResumption(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parts []string // of the response to the POST, and of the GETs that continue it; a number is a status
		want  string   // "" for a failure
		words string
	}{
		{name: "continued", parts: []string{
			"id: a\nretry: 5\ndata:\n\n", "id: b\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1}}\n\n"}, want: `{"n":1}`},
		{name: "polled", parts: []string{
			"event: prime\nid: a\nretry: 1\ndata: \n\n", "id: b\ndata: \n\n", "id: c\ndata: \n\n", "id: d\ndata: \n\n", "id: e\ndata: \n\n",
			"id: f\ndata: \n\n", "id: g\ndata: \n\n", "id: h\ndata: \n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"}, want: `{}`},
		{name: "no position", parts: []string{"data: \n\n"}, words: "without an answer"},
		{name: "refused", parts: []string{"id: a\nretry: 1\ndata: \n\n", "405"}, words: "could not be continued: HTTP status 405"},
		{name: "nothing new for ever", parts: []string{
			"id: a\nretry: 1\ndata: \n\n", "", "", "", "", "", "must not be asked for"}, words: "without an answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			parts := tt.parts
			last := ""
			s := serveFake(t, stateful(func(w web, r request) bool {
				mu.Lock()
				defer mu.Unlock()
				lastID := r.header.Get("Last-Event-ID")
				if r.Method != "tools/call" && lastID == "" {
					return false
				}
				if lastID != last {
					t.Errorf("continued behind %q, want %q", lastID, last)
				}
				part := parts[0]
				parts = parts[1:]
				if part == "405" {
					w.status(405, "")
					return true
				}
				if id, ok := strings.CutPrefix(part[strings.Index(part+"id: ", "id: "):], "id: "); ok {
					last, _, _ = strings.Cut(id, "\n")
				}
				w.stream()
				fmt.Fprint(w.w, part)
				return true
			}))
			h := connect(t, s.URL, Options{}, legacyPeer)
			l, sink := openLink(t, h, legacyPeer)
			l.Request(1, "tools/call", nil, legacyPeer)
			if tt.want != "" {
				if got := sink.result(t, 1); got != tt.want {
					t.Errorf("got %s", got)
				}
			} else {
				contains(t, sink.failure(t, 1), tt.words)
			}
			mu.Lock()
			defer mu.Unlock()
			if rest := strings.Join(parts, "|"); rest != "" && rest != "must not be asked for" {
				t.Errorf("not asked for: %q", parts)
			}
		})
	}
}

func TestResumePause(t *testing.T) {
	for _, tt := range []struct {
		retry time.Duration
		tries int
		want  time.Duration
	}{
		{0, 0, time.Second}, {0, 2, 2250 * time.Millisecond}, {0, 20, resumeLast},
		{10 * time.Millisecond, 1, 15 * time.Millisecond}, {maxRetry, 0, maxRetry}, {maxRetry, 3, maxRetry},
	} {
		if got := resumePause(&position{retry: tt.retry}, tt.tries); got != tt.want {
			t.Errorf("after %d tries and retry %v: %v, want %v", tt.tries, tt.retry, got, tt.want)
		}
	}
}

// TestLegacyCancel: a notification, behind the request, and then an answer or the end.
func TestLegacyCancel(t *testing.T) {
	begun, cancelled := make(chan struct{}, 1), make(chan string, 3)
	answers := make(chan struct{})
	s := serveFake(t, stateful(func(w web, r request) bool {
		switch r.Method {
		case "answers":
			begun <- struct{}{}
			<-answers
			w.sseResult(`{"isError":true}`)
			return true
		case "silent":
			w.stream()
			begun <- struct{}{}
			<-r.done
			return true
		case "notifications/cancelled":
			cancelled <- string(r.Params)
		}
		return false
	}))
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	l.Request(1, "answers", nil, legacyPeer)
	<-begun
	l.Cancel(1, []byte(`"r"`))
	if got := <-cancelled; got != `{"requestId":1,"reason":"r"}` {
		t.Errorf("got %s", got)
	}
	close(answers)
	sink.result(t, 1)
	l.Request(2, "silent", nil, legacyPeer)
	<-begun
	l.Cancel(2, nil)
	if err := sink.failure(t, 2); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v", err)
	}
	if got := <-cancelled; got != `{"requestId":2}` {
		t.Errorf("got %s", got)
	}
	l.Cancel(1, nil)
	l.Cancel(2, nil)
	l.Request(3, "tools/list", nil, legacyPeer)
	sink.result(t, 3)
	if len(cancelled) != 0 {
		t.Errorf("cancelled once more: %s", <-cancelled)
	}
}

// TestSessionLost: the request that finds out, and those beside it, were not processed; the one that runs may have
// been.
func TestSessionLost(t *testing.T) {
	for name, gone := range map[string]func(w web){
		"TypeScript": func(w web) {
			w.json(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
		},
		"Go":              func(w web) { w.status(404, "session not found\n") },
		"400":             func(w web) { w.status(400, "Unknown session") },
		"503":             func(w web) { w.status(503, "session does not exist") },
		"not initialized": func(w web) { w.json(400, noSession) },
	} {
		t.Run(name, func(t *testing.T) {
			running, lost := make(chan struct{}), make(chan struct{})
			var mu sync.Mutex
			deleted := 0
			s := serveFake(t, stateful(func(w web, r request) bool {
				if r.header.Get("Mcp-Session-Id") != "session-2" {
					return false
				}
				switch {
				case r.Method == "running":
					w.stream()
					close(running)
					<-r.done
					return true
				case r.verb == http.MethodDelete:
					mu.Lock()
					defer mu.Unlock()
					deleted++
					return false
				case r.Kind == wire.Request:
					<-lost
					gone(w)
					return true
				}
				return false
			}))
			h := connect(t, s.URL, Options{}, legacyPeer)
			l, sink := openLink(t, h, legacyPeer)
			l.Request(1, "running", nil, legacyPeer)
			<-running
			for id := range int64(3) {
				l.Request(id+2, "tools/call", nil, legacyPeer)
			}
			close(lost)
			failed := map[int64]bool{}
			for range 4 {
				h := sink.next(t)
				if h.err == nil || h.failed == 0 {
					t.Fatalf("got %v", h)
				}
				failed[h.failed] = errors.Is(h.err, era.ErrSessionLost)
				if answer, ok := errors.AsType[interface {
					error
					Answer() *wire.Error
				}](h.err); ok {
					t.Errorf("the loss of %d looks like an answer: %v", h.failed, answer)
				}
			}
			if failed[1] || !failed[2] || !failed[3] || !failed[4] {
				t.Errorf("unprocessed: %v", failed)
			}
			if h := sink.next(t); !h.lost || !errors.Is(h.err, era.ErrSessionLost) {
				t.Errorf("got %v", h)
			}
			again, sink2 := openLink(t, h, legacyPeer)
			again.Request(1, "tools/call", nil, legacyPeer)
			sink2.result(t, 1)
			l.Request(9, "tools/call", nil, legacyPeer)
			h.Close()
			sink.silent(t)
			if deleted != 0 {
				t.Error("a session that is gone was deleted")
			}
		})
	}
}

// TestNotASessionLost: errors that a handler makes about a session of its own are answers.
func TestNotASessionLost(t *testing.T) {
	s := serveFake(t, stateful(func(w web, r request) bool {
		switch r.Method {
		case "404":
			w.failure(404, notFound)
		case "400":
			w.failure(400, `{"code":-32602,"message":"unknown sessionId"}`)
		case "text":
			w.status(400, `JSON RPC not handled: "debug/session" unsupported`)
		case "500":
			w.status(500, `session not found`)
		default:
			return false
		}
		return true
	}))
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	for id, method := range map[int64]string{1: "404", 2: "400", 3: "text", 4: "500"} {
		l.Request(id, method, nil, legacyPeer)
		if h := sink.next(t); h.m.Kind != wire.Failure && (h.failed != id || errors.Is(h.err, era.ErrSessionLost)) {
			t.Errorf("%s: %v", method, h)
		}
	}
	l.Request(5, "tools/list", nil, legacyPeer)
	sink.result(t, 5)
}

// TestOneSessionOnly: a server that refuses a second initialize gets one link for all, and another one when that
// is gone.
func TestOneSessionOnly(t *testing.T) {
	var mu sync.Mutex
	taken, lost, inits := false, false, 0
	s := serveFake(t, func(w web, r request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == "server/discover":
			w.failure(200, notFound)
		case r.Method == "initialize" && taken:
			w.json(400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}`)
		case r.Method == "initialize":
			taken = true
			inits++
			w.w.Header().Set("Mcp-Session-Id", "only")
			w.sseResult(initializeResult)
		case r.verb != http.MethodPost:
			w.status(405, "")
		case r.Kind == wire.Notification:
			w.status(202, "")
		case lost:
			lost, taken = false, false
			w.status(404, "session not found")
		case r.Method == "asks":
			w.stream()
			w.event(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			w.event(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
		default:
			w.sseResult(`{}`)
		}
	})
	h := connect(t, s.URL, Options{}, legacyPeer)
	if h.Shared() {
		t.Error("shared before anybody has tried")
	}
	a, sinkA := openLink(t, h, legacyPeer)
	if !h.Shared() || !a.Shared() {
		t.Error("not shared")
	}
	a.Request(1, "asks", nil, legacyPeer)
	if h := sinkA.note(t, "roots/list"); h.via != 1 {
		t.Errorf("got %v", h)
	}
	sinkA.result(t, 1)
	b, sinkB := openLink(t, h, modernPeer)
	if a != b {
		t.Error("two links")
	}
	b.Request(2, "tools/list", nil, legacyPeer)
	sinkB.result(t, 2)
	sinkA.silent(t)
	mu.Lock()
	lost = true
	mu.Unlock()
	b.Request(3, "tools/list", nil, legacyPeer)
	if err := sinkB.failure(t, 3); !errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
	if h := sinkB.next(t); !h.lost {
		t.Errorf("got %v", h)
	}
	c, sinkC := openLink(t, h, legacyPeer)
	if !c.Shared() || c == b {
		t.Error("not another shared link")
	}
	c.Request(1, "tools/list", nil, legacyPeer)
	sinkC.result(t, 1)
	mu.Lock()
	defer mu.Unlock()
	if inits != 2 {
		t.Errorf("%d handshakes", inits)
	}
}

// TestControlLinkRefuses: what a backend asks the control link waits until it is known whether somebody can answer.
func TestControlLinkRefuses(t *testing.T) {
	refused := make(chan wire.Message, 1)
	s := serveFake(t, stateful(func(w web, r request) bool {
		if r.header.Get("Mcp-Session-Id") != "session-1" {
			return false
		}
		if r.verb == http.MethodGet {
			w.stream()
			w.event(`{"jsonrpc":"2.0","id":0,"method":"roots/list"}`)
			<-r.done
			return true
		}
		if r.Kind == wire.Failure {
			refused <- r.Message
		}
		return false
	}))
	h := connect(t, s.URL, Options{}, legacyPeer)
	_, sink := openLink(t, h, legacyPeer)
	select {
	case m := <-refused:
		if m.ID != "0" {
			t.Errorf("got %s", m.Bytes())
		}
	case <-time.After(patienceLimit):
		t.Error("nobody answers")
	}
	sink.silent(t)
}

// TestSubscribeComesFirst: a change that a later call causes must not go unheard.
func TestSubscribeComesFirst(t *testing.T) {
	for _, method := range []string{"resources/subscribe", "resources/unsubscribe", "logging/setLevel"} {
		t.Run(method, func(t *testing.T) {
			var mu sync.Mutex
			var order []string
			release := make(chan struct{})
			s := serveFake(t, stateful(func(w web, r request) bool {
				if r.Method == method {
					<-release
				}
				if r.Kind == wire.Request && r.Method != "initialize" {
					mu.Lock()
					order = append(order, r.Method)
					mu.Unlock()
				}
				return false
			}))
			h := connect(t, s.URL, Options{}, legacyPeer)
			l, sink := openLink(t, h, legacyPeer)
			l.Request(1, "before", nil, legacyPeer)
			sink.result(t, 1)
			l.Request(2, method, nil, legacyPeer)
			l.Request(3, "after", nil, legacyPeer)
			l.Request(4, "withdrawn", nil, legacyPeer)
			l.Cancel(4, nil)
			close(release)
			sink.result(t, 2)
			for range 2 {
				if h := sink.next(t); h.failed != 4 && h.m.ID != "3" {
					t.Errorf("got %v", h)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if want := []string{"server/discover", "before", method, "after"}; !slices.Equal(order, want) {
				t.Errorf("got %q", order)
			}
		})
	}
}

// TestHTTPBackpressure: bodies that the server does not take make the link congested.
func TestHTTPBackpressure(t *testing.T) {
	release := make(chan struct{})
	slow := http.NewServeMux()
	fake := handler(t, stateful(nil))
	slow.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > HighWater {
			<-release
		}
		fake(w, r)
	})
	s := serveHandler(t, slow)
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	if l.Congested() {
		t.Error("congested too early")
	}
	l.Request(1, "tools/call", []byte(`{"x":"`+strings.Repeat("y", 4*HighWater)+`"}`), legacyPeer)
	if !l.Congested() {
		t.Error("not congested")
	}
	close(release)
	for range 2 {
		if h := sink.next(t); !h.writable && h.m.Kind != wire.Response {
			t.Errorf("got %v", h)
		}
	}
	if l.Congested() {
		t.Error("still congested")
	}
}

// TestManyRequests: more than fit at a time all get their answers, and a subscription takes nobody's place.
func TestManyRequests(t *testing.T) {
	s := serveFake(t, goStateless)
	h := connect(t, s.URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	const n = maxPosts + 50
	for id := range int64(n) {
		l.Request(id+1, "resources/list", inEra(era.Modern, "resources/list", ""), modernPeer)
	}
	seen := map[wire.ID]bool{}
	for range n {
		h := sink.next(t)
		if h.m.Kind != wire.Response || seen[h.m.ID] {
			t.Fatalf("got %v", h)
		}
		seen[h.m.ID] = true
	}
}

// TestAnswersAreBounded: a backend that asks without end and takes no answers gets no more of them at a time than
// requests, and all of them once it does.
func TestAnswersAreBounded(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	release, arrived := make(chan struct{}), make(chan struct{}, 2*maxPosts)
	s := serveFake(t, func(w web, r request) {
		if r.Kind != wire.Response {
			stateful(nil)(w, r)
			return
		}
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		arrived <- struct{}{}
		<-release
		mu.Lock()
		now--
		mu.Unlock()
		w.status(http.StatusAccepted, "")
	})
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, _ := openLink(t, h, legacyPeer)
	for id := range int64(2 * maxPosts) {
		l.Respond(wire.IntID(id), []byte(`{}`), nil)
	}
	for range maxPosts {
		<-arrived
	}
	close(release)
	for range maxPosts {
		<-arrived
	}
	if most > maxPosts {
		t.Errorf("%d answers were under way at a time", most)
	}
}

// TestPause has a clock of its own.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		pause(t.Context(), nil, time.Minute)
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("took %v", took)
		}
		c := make(chan struct{})
		close(c)
		pause(t.Context(), c, time.Minute)
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("took %v", took)
		}
	})
}
