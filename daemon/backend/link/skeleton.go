package link

import (
	"context"
	"io"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// Stdio is the one link to a backend that speaks JSON-RPC on its pipes.
type Stdio struct{}

// OpenStdio does the handshake on the pipes of a process that runs already. order says which eras may be tried on
// this process, in that order; nil means both, greeting.Era first. With a single era its failure is final.
//
// Errors: *[RespawnError], context.Cause(ctx), anything else is final. The *Stdio is never nil, also beside an
// error: its reader goes on to drain stdout, and ends at the end of the process; join it with [Stdio.Wait].
func OpenStdio(ctx context.Context, in io.Writer, out io.Reader, greeting era.Peer, order []era.Era, o Options) (*Stdio, error) {
	panic("not yet")
}

// Bind gives the link its sink; what came before follows in order. A second call replaces the sink.
func (s *Stdio) Bind(sink Sink) {}

// Done is closed when stdout ended or a pipe broke; Err then says why.
func (s *Stdio) Done() <-chan struct{} { return nil }

// Err is nil while the link lives.
func (s *Stdio) Err() error { return nil }

// Wait joins the link's goroutines. Only the owner of the process can end it: the reader ends at the end of stdout
// (or when the read end is closed), the writer when its write ends, so end the process first.
func (s *Stdio) Wait() {}

// The methods of [Link].
func (s *Stdio) Facts() era.Facts                                              { return era.Facts{} }
func (s *Stdio) Shared() bool                                                  { return true }
func (s *Stdio) Request(id int64, method string, params []byte, peer era.Peer) {}
func (s *Stdio) Notify(method string, params []byte)                           {}
func (s *Stdio) Respond(id wire.ID, result []byte, err *wire.Error)            {}
func (s *Stdio) Cancel(id int64, reason []byte)                                {}
func (s *Stdio) Congested() bool                                               { return false }
func (s *Stdio) Close()                                                        {}

// Host is an HTTP backend: it knows the URL and hands out links.
type Host struct{}

// NewHTTP is a host that speaks Streamable HTTP at url, and HTTP+SSE if that is all that is there.
func NewHTTP(url string, o Options) *Host { return nil }

// NewSSE is a host that speaks HTTP+SSE of 2024-11-05 at url.
func NewSSE(url string, o Options) *Host { return nil }

// Connect waits until the backend answers and learns what it speaks. It retries a refused connection until ctx
// ends. Call it once, before Open. The facts are those of the greeting's era where it is offered, with Eras and
// Versions of all.
func (h *Host) Connect(ctx context.Context, greeting era.Peer) (era.Facts, error) { panic("not yet") }

// FactsOf is what the backend said in the handshake of that era, if it offers it.
func (h *Host) FactsOf(e era.Era) (era.Facts, bool) { panic("not yet") }

// Open makes a link for one session, in the peer's era where the backend offers it.
func (h *Host) Open(ctx context.Context, peer era.Peer, sink Sink) (Link, error) { panic("not yet") }

// Shared reports whether all sessions share one link. It may become true at an Open.
func (h *Host) Shared() bool { return false }

// Close ends every link and session and joins every goroutine.
func (h *Host) Close() {}
