package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// maxLine is the longest line that is taken from the client: several times
	// what the official SDKs send, and what the daemon takes too.
	maxLine = 64 << 20
	// maxNotes is how many lines for stderr wait for a client that does not read
	// it. They are for people; what does not fit is dropped.
	maxNotes = 64
)

// byteOrderMark is U+FEFF in UTF-8, which is no JSON.
var byteOrderMark = []byte("\xEF\xBB\xBF")

// line is one line of the client, or why there is none: a *wire.TooLongError,
// after which others follow, or the end.
type line struct {
	frame []byte
	err   error
}

// readLines pumps the client's lines into lines until they end or stop is
// closed.
func readLines(stdin io.Reader, lines chan<- line, stop <-chan struct{}) {
	reader := wire.NewReader(stdin, maxLine)
	for first := true; ; first = false {
		frame, err := reader.Next()
		if first {
			// Some programs begin whatever they write with it.
			frame = bytes.TrimPrefix(frame, byteOrderMark)
		}
		select {
		case lines <- line{frame: frame, err: err}:
		case <-stop:
			return
		}
		if _, long := errors.AsType[*wire.TooLongError](err); err != nil && !long {
			return
		}
	}
}

// writeLines pumps frames to the client, each in one Write, until frames is
// closed. The first error is sent to failed, which must have room; after it
// nothing is written.
func writeLines(stdout io.Writer, frames <-chan []byte, failed chan<- error) {
	writer := wire.NewWriter(stdout)
	for frame := range frames {
		if err := writer.Write(frame); err != nil {
			failed <- err
			return
		}
	}
}

// writeNotes pumps notes to stderr until notes is closed. What cannot be
// written there has nowhere else to go.
func writeNotes(stderr io.Writer, notes <-chan string) {
	for note := range notes {
		_, _ = fmt.Fprintln(stderr, "devproxy-shim: "+note)
	}
}

// interrupt ends a Read or Write on file that blocks, and reports whether it
// could: a descriptor in blocking mode, as clients hand it to their children,
// has no way to.
func interrupt(file any) bool {
	if pollable, ok := file.(interface{ SetDeadline(time.Time) error }); ok {
		return pollable.SetDeadline(time.Unix(1, 0)) == nil
	}
	closer, ok := file.(io.Closer)
	return ok && closer.Close() == nil
}
