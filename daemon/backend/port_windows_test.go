package backend

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/port"
)

func TestTheOwnerOfAPortIsKnown(t *testing.T) {
	for _, test := range []struct{ network, address, seen string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"}, {"tcp4", "0.0.0.0:0", "127.0.0.1"}, {"tcp6", "[::1]:0", "::1"},
	} {
		l, err := net.Listen(test.network, test.address)
		if err != nil {
			t.Logf("%s: %v", test.address, err)
			continue
		}
		number := l.Addr().(*net.TCPAddr).Port
		at := netip.AddrPortFrom(netip.MustParseAddr(test.seen), uint16(number))
		if all, err := port.Listeners(number); err == nil && len(all) == 0 {
			t.Skip("this system does not tell who has bound a port, as wine's")
		}
		if err := checkOwner(at, []int{os.Getpid()}); err != nil {
			t.Errorf("%s: our own port: %v", test.address, err)
		}
		if err := checkOwner(at, []int{1 << 20}); err == nil || !strings.Contains(err.Error(), port.HolderOf(number)) {
			t.Errorf("%s: taken for that of another process: %v", test.address, err)
		}
		if holder := port.HolderOf(number); !strings.Contains(holder, "pid ") || !strings.Contains(holder, ".exe") {
			t.Errorf("%s: the holder is %s", test.address, holder)
		}
		_ = l.Close()
		if all, err := port.Listeners(number); err != nil || len(all) > 0 {
			t.Errorf("%s: nobody listens any more: %+v, %v", test.address, all, err)
		}
	}
}
