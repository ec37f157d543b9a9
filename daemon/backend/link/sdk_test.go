package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// sdkServer is a backend made with the Go SDK. stopped hears of each call of "wait" that was cancelled.
func sdkServer(stopped chan<- struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
		Instructions:       "be nice",
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	type none struct{}
	text := func(format string, args ...any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}, nil, nil
	}
	type echo struct {
		Text string `json:"text"`
	}
	for _, name := range []string{"echo", "échö"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, in echo) (*mcp.CallToolResult, any, error) {
			return text("%s", in.Text)
		})
	}
	mcp.AddTool(s, &mcp.Tool{Name: "steps"}, func(ctx context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			//nolint:staticcheck // SA1019: servers of both eras log this way
			err := errors.Join(progress(ctx, r, i), r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: i}))
			if err != nil {
				return nil, nil, err
			}
		}
		return text("done")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		got, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?"})
		if err != nil {
			return nil, nil, err
		}
		return text("%s %v", got.Action, got.Content["name"])
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, r *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		if err := progress(ctx, r, 0); err != nil {
			return nil, nil, err
		}
		<-ctx.Done()
		stopped <- struct{}{}
		return nil, nil, ctx.Err()
	})
	mcp.AddTool(s, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "test://a"})
	})
	mcp.AddTool(s, &mcp.Tool{Name: "region", InputSchema: map[string]any{"type": "object", "properties": map[string]any{
		"where": map[string]any{"type": "string", "x-mcp-header": "Where"}}}},
		func(_ context.Context, _ *mcp.CallToolRequest, in map[string]any) (*mcp.CallToolResult, any, error) {
			return text("%v", in["where"])
		})
	s.AddResource(&mcp.Resource{URI: "test://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test://a", Text: "A"}}}, nil
	})
	return s
}

func progress(ctx context.Context, r *mcp.CallToolRequest, n int) error {
	return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: r.Params.GetProgressToken(), Progress: float64(n),
	})
}

// sdkLink is a link to such a server over one of the transports.
type sdkLink struct {
	Link
	sink    recorder
	stopped chan struct{}
	id      int64
}

func (l *sdkLink) call(method, params string) int64 {
	l.id++
	l.Request(l.id, method, inEra(l.Facts().Era, method, params), legacyPeer)
	return l.id
}

func overStdio(first era.Era) func(t *testing.T) *sdkLink {
	return func(t *testing.T) *sdkLink {
		stopped := make(chan struct{}, 10)
		stdin, in := io.Pipe()
		out, stdout := io.Pipe()
		ctx, cancel := context.WithCancelCause(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			_ = sdkServer(stopped).Run(ctx, &mcp.IOTransport{Reader: stdin, Writer: stdout}) // ends with its pipes
			stdout.Close()
		})
		s, err := OpenStdio(t.Context(), in, out, legacyPeer, []era.Era{first, era.Modern + era.Legacy - first}, Options{})
		t.Cleanup(func() {
			in.Close()
			cancel(nil)
			running.Wait()
			s.Close()
			s.Wait()
		})
		if err != nil {
			t.Fatal(err)
		}
		l := &sdkLink{Link: s, sink: newRecorder(), stopped: stopped}
		s.Bind(l.sink)
		return l
	}
}

func overHTTP(o mcp.StreamableHTTPOptions, peer era.Peer) func(t *testing.T) *sdkLink {
	return func(t *testing.T) *sdkLink {
		stopped := make(chan struct{}, 10)
		server := sdkServer(stopped)
		s := serveHandler(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &o))
		h := connect(t, s.URL, Options{}, peer)
		l := &sdkLink{stopped: stopped}
		l.Link, l.sink = openLink(t, h, peer)
		t.Cleanup(h.Close)
		return l
	}
}

func overSSE(t *testing.T) *sdkLink {
	stopped := make(chan struct{}, 10)
	server := sdkServer(stopped)
	s := serveHandler(t, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil))
	h := NewSSE(s.URL, Options{})
	t.Cleanup(h.Close)
	if _, err := h.Connect(t.Context(), legacyPeer); err != nil {
		t.Fatal(err)
	}
	l := &sdkLink{stopped: stopped}
	l.Link, l.sink = openLink(t, h, legacyPeer)
	return l
}

