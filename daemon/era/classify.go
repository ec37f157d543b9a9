package era

import (
	"fmt"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Session is what earlier messages of a client's connection established.
type Session struct {
	Initialized bool   // an initialize was answered
	ModernSeen  bool   // a modern request was taken
	Peer        Peer   // from initialize
	Level       string // from logging/setLevel, "" before
	Front       Offer  // the eras offered to clients
}

// Request is a client's request, or notification, in the neutral form.
type Request struct {
	Method string
	Params []byte // as sent
	Source Era    // of the client
	Peer   Peer
	Level  string // of the logs it wants, "" for none asked
	Token  []byte // raw progress token, nil where absent
}

// Classify finds out in which era a request speaks, by its own words and by what came before, or returns the
// error that the client gets. Methods that its era does not have are errors too.
//
// For an initialize, Peer is what it said, with the version negotiated; the caller keeps it in Session.Peer
// and asks Handshake for the answer. A notification has no era of its own and is never an error: what it says
// about itself counts, else the state of the connection.
func Classify(m wire.Message, s Session) (Request, *wire.Error) {
	meta := object(at(m.Params, "_meta"))
	req := Request{Method: m.Method, Params: m.Params, Token: nonNull(meta.Get("progressToken"))}
	claimed := meta.Has(MetaVersion)
	switch {
	case m.Kind == wire.Notification:
		return s.notification(req, meta, claimed), nil
	case claimed:
		return s.modern(req, meta)
	case m.Method == methodInitialize:
		return s.initialize(req)
	case m.Method == methodPing: // the Go SDK's client sends it bare on modern connections too
		return s.legacy(req), nil
	case s.Initialized && isModernOnly(m.Method):
		return Request{}, methodNotFound()
	case s.Initialized:
		return s.legacy(req), nil
	default:
		return Request{}, s.unclaimed(m.Method)
	}
}

func methodNotFound() *wire.Error {
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "Method not found"}
}

// isModernOnly tells the methods that the legacy era does not have.
func isModernOnly(method string) bool { return method == methodDiscover || method == methodListen }

// isLegacyOnly tells the methods that the modern era does not have.
func isLegacyOnly(method string) bool {
	switch method {
	case methodInitialize, methodPing, methodSetLevel, methodSubscribe, methodUnsubscribe:
		return true
	default:
		return false
	}
}

func (s Session) legacy(req Request) Request {
	req.Source, req.Peer, req.Level = Legacy, s.Peer, s.Level
	return req
}

func (s Session) notification(req Request, meta *wire.Object, claimed bool) Request {
	if claimed || s.ModernSeen && !s.Initialized {
		req.Source, req.Peer, req.Level = Modern, peerOf(meta), text(meta.Get(MetaLevel))
		return req
	}
	return s.legacy(req)
}

func peerOf(meta *wire.Object) Peer {
	return Peer{
		Era:          Modern,
		Version:      text(meta.Get(MetaVersion)),
		Info:         onlyObject(meta.Get(MetaInfo)),
		Capabilities: onlyObject(meta.Get(MetaCapabilities)),
	}
}

func onlyObject(raw []byte) []byte {
	if isObject(raw) {
		return raw
	}
	return nil
}

func (s Session) modern(req Request, meta *wire.Object) (Request, *wire.Error) {
	version, ok := wire.String(meta.Get(MetaVersion))
	if !ok {
		return Request{}, badEnvelope(MetaVersion, "not a string")
	}
	if s.Front == LegacyOnly && req.Method == methodDiscover {
		return Request{}, methodNotFound() // sends every client that can to initialize
	}
	if e, spoken := Of(version); e != Modern || !spoken || s.Front == LegacyOnly {
		return Request{}, s.unsupported(version)
	}
	switch level := meta.Get(MetaLevel); {
	case !meta.Has(MetaCapabilities):
		return Request{}, badEnvelope(MetaCapabilities, "missing")
	case !isObject(meta.Get(MetaCapabilities)):
		return Request{}, badEnvelope(MetaCapabilities, "not an object")
	case level != nil && !isLevel(text(level)):
		return Request{}, badEnvelope(MetaLevel, "no known log level")
	case isLegacyOnly(req.Method):
		return Request{}, methodNotFound()
	}
	req.Source, req.Peer, req.Level = Modern, peerOf(meta), text(meta.Get(MetaLevel))
	return req, nil
}

func isLevel(level string) bool {
	_, ok := Severity(level)
	return ok
}

// badEnvelope names the key in its data as the TypeScript server does.
func badEnvelope(key, problem string) *wire.Error {
	var envelope wire.Object
	envelope.Set("key", wire.Quote(key))
	envelope.Set("problem", wire.Quote(problem))
	var data wire.Object
	data.Set("envelope", envelope.Bytes())
	return &wire.Error{
		Code:    wire.CodeInvalidParams,
		Message: fmt.Sprintf("Invalid _meta envelope for protocol revision %s: %s: %s", ModernVersion, key, problem),
		Data:    data.Bytes(),
	}
}

func (s Session) unsupported(requested string) *wire.Error {
	versions := s.Front.Versions()
	supported := make([][]byte, len(versions))
	for i, v := range versions {
		supported[i] = wire.Quote(v)
	}
	var data wire.Object
	data.Set("supported", wire.JoinArray(supported))
	data.Set("requested", wire.Quote(requested))
	return &wire.Error{
		Code:    CodeUnsupportedVersion,
		Message: "Unsupported protocol version: " + requested,
		Data:    data.Bytes(),
	}
}

func (s Session) initialize(req Request) (Request, *wire.Error) {
	params := object(req.Params)
	asked, ok := wire.String(params.Get("protocolVersion"))
	switch {
	case s.Front == ModernOnly:
		return Request{}, s.unsupported(asked)
	case s.Initialized:
		return Request{}, &wire.Error{Code: wire.CodeInvalidRequest, Message: "Invalid request: already initialized"}
	case !ok:
		return Request{}, &wire.Error{
			Code: wire.CodeInvalidParams, Message: "Invalid params: protocolVersion must be a string",
		}
	}
	req.Source = Legacy
	req.Peer = Peer{
		Era:          Legacy,
		Version:      Negotiate(asked),
		Info:         onlyObject(params.Get("clientInfo")),
		Capabilities: onlyObject(params.Get("capabilities")),
	}
	return req, nil
}

// unclaimed is the error for a request that neither names a version nor follows an initialize.
func (s Session) unclaimed(method string) *wire.Error {
	modern := s.ModernSeen || s.Front == ModernOnly
	switch {
	case modern && isLegacyOnly(method), !modern && isModernOnly(method):
		return methodNotFound()
	case modern:
		return badEnvelope(MetaVersion, "missing")
	default:
		return &wire.Error{
			Code:    wire.CodeInvalidRequest,
			Message: "Invalid request: send initialize first, or the _meta envelope of protocol revision " + ModernVersion,
		}
	}
}

// SupportedVersions returns the versions that an error names as supported, if it is a -32022.
func SupportedVersions(e *wire.Error) []string {
	if e == nil || e.Code != CodeUnsupportedVersion {
		return nil
	}
	return stringsOf(at(e.Data, "supported"))
}

// stringsOf returns the strings among the elements of an array.
func stringsOf(array []byte) []string {
	elems, _ := wire.Elements(array) // what is no array has no elements
	var out []string
	for _, elem := range elems {
		if s, ok := wire.String(elem); ok {
			out = append(out, s)
		}
	}
	return out
}
