package backend

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
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

func TestTheOwnerOfAPortIsKnown(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, port := mustListen(t, "tcp", address)
		at := addressOf(l.Addr().String())
		if at.Addr().IsUnspecified() {
			at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
		}
		if err := checkOwner(at, []int{1, os.Getpid()}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		err := checkOwner(at, []int{os.Getppid()})
		if err == nil || !strings.Contains(err.Error(), "was taken by pid ") {
			t.Errorf("%s: a stranger passes: %v", address, err)
		}
	}
}

// Two may listen on one port if both asked for it. Then a connection may meet
// either, and the stranger among them is named.
func TestAPortThatAStrangerShares(t *testing.T) {
	ours, err := reusePort(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	at := addressOf(ours.Addr().String())
	if err := checkPort(t.Context(), int(at.Port())); err == nil {
		t.Error("a port that can be shared passes for free")
	}
	l := selfAs("http", "reuseport")
	other := exec.Command(l.Path)
	other.Env = append(l.Env, fmt.Sprintf("PORT=%d", at.Port()))
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stdin.Close()
		_ = other.Wait()
	}()
	for deadline := time.Now().Add(longEnough); ; time.Sleep(10 * time.Millisecond) {
		if all, err := listeners(int(at.Port())); len(all) == 2 || err != nil || time.Now().After(deadline) {
			break
		}
	}
	for name, test := range map[string]struct {
		pids     []int
		stranger int
	}{
		"both ours": {[]int{os.Getpid(), other.Process.Pid}, 0},
		"the other": {[]int{os.Getpid()}, other.Process.Pid},
		"we":        {[]int{other.Process.Pid}, os.Getpid()},
	} {
		err := checkOwner(at, test.pids)
		if named := err != nil && strings.Contains(err.Error(), fmt.Sprintf("was taken by pid %d (", test.stranger)); named != (test.stranger != 0) || !named && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAHolderThatIsHiddenIsNamedByHisUser(t *testing.T) {
	got := describe(listener{inode: 1<<63 - 1, uid: 4711})
	if got != "a process of the user with uid 4711" {
		t.Errorf("got %q", got)
	}
}
