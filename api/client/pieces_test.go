package client

import (
	"bytes"
	"slices"
	"testing"
)

func TestPieces(t *testing.T) {
	full := bytes.Repeat([]byte("f"), ChunkSize)
	for _, pieces := range [][][]byte{
		{},
		{[]byte("one")},
		{full, full, []byte("last")},
		{[]byte("a"), {}, []byte("b"), full, []byte("c"), []byte("d")},
		{{}, {}, full},
	} {
		var p Pieces
		var want []byte
		for _, piece := range pieces {
			want = append(want, piece...)
			p.Add(slices.Clone(piece))
		}
		if got := p.Take(); !bytes.Equal(got, want) {
			t.Errorf("%d pieces gave %d bytes, want %d", len(pieces), len(got), len(want))
		}
		if got := p.Take(); len(got) > 0 {
			t.Errorf("%d bytes are left", len(got))
		}
	}
	var p Pieces
	for range 1000 {
		p.Add([]byte("x"))
	}
	if len(p.kept) > 1 {
		t.Errorf("small pieces are kept as %d", len(p.kept))
	}
}
