//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// unread reports that nobody reads a pipe or a socket any longer.
func unread(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Control(func(fd uintptr) { // fails for a closed file, which says nothing of its reader
		poll := []unix.PollFd{{Fd: int32(fd)}} // errors are always reported
		n, err := unix.Poll(poll, 0)
		gone = err == nil && n == 1 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone
}
