//go:build unix

package instance

import (
	"errors"
	"syscall"
)

// refused reports whether a dial failed because nobody listens on the socket,
// the one proof that it is stale.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
