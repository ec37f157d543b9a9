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
