package backend

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
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
		want    []listener
	}{
		{v4, []listener{{address: netip.MustParseAddr("127.0.0.1"), inode: 4711}}},
		{v6, []listener{{address: netip.IPv6Loopback(), inode: 4713}}},
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

func TestTheOwnerOfAPortIsKnown(t *testing.T) {
	for _, test := range []struct{ network, address, seen string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"}, {"tcp4", "0.0.0.0:0", "127.0.0.1"}, {"tcp6", "[::1]:0", "::1"},
	} {
		l, err := net.Listen(test.network, test.address)
		if err != nil {
			t.Logf("%s: %v", test.address, err)
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		at := netip.AddrPortFrom(netip.MustParseAddr(test.seen), uint16(port))
		if all, err := listeners(port); err == nil && len(all) == 0 {
			t.Skip("this system does not tell who has bound a port, as wine's")
		}
		if err := checkOwner(at, []int{os.Getpid()}); err != nil {
			t.Errorf("%s: our own port: %v", test.address, err)
		}
		if err := checkOwner(at, []int{1 << 20}); err == nil || !strings.Contains(err.Error(), holderOf(port)) {
			t.Errorf("%s: taken for that of another process: %v", test.address, err)
		}
		if holder := holderOf(port); !strings.Contains(holder, "pid ") || !strings.Contains(holder, ".exe") {
			t.Errorf("%s: the holder is %s", test.address, holder)
		}
		_ = l.Close()
		if all, err := listeners(port); err != nil || len(all) > 0 {
			t.Errorf("%s: nobody listens any more: %+v, %v", test.address, all, err)
		}
	}
}
