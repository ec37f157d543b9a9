package era

// Session is what earlier messages of a client's connection established.
type Session struct {
	Initialized bool   // an initialize was answered
	ModernSeen  bool   // a modern request was taken
	Peer        Peer   // from initialize
	Level       string // from logging/setLevel, "" before
	Front       Offer  // the eras offered to clients
}

// Request is a client's request in the neutral form.
type Request struct {
	Method string
	Params []byte // as sent
	Source Era    // of the client
	Peer   Peer
	Level  string // of the logs it wants, "" for none asked
	Token  []byte // raw progress token, nil where absent
}
