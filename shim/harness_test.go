package shim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
func (w *world) connect(_ context.Context, autostart bool) (Daemon, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts = append(w.attempts, autostart)
	if w.refusing != nil {
		return nil, w.refusing
	}
	if w.daemon == nil {
		return nil, client.ErrNoDaemon
	}
	return connection{t: w.t, daemon: w.daemon, closed: make(chan struct{})}, nil
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

// fakeDaemon serves attachments that the test plays by hand. It stands in for
// gRPC too, whose own timers would not let a bubble's time stand still: streams
// with a window, an end that queues behind what is unread, and a loss that does
// not.
type fakeDaemon struct {
	attached chan *attachment
	welcome  *devproxyv1.Welcome
	deaf     bool          // does not read what clients send
	over     chan struct{} // closed when it was killed
}

// start starts a daemon for the shim to find, with traits of its own. The shim
// has dealt with everything before.
func (w *world) start(traits ...func(*fakeDaemon)) *fakeDaemon {
	synctest.Wait()
	d := &fakeDaemon{
		attached: make(chan *attachment, 100),
		welcome:  &devproxyv1.Welcome{Contract: client.Contract, Version: "test", Pid: 7},
		over:     make(chan struct{}),
	}
	for _, trait := range traits {
		trait(d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.daemon = d
	return d
}

// kill ends the daemon with everything open.
func (w *world) kill() {
	synctest.Wait()
	w.mu.Lock()
	d := w.daemon
	w.daemon = nil
	w.mu.Unlock()
	close(d.over)
}

// connection is the shim's Daemon.
type connection struct {
	t      *testing.T
	daemon *fakeDaemon
	closed chan struct{}
}

func (c connection) Attach() devproxyv1.AttachServiceClient { return attachClient{connection: c} }

func (c connection) Lost() <-chan struct{} { return c.daemon.over }

func (c connection) Close() error {
	close(c.closed)
	return nil
}

type attachClient struct{ connection connection }

// Attach opens a stream, which ends with ctx, the connection or the daemon.
func (c attachClient) Attach(ctx context.Context, _ ...grpc.CallOption) (attachStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := c.connection.daemon
	a := &attachment{
		t: c.connection.t, frames: make(chan string, 100_000), chunks: make(chan int, 100_000),
		up: newPipe[*devproxyv1.AttachRequest](), down: newPipe[*devproxyv1.AttachResponse](),
		done: make(chan struct{}),
	}
	go func() {
		defer close(a.done)
		cause := status.Error(codes.Unavailable, "the daemon is gone")
		select {
		case <-d.over:
		case <-a.up.ended: // by the handler
		case <-c.connection.closed:
			cause = status.Error(codes.Canceled, "closed")
			a.down.drop()
		case <-ctx.Done():
			cause = status.Error(codes.Canceled, "cancelled")
			a.down.drop()
		}
		a.up.drop()
		a.up.end(cause)
		a.down.end(cause)
	}()
	go a.serve(d)
	return &stream{ctx: ctx, cancel: cancel, attachment: a}, nil
}

// stream is the shim's side of an attachment.
type stream struct {
	grpc.ClientStream

	ctx        context.Context //nolint:containedctx // as in a gRPC stream
	cancel     context.CancelCauseFunc
	attachment *attachment
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Send(r *devproxyv1.AttachRequest) error {
	if err := s.attachment.up.put(r, len(r.GetChunk().GetData())); err != nil {
		return io.EOF
	}
	return nil
}

func (s *stream) CloseSend() error {
	_ = s.attachment.up.put(nil, 0)
	return nil
}

// Recv ends the stream's context with the stream, as gRPC does.
func (s *stream) Recv() (*devproxyv1.AttachResponse, error) {
	r, err := s.attachment.down.get()
	if err != nil {
		s.cancel(err)
	}
	return r, err
}

// pipe is one direction of a stream.
type pipe[T any] struct {
	mu    sync.Mutex
	moved *sync.Cond
	items []T
	sizes []int
	bytes int
	err   error
	ended chan struct{}
}

func newPipe[T any]() *pipe[T] {
	p := &pipe[T]{ended: make(chan struct{})}
	p.moved = sync.NewCond(&p.mu)
	return p
}

// put waits for room in the window.
func (p *pipe[T]) put(item T, size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.bytes >= client.WindowSize {
		p.moved.Wait()
	}
	if p.err != nil {
		return p.err
	}
	p.items, p.sizes, p.bytes = append(p.items, item), append(p.sizes, size), p.bytes+size
	p.moved.Broadcast()
	return nil
}

// get returns what was put, and then why nothing will be.
func (p *pipe[T]) get() (T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && len(p.items) == 0 {
		p.moved.Wait()
	}
	var item T
	if len(p.items) == 0 {
		return item, p.err
	}
	item = p.items[0]
	p.bytes -= p.sizes[0]
	p.items, p.sizes = p.items[1:], p.sizes[1:]
	p.moved.Broadcast()
	return item, nil
}

// end says that nothing is put any more; the first reason counts.
func (p *pipe[T]) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		close(p.ended)
		p.moved.Broadcast()
	}
}

// drop throws away what nobody will get.
func (p *pipe[T]) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items, p.sizes, p.bytes = nil, nil, 0
}

// attachment is the daemon's side of one stream.
type attachment struct {
	t      *testing.T
	hello  *devproxyv1.Hello
	frames chan string   // what came; closed at the end of input or of the stream
	chunks chan int      // their sizes
	done   chan struct{} // closed when the stream is over

	up   *pipe[*devproxyv1.AttachRequest]
	down *pipe[*devproxyv1.AttachResponse]
}

// serve takes the hello and then collects what comes.
func (a *attachment) serve(d *fakeDaemon) {
	defer close(a.frames)
	first, err := a.up.get()
	if err != nil {
		return
	}
	a.hello = first.GetHello()
	if d.welcome != nil {
		a.put(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Welcome{Welcome: d.welcome}})
	}
	d.attached <- a
	var message []byte
	for !d.deaf {
		request, err := a.up.get()
		if err != nil {
			return
		}
		if request == nil {
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

// put sends r unless the stream is over.
func (a *attachment) put(r *devproxyv1.AttachResponse) bool {
	return a.down.put(r, len(r.GetChunk().GetData())) == nil
}

// end ends the stream as a handler does that returns err.
func (a *attachment) end(err error) {
	if err == nil {
		err = io.EOF
	}
	a.down.end(err)
	a.up.end(err)
}

// accept waits for the shim to attach to the daemon that runs, and to know that it
// has.
func (w *world) accept() *attachment {
	w.t.Helper()
	d := w.current()
	if d == nil {
		w.t.Fatal("no daemon runs")
	}
	a := <-d.attached
	synctest.Wait()
	return a
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

// tell sends frames to the client, each in pieces, unless the stream is over.
func (a *attachment) tell(frames ...string) {
	for _, frame := range frames {
		half := len(frame) / 2
		for n, piece := range []string{frame[:half], frame[half:]} {
			a.put(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{
				Chunk: &devproxyv1.Chunk{Data: []byte(piece), Last: n == 1},
			}})
		}
	}
}

// close says the last word and ends the stream.
func (a *attachment) close(reason devproxyv1.CloseReason) {
	a.say(&devproxyv1.Closing{Reason: reason})
}

// handOver does the same as a daemon that has answered whatever reached the
// backend.
func (a *attachment) handOver() {
	a.say(&devproxyv1.Closing{Reason: devproxyv1.CloseReason_CLOSE_REASON_RESTART, ResendUnanswered: true})
}

func (a *attachment) say(last *devproxyv1.Closing) {
	a.put(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Closing{Closing: last}})
	a.end(nil)
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
