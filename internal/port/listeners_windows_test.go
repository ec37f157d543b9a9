package port

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

// The rows are those of MIB_TCPROW_OWNER_PID and MIB_TCP6ROW_OWNER_PID.
func TestTablesOfListeners(t *testing.T) {
	words := func(words ...uint32) (text []byte) {
		for _, word := range words {
			text = binary.LittleEndian.AppendUint32(text, word)
		}
		return text
	}
	const listens, port, other = 2, 0xB90B, 0xBA0B // 3001 and 3002 in network order
	v4 := words(3,
		listens, 0x0100007F, port, 0, 0, 4711,
		listens, 0, other, 0, 0, 4712,
		listens, 0, port, 0, 0, 0)
	v6 := words(1, 0, 0, 0, 0x01000000, 0, port, 0, 0, 0, 0, 0, 0, listens, 4713)
	for i, test := range []struct {
		content []byte
		want    []Listener
	}{
		{v4, []Listener{{address: netip.MustParseAddr("127.0.0.1"), inode: 4711}}},
		{v6, []Listener{{address: netip.IPv6Loopback(), inode: 4713}}},
	} {
		table := tcpTables()[i]
		if got := table.listeners(test.content, 3001); !slices.Equal(got, test.want) {
			t.Errorf("%+v, want %+v", got, test.want)
		}
		for cut := range test.content[:len(test.content)-1] {
			table.listeners(test.content[:cut], 3001) // a table that is cut short is no reason to fall
		}
	}
}
