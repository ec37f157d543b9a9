package main

import (
	"io"
	"os"
	"time"
)

// clientInput returns what reads the client's messages from file, and whether it
// waits for them in Go's poller: a read that blocks keeps a thread, and for a while
// the processor under it, from whatever else there is to do.
func clientInput(file *os.File) (input io.Reader, polled bool) {
	if file.SetReadDeadline(time.Time{}) == nil {
		return file, true // the client handed over an end that does not block
	}
	if p, err := newPolledInput(file); err == nil {
		return p, true
	}
	return file, false
}
