// Package port tells whether a TCP port of this machine is free, and who listens
// on it as far as the system says: Linux names the process where it may be looked
// at, Windows always, macOS never.
package port

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/debugmcp/devproxy/internal/process"
)

// InUseError says that somebody listens on a port.
type InUseError struct {
	// Port is the port.
	Port int
	// Holder says in words who it is, as far as the system tells.
	Holder string
}

// Error names the port and its holder.
func (e *InUseError) Error() string { return fmt.Sprintf("port %d is in use by %s", e.Port, e.Holder) }

// Check returns an *InUseError if somebody listens on the port, on either loopback
// address or on all. An address that cannot be bound for another reason, such as a
// machine without IPv6, is the affair of whoever wants to listen there.
func Check(ctx context.Context, port int) error {
	tests := []struct{ network, host string }{
		{"tcp4", "127.0.0.1"}, {"tcp6", "::1"}, {"tcp4", "0.0.0.0"}, {"tcp", "::"},
	}
	for _, test := range tests {
		l, err := listen(ctx, test.network, net.JoinHostPort(test.host, strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			continue
		}
		if addressInUse(err) {
			return &InUseError{Port: port, Holder: HolderOf(port)}
		}
	}
	return nil
}

func listen(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	return config.Listen(ctx, network, address)
}

// Listener is a socket that listens on a port.
type Listener struct {
	address netip.Addr
	inode   uint64
	uid     uint32
}

// ReachedAt returns the listeners that a connection to the address may meet: an
// exact bind goes before a wildcard, one of the same family before one of both.
func ReachedAt(address netip.Addr, all []Listener) []Listener {
	preferences := []netip.Addr{address, netip.IPv6Unspecified()}
	if address.Is4() {
		preferences = []netip.Addr{address, netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	for _, want := range preferences {
		var reached []Listener
		for _, l := range all {
			if l.address == want {
				reached = append(reached, l)
			}
		}
		if len(reached) > 0 {
			return reached
		}
	}
	return nil
}

// HolderOf says in words who listens on the port, as far as the system tells.
func HolderOf(port int) string {
	all, err := Listeners(port)
	if err != nil || len(all) == 0 {
		return "another process"
	}
	return all[0].Holder()
}

// Holder says in words who has the socket.
func (l Listener) Holder() string {
	pids := holders(l.inode)
	if len(pids) == 0 {
		return fmt.Sprintf("a process of the user with uid %d", l.uid)
	}
	pid := origin(pids, descends)
	if command := process.CommandLine(pid); command != "" {
		return fmt.Sprintf("pid %d (%s)", pid, command)
	}
	return fmt.Sprintf("pid %d", pid)
}

// origin is the holder that the one it begins with has it from: the master of a
// server's workers, and whoever is just starting a program, which is a copy of him
// until then. The numbers do not tell, since they begin again.
func origin(pids []int, descends func(pid, ancestor int) bool) int {
	first := pids[0]
	for _, pid := range pids[1:] {
		if descends(first, pid) {
			first = pid
		}
	}
	return first
}
