//go:build unix

package client

import (
	"errors"
	"syscall"
)

// nobodyListens reports whether a dial failed because the socket is missing or
// no process listens on it any more. Nothing else proves that: a daemon that is
// stopped makes a dial time out, and one of another user refuses by EACCES.
func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// backlogFull reports whether a dial failed because too many others wait.
func backlogFull(err error) bool { return errors.Is(err, syscall.EAGAIN) }
