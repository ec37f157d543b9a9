package era

import (
	"errors"

	"github.com/debugmcp/devproxy/internal/wire"
)

// ErrSessionLost says that a link failed a request before the backend began with it: open a new link and send
// it again, once.
var ErrSessionLost = errors.New("backend session lost")

// ErrVersion says that the answer to a handshake names no protocol version of its era that is spoken here.
var ErrVersion = errors.New("no protocol version in common")

// Front speaks one era to clients. Get one from [FrontOf].
//
// Every []byte it takes or gives is raw JSON. What belongs to its own era already it returns as it is.
type Front interface {
	Era() Era

	// Handshake returns the result of initialize or server/discover: what f says, in the shape of this era.
	// asked is the version the client asked for (initialize only). listChanged is forced true on tools, and on
	// prompts and resources where the backend has them; tasks are hidden from the other era.
	Handshake(f Facts, asked string) []byte

	// Result returns the result of req, for its answer. shapes are those of the client's session; they are
	// written for tools/list and read for tools/call. Lists always get a ttlMs of 0 in the modern era, even
	// from a modern backend. A result that a client of this era cannot take, such as [InputRequired] in the
	// legacy era, which the caller must act upon, becomes one that says so.
	Result(req Request, res Result, shapes Shapes) []byte

	// Failure translates an error that a backend of the era source answered req with. Exactly one of the two
	// is returned: some errors of tools/call become results that the model can read.
	Failure(req Request, source Era, e *wire.Error) (result []byte, err *wire.Error)

	// OwnFailure shapes an error that devproxy itself answers req with: a tools/call gets a result with isError,
	// the message as text and e.Data under [MetaFailure] in _meta; anything else gets the error.
	OwnFailure(req Request, e *wire.Error) (result []byte, err *wire.Error)

	// Empty returns the empty list that answers a list method which the backend lacks. ok is false for
	// other methods.
	Empty(method string) (result []byte, ok bool)

	// Ack returns the result of a request that has none: ping, logging/setLevel, resources/subscribe.
	Ack() []byte

	// ListenAck returns the params of notifications/subscriptions/acknowledged for the listen sub, and ListenEnd
	// the result that ends it. Nil in the legacy era.
	ListenAck(sub wire.ID, honoured Filter) []byte
	ListenEnd(sub wire.ID) []byte

	// Notification translates the params of a notification that a backend of the era source sent. sub is the
	// client's listen it is for, or "". ok is false where a client of this era must not get it: so it is for a
	// change notification without sub in the modern era. Progress tokens and request ids in it are the caller's
	// to map, before or after ([WithProgressToken], [WithRequestID]).
	Notification(source Era, method string, params []byte, sub wire.ID) (out []byte, ok bool)

	// InputRequired returns the result that asks a modern client for inputs, at least one. Nil in the legacy
	// era, whose clients are asked by requests: see Ask.
	InputRequired(inputs []Input, state string) []byte

	// Ask returns the params of the request that asks a legacy client for an input of a modern backend.
	// elicitationID is minted by the caller and used in url mode only, where it is required. Nil in the modern
	// era, whose clients must never be sent a request.
	Ask(in Input, elicitationID string) []byte

	// ToolResult returns the result of a tools/call that devproxy answers itself. structured may be nil.
	ToolResult(text string, isError bool, structured []byte) []byte
}

// Back speaks one era to backends. Get one from [BackOf].
type Back interface {
	Era() Era

	// HandshakeRequest returns the request that opens a conversation on behalf of p.
	HandshakeRequest(p Peer) (method string, params []byte)

	// ParseHandshake reads its result. If it fails with [ErrVersion] the facts are complete except for Version.
	ParseHandshake(result []byte) (Facts, error)

	// Ready returns the notification that ends the handshake, if this era has one.
	Ready() (m wire.Message, ok bool)

	// Refusal returns the error for a request that must not be sent to a backend of this era at all, else nil.
	Refusal(req Request) *wire.Error

	// Request returns the params for req. token replaces the client's progress token; 0 means none.
	Request(req Request, token int64) []byte

	// Retry returns the params for req once more, with the inputs that its InputRequired result asked for. In
	// the legacy era that is the same as Request.
	Retry(req Request, token int64, responses []KeyedResult, state []byte) []byte

	// Result classifies a result. An error says that it asks for input in a way nobody can follow; within the
	// era the result may be passed on all the same.
	Result(method string, raw []byte) (Result, error)

	// Notification translates the params of a notification from a client of the era source. ok is false where
	// a backend of this era must not get it. notifications/cancelled never passes here: see Cancel.
	Notification(source Era, method string, params []byte) (out []byte, ok bool)

	// Cancel returns the notification that cancels the request id. reason is a raw JSON string or nil.
	Cancel(id int64, reason []byte) wire.Message

	// Subscribe returns the request by which updates of one resource are asked for, on behalf of p.
	Subscribe(p Peer, uri string) Call
	// Unsubscribe returns the request that ends it. ok is false where a Call with Open is cancelled instead.
	Unsubscribe(uri string) (c Call, ok bool)
	// Listen returns the request by which list changes are asked for. ok is false where they come unasked.
	Listen(p Peer, f Filter) (c Call, ok bool)
	// SetLevel returns the request that sets the log level of the session. ok is false where each request
	// carries its own ([Request].Level).
	SetLevel(level string) (c Call, ok bool)
}

// Call is a request that devproxy makes in its own name.
type Call struct {
	Method string
	Params []byte
	// Open means that the request stays open for as long as what it asks for is wanted: it is acknowledged by a
	// notification (see [ParseAck]) and ended by cancelling it.
	Open bool
}

// FrontOf returns the front codec of an era, with both eras on offer. It is nil for None.
func FrontOf(e Era) Front { return Both.Front(e) }

// Front returns the front codec of an era; the offer decides what server/discover lists. It is nil for None.
func (o Offer) Front(e Era) Front {
	switch e {
	case Legacy:
		return frontLegacy{}
	case Modern:
		return frontModern{offer: o}
	default:
		return nil
	}
}

// BackOf returns the back codec of an era. It is nil for None.
func BackOf(e Era) Back {
	switch e {
	case Legacy:
		return backLegacy{}
	case Modern:
		return backModern{}
	default:
		return nil
	}
}

// ResultKind is what a result asks its receiver to do.
type ResultKind uint8

// The kinds of results. Only modern backends answer with other than Complete.
const (
	Complete      ResultKind = iota // pass it on
	InputRequired                   // get Inputs, then retry with them and State
	Task                            // of the tasks extension
)

// Result is what a backend answered, in the neutral form.
type Result struct {
	Kind   ResultKind
	Raw    []byte // as sent
	Source Era    // of the backend
	Inputs []Input
	State  []byte // raw requestState, nil where absent
	// Untyped says that a modern backend did not say what it is, which modern clients insist on: see
	// [HasResultType].
	Untyped bool
	// ServerInfo is Facts.Info of the backend, if the caller knows it: modern clients should find it in every
	// result, and legacy backends do not put it there.
	ServerInfo []byte
}

// Input is one thing that a backend wants from the user or the client: an elicitation/create,
// sampling/createMessage or roots/list.
type Input struct {
	Key    string // names it within its request
	Method string
	Params []byte // as sent, nil where absent
}

// KeyedResult is the client's result for the [Input] of that key, as sent.
type KeyedResult struct {
	Key    string
	Result []byte
}

// Shapes remembers, by name, the tools whose outputSchema was wrapped into an object for a legacy client; their
// structuredContent must be wrapped too. The caller owns it, one for each session. Nil is allowed and
// remembers nothing.
type Shapes map[string]bool
