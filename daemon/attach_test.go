package daemon

import (
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/daemon/relay"
)

// noBackend is a backend that never comes up.
type noBackend struct{}

func (noBackend) Need(era.Peer)  {}
func (noBackend) Drained(uint64) {}

// bigTool is one dev tool, whose answers are large.
type bigTool struct{ size int }

func (t bigTool) Definitions() [][]byte {
	return [][]byte{[]byte(`{"name":"big","inputSchema":{"type":"object"}}`)}
}
func (t bigTool) Has(name string) bool { return name == "big" }
func (t bigTool) Call(context.Context, string, []byte, func(string)) relay.ToolAnswer {
	return relay.ToolAnswer{Text: strings.Repeat("x", t.size)}
}

// front is an attach service with its router, and a client of it. All of it
// runs in a synctest bubble.
type front struct {
	router *relay.Router
	client *client.Client
	end    func(cause error)
	pumps  *sync.WaitGroup
}

func newFront(t *testing.T, tool bigTool) front {
	t.Helper()
	router := relay.New(relay.Config{
		Backend: noBackend{}, Facts: func(era.Era) (era.Facts, bool) { return era.Facts{}, false }, Tools: tool,
	})
	ctx, end := context.WithCancelCause(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = router.Run(ctx) })
	pumps := new(sync.WaitGroup)
	server := grpc.NewServer(
		grpc.InitialWindowSize(client.WindowSize), grpc.InitialConnWindowSize(client.WindowSize), grpc.WaitForHandlers(true),
	)
	devproxyv1.RegisterAttachServiceServer(server, &attachService{
		router: router, version: "v1", instance: "instance", root: "/project", log: slog.New(slog.DiscardHandler), pumps: pumps,
	})
	listener := bufconn.Listen(1 << 16)
	running.Go(func() { _ = server.Serve(listener) })
	conn, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		end(relay.ErrShutdown)
		server.Stop()
		pumps.Wait()
		running.Wait()
	})
	return front{router: router, client: c, end: end, pumps: pumps}
}

type attachStream = grpc.BidiStreamingClient[devproxyv1.AttachRequest, devproxyv1.AttachResponse]

func (f front) open(t *testing.T, first *devproxyv1.AttachRequest) attachStream {
	t.Helper()
	stream, err := f.client.Attach().Attach(t.Context())
	if err == nil && first != nil {
		err = stream.Send(first)
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func helloOf(change func(*devproxyv1.Hello)) *devproxyv1.AttachRequest {
	hello := &devproxyv1.Hello{Contract: client.Contract, Version: "v1", Pid: 7, ProjectRoot: "/project"}
	change(hello)
	return &devproxyv1.AttachRequest{Payload: &devproxyv1.AttachRequest_Hello{Hello: hello}}
}

func asItIs(*devproxyv1.Hello) {}

func chunkOf(data string) *devproxyv1.AttachRequest {
	return &devproxyv1.AttachRequest{Payload: &devproxyv1.AttachRequest_Chunk{Chunk: chunk(data, true)}}
}

// next receives one whole message, or what came instead.
func next(t *testing.T, stream attachStream) (frame string, other *devproxyv1.AttachResponse, err error) {
	t.Helper()
	for {
		response, err := stream.Recv()
		if err != nil || response.GetChunk() == nil {
			return frame, response, err
		}
		frame += string(response.GetChunk().GetData())
		if response.GetChunk().GetLast() {
			return frame, nil, nil
		}
	}
}

func (f front) attach(t *testing.T) attachStream {
	t.Helper()
	stream := f.open(t, helloOf(asItIs))
	_, response, err := next(t, stream)
	if welcome := response.GetWelcome(); err != nil || welcome.GetContract() != client.Contract || welcome.GetInstance() != "instance" || welcome.GetWarning() != "" {
		t.Fatalf("welcome: %v, %v", response, err)
	}
	return stream
}

func TestHelloIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{})
		for name, test := range map[string]struct {
			first *devproxyv1.AttachRequest
			code  codes.Code
			want  string
		}{
			"nothing":            {nil, codes.InvalidArgument, "hello"},
			"a chunk":            {chunkOf("{}"), codes.InvalidArgument, "hello"},
			"a newer contract":   {helloOf(func(h *devproxyv1.Hello) { h.Contract++ }), codes.FailedPrecondition, "update devproxyd"},
			"an older contract":  {helloOf(func(h *devproxyv1.Hello) { h.Contract-- }), codes.FailedPrecondition, "update devproxy-shim"},
			"another project":    {helloOf(func(h *devproxyv1.Hello) { h.ProjectRoot = "/other" }), codes.FailedPrecondition, "serves /project, not /other"},
			"no project is fine": {helloOf(func(h *devproxyv1.Hello) { h.ProjectRoot = "" }), codes.OK, ""},
		} {
			stream := f.open(t, test.first)
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			_, _, err := next(t, stream)
			if status.Code(err) != test.code || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("%s: %v, want %v with %q", name, err, test.code, test.want)
			}
			if strings.Contains(name, "contract") {
				if details := status.Convert(err).Details(); len(details) != 1 || details[0].(*devproxyv1.Welcome).GetContract() != client.Contract {
					t.Errorf("%s: the details are %v", name, details)
				}
			}
		}
		stream := f.open(t, helloOf(func(h *devproxyv1.Hello) { h.Version = "v0" }))
		if _, response, err := next(t, stream); err != nil || !strings.Contains(response.GetWelcome().GetWarning(), "devproxy-shim v0 talks to devproxyd v1") {
			t.Errorf("another version: %v, %v", response, err)
		}
	})
}

