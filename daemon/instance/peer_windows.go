package instance

import (
	"errors"
	"net"

	"golang.org/x/sys/windows"
)

// checkPeer accepts everybody: Windows does not say who is at the other end of
// a unix socket, and the ACL of LocalAppData lets nobody else reach it.
func checkPeer(*net.UnixConn) error { return nil }

// refused reports whether a dial failed because nobody listens on the socket,
// the one proof that it is stale.
func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
