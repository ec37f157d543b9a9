package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// maxMessage bounds a message from the daemon. The daemon has its own limit
// towards clients, 10 MiB by default, which a project may lift; this one is
// only there so that a broken stream does not eat the machine.
const maxMessage = 512 << 20

// errMessageTooLong says that the daemon sent more than maxMessage.
var errMessageTooLong = fmt.Errorf("the daemon sent a message of more than %d MiB", maxMessage>>20)

// errLeft is why a link ends that the loop gives up.
var errLeft = errors.New("the shim has left the daemon")

// Daemon is a connection to one, as *client.Client is.
type Daemon interface {
	// Attach is the service that carries the client's traffic.
	Attach() devproxyv1.AttachServiceClient
	// Lost is closed as soon as the connection broke.
	Lost() <-chan struct{}
	// Close ends the connection.
	Close() error
}

type attachStream = grpc.BidiStreamingClient[devproxyv1.AttachRequest, devproxyv1.AttachResponse]

// link is one attachment to a daemon. The loop owns it; its two pumps end when
// the stream does.
type link struct {
	daemon Daemon
	stream attachStream
	cancel context.CancelCauseFunc
	// left is closed when the loop leaves. The stream's own context will not do:
	// it is over at the end of the stream, of which the loop has to hear.
	left <-chan struct{}

	outgoing chan []byte // frames for the daemon; closed at the end of input
	// incoming and events are what came, in order across both: frames for the
	// client, which have to wait while it does not read, and what is for the loop
	// alone. The last event is an end.
	incoming chan []byte
	events   chan event
}

// event is one thing that came from the daemon for the loop: the one that is set.
type event struct {
	welcome *devproxyv1.Welcome
	closing *devproxyv1.Closing
	end     error
}

// attach opens the stream and says hello. What follows needs no answer first.
func attach(ctx context.Context, daemon Daemon, hello *devproxyv1.Hello) (*link, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := daemon.Attach().Attach(ctx)
	if err == nil {
		err = stream.Send(&devproxyv1.AttachRequest{Payload: &devproxyv1.AttachRequest_Hello{Hello: hello}})
		if errors.Is(err, io.EOF) {
			_, err = stream.Recv() // the reason
		}
	}
	if err != nil {
		cancel(errLeft)
		return nil, errors.Join(notAttached(err, hello.GetVersion()), daemon.Close())
	}
	return &link{
		daemon: daemon, stream: stream, cancel: cancel, left: ctx.Done(),
		outgoing: make(chan []byte), incoming: make(chan []byte), events: make(chan event),
	}, nil
}

// notAttached is why a daemon that answered cannot be attached to: it refuses, or
// it ends just now, and another one may follow.
func notAttached(err error, version string) error {
	if refusal := refusal(err, version); refusal != nil {
		return refusal
	}
	return fmt.Errorf("attaching: %w: %w", client.ErrNotServing, err)
}

// run starts the pumps in pumps.
func (l *link) run(pumps *sync.WaitGroup) {
	pumps.Go(l.send)
	pumps.Go(l.receive)
}

// leave ends the stream and the connection; the pumps follow.
func (l *link) leave() {
	l.cancel(errLeft)
	// The connection is of no use any more, whatever Close has to say.
	_ = l.daemon.Close()
}

// send cuts frames into chunks until the input ends or the stream does; why it
// does is for receive to tell.
func (l *link) send() {
	ended := l.stream.Context().Done()
	for {
		select {
		case <-ended:
			return
		case frame, more := <-l.outgoing:
			if !more {
				_ = l.stream.CloseSend()
				return
			}
			if !l.sendChunks(frame) {
				return
			}
		}
	}
}

func (l *link) sendChunks(frame []byte) bool {
	for {
		piece := frame[:min(len(frame), client.ChunkSize)]
		frame = frame[len(piece):]
		chunk := &devproxyv1.Chunk{Data: piece, Last: len(frame) == 0}
		err := l.stream.Send(&devproxyv1.AttachRequest{Payload: &devproxyv1.AttachRequest_Chunk{Chunk: chunk}})
		if err != nil {
			return false
		}
		if len(frame) == 0 {
			return true
		}
	}
}

// receive puts chunks together until the stream ends.
func (l *link) receive() {
	var message assembly
	for {
		frame, e := l.next(&message)
		switch {
		case frame != nil:
			select {
			case l.incoming <- frame:
			case <-l.left:
				return
			}
		case e != (event{}):
			select {
			case l.events <- e:
			case <-l.left:
				return
			}
			if e.end != nil {
				return
			}
		}
	}
}

// next receives one message of the stream; message collects the chunks so far.
// Nothing is returned for a chunk that is not the last one.
func (l *link) next(message *assembly) (frame []byte, e event) {
	response, err := l.stream.Recv()
	if err != nil {
		return nil, event{end: err}
	}
	switch payload := response.GetPayload().(type) {
	case *devproxyv1.AttachResponse_Welcome:
		return nil, event{welcome: payload.Welcome}
	case *devproxyv1.AttachResponse_Closing:
		return nil, event{closing: payload.Closing}
	case *devproxyv1.AttachResponse_Chunk:
		return message.add(payload.Chunk)
	}
	return nil, event{} // of a newer daemon
}

// assembly is the chunks of one message so far.
type assembly struct {
	pieces client.Pieces
	size   int
}

// add takes a chunk, and returns the message with the last one.
func (a *assembly) add(chunk *devproxyv1.Chunk) (frame []byte, e event) {
	a.size += len(chunk.GetData())
	if a.size > maxMessage {
		return nil, event{end: errMessageTooLong}
	}
	a.pieces.Add(chunk.GetData()) // ours: protobuf has copied it
	if !chunk.GetLast() {
		return nil, event{}
	}
	a.size = 0
	return a.pieces.Take(), event{}
}

// checkContract reports a daemon of another contract than this shim, which is of
// the version given.
func checkContract(w *devproxyv1.Welcome, version string) error {
	return client.CheckContract(
		client.Build{Program: "devproxy-shim", Version: version, Contract: client.Contract},
		client.Build{Program: "devproxyd", Version: w.GetVersion(), Contract: w.GetContract()})
}

// refusal returns what a daemon that ended the stream with err before its
// welcome had against this client, nil if it did not refuse but was lost.
func refusal(err error, version string) error {
	said := status.Convert(err)
	for _, detail := range said.Details() {
		if w, ok := detail.(*devproxyv1.Welcome); ok {
			if err := checkContract(w, version); err != nil {
				return err
			}
		}
	}
	switch said.Code() { //nolint:exhaustive // every other code is a loss
	case codes.Unimplemented:
		return fmt.Errorf("%w: devproxyd does not offer the attach service; update it", client.ErrIncompatible)
	case codes.FailedPrecondition, codes.InvalidArgument, codes.PermissionDenied,
		codes.Unauthenticated, codes.ResourceExhausted:
		return &refusedError{message: said.Message()}
	}
	return nil
}
