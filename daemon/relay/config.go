package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// Config is what a Router needs of its surroundings. Backend and Facts must be
// set; everything else has a useful zero.
type Config struct {
	// Backend is asked to start when a request needs it.
	Backend Backend
	// Facts returns what the backend said of itself in a handshake of that era:
	// the running one, else the one remembered. It is called in the loop and
	// must not block.
	Facts func(era.Era) (era.Facts, bool)
	// Tools are the dev tools merged into tools/list; nil for none.
	Tools Tools
	// Reword puts the names that the dev tools have into the hint of a failure,
	// which knows their usual ones; nil leaves it as it is.
	Reword func(hint string) string
	// Mask hides the secrets in what a link says of its failures, which may be the
	// backend's words; nil hides nothing. It must not block.
	Mask func(string) string
	// RequestWait is how long a request waits for a start or restart. Zero means
	// DefaultRequestWait.
	RequestWait time.Duration
	// MaxMessage is the largest message towards a client in bytes, its newline
	// included; 0 means no limit.
	MaxMessage int
	// Offer is which eras clients may speak.
	Offer era.Offer
	// Instance is the random name of this daemon. Request ids and request states
	// minted here carry it, so that those of an earlier daemon are recognised.
	Instance string
	// Logger may be nil.
	Logger *slog.Logger
	// Traffic sees every message at both borders while Watched says that
	// somebody wants to. Both are called in the loop: they must not block, and
	// must not change the frame. A nil Traffic is never watched, a nil Watched
	// means always.
	Traffic func(Traffic)
	Watched func() bool
}

// DefaultRequestWait is how long a request waits for a backend unless the
// project says otherwise. It stays well under the 60 s after which the official
// TypeScript clients give up.
const DefaultRequestWait = 15 * time.Second

// Backend is what the router asks of the one who keeps the backend alive. Its
// methods must not block.
type Backend interface {
	// Need says that a request of this client waits for a generation. It is
	// called for every such request, whatever was said before: Starting follows,
	// or Unavailable, or what is under way already.
	Need(starter era.Peer)
	// Drained says, once after Draining, that no request of a client is in
	// flight on the generation any more.
	Drained(generation uint64)
}

// Generation is one life of the backend that serves.
type Generation interface {
	Number() uint64
	// Facts are those of its first handshake; Config.Facts has them per era.
	Facts() era.Facts
	// Shared reports whether all sessions share one link, as with stdio. It may
	// turn true during the life of a generation, never false.
	Shared() bool
	// Open opens a link for a session, or returns the shared one, in which case
	// the Link itself says Shared. It is called outside the loop. An error that
	// wraps a *wire.Error is final and goes to the client; after any other one
	// the router tries again while the generation lives.
	Open(ctx context.Context, peer era.Peer, sink Sink) (Link, error)
}

// Link is one handshaken conversation with a generation. None of its methods
// blocks, except Close, which is called outside the loop.
type Link interface {
	Facts() era.Facts
	Shared() bool
	// Request queues a request; the answer comes to the sink.
	Request(id int64, method string, params []byte, peer era.Peer)
	Notify(method string, params []byte)
	// Respond answers a request of the backend, with a result or an error.
	Respond(id wire.ID, result []byte, err *wire.Error)
	// Cancel tells the backend that nobody waits for the request any more.
	Cancel(id int64, reason []byte)
	// Congested reports that more is queued than should be; Sink.Writable
	// follows when that is over.
	Congested() bool
	Close()
}

// Sink takes what comes from a link, in order. The router implements it. Its
// methods post to the loop; Message may wait a moment while the loop is behind,
// so it must not be called with a lock held that a method of Link needs.
type Sink interface {
	// Message delivers a message. via is the id of the request on whose stream
	// it came, 0 where the transport does not tell.
	Message(m wire.Message, via int64)
	// Failed says that the transport lost this request. An error that wraps
	// era.ErrSessionLost says that it was not processed; one that wraps a
	// *wire.Error, or something with a method Answer() *wire.Error, is the answer;
	// one with a method OverLimit() names a limit of devproxy's that ended it.
	Failed(id int64, err error)
	// Writable says that the link is congested no more.
	Writable()
	// Lost says that the whole link is gone. It is the last call.
	Lost(err error)
}

// Tools are the tools that devproxy adds to the backend's own.
type Tools interface {
	// Definitions are the tool objects for tools/list.
	Definitions() [][]byte
	// Has reports whether a call of that name is for these tools; names without
	// a definition are allowed.
	Has(name string) bool
	// Call runs a tool. It is called outside the loop, and ctx ends when the
	// client cancels or leaves. progress may be called until Call returns.
	Call(ctx context.Context, name string, arguments []byte, progress func(message string)) ToolAnswer
}

// ToolAnswer is the outcome of a dev tool.
type ToolAnswer struct {
	Text string
	// Structured is a JSON object for structuredContent, or nil.
	Structured []byte
	IsError    bool
}

// Direction is which way a message crosses which border.
type Direction uint8

// The four crossings of a message.
const (
	FromClient Direction = iota + 1
	ToClient
	ToBackend
	FromBackend
)

// String names the crossing.
func (d Direction) String() string {
	switch d {
	case FromClient:
		return "from client"
	case ToClient:
		return "to client"
	case ToBackend:
		return "to backend"
	case FromBackend:
		return "from backend"
	}
	return "unknown"
}

// Traffic is one message at one border.
type Traffic struct {
	Direction Direction
	// Session is the client's session, 0 where a message of the shared link
	// belongs to nobody in particular.
	Session uint64
	// Generation is the backend's, 0 on the clients' side.
	Generation uint64
	// Era is that of the session or link, None where not known yet.
	Era era.Era
	// Frame is the message. It must not be changed.
	Frame []byte
}
