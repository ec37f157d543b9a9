//go:build !linux

package watch

import (
	"errors"
	"syscall"
)

// adviceFor says what to do about an error of the event system.
func adviceFor(err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return "too many files are open: the system's file events take one for each file; raise the limit with " +
			"ulimit -n, or name fewer paths in [watch]"
	}
	return err.Error()
}

// silentFileSystem names a kind of file system that sends no events; it is not
// known here.
func silentFileSystem(string) string { return "" }
