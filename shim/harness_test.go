package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// world is a client, its shim, and the daemons it meets, all in one synctest
// bubble: time passes only while nothing else happens.
type world struct {
	t *testing.T

	stdin  *io.PipeWriter
	lines  chan string // what the client got
	reader *io.PipeReader
	paused *gate
	stderr *notes
	stop   context.CancelCauseFunc
	result chan error

	mu       sync.Mutex // guards what follows, which Connect reads
	daemon   *fakeDaemon
	refusing error
	attempts []bool // of Connect: autostart
}

// gate lets the client stop to read.
type gate struct {
	mu   sync.Mutex
	open chan struct{}
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// notes is a stderr that can be read while it is written.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// inWorld runs a test in a bubble, with a shim that was just spawned. Whether a
// daemon runs yet is said by running.
func inWorld(t *testing.T, running bool, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, lines: make(chan string, 100_000), stderr: &notes{}, result: make(chan error, 1),
			paused: &gate{open: make(chan struct{})},
		}
		w.paused.lift()
		if running {
			w.start()
		}
		w.spawn()
		test(w)
		w.end()
	})
}

func (w *world) spawn() {
	stdin, feed := io.Pipe()
	output, stdout := io.Pipe()
	w.stdin, w.reader = feed, output
	ctx, cancel := context.WithCancelCause(w.t.Context())
	w.stop = cancel
	go func() {
		w.result <- Run(ctx, Config{
			Stdin: stdin, Stdout: stdout, Stderr: w.stderr, ProjectDir: "/project",
			Version: "test", Environ: []string{"HOME=/home/a", "TOKEN=x"}, Connect: w.connect,
		})
		_ = stdout.Close()
	}()
	go func() {
		defer close(w.lines)
		scanner := bufio.NewReader(output)
		for {
			w.paused.pass()
			text, err := scanner.ReadString('\n')
			if err != nil {
				return
			}
			w.lines <- strings.TrimSuffix(text, "\n")
		}
	}()
}

// end closes stdin if that was not done, and waits for everything.
func (w *world) end() {
	w.t.Helper()
	_ = w.stdin.Close()
	for range w.lines { // until the shim has closed stdout
	}
	w.stop(nil)
	if w.current() != nil {
		w.kill()
	}
}

func (w *world) current() *fakeDaemon {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.daemon
}

// connect is Config.Connect: the daemon that runs, or why there is none.
func (w *world) connect(ctx context.Context, autostart bool) (Daemon, error) {
	w.mu.Lock()
	w.attempts = append(w.attempts, autostart)
	d, refusing := w.daemon, w.refusing
	w.mu.Unlock()
	if refusing != nil {
		return nil, refusing
	}
	if d == nil {
		return nil, client.ErrNoDaemon
	}
	conn, err := d.listener.DialContext(ctx)
	if err != nil {
		return nil, client.ErrNoDaemon
	}
	c, err := client.New(ctx, conn)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// tried returns the attempts since the last call.
func (w *world) tried() []bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	attempts := w.attempts
	w.attempts = nil
	return attempts
}

// refuse makes every attempt fail with err; nil ends that.
func (w *world) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusing = err
}

// fakeDaemon serves attachments that the test plays by hand.
type fakeDaemon struct {
	listener *bufconn.Listener
	server   *grpc.Server
	over     chan struct{} // closed when it was killed
	attached chan *attachment
	welcome  *devproxyv1.Welcome
	deaf     bool // does not read what clients send
}

// attachment is the daemon's side of one stream.
type attachment struct {
	t      *testing.T
	hello  *devproxyv1.Hello
	frames chan string // what came; closed at the end of input
	chunks chan int    // their sizes
	send   chan *devproxyv1.AttachResponse
	status chan error    // what the handler returns
	done   chan struct{} // closed when it has
}

