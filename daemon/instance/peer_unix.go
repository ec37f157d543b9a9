//go:build unix

package instance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// StrangerError says that a connection came from another user.
type StrangerError struct {
	// UID is the other user's id.
	UID int
}

// Error names the uid.
func (e *StrangerError) Error() string {
	return fmt.Sprintf("the peer is uid %d, not ours (%d)", e.UID, os.Getuid())
}

// checkPeer returns nil if the process at the other end had our uid when it
// connected, and an error too if that cannot be told.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("asking for the peer: %w", err)
	}
	var uid int
	var asking error
	err = raw.Control(func(fd uintptr) { uid, asking = peerUID(int(fd)) })
	if err := errors.Join(err, asking); err != nil {
		return fmt.Errorf("asking for the peer: %w", err)
	}
	if uid != os.Getuid() {
		return &StrangerError{UID: uid}
	}
	return nil
}

// refused reports whether a dial failed because nobody listens on the socket,
// the one proof that it is stale.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