func TestGoSDKServers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		open    func(t *testing.T) *sdkLink
		era     era.Era
		stops   bool // a cancelled tool stops
		streams bool // HTTP: what belongs to a request is known to
	}{
		{name: "stdio legacy", open: overStdio(era.Legacy), era: era.Legacy, stops: true},
		{name: "stdio modern", open: overStdio(era.Modern), era: era.Modern, stops: true},
		{name: "http legacy", open: overHTTP(mcp.StreamableHTTPOptions{}, legacyPeer), era: era.Legacy, stops: true, streams: true},
		{name: "http legacy for a modern client", open: overHTTP(mcp.StreamableHTTPOptions{}, modernPeer),
			era: era.Legacy, stops: true, streams: true},
		{name: "http legacy with events", open: overHTTP(mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}, legacyPeer),
			era: era.Legacy, stops: true, streams: true},
		{name: "http modern", open: overHTTP(mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}, modernPeer),
			era: era.Modern, stops: true, streams: true},
		{name: "http modern for a legacy client", open: overHTTP(mcp.StreamableHTTPOptions{Stateless: true,
			PropagateRequestCancellation: true}, legacyPeer), era: era.Modern, stops: true, streams: true},
		{name: "http modern in JSON", open: overHTTP(mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true,
			PropagateRequestCancellation: true}, modernPeer), era: era.Modern},
		{name: "sse", open: overSSE, era: era.Legacy, stops: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := tt.open(t)
			sink := l.sink
			if f := l.Facts(); f.Era != tt.era || string(f.Instructions) != `"be nice"` || !f.Has("tools") {
				t.Fatalf("facts %+v", f)
			}
			if got := sink.result(t, l.call("tools/list", "")); !strings.Contains(got, `"échö"`) {
				t.Errorf("got %s", got)
			}
			for _, name := range []string{"echo", "échö"} {
				got := sink.result(t, l.call("tools/call", `{"name":"`+name+`","arguments":{"text":"<ü>\n"}}`))
				if !strings.Contains(got, `"text":"`) {
					t.Errorf("got %s", got)
				}
			}
			got := sink.result(t, l.call("tools/call", `{"name":"region","arguments":{"where":"süd"}}`))
			if !strings.Contains(got, "süd") {
				t.Errorf("got %s", got)
			}
			t.Run("progress", func(t *testing.T) { l.testProgress(t, tt.era, tt.streams) })
			t.Run("unknown", func(t *testing.T) { l.testUnknown(t) })
			if tt.stops {
				t.Run("cancel", func(t *testing.T) { l.testCancel(t) })
			}
			t.Run("updates", func(t *testing.T) { l.testUpdates(t, tt.era, strings.HasPrefix(tt.name, "http")) })
			if tt.era == era.Legacy {
				t.Run("questions", func(t *testing.T) { l.testQuestions(t, tt.streams) })
			}
			sink.silent(t)
		})
	}
}

// testProgress: all that belongs to a call comes before its answer.
func (l *sdkLink) testProgress(t *testing.T, e era.Era, streams bool) {
	if e == era.Legacy {
		l.sink.result(t, l.call("logging/setLevel", `{"level":"debug"}`))
	}
	id := l.call("tools/call", `{"name":"steps","arguments":{},"_meta":{"progressToken":5}}`)
	seen := map[string]int{}
	for {
		h := l.sink.next(t)
		if h.m.Kind == wire.Response {
			break
		}
		if want := id; streams && h.via != want {
			t.Errorf("via %d, want %d: %v", h.via, want, h)
		}
		seen[h.m.Method]++
	}
	if jsonOnly := len(seen) == 0; !jsonOnly && (seen["notifications/progress"] != 3 || seen["notifications/message"] != 3) {
		t.Errorf("heard %v", seen)
	}
}

