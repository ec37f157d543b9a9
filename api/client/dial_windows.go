package client

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
)

// nobodyListens reports whether a dial failed because the socket is missing or
// no process listens on it any more.
func nobodyListens(err error) bool {
	return errors.Is(err, windows.WSAECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// backlogFull reports whether a dial failed because too many others wait;
// Windows refuses then, which is not to be told apart.
func backlogFull(error) bool { return false }