// One client too many is told so, and how many there may be; the others go on.
func TestTooManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{})
		first := f.attach(t)
		for range relay.MaxSessions - 1 {
			if _, err := f.router.Attach(relay.Shim{}); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := next(t, f.open(t, helloOf(asItIs)))
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(fmt.Sprint(err), fmt.Sprint(relay.MaxSessions)) {
			t.Errorf("one too many gets %v", err)
		}
		if err := first.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, _, err = next(t, first)
		}
		synctest.Wait()
		f.attach(t)
	})
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	callBig    = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"big"}}`
)

// A client that ends its input gets what it is owed, the reason, and an orderly end.
func TestEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{size: 3 * client.ChunkSize})
		stream := f.attach(t)
		for _, request := range []string{initialize, fmt.Sprintf(callBig, 2)} {
			if err := stream.Send(chunkOf(request)); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if frame, _, err := next(t, stream); err != nil || !strings.Contains(frame, `"protocolVersion":"2025-11-25"`) {
			t.Errorf("initialize: %.200s, %v", frame, err)
		}
		if frame, _, err := next(t, stream); err != nil || len(frame) < 3*client.ChunkSize || !strings.Contains(frame, `"id":2`) {
			t.Errorf("the call: %d bytes, %v", len(frame), err)
		}
		_, response, err := next(t, stream)
		if response.GetClosing().GetReason() != devproxyv1.CloseReason_CLOSE_REASON_DONE {
			t.Errorf("instead of the reason: %v, %v", response, err)
		}
		if _, _, err := next(t, stream); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	})
}

func TestShutdownEndsAttachments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{})
		stream := f.attach(t)
		f.end(relay.ErrShutdown)
		wantEnd(t, stream, devproxyv1.CloseReason_CLOSE_REASON_SHUTDOWN, false)
		// Who comes later was not stopped: he starts the next one.
		wantEnd(t, f.open(t, helloOf(asItIs)), devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED, true)
	})
}

func TestHandoverEndsAttachments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{})
		stream := f.attach(t)
		for _, request := range []string{initialize, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"of the backend"}}`} {
			if err := stream.Send(chunkOf(request)); err != nil {
				t.Fatal(err)
			}
		}
		if frame, _, err := next(t, stream); err != nil || !strings.Contains(frame, `"id":1`) {
			t.Fatalf("initialize: %s, %v", frame, err)
		}
		synctest.Wait()
		f.end(relay.ErrRestart)
		wantEnd(t, stream, devproxyv1.CloseReason_CLOSE_REASON_RESTART, true)
		wantEnd(t, f.open(t, helloOf(asItIs)), devproxyv1.CloseReason_CLOSE_REASON_RESTART, true)
	})
}

// wantEnd fails the test unless the next thing on the stream is its end, for that
// reason.
func wantEnd(t *testing.T, stream attachStream, reason devproxyv1.CloseReason, resend bool) {
	t.Helper()
	_, response, err := next(t, stream)
	if last := response.GetClosing(); last == nil || last.GetReason() != reason || last.GetResendUnanswered() != resend {
		t.Errorf("instead of the reason %v, to send again %v: %v, %v", reason, resend, response, err)
	}
	if _, _, err := next(t, stream); status.Code(err) != codes.Unavailable {
		t.Errorf("at the end: %v", err)
	}
}

func TestProtocolOfChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{})
		stream := f.attach(t)
		if err := stream.Send(helloOf(asItIs)); err != nil {
			t.Fatal(err)
		}
		for {
			_, response, err := next(t, stream)
			if err == nil && response.GetClosing() == nil {
				t.Fatalf("a second hello gets %v", response)
			}
			if err != nil {
				if status.Code(err) == codes.OK || errors.Is(err, io.EOF) {
					t.Errorf("a second hello ends with %v", err)
				}
				break
			}
		}
	})
}

// A client that does not read keeps nobody: neither the handler, whose Send is
// stuck in flow control, nor what it would have been sent.
func TestStuckClientIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{size: 2 << 20})
		stream := f.attach(t)
		if err := stream.Send(chunkOf(initialize)); err != nil {
			t.Fatal(err)
		}
		for id := range 30 { // 60 MiB, of which the window takes one
			if err := stream.Send(chunkOf(fmt.Sprintf(callBig, id+2))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := len(f.router.Snapshot()); n != 1 {
			t.Fatalf("%d clients are attached, want 1", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.router.Snapshot()); n != 0 {
			t.Errorf("%d clients are attached after a minute in which none read", n)
		}
		var err error
		for err == nil {
			_, _, err = next(t, stream)
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the client is told %v", err)
		}
	})
}

// A session that ends while its client does not read waits only so long with
// what it owes.
func TestFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, bigTool{size: 4 << 20})
		stream := f.attach(t)
		for _, request := range []string{initialize, fmt.Sprintf(callBig, 2)} {
			if err := stream.Send(chunkOf(request)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the answer fills the window
		began := time.Now()
		f.end(relay.ErrShutdown)
		f.pumps.Wait()
		if waited := time.Since(began); waited < flushWithin || waited > 2*flushWithin {
			t.Errorf("it waited %v, want %v", waited, flushWithin)
		}
	})
}
