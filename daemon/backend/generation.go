package backend

import (
	"context"

	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/era"
)

// Generation is one life of the backend that serves. Its methods may be called
// from any goroutine; after its end, Open returns an error.
type Generation struct {
	number uint64
	facts  era.Facts
	// factsOf is nil where the first handshake's facts are all there is.
	factsOf func(era.Era) (era.Facts, bool)
	shared  func() bool
	open    func(context.Context, era.Peer, link.Sink) (link.Link, error)
}

// Number is its number, counting from 1.
func (g *Generation) Number() uint64 { return g.number }

// Facts are those of its first handshake.
func (g *Generation) Facts() era.Facts { return g.facts }

// FactsOf are those of a handshake in that era if the backend offers it, else
// those of its first handshake.
func (g *Generation) FactsOf(e era.Era) era.Facts {
	if g.factsOf != nil {
		if facts, ok := g.factsOf(e); ok {
			return facts
		}
	}
	return g.facts
}

// Shared reports whether all sessions share one link: on stdio, and with a
// server that refuses a second initialize. It may turn true, never false.
func (g *Generation) Shared() bool { return g.shared() }

// Open opens a link for a session, in its era where the backend offers it, or
// returns the shared one. The shared link of a stdio backend has one sink, that
// of the last Open; what came before the first is delivered then.
func (g *Generation) Open(ctx context.Context, peer era.Peer, sink link.Sink) (link.Link, error) {
	return g.open(ctx, peer, sink)
}
