package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// maxClientMessage bounds what is assembled from one client's chunks. It is
	// several times what the official clients can send, and a tenth of what
	// would trouble a developer's machine.
	maxClientMessage = 64 << 20
	// longHead is how much of a longer message is kept, to find its id.
	longHead = 4 << 10
	// flushWithin bounds how long a session that has ended still sends what it
	// owes a client that reads.
	flushWithin = 2 * time.Second
)

// errClientGone is why a session ends whose client was not heard to end its
// input: the shim was told to end, or killed.
var errClientGone = errors.New("the client has gone")

// attachService joins shims to the router.
type attachService struct {
	devproxyv1.UnimplementedAttachServiceServer

	router   *relay.Router
	version  string
	instance string
	root     string
	environ  environment // of the backend, before the configuration's own
	log      *slog.Logger
	pumps    *sync.WaitGroup // the goroutines of all attachments
}

// Attach implements the service. The handler only waits: when it returns, gRPC
// unblocks the two pumps, even one that is stuck in flow control because the
// client does not read.
func (a *attachService) Attach(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) error {
	hello, err := a.readHello(stream)
	if err != nil {
		return err
	}
	session, err := a.router.Attach(relay.Shim{PID: hello.GetPid(), Version: hello.GetVersion(), Resumed: hello.GetResumed()})
	if err != nil {
		return turnAway(stream, err)
	}
	// Whatever ended it, nothing is kept of it.
	defer session.Close(errClientGone)
	log := a.log.With("session", session.ID())
	log.Debug("a client attached", "shim", hello.GetPid(), "resumed", hello.GetResumed())
	welcome := &devproxyv1.Welcome{
		Contract: client.Contract, Version: a.version, Pid: int64(os.Getpid()),
		Instance: a.instance, Session: session.ID(), Warning: a.warning(hello, log),
	}
	if err := stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Welcome{Welcome: welcome}}); err != nil {
		session.Close(gone(err))
		return err
	}
	sent := make(chan error, 1)
	a.pumps.Go(func() { receive(stream, session) })
	a.pumps.Go(func() { sent <- send(stream, session) })
	return a.await(stream.Context(), session, sent, log)
}

// gone is err, unless that only says that the shim's side of the stream is gone.
func gone(err error) error {
	switch status.Code(err) { //nolint:exhaustive // the others say more
	case codes.Canceled, codes.Unavailable:
		return errClientGone
	}
	return err
}

// turnAway ends an attachment that came too late, or is one too many. Of a daemon
// that ends the shim hears that nothing was lost with it.
func turnAway(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse], cause error) error {
	if errors.Is(cause, relay.ErrRestart) || errors.Is(cause, relay.ErrShutdown) {
		closing := toClosing(cause)
		closing.ResendUnanswered = true
		if !errors.Is(cause, relay.ErrRestart) {
			// Who comes now starts the next daemon; it was not his that was stopped.
			closing.Reason = devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED
		}
		if err := stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Closing{Closing: closing}}); err != nil {
			return err
		}
	}
	return toStatus(cause)
}

