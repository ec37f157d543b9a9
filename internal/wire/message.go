package wire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Kind tells the four JSON-RPC messages apart. The zero value is none of them.
type Kind uint8

// The kinds of a [Message].
const (
	Request      Kind = iota + 1 // method and id: wants exactly one Response or Failure
	Notification                 // method, no id
	Response                     // id and result
	Failure                      // id and error
)

func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	case Failure:
		return "failure"
	default:
		return "kind " + strconv.Itoa(int(k))
	}
}

// ID is the JSON text of a request id as it was sent: `1`, `"1"`, `9007199254740993`, `1.5`. Two ids are the
// same if their text is, which makes it a map key; 1 and "1" are different requests. "" means no id at all,
// `null` occurs in a [Failure] that answers nobody in particular.
type ID string

// NullID is the id of a failure whose request could not be read.
const NullID ID = "null"

// IntID is the id n.
func IntID(n int64) ID { return ID(strconv.FormatInt(n, 10)) }

// StringID is the id that is the string s.
func StringID(s string) ID { return ID(Quote(s)) }

// Int returns the id as an integer, if it is one. A peer that answers request 1 with the id 1.0 means that
// integer too.
func (id ID) Int() (int64, bool) { return integer(string(id)) }

// Echoed returns the integer id of ours that a peer repeats, in an answer, as a progress token or as a subscription.
// The TypeScript clients take "7" for 7 there, so that servers which make a string of every id work with them.
func (id ID) Echoed() (int64, bool) {
	text, isString := String([]byte(id))
	if !isString {
		return id.Int()
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// maxExact is the largest magnitude up to which every integer is exact in a float64 (2^53 - 1).
const maxExact = 1<<53 - 1

func integer(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact {
		return 0, false
	}
	return int64(f), true
}

// Message is one JSON-RPC envelope. Params, Result and Error are raw JSON as sent, nil where absent; after
// [Parse] they alias the frame.
type Message struct {
	Kind   Kind
	ID     ID
	Method string
	Params []byte
	Result []byte
	Error  []byte
}

// ErrBatch says that a frame is a JSON-RPC batch: an array of messages, which only protocol versions before
// 2025-06-18 know. See [ParseBatch].
var ErrBatch = errors.New("a JSON-RPC batch")

// InvalidError says that a frame is JSON but no JSON-RPC 2.0 message. It calls for [CodeInvalidRequest] if it
// has an id; if not, nobody waits for an answer that could be recognised.
type InvalidError struct {
	ID     ID // of the request, where it could be made out; else ""
	Reason string
}

func (e *InvalidError) Error() string { return "invalid JSON-RPC message: " + e.Reason }

// Parse reads one frame. It fails with a *[SyntaxError], a *[InvalidError], or [ErrBatch].
//
// Beyond JSON-RPC 2.0 it takes what peers are known to send: "params":null for no params, "error":null
// beside a result and "result":null beside an error, and a failure without an id, which becomes [NullID].
func Parse(frame []byte) (Message, error) {
	start := skipSpace(frame, 0)
	if start < len(frame) && frame[start] == '{' {
		return parseEnvelope(frame, start)
	}
	if err := Valid(frame); err != nil {
		return Message{}, err
	}
	if frame[start] == '[' {
		return Message{}, ErrBatch
	}
	return Message{}, &InvalidError{Reason: "not an object"}
}

// ParseBatch splits a batch into its messages, each still to be parsed.
func ParseBatch(frame []byte) ([][]byte, error) {
	elems, err := Elements(frame)
	if errors.Is(err, ErrNotArray) {
		return nil, &InvalidError{Reason: "not a batch"}
	}
	return elems, err
}

// envelope is the members of a frame that mean something, as sent.
type envelope struct{ version, id, method, params, result, failure []byte }

func parseEnvelope(frame []byte, start int) (Message, error) {
	var env envelope
	end, err := walkObject(frame, start, 0, func(key, value span) {
		env.take(frame[key.from:key.to], value.of(frame))
	})
	if err != nil {
		return Message{}, err
	}
	if err := onlySpace(frame, end); err != nil {
		return Message{}, err
	}
	return env.message()
}

func (env *envelope) take(key, value []byte) {
	name := key[1 : len(key)-1]
	if escaped(name) {
		name = appendUnescaped(nil, name)
	}
	switch string(name) {
	case "jsonrpc":
		env.version = value
	case "id":
		env.id = value
	case "method":
		env.method = value
	case "params":
		env.params = value
	case "result":
		env.result = value
	case "error":
		env.failure = value
	}
}

func (env *envelope) message() (Message, error) {
	id, ok := idOf(env.id)
	if !ok {
		return Message{}, &InvalidError{Reason: "the id is neither a string nor a number"}
	}
	invalid := func(reason string) (Message, error) {
		if env.method == nil || id == NullID {
			id = "" // not the id of a request, so there is nothing to answer
		}
		return Message{}, &InvalidError{ID: id, Reason: reason}
	}
	if version, _ := String(env.version); version != "2.0" {
		return invalid(`"jsonrpc" is not "2.0"`)
	}
	if env.method == nil {
		return env.answer(id)
	}
	method, ok := String(env.method)
	if !ok {
		return invalid("the method is not a string")
	}
	if env.result != nil || env.failure != nil {
		return invalid("both a request and an answer")
	}
	if isNull(env.params) {
		env.params = nil
	}
	if env.params != nil && env.params[0] != '{' && env.params[0] != '[' {
		return invalid("params is neither an object nor an array")
	}
	switch id {
	case "":
		return Message{Kind: Notification, Method: method, Params: env.params}, nil
	case NullID:
		return invalid("the id of a request is null")
	default:
		return Message{Kind: Request, ID: id, Method: method, Params: env.params}, nil
	}
}

func (env *envelope) answer(id ID) (Message, error) {
	if env.result != nil && isNull(env.failure) {
		env.failure = nil
	}
	if env.failure != nil && isNull(env.result) {
		env.result = nil
	}
	switch {
	case env.result != nil && env.failure != nil:
		return Message{}, &InvalidError{Reason: "both a result and an error"}
	case env.failure != nil && env.failure[0] != '{':
		return Message{}, &InvalidError{Reason: "the error is not an object"}
	case env.failure != nil && id == "":
		return Message{Kind: Failure, ID: NullID, Error: env.failure}, nil
	case env.failure != nil:
		return Message{Kind: Failure, ID: id, Error: env.failure}, nil
	case env.result == nil:
		return Message{}, &InvalidError{Reason: "neither a method, a result nor an error"}
	case id == "" || id == NullID:
		return Message{}, &InvalidError{Reason: "a result without an id"}
	default:
		return Message{Kind: Response, ID: id, Result: env.result}, nil
	}
}

func idOf(raw []byte) (ID, bool) {
	if raw == nil {
		return "", true
	}
	switch c := raw[0]; {
	case c == '"' || c == '-' || isDigit(c) || c == 'n':
		return ID(raw), true
	default:
		return "", false
	}
}

func isNull(raw []byte) bool { return string(raw) == "null" }

// NewRequest is a request; nil params are left out.
func NewRequest(id ID, method string, params []byte) Message {
	return Message{Kind: Request, ID: id, Method: method, Params: params}
}

// NewNotification is a notification; nil params are left out.
func NewNotification(method string, params []byte) Message {
	return Message{Kind: Notification, Method: method, Params: params}
}

// NewResponse is the answer to a request that succeeded.
func NewResponse(id ID, result []byte) Message {
	return Message{Kind: Response, ID: id, Result: result}
}

// NewFailure is the answer to a request that failed, or with the id "" to something that could not be read.
// The Go SDK's client ends its connection on a failure without an id, so that is for [CodeParse] alone.
func NewFailure(id ID, e *Error) Message {
	if id == "" {
		id = NullID
	}
	return Message{Kind: Failure, ID: id, Error: e.Bytes()}
}

// Append appends the message as one JSON object to dst, without a newline. It takes over raw parts byte for
// byte: a part with a newline between its tokens gives a frame with a newline (see [Writer] and [Compact]).
func (m Message) Append(dst []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if m.ID != "" && m.Kind != Notification {
		dst = append(dst, `,"id":`...)
		dst = append(dst, m.ID...)
	}
	switch m.Kind {
	case Request, Notification:
		dst = append(dst, `,"method":`...)
		dst = appendQuoted(dst, m.Method)
		if m.Params != nil {
			dst = append(dst, `,"params":`...)
			dst = append(dst, m.Params...)
		}
	case Response:
		dst = append(dst, `,"result":`...)
		dst = append(dst, m.Result...)
	case Failure:
		dst = append(dst, `,"error":`...)
		dst = append(dst, m.Error...)
	}
	return append(dst, '}')
}

// Bytes returns the message as a frame of its own.
func (m Message) Bytes() []byte {
	const envelope = 64 // more than the punctuation and names around the parts take
	size := envelope + len(m.ID) + len(m.Method) + len(m.Params) + len(m.Result) + len(m.Error)
	return m.Append(make([]byte, 0, size))
}

// Codes that JSON-RPC 2.0 reserves.
const (
	CodeParse          = -32700 // no JSON
	CodeInvalidRequest = -32600 // JSON, but no request that can be taken
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// Error is the error of a [Failure].
type Error struct {
	Code    int64
	Message string
	Data    []byte // raw JSON, nil where absent
}

func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// ParseError reads the error member of a [Failure]. Members other than code, message and data are dropped, as
// both official TypeScript clients refuse them. The code must be an integer: the Go SDK's client ends its
// connection on any other.
func ParseError(raw []byte) (*Error, error) {
	object, err := ParseObject(raw)
	if err != nil {
		return nil, err
	}
	code, ok := integer(string(object.Get("code")))
	if !ok {
		return nil, &InvalidError{Reason: "the error code is not an integer"}
	}
	message, ok := String(object.Get("message"))
	if !ok {
		return nil, &InvalidError{Reason: "the error message is not a string"}
	}
	return &Error{Code: code, Message: message, Data: object.Get("data")}, nil
}

// Bytes returns the error as a JSON object.
func (e *Error) Bytes() []byte {
	out := make([]byte, 0, 64+len(e.Message)+len(e.Data))
	out = append(out, `{"code":`...)
	out = strconv.AppendInt(out, e.Code, 10)
	out = append(out, `,"message":`...)
	out = appendQuoted(out, e.Message)
	if e.Data != nil {
		out = append(out, `,"data":`...)
		out = append(out, e.Data...)
	}
	return append(out, '}')
}
