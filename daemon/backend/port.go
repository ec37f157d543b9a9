package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/debugmcp/devproxy/internal/port"
)

const (
	// firstPort and lastPort are where a free port is looked for: below those that
	// systems give to sockets which ask for none (from 32768 on Linux, 49152
	// elsewhere). Any such socket could take it between the bind-test and the
	// backend's own bind.
	firstPort, lastPort = 20_000, 32_767
	// freePortTries bounds the search for a port that is free on every address.
	freePortTries = 100
	// portTries is on how many ports a start tries, one after the other, where
	// nobody has asked for a certain one and each was taken meanwhile.
	portTries = 3
	// portFreeWait is how long a port may stay in use after its process group
	// is gone. The system frees it with the process; only what escaped the
	// group still holds it, and then the next start names that.
	portFreeWait = 2 * time.Second
	// portPoll is the pause between two looks at a port: not felt by a person,
	// and no load.
	portPoll = 50 * time.Millisecond
	// dialTimeout bounds one look: a listener on this machine accepts at once
	// or its backlog is full.
	dialTimeout = time.Second
)

// errPortTaken says that a start failed because somebody else took the port that
// was chosen for it, before the backend did.
var errPortTaken = errors.New("the port was taken meanwhile")

// loopbacks are where a backend may listen; the first that accepts is used. Some
// servers bind what localhost resolves to, which may be ::1 alone.
func loopbacks() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// choosePort returns the wanted port, or a free one for 0, after a bind-test.
func choosePort(ctx context.Context, wanted int) (int, error) {
	if wanted != 0 {
		return wanted, checkPort(ctx, wanted)
	}
	for range freePortTries {
		chosen := firstPort + rand.IntN(lastPort-firstPort+1)
		if checkPort(ctx, chosen) == nil {
			return chosen, nil
		}
	}
	return 0, fail(PortInUse, fmt.Sprintf("no free port was found between %d and %d", firstPort, lastPort))
}

// checkPort returns a Failure that names the holder if somebody listens on the
// port.
func checkPort(ctx context.Context, number int) error {
	if inUse, ok := errors.AsType[*port.InUseError](port.Check(ctx, number)); ok {
		return fail(PortInUse, inUse.Error())
	}
	return nil
}

// awaitFree waits until nobody listens on the port, and returns who still does
// after portFreeWait.
func awaitFree(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, portFreeWait, errors.New("the port is still in use"))
	defer cancel()
	for {
		err := checkPort(ctx, number)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(portPoll):
		case <-ctx.Done():
			return err
		}
	}
}

// awaitAccept waits until the port accepts a connection and returns where.
func awaitAccept(ctx context.Context, number int) (netip.AddrPort, error) {
	for {
		for _, host := range loopbacks() {
			address := netip.AddrPortFrom(host, uint16(number))
			if accepts(ctx, address) {
				return address, nil
			}
		}
		select {
		case <-time.After(portPoll):
		case <-ctx.Done():
			return netip.AddrPort{}, context.Cause(ctx)
		}
	}
}

func accepts(ctx context.Context, address netip.AddrPort) bool {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// checkOwner returns a Failure that names the stranger if a connection to the
// address would meet somebody else than those pids: he may have taken the port
// between the bind-test and the backend's own bind, and answer in its place.
//
// Where the system does not tell who listens, nothing is objected to.
func checkOwner(address netip.AddrPort, pids []int) error {
	all, err := port.Listeners(int(address.Port()))
	if err != nil {
		return nil
	}
	for _, l := range port.ReachedAt(address.Addr(), all) {
		if !l.OwnedBy(pids) {
			return fail(PortInUse, fmt.Sprintf("port %d was taken by %s, not by the backend",
				address.Port(), l.Holder()))
		}
	}
	return nil
}