// await returns when the session is over and what it owes was sent, or cannot be.
func (a *attachService) await(ctx context.Context, session *relay.Session, sent <-chan error, log *slog.Logger) error {
	select {
	case err := <-sent:
		session.Close(gone(err))
		return toStatus(err)
	case <-session.Done():
	case <-ctx.Done():
		session.Close(errClientGone)
		return status.FromContextError(ctx.Err()).Err()
	}
	cause := session.Err()
	if errors.Is(cause, relay.ErrSlowConsumer) {
		log.Warn("a client is dropped", "cause", cause)
		return toStatus(cause)
	}
	flush := time.NewTimer(flushWithin)
	defer flush.Stop()
	select {
	case err := <-sent:
		return toStatus(err)
	case <-flush.C:
		return toStatus(cause)
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (a *attachService) readHello(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse]) (*devproxyv1.Hello, error) {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	hello := first.GetHello()
	if hello == nil {
		return nil, status.Error(codes.InvalidArgument, "the first message of an attachment must be a hello")
	}
	ours := client.Build{Program: "devproxyd", Version: a.version, Contract: client.Contract}
	theirs := client.Build{Program: "devproxy-shim", Version: hello.GetVersion(), Contract: hello.GetContract()}
	if err := client.CheckContract(ours, theirs); err != nil {
		return nil, a.incompatible(err)
	}
	if root := hello.GetProjectRoot(); root != "" && root != a.root {
		return nil, status.Errorf(codes.FailedPrecondition, "this daemon serves %s, not %s", a.root, root)
	}
	return hello, nil
}

// incompatible refuses a shim of another contract, in words and with what it needs
// to find its own.
func (a *attachService) incompatible(why error) error {
	refusal := status.New(codes.FailedPrecondition, why.Error())
	detailed, err := refusal.WithDetails(&devproxyv1.Welcome{Contract: client.Contract, Version: a.version, Pid: int64(os.Getpid())})
	if err != nil {
		detailed = refusal // the words will do
	}
	return detailed.Err()
}

// warning says what the person should know who reads the shim's stderr.
func (a *attachService) warning(hello *devproxyv1.Hello, log *slog.Logger) string {
	if names := differing(hello.GetEnvironmentDigests(), a.environ); len(names) > 0 {
		// Configuration belongs to the project: the backend keeps the environment
		// it has, whoever attaches.
		log.Warn("a client's environment differs from the backend's, which stays as it is", "variables", names)
	}
	skew := client.Skew(client.Build{Program: "devproxy-shim", Version: hello.GetVersion()},
		client.Build{Program: "devproxyd", Version: a.version})
	if skew == "" {
		return ""
	}
	log.Warn("a client's shim has another version than this daemon",
		"shim", hello.GetPid(), "version", hello.GetVersion(), "own", a.version)
	return skew + ": restart the daemon or the client to use the same version"
}

// volatile are variables that differ between any two terminals and mean nothing
// to a server.
var volatile = []string{"_", "PWD", "OLDPWD", "SHLVL", "PATH", "TERM", "SHELL", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "DISPLAY", "COLORTERM"}

// differing returns the names of the variables that the client was given with
// another value than the daemon, as with a key in the client's configuration.
func differing(digests map[string][]byte, own environment) []string {
	var names []string
	for name, digest := range digests {
		if slices.Contains(volatile, name) || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "DEVPROXY_") {
			continue
		}
		value, set := own[name]
		if !set || !bytes.Equal(client.EnvironmentDigest(value), digest) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// receive pumps the client's messages into the session until the stream ends.
func receive(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse], session *relay.Session) {
	var message assembly
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			session.EndOfInput()
			return
		}
		if err != nil {
			session.Close(gone(err))
			return
		}
		chunk := request.GetChunk()
		if chunk == nil {
			session.Close(errors.New("the shim sent something other than a chunk"))
			return
		}
		frame, long, done := message.add(chunk)
		if !done {
			continue
		}
		if long != nil {
			err = session.ReceiveTooLong(stream.Context(), long)
		} else {
			err = session.Receive(stream.Context(), frame)
		}
		if err != nil {
			return
		}
	}
}

// assembly is what is known of one message so far.
type assembly struct {
	pieces     client.Pieces
	head, tail []byte // of one that is too long, and all that is kept of it
	size       int64
}

// add takes a chunk and returns the message with the last one: its frame, or
// what is known of one that is too long.
func (a *assembly) add(chunk *devproxyv1.Chunk) (frame []byte, long *wire.TooLongError, done bool) {
	before := a.size
	a.size += int64(len(chunk.GetData()))
	switch {
	case before > maxClientMessage:
		a.tail = wire.AppendTail(a.tail, chunk.GetData())
	case a.size > maxClientMessage:
		a.pieces.Add(chunk.GetData())
		data := a.pieces.Take()
		a.head, a.tail = slices.Clone(data[:longHead]), wire.AppendTail(nil, data)
	default:
		a.pieces.Add(chunk.GetData())
	}
	if !chunk.GetLast() {
		return nil, nil, false
	}
	whole := *a
	*a = assembly{}
	if whole.size > maxClientMessage {
		return nil, &wire.TooLongError{Size: whole.size, Limit: maxClientMessage, Head: whole.head, Tail: whole.tail}, true
	}
	return whole.pieces.Take(), nil, true
}

// send pumps the session's messages to the client until the session has ended,
// and then says why it did.
func send(stream grpc.BidiStreamingServer[devproxyv1.AttachRequest, devproxyv1.AttachResponse], session *relay.Session) error {
	for {
		frame, err := session.Next(stream.Context())
		if err != nil {
			closing := &devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Closing{Closing: toClosing(err)}}
			if sendErr := stream.Send(closing); sendErr != nil {
				return sendErr
			}
			return err
		}
		for rest := frame; ; {
			piece := rest[:min(len(rest), client.ChunkSize)]
			rest = rest[len(piece):]
			chunk := &devproxyv1.Chunk{Data: piece, Last: len(rest) == 0}
			if err := stream.Send(&devproxyv1.AttachResponse{Payload: &devproxyv1.AttachResponse_Chunk{Chunk: chunk}}); err != nil {
				return err
			}
			session.Accepted()
			if len(rest) == 0 {
				break
			}
		}
	}
}

func toClosing(cause error) *devproxyv1.Closing {
	closing := &devproxyv1.Closing{Message: cause.Error()}
	switch {
	case errors.Is(cause, relay.ErrEnded):
		closing.Reason = devproxyv1.CloseReason_CLOSE_REASON_DONE
	case errors.Is(cause, relay.ErrRestart):
		closing.Reason = devproxyv1.CloseReason_CLOSE_REASON_RESTART
		closing.ResendUnanswered = true // the router has answered the rest
	case errors.Is(cause, relay.ErrShutdown):
		closing.Reason = devproxyv1.CloseReason_CLOSE_REASON_SHUTDOWN
	case errors.Is(cause, relay.ErrSlowConsumer):
		closing.Reason = devproxyv1.CloseReason_CLOSE_REASON_SLOW_CONSUMER
	}
	return closing
}
