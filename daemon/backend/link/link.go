package link

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// Link is one handshaken conversation with a backend. Its methods may be called from any goroutine and from a
// loop that must not block: what they are given is queued.
type Link interface {
	// Facts is what the backend said of itself in this link's handshake.
	Facts() era.Facts
	// Shared reports whether every session talks through this one link.
	Shared() bool
	// Request sends a request. Ids are the caller's: positive, below [OwnIDs], and used once for each link.
	// params are those of the backend's era, nil for none. peer is who asks.
	Request(id int64, method string, params []byte, peer era.Peer)
	// Notify sends a notification.
	Notify(method string, params []byte)
	// Respond answers a request of the backend: with err where it is not nil, else with result.
	Respond(id wire.ID, result []byte, err *wire.Error)
	// Cancel tells the backend that nobody waits for this request any more; reason is a raw JSON string or
	// nil. Over Streamable HTTP the request then ends in [Sink.Failed] with [ErrCancelled], unless an answer was faster.
	Cancel(id int64, reason []byte)
	// Congested reports whether more bytes wait to be sent than [HighWater]. The caller should then take
	// nothing more from its clients until [Sink.Writable].
	Congested() bool
	// Close ends the conversation: nothing reaches the sink afterwards. It does not wait; see [Stdio.Wait]
	// and [Host.Close] for who joins the link's goroutines. A sink must not call it from its own methods.
	Close()
}

// Sink takes what comes from the backend. Its methods are called from goroutines of the link, one at a time,
// and must only post: a sink that waits holds up the backend.
type Sink interface {
	// Message brings an answer, a notification or a request of the backend. via is the id of the request on
	// whose HTTP response it came, 0 where the transport does not tell.
	Message(m wire.Message, via int64)
	// Failed says that the request gets no answer on this link. An error that matches [era.ErrSessionLost]
	// means that the backend has not processed it.
	Failed(id int64, err error)
	// Writable follows once the queue of a link that was congested has drained below [LowWater].
	Writable()
	// Lost says that the conversation is over and this was the last call. Requests that were open had their
	// Failed before; what the link was given too late for that is gone with it.
	Lost(err error)
}

// Choice is the era that a configuration allows towards a backend. Its zero value allows both.
type Choice uint8

// The choices of [Options].
const (
	Auto Choice = iota
	LegacyOnly
	ModernOnly
)

func (c Choice) String() string {
	switch c {
	case LegacyOnly:
		return "legacy"
	case ModernOnly:
		return "modern"
	case Auto:
		return "auto"
	default:
		return fmt.Sprintf("choice %d", uint8(c))
	}
}

// allows reports whether e may be spoken.
func (c Choice) allows(e era.Era) bool {
	switch c {
	case LegacyOnly:
		return e == era.Legacy
	case ModernOnly:
		return e == era.Modern
	default:
		return e == era.Legacy || e == era.Modern
	}
}

// Options are what the links to one backend have in common. The zero value works.
type Options struct {
	// Choice is the era that may be spoken.
	Choice Choice
	// MaxRequest bounds one message towards a stdio backend in bytes, its newline included; 0 = no bound.
	// HTTP backends answer a body that is too large by themselves.
	MaxRequest int
	// MaxReply bounds one message from the backend in bytes; 0 = [DefaultMaxReply].
	MaxReply int
	// Noise takes the lines on a stdio backend's stdout that are no JSON-RPC; nil drops them. It must not
	// block.
	Noise func(line string)
	// Logger takes what nobody else is told; nil discards it.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxReply <= 0 {
		o.MaxReply = DefaultMaxReply
	}
	if o.Noise == nil {
		o.Noise = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// offer queues an answer or a notification, for which nobody waits here, and tells when such begin to be dropped.
func (o Options) offer(box *outbox, it item) {
	if box.put(it) {
		o.Logger.Warn("the backend does not take what it is sent; answers and notifications to it are dropped for now", "error", ErrQueueFull)
	}
}

const (
	// OwnIDs is the first id of the requests that links make themselves (handshakes, tools/list). It is far
	// above what a caller counting from 1 reaches, and fits the 32-bit integers of simple servers.
	OwnIDs int64 = 1 << 30
	// DefaultMaxReply bounds what one message of a backend may hold in memory. It is well above what any client
	// takes (TypeScript 10 MiB, Go 16 MiB), so that the limit towards clients is the one that people meet.
	DefaultMaxReply = 64 << 20
	// HighWater is how many queued bytes make a link congested: several ordinary requests, or one large one.
	HighWater = 4 << 20
	// LowWater is where a congested link becomes writable again; the distance keeps it from flapping.
	LowWater = 1 << 20
	// maxQueue is where a link refuses further requests, and drops what is none. A caller that heeds Congested stays
	// far below it, but a backend that asks and does not read the answers does not.
	maxQueue = 64 << 20
)

// replyLimit names Options.MaxReply in errors.
const replyLimit = "the limit for one message of a backend"

var (
	// ErrCancelled is the end of a request that was cancelled over HTTP: its stream is closed, nothing follows.
	ErrCancelled = errors.New("request cancelled")
	// ErrStreamEnded is the end of a request whose response stream ended without an answer.
	ErrStreamEnded = errors.New("the backend ended the response stream without an answer")
	// ErrQueueFull refuses a request because the backend does not take what was sent before.
	ErrQueueFull = fmt.Errorf("more than %d bytes wait for the backend already", maxQueue)
	// ErrClosed ends what a link or host was doing when it was closed.
	ErrClosed = errors.New("the link to the backend was closed")
)

// TooLargeError says that a message passed a limit.
type TooLargeError struct {
	Size  int64 // bytes; at least, where the rest was not read
	Limit int
	Which string // the limit, in words or as its key in the configuration
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message of %d bytes is larger than %s (%d bytes)", e.Size, e.Which, e.Limit)
}

// Answer is the error as the answer to the request that it ended: the backend lives, and nothing was lost.
func (e *TooLargeError) Answer() *wire.Error {
	return &wire.Error{Code: wire.CodeInternal, Message: e.Error()}
}

// OverLimit tells it from an answer of the backend's.
func (*TooLargeError) OverLimit() {}

// StatusError is an HTTP answer that is no JSON-RPC message.
type StatusError struct {
	Status int
	Type   string // Content-Type
	Body   string // its first bytes
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the backend answered with HTTP status %d", e.Status)
	if e.Type != "" {
		text += " and " + e.Type
	}
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// Answer is the error as the answer to the request.
func (e *StatusError) Answer() *wire.Error {
	var data wire.Object
	data.Set("status", strconv.AppendInt(nil, int64(e.Status), 10))
	data.Set("body", wire.Quote(e.Body))
	return &wire.Error{Code: wire.CodeInternal, Message: e.Error(), Data: data.Bytes()}
}

// answerError is an error that stands for the backend's answer: it lives, and nothing else was lost.
type answerError struct{ err error }

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// Answer is the error as the answer to the request.
func (e *answerError) Answer() *wire.Error {
	return &wire.Error{Code: wire.CodeInternal, Message: e.err.Error()}
}

// RespawnError says that the handshake has spoiled or ended this process, and that a fresh one should be started
// and opened in the era Next alone.
type RespawnError struct {
	Next   era.Era
	Reason error
}

func (e *RespawnError) Error() string {
	return fmt.Sprintf("needs a fresh process for the %s handshake: %v", e.Next, e.Reason)
}

func (e *RespawnError) Unwrap() error { return e.Reason }
