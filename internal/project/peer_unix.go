//go:build unix

package project

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// CheckPeer returns nil if the process at the other end is ours: for a
// connection that was accepted the one that connected, for one that was dialled
// the one that listens. The error is a *StrangerError if it is another user's,
// and another one if that cannot be told.
func CheckPeer(conn *net.UnixConn) error {
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
		return &StrangerError{UID: uid, Ours: os.Getuid()}
	}
	return nil
}
