package backend

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/internal/port"
)

func TestTheOwnerOfAPortIsKnown(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, number := mustListen(t, "tcp", address)
		at := addressOf(l.Addr().String())
		if at.Addr().IsUnspecified() {
			at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(number))
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
		if all, err := port.Listeners(int(at.Port())); len(all) == 2 || err != nil || time.Now().After(deadline) {
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
