package era

import "github.com/debugmcp/devproxy/internal/wire"

// Peer is what a client said of itself: in initialize, or in the envelope of a modern request.
type Peer struct {
	Era          Era
	Version      string // negotiated in the legacy era, that of the request in the modern one
	Info         []byte // raw clientInfo, nil where absent
	Capabilities []byte // raw object, nil where absent
}

// MissingError says that a client cannot be asked for something.
type MissingError struct {
	Capability string // what it would have to declare, such as "elicitation.url"
	Code       int64  // for the answer to the backend
}

func (e *MissingError) Error() string { return "the client does not support " + e.Capability }

// Wire returns the error as the answer to the backend.
func (e *MissingError) Wire() *wire.Error { return &wire.Error{Code: e.Code, Message: e.Error()} }

// Versions since which a legacy client can be asked for these.
const (
	sinceElicitation = "2025-06-18"
	sinceURL         = "2025-11-25" // elicitation by URL, and tools in sampling
)

// Can reports, as a *[MissingError], why the client cannot be asked for this input, given what it declared and
// what its version knows. It is nil for methods that are not known: a legacy client answers those itself. A
// modern client can be asked for inputs of known methods only.
func (p Peer) Can(method string, params []byte) error {
	caps := p.usable()
	switch method {
	case methodPing:
		return nil
	case methodRoots:
		return need(caps, "roots", wire.CodeMethodNotFound)
	case methodSampling:
		return canSample(caps, object(params))
	case methodElicit:
		return canElicit(caps, object(params))
	default:
		if p.Era == Modern {
			return &MissingError{Capability: method, Code: wire.CodeMethodNotFound}
		}
		return nil
	}
}

func need(caps *wire.Object, capability string, code int64) error {
	if declares(caps.Bytes(), capability) {
		return nil
	}
	return &MissingError{Capability: capability, Code: code}
}

func canSample(caps, params *wire.Object) error {
	if err := need(caps, "sampling", wire.CodeMethodNotFound); err != nil {
		return err
	}
	if params.Has("task") {
		return need(caps, "tasks.requests.sampling.createMessage", wire.CodeInvalidParams)
	}
	if params.Has("tools") || params.Has("toolChoice") {
		return need(caps, "sampling.tools", wire.CodeInvalidParams)
	}
	return nil
}

func canElicit(caps, params *wire.Object) error {
	if err := need(caps, "elicitation", wire.CodeMethodNotFound); err != nil {
		return err
	}
	if params.Has("task") {
		return need(caps, "tasks.requests.elicitation.create", wire.CodeInvalidParams)
	}
	mode := "form"
	if raw := params.Get("mode"); raw != nil {
		mode = text(raw)
	}
	if mode == "form" && !object(caps.Get("elicitation")).Has("url") {
		return nil // the capability alone, without any mode, means form
	}
	return need(caps, "elicitation."+mode, wire.CodeInvalidParams)
}

// usable returns what of the declared capabilities the client's era and version know.
func (p Peer) usable() *wire.Object {
	caps := object(p.Capabilities)
	if p.Era == Modern {
		caps.Delete("tasks")
		return caps
	}
	if p.Version < sinceElicitation {
		caps.Delete("elicitation")
	}
	if p.Version < sinceURL {
		drop(caps, "elicitation", "url")
		drop(caps, "sampling", "tools")
		caps.Delete("tasks")
	}
	return caps
}

// drop removes a member of a member, which stays even if it is emptied.
func drop(o *wire.Object, key, inner string) {
	if raw := o.Get(key); isObject(raw) {
		object := object(raw)
		object.Delete(inner)
		if object.Changed() {
			o.Set(key, object.Bytes())
		}
	}
}

// forLegacyBackend returns the capabilities to declare in an initialize. Those of a modern client lose what
// could not be kept: nothing in its era tells that the roots changed, and extensions are negotiated with each
// request.
func (p Peer) forLegacyBackend() []byte {
	caps := object(p.Capabilities)
	if p.Era == Modern {
		drop(caps, "roots", "listChanged")
		caps.Delete("extensions")
		caps.Delete("tasks")
	}
	return caps.Bytes()
}

// forModernBackend returns the capabilities to declare in the envelope of a request.
func (p Peer) forModernBackend() []byte {
	if p.Era == Modern {
		return object(p.Capabilities).Bytes()
	}
	caps := p.usable()
	drop(caps, "roots", "listChanged")
	hideTasks(caps)
	return caps.Bytes()
}

// Union returns the capabilities of all peers together, for a conversation that they share. Whether one of
// them has what the backend then asks for must be checked with Can.
func Union(peers []Peer) []byte {
	union := []byte("{}")
	for _, p := range peers {
		union = merge(union, p.forLegacyBackend())
	}
	return union
}

// merge joins two values: objects member by member, of two others true wins, else the first.
func merge(a, b []byte) []byte {
	if !isObject(a) || !isObject(b) {
		if string(b) == "true" {
			return b
		}
		return a
	}
	o := object(a)
	for _, m := range object(b).Members() {
		if have := o.Get(m.Key); have != nil {
			o.Set(m.Key, merge(have, m.Value))
		} else {
			o.Set(m.Key, m.Value)
		}
	}
	return o.Bytes()
}
