package port

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

func TestParseSocket(t *testing.T) {
	const tail = " 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 000000007756277d 100 0 0 10 0"
	loopback6 := "00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000" + strings.TrimPrefix(tail, " 00000000:0000")
	loopback4, wildcard := "   0: 0100007F:0BB9"+tail, "  12: 00000000:0BB9"+tail
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the lines are those of a little-endian machine")
	}
	for line, want := range map[string]string{loopback4: "127.0.0.1", wildcard: "0.0.0.0", "   1: " + loopback6: "::1"} {
		l, port, ok := parseSocket(line)
		if !ok || l.address != netip.MustParseAddr(want) || port != 3001 || l.uid != 1000 || l.inode != 31337 {
			t.Errorf("%q: %+v port %d, %v", line, l, port, ok)
		}
	}
	for _, line := range []string{
		"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		strings.Replace(loopback4, " 0A ", " 01 ", 1),
		strings.Replace(loopback4, "0100007F", "zz00007F", 1),
		strings.Replace(loopback4, "0100007F", "01007F", 1),
		strings.Replace(loopback4, "0100007F:0BB9", "0100007F", 1),
	} {
		if _, _, ok := parseSocket(line); ok {
			t.Errorf("accepted %q", line)
		}
	}
}

func TestAHolderThatIsHiddenIsNamedByHisUser(t *testing.T) {
	got := Listener{inode: 1<<63 - 1, uid: 4711}.Holder()
	if got != "a process of the user with uid 4711" {
		t.Errorf("got %q", got)
	}
}
