package instance

import (
	"errors"

	"golang.org/x/sys/windows"
)

// refused reports whether a dial failed because nobody listens on the socket,
// the one proof that it is stale.
func refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
