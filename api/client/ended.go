package client

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// endWatch is the stats handler behind Client.Ended. gRPC reports the trailers
// of a stream to it from the goroutine that reads the connection, so it hears
// of an end that Recv would tell only after everything before it.
type endWatch struct {
	once  sync.Once
	ended chan struct{}
}

// attachCall marks the context of an Attach stream.
type attachCall struct{}

func newEndWatch() *endWatch { return &endWatch{ended: make(chan struct{})} }

func (w *endWatch) end() { w.once.Do(func() { close(w.ended) }) }

// TagRPC implements stats.Handler.
func (w *endWatch) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if info.FullMethodName != devproxyv1.AttachService_Attach_FullMethodName {
		return ctx
	}
	return context.WithValue(ctx, attachCall{}, true)
}

// HandleRPC implements stats.Handler.
func (w *endWatch) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.InTrailer); ok && ctx.Value(attachCall{}) != nil {
		w.end()
	}
}

// TagConn implements stats.Handler.
func (w *endWatch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (w *endWatch) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnEnd); ok {
		w.end()
	}
}
