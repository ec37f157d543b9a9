package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
)

// attachFunc is an AttachService that is one function.
type attachFunc struct {
	devproxyv1.UnimplementedAttachServiceServer

	serve func(grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) error
}

func (a attachFunc) Attach(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) error {
	return a.serve(stream)
}

// greet answers a hello with a welcome and waits for the end of input.
func greet(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	err := stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Welcome{
		Welcome: &devproxyv1.Welcome{Contract: Contract, Pid: int64(os.Getpid())},
	}})
	for err == nil {
		_, err = stream.Recv()
	}
	return nil
}

// serve serves a fake daemon on l until the test ends.
func serve(t *testing.T, l net.Listener, attach attachFunc) {
	t.Helper()
	server := newServer(attach)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("Serve: %v", err)
		}
	})
}

func newServer(attach attachFunc) *grpc.Server {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(MaxCallMessage), grpc.MaxSendMsgSize(MaxCallMessage), grpc.WaitForHandlers(true))
	devproxyv1.RegisterAttachServiceServer(server, attach)
	return server
}

// newProject returns a project with its state folder in place, whose paths are
// short.
func newProject(t *testing.T) project.Project {
	t.Helper()
	home := shortDir(t)
	t.Setenv("HOME", home)
	t.Setenv("LOCALAPPDATA", home)
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, project.ConfigName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	return p
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func mustListen(t *testing.T, socket string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustSocket(t *testing.T, p project.Project) string {
	t.Helper()
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	return socket
}

// mustGreet fails the test unless the daemon at the other end of c answers.
func mustGreet(t *testing.T, c *Client) *devproxyv1.Welcome {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stream, err := c.Attach().Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hello := &devproxyv1.AttachRequest{Payload: &devproxyv1.AttachRequest_Hello{Hello: &devproxyv1.Hello{}}}
	if err := stream.Send(hello); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetWelcome()
}

func TestDial(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	serve(t, mustListen(t, socket), attachFunc{serve: greet})
	// None of these may matter to a unix socket.
	for _, name := range []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "grpc_proxy", "GRPC_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if c.Socket() != socket {
		t.Errorf("Socket = %s", c.Socket())
	}
	if welcome := mustGreet(t, c); welcome.GetPid() != int64(os.Getpid()) {
		t.Errorf("welcome %v", welcome)
	}
}

func TestDialWithoutDaemonFailsAtOnce(t *testing.T) {
	dir := shortDir(t)
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for _, socket := range []string{filepath.Join(dir, "missing"), filepath.Join(dir, "no", "folder"), stale} {
		began := time.Now()
		if _, err := Dial(t.Context(), socket); !errors.Is(err, ErrNoDaemon) || !strings.Contains(err.Error(), socket) {
			t.Errorf("Dial(%s) = %v", socket, err)
		}
		if took := time.Since(began); took > DialTimeout/2 {
			t.Errorf("Dial(%s) took %s", socket, took)
		}
	}
}

func TestDialRefusesWhatIsNotOurs(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	serve(t, mustListen(t, socket), attachFunc{serve: greet})
	plain := socket + ".txt"
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := socket + ".link"
	if err := os.Symlink(socket, link); err != nil {
		t.Skip("no symbolic links:", err)
	}
	paths := []string{plain, link}
	if os.Getuid() == 0 && os.Chown(socket, 65534, -1) == nil {
		paths = append(paths, socket)
	}
	for _, path := range paths {
		if _, err := Dial(t.Context(), path); !isUnsafe(err) {
			t.Errorf("Dial(%s) = %v", path, err)
		}
	}
}

func isUnsafe(err error) bool { _, ok := errors.AsType[*project.UnsafeError](err); return ok }

func TestDialOfOneThatDoesNotServe(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	l := mustListen(t, socket)

	impatient := errors.New("impatient")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, impatient)
	defer cancel()
	if _, err := Dial(ctx, socket); !errors.Is(err, ErrNotServing) || errors.Is(err, ErrHungUp) || !errors.Is(err, impatient) {
		t.Errorf("one that only listens gives %v", err)
	}

	go func() { // ends with l
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	if _, err := Dial(t.Context(), socket); !errors.Is(err, ErrNotServing) || !errors.Is(err, ErrHungUp) {
		t.Errorf("one that hangs up gives %v", err)
	}
}

// A daemon that ends says goodbye to whoever has just come: to him it is gone, and
// not silent.
func TestDialOfOneThatEnds(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	l := mustListen(t, socket)
	goodbye := []byte{
		0, 0, 0, 4, 0, 0, 0, 0, 0, // SETTINGS
		0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // GOAWAY
	}
	go func() { // ends with l
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(goodbye)
			_, _ = io.Copy(io.Discard, conn) // until the other end has heard it
			_ = conn.Close()
		}
	}()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), DialTimeout/2)
		c, err := Dial(ctx, socket)
		cancel()
		if err == nil {
			err = c.Close() // it was ready for a moment
		}
		if err != nil && !errors.Is(err, ErrHungUp) {
			t.Fatalf("Dial = %v", err)
		}
	}
}

func TestAClientDoesNotReconnect(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	server := newServer(attachFunc{serve: greet})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	conn, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	mustGreet(t, c)
	server.Stop()
	<-done
	<-c.Lost()
	stream, err := c.Attach().Attach(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil || !strings.Contains(err.Error(), errConnLost.Error()) {
		t.Errorf("a call after the end gives %v", err)
	}
}

// The end of the connection is told while messages fill the window.
func TestLostOvertakesUnreadMessages(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	full := make(chan struct{})
	serve(t, l, attachFunc{serve: func(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) error {
		piece := &devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{
			Chunk: &devproxyv1.Chunk{Data: make([]byte, ChunkSize)},
		}}
		for sent := 0; ; sent += ChunkSize {
			if sent == WindowSize {
				close(full)
			}
			if err := stream.Send(piece); err != nil {
				return err
			}
		}
	}})
	conn, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	stream, err := c.Attach().Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-full
	_ = conn.Close()
	<-c.Lost()
	size := 0
	for {
		message, err := stream.Recv()
		if err != nil {
			break
		}
		size += len(message.GetChunk().GetData())
	}
	if size > WindowSize+ChunkSize {
		t.Errorf("%d bytes were left to receive, the window is %d", size, WindowSize)
	}
}

func TestCheckContract(t *testing.T) {
	shim := Build{Program: "devproxy-shim", Version: "1.0.0", Contract: 1}
	daemon := Build{Program: "devproxyd", Version: "1.4.0", Contract: 1}
	if err := CheckContract(shim, daemon); err != nil {
		t.Errorf("another version of the same contract: %v", err)
	}
	daemon.Contract = 2
	err := CheckContract(shim, daemon)
	if !errors.Is(err, ErrIncompatible) || !strings.HasSuffix(err.Error(), "update devproxy-shim") {
		t.Errorf("a newer daemon: %v", err)
	}
	shim.Contract = 3
	if err := CheckContract(shim, daemon); !strings.HasSuffix(err.Error(), "update devproxyd") {
		t.Errorf("an older daemon: %v", err)
	}
}

func TestEnvironmentDigestTellsValuesApart(t *testing.T) {
	a, b := EnvironmentDigest("a"), EnvironmentDigest("b")
	if string(a) == string(b) || len(a) != digestSize || string(a) != string(EnvironmentDigest("a")) {
		t.Errorf("digests %x and %x", a, b)
	}
}
