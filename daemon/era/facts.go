package era

// Facts is what a server said of itself in a handshake.
type Facts struct {
	Era          Era
	Version      string   // negotiated
	Eras         []Era    // that it is known to offer
	Versions     []string // that it is known to offer
	Capabilities []byte   // raw object, nil where absent
	Info         []byte   // raw serverInfo, nil where absent
	Instructions []byte   // raw JSON string, nil where absent
	// Raw is the whole result of the handshake, nil where there was none. Clients of the same era get its
	// other members too.
	Raw []byte
}
