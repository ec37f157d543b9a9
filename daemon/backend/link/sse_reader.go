package link

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

const (
	// sseBuffer is what one read of an event stream can bring.
	sseBuffer = 64 << 10
	// maxRetry bounds what a server may ask a client to wait before it comes back.
	maxRetry = time.Minute
)

// event is one server-sent event. One without data only moves the position in the stream.
type event struct {
	name  string
	data  []byte        // nil where there was none
	id    string        // of this event, or of the last one before it that had an id
	retry time.Duration // 0 where there was none
}

// isMessage reports whether the event carries a message. Other names are pings and markers, such as the Go SDK's
// "prime" and "close".
func (e event) isMessage() bool { return len(e.data) > 0 && (e.name == "" || e.name == "message") }

// eventReader splits a text/event-stream as the HTML standard says (9.2.6): lines end in LF, CR or CRLF, unknown
// fields and comments are skipped, data lines are joined. Against the standard, a last event without its blank
// line counts, because some servers end a stream right behind the data.
type eventReader struct {
	src    *bufio.Reader
	limit  int
	lastID string
	begun  bool // the byte order mark, if any, is behind us
	skipLF bool // the line before ended in CR, which may be the half of a CRLF
}

func newEventReader(r io.Reader, limit int) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(r, sseBuffer), limit: limit}
}

// next returns the next event that has data, an id or a retry. One longer than the limit is skipped and reported as
// a *[TooLargeError], and the reader goes on behind it. Any other error is the stream's, and final.
func (r *eventReader) next() (event, error) {
	var b block
	for {
		line, size, err := r.line(r.limit - b.size)
		if err != nil && !errors.Is(err, io.EOF) {
			return event{}, err
		}
		b.add(line, size)
		if size > 0 && err == nil {
			continue
		}
		switch {
		case b.size > r.limit:
			return event{}, &TooLargeError{Size: int64(b.size), Limit: r.limit, Which: replyLimit}
		case b.seen:
			return r.finish(b), nil
		case err != nil:
			return event{}, err
		}
		b = block{}
	}
}

func (r *eventReader) finish(b block) event {
	if b.hasID {
		r.lastID = b.e.id
	}
	b.e.id = r.lastID
	return b.e
}

// line returns the next line without its end, and its length. One longer than the budget has no text.
func (r *eventReader) line(budget int) (line []byte, length int, err error) {
	for {
		chunk, err := r.chunk()
		if err != nil {
			return line, length, err
		}
		end := lineEnd(chunk)
		part := chunk[:end]
		length += len(part)
		if length <= budget {
			line = append(line, part...)
		} else {
			line = nil
		}
		if end == len(chunk) {
			_, _ = r.src.Discard(end) // as much is buffered
			continue
		}
		r.skipLF = chunk[end] == '\r'
		_, _ = r.src.Discard(end + 1)
		return line, length, nil
	}
}

// chunk returns what is buffered, at least one byte, without what is between the lines.
func (r *eventReader) chunk() ([]byte, error) {
	if !r.begun {
		r.begun = true
		if mark, err := r.src.Peek(3); err == nil && string(mark) == "\ufeff" {
			_, _ = r.src.Discard(3)
		}
	}
	for {
		first, err := r.src.Peek(1)
		if err != nil {
			return nil, err
		}
		skip := r.skipLF && first[0] == '\n'
		r.skipLF = false
		if !skip {
			return r.src.Peek(r.src.Buffered())
		}
		_, _ = r.src.Discard(1)
	}
}

// lineEnd is the index of the first CR or LF, len(chunk) if there is none.
func lineEnd(chunk []byte) int {
	end := bytes.IndexByte(chunk, '\n')
	if end < 0 {
		end = len(chunk)
	}
	if cr := bytes.IndexByte(chunk[:end], '\r'); cr >= 0 {
		end = cr
	}
	return end
}

// block is the lines of one event so far.
type block struct {
	e     event
	size  int
	begun bool // a data line was there
	hasID bool
	seen  bool // something that makes it an event
}

func (b *block) add(line []byte, size int) {
	if len(line) > 0 && line[0] == ':' {
		return // a comment; a stream may be kept alive by those alone, so they do not count
	}
	b.size += size
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		b.e.name = string(value)
	case "data":
		if b.begun {
			value = append(append(b.e.data, '\n'), value...)
		}
		b.e.data, b.begun, b.seen = value, true, true
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			b.e.id, b.hasID, b.seen = string(value), true, true
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			b.e.retry, b.seen = min(time.Duration(ms)*time.Millisecond, maxRetry), true
		}
	}
}
