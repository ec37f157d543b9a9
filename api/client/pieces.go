package client

import "bytes"

// Pieces puts the chunks of one message together. It keeps them apart until the
// last one is there, so that a large message is copied once. The zero value is
// empty.
type Pieces struct{ kept [][]byte }

// Add takes the next piece, which the caller must not change any more.
func (p *Pieces) Add(piece []byte) {
	// Those of a peer that cuts smaller than it should are gathered, so that they
	// take no more memory than they have bytes.
	if last := len(p.kept) - 1; last >= 0 && len(p.kept[last]) < ChunkSize {
		p.kept[last] = append(p.kept[last], piece...)
		return
	}
	p.kept = append(p.kept, piece)
}

// Take returns the message, and leaves p empty.
func (p *Pieces) Take() []byte {
	kept := p.kept
	p.kept = nil
	if len(kept) == 1 {
		return kept[0]
	}
	return bytes.Join(kept, nil)
}
