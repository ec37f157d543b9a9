package client

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"
)

// lossWatch is the stats handler behind Client.Lost. gRPC reports the end of a
// connection to it at once, while Recv tells of it only after everything that
// came before.
type lossWatch struct {
	once sync.Once
	lost chan struct{}
}

func newLossWatch() *lossWatch { return &lossWatch{lost: make(chan struct{})} }

// TagRPC implements stats.Handler.
func (w *lossWatch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (w *lossWatch) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (w *lossWatch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (w *lossWatch) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnEnd); ok {
		w.once.Do(func() { close(w.lost) })
	}
}
