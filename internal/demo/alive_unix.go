//go:build unix

package demo

import (
	"os"
	"syscall"
)

// alive reports whether the process exists.
func alive(process *os.Process) bool { return process.Signal(syscall.Signal(0)) == nil }
