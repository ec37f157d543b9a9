//go:build unix

package cli

import (
	"os"
	"syscall"
)

// endSignals ask a program to end.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