func (l *sdkLink) testUnknown(t *testing.T) {
	id := l.call("vendor/x", "")
	h := l.sink.next(t)
	status, isStatus := errors.AsType[*StatusError](h.err)
	switch {
	case h.m.Kind == wire.Failure && h.m.ID == wire.IntID(id):
	case isStatus && h.failed == id && status.Status == 400: // legacy over HTTP
	default:
		t.Errorf("got %v", h)
	}
}

func (l *sdkLink) testCancel(t *testing.T) {
	id := l.call("tools/call", `{"name":"wait","arguments":{},"_meta":{"progressToken":6}}`)
	l.sink.note(t, "notifications/progress")
	l.Cancel(id, []byte(`"enough"`))
	select {
	case <-l.stopped:
	case <-time.After(patienceLimit):
		t.Fatal("the tool goes on")
	}
	// The SDK answers a cancelled request where there is a session.
	if h := l.sink.next(t); h.failed != id && h.m.ID != wire.IntID(id) {
		t.Errorf("got %v", h)
	}
}

// testUpdates: over HTTP it is the link that keeps a call behind the subscription, whose effects it is to show. On a
// pipe the order is kept anyway, and what the SDK then does at the same time is not for a link to know.
func (l *sdkLink) testUpdates(t *testing.T, e era.Era, atOnce bool) {
	listening := int64(0)
	if e == era.Legacy {
		l.sink.result(t, l.call("resources/subscribe", `{"uri":"test://a"}`))
	} else {
		listening = l.call("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["test://a"]}}`)
	}
	want := map[string]bool{"notifications/resources/updated": true, "": true}
	if e == era.Modern && atOnce {
		want["notifications/subscriptions/acknowledged"] = true
	} else if e == era.Modern {
		l.sink.note(t, "notifications/subscriptions/acknowledged")
	}
	id := l.call("tools/call", `{"name":"touch","arguments":{}}`)
	for len(want) > 0 {
		h := l.sink.next(t)
		if h.m.Method == "" && h.m.ID != wire.IntID(id) || !want[h.m.Method] {
			t.Fatalf("got %v, want %v", h, want)
		}
		delete(want, h.m.Method)
	}
	if e == era.Modern {
		l.Cancel(listening, nil)
		if h := l.sink.next(t); h.failed != listening && h.m.ID != wire.IntID(listening) {
			t.Errorf("got %v", h)
		}
	}
}

func (l *sdkLink) testQuestions(t *testing.T, streams bool) {
	id := l.call("tools/call", `{"name":"ask","arguments":{}}`)
	h := l.sink.note(t, "elicitation/create")
	if streams && h.via != id {
		t.Errorf("via %d, want %d", h.via, id)
	}
	l.Respond(h.m.ID, []byte(`{"action":"accept","content":{"name":"Bob"}}`), nil)
	if got := l.sink.result(t, id); !strings.Contains(got, "accept Bob") {
		t.Errorf("got %s", got)
	}
}

// TestGoSDKSessionLost: the server forgets the session, and another link serves as before.
func TestGoSDKSessionLost(t *testing.T) {
	server := sdkServer(make(chan struct{}, 1))
	s := serveHandler(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	h := connect(t, s.URL, Options{}, legacyPeer)
	l, sink := openLink(t, h, legacyPeer)
	l.Request(1, "ping", nil, legacyPeer)
	sink.result(t, 1)
	for session := range server.Sessions() {
		session.Close()
	}
	l.Request(2, "ping", nil, legacyPeer)
	if err := sink.failure(t, 2); !errors.Is(err, era.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
	if h := sink.next(t); !h.lost {
		t.Errorf("got %v", h)
	}
	l, sink = openLink(t, h, legacyPeer)
	l.Request(1, "ping", nil, legacyPeer)
	sink.result(t, 1)
}

// TestGoSDKSpoiltPipe: after a discover the server refuses initialize for good, so a modern backend must never be
// asked both, and one that was is worth a fresh process only.
func TestGoSDKSpoiltPipe(t *testing.T) {
	l := overStdio(era.Modern)(t)
	id := l.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	if h := l.sink.next(t); h.m.Kind != wire.Failure || h.m.ID != wire.IntID(id) {
		t.Errorf("got %v", h)
	}
}