// start starts a daemon for the shim to find.
func (w *world) start() *fakeDaemon {
	d := &fakeDaemon{
		listener: bufconn.Listen(1 << 16),
		over:     make(chan struct{}),
		attached: make(chan *attachment, 10),
		welcome:  &devproxyv1.Welcome{Contract: client.Contract, Version: "test", Pid: 7},
	}
	d.server = grpc.NewServer(grpc.MaxRecvMsgSize(client.MaxCallMessage), grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(client.WindowSize), grpc.InitialConnWindowSize(client.WindowSize))
	devproxyv1.RegisterAttachServiceServer(d.server, attachServer{daemon: d, t: w.t})
	go func() {
		defer close(d.over)
		if err := d.server.Serve(d.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			w.t.Errorf("Serve: %v", err)
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.daemon = d
	return d
}

// kill ends the daemon with everything open.
func (w *world) kill() {
	w.mu.Lock()
	d := w.daemon
	w.daemon = nil
	w.mu.Unlock()
	d.server.Stop()
	<-d.over
}

type attachServer struct {
	devproxyv1.UnimplementedAttachServiceServer

	daemon *fakeDaemon
	t      *testing.T
}

func (s attachServer) Attach(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	a := &attachment{
		t: s.t, hello: first.GetHello(), frames: make(chan string, 100_000), chunks: make(chan int, 100_000),
		send: make(chan *devproxyv1.AttachResponse), status: make(chan error, 1),
		done: make(chan struct{}),
	}
	defer close(a.done)
	if s.daemon.welcome != nil {
		err := stream.Send(&devproxyv1.AttachResponse{
			Payload: &devproxyv1.AttachResponse_Welcome{Welcome: s.daemon.welcome},
		})
		if err != nil {
			return err
		}
	}
	s.daemon.attached <- a
	received := make(chan struct{})
	go func() {
		defer close(received)
		if !s.daemon.deaf {
			a.receive(stream)
		}
	}()
	for {
		select {
		case response := <-a.send:
			if err := stream.Send(response); err != nil {
				return err
			}
		case err := <-a.status:
			return err
		case <-stream.Context().Done():
			<-received
			return stream.Context().Err()
		}
	}
}

func (a *attachment) receive(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) {
	var message []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			close(a.frames)
		}
		if err != nil {
			return
		}
		a.chunks <- len(request.GetChunk().GetData())
		message = append(message, request.GetChunk().GetData()...)
		if request.GetChunk().GetLast() {
			a.frames <- string(message)
			message = nil
		}
	}
}

// accept waits for the shim to attach to the daemon that runs.
func (w *world) accept() *attachment {
	w.t.Helper()
	d := w.current()
	if d == nil {
		w.t.Fatal("no daemon runs")
	}
	return <-d.attached
}

// expect fails the test unless the next frames are these.
func (a *attachment) expect(frames ...string) {
	a.t.Helper()
	for _, want := range frames {
		if got, open := <-a.frames; got != want || !open {
			a.t.Fatalf("the daemon got\n%s, want\n%s", got, want)
		}
	}
}

// quiet fails the test if another frame comes.
func (a *attachment) quiet() {
	a.t.Helper()
	synctest.Wait()
	select {
	case got, open := <-a.frames:
		if open {
			a.t.Fatalf("the daemon got %s", got)
		}
	default:
	}
}

// tell sends frames to the client, each in pieces.
func (a *attachment) tell(frames ...string) {
	for _, frame := range frames {
		half := len(frame) / 2
		for n, piece := range []string{frame[:half], frame[half:]} {
			a.send <- &devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{
				Chunk: &devproxyv1.Chunk{Data: []byte(piece), Last: n == 1},
			}}
		}
	}
}

// offer is tell for a daemon that may be killed meanwhile.
func (a *attachment) offer(frame string) {
	select {
	case a.send <- &devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{
		Chunk: &devproxyv1.Chunk{Data: []byte(frame), Last: true},
	}}:
	case <-a.done:
	}
}

// close says the last word and ends the stream.
func (a *attachment) close(reason devproxyv1.CloseReason) {
	a.send <- &devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Closing{
		Closing: &devproxyv1.Closing{Reason: reason},
	}}
	a.status <- nil
	synctest.Wait()
}

// write is what the client sends.
func (w *world) write(lines ...string) {
	w.t.Helper()
	for _, text := range lines {
		if _, err := io.WriteString(w.stdin, text+"\n"); err != nil {
			w.t.Fatalf("writing to the shim: %v", err)
		}
	}
}

// expect fails the test unless the next lines that the client gets are these.
func (w *world) expect(lines ...string) {
	w.t.Helper()
	for _, want := range lines {
		if got, open := <-w.lines; got != want || !open {
			w.t.Fatalf("the client got\n%s, want\n%s", got, want)
		}
	}
}

// next returns the next line that the client gets, which must hold the parts.
func (w *world) next(parts ...string) string {
	w.t.Helper()
	got, open := <-w.lines
	if !open {
		w.t.Fatalf("the shim ended; want %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(got, part) {
			w.t.Fatalf("the client got\n%s, want %s in it", got, part)
		}
	}
	return got
}

// quiet fails the test if the client gets anything.
func (w *world) quiet() {
	w.t.Helper()
	synctest.Wait()
	select {
	case got, open := <-w.lines:
		if open {
			w.t.Fatalf("the client got %s", got)
		}
	default:
	}
}

// handshake makes the session a legacy one on a.
func (w *world) handshake(a *attachment) {
	w.t.Helper()
	w.write(initialize, initialized)
	a.expect(initialize, initialized)
	answer := `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`
	a.tell(answer)
	w.expect(answer)
}

const (
	initialize  = `{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}},"jsonrpc":"2.0","id":0}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func request(id any, method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q}`, id, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":%s}`, id, method, params)
}

func response(id any, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":%s}`, id, result)
}

func note(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}
