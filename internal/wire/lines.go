package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// readBuffer is what one read from a pipe can bring: 64 KiB, the size of a Linux pipe.
	readBuffer = 64 << 10
	// headSize is how much of a discarded line is kept: enough for the envelope in front of large params.
	headSize = 4 << 10
	// tailSize is how much of its end is kept: enough for the envelope behind a large result.
	tailSize = 1 << 10
	// keepBuffer is the largest frame that is copied to be written, and so what a connection may keep in memory
	// between frames: the most that a user may give a Linux pipe.
	keepBuffer = 1 << 20
)

// TooLongError says that a line passed the reader's limit and was discarded. The reader goes on behind it.
type TooLongError struct {
	Size  int64  // of the whole line in bytes, without its end
	Limit int    // that it passed
	Head  []byte // the first 4 KiB of it, to make out whose it was: see Outline
	Tail  []byte // the last KiB, likewise; the two overlap in a short line
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("line of %d bytes is longer than the limit of %d", e.Size, e.Limit)
}

// Reader splits a stream into frames, one a line.
type Reader struct {
	src   *bufio.Reader
	limit int
}

// NewReader reads lines of at most limit bytes from r; 0 means no limit.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, readBuffer), limit: limit}
}

// Next returns the next line that is not blank, without its end ("\n" or "\r\n"). The slice is the caller's. A
// last line that has no end counts, and comes before io.EOF. After a *[TooLongError] the reader is usable;
// any other error is that of the stream, and final.
func (r *Reader) Next() ([]byte, error) {
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(trim(line)) > 0 {
			return line, nil
		}
	}
}

// line returns the next line, or the stream's error if there is none. The parts of a long one are kept apart until
// its end is there, so that each byte is copied twice, however long it is.
func (r *Reader) line() ([]byte, error) {
	var parts [][]byte
	size := 0
	for {
		part, err := r.src.ReadSlice('\n')
		ended := err == nil || errors.Is(err, io.EOF)
		if !ended && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		size += len(part)
		if size == 0 {
			return nil, err // only at the end of the stream
		}
		if ended {
			line := chomp(joined(parts, part))
			if r.exceeded(len(line)) {
				return nil, r.tooLong(line)
			}
			return line, nil
		}
		if r.exceeded(size - 1) { // its last byte may be the "\r" of a "\r\n"
			return nil, r.discard(joined(parts, part))
		}
		parts = append(parts, bytes.Clone(part))
	}
}

// joined returns the parts and the last one in a slice of its own.
func joined(parts [][]byte, last []byte) []byte {
	if len(parts) == 0 {
		return bytes.Clone(last)
	}
	return bytes.Join(append(parts, last), nil)
}

func (r *Reader) exceeded(size int) bool { return r.limit > 0 && size > r.limit }

func chomp(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'})
}

func (r *Reader) tooLong(line []byte) *TooLongError {
	head := append([]byte{}, line[:min(len(line), headSize)]...)
	return &TooLongError{Size: int64(len(line)), Limit: r.limit, Head: head, Tail: AppendTail(nil, line)}
}

// discard reads to the end of a line that is known up to here, and says how long it was.
func (r *Reader) discard(line []byte) error {
	tooLong := r.tooLong(line)
	tail := appendLast(nil, line, tailSize+len("\r\n"))
	for {
		part, err := r.src.ReadSlice('\n')
		tooLong.Size += int64(len(part))
		tail = appendLast(tail, part, tailSize+len("\r\n"))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil { // else the end or error of the stream comes again at the next read
			// Its end is no part of a line; the "\r" may have come with the part before.
			size := len(tail)
			tail = chomp(tail)
			tooLong.Size -= int64(size - len(tail))
		}
		tooLong.Tail = AppendTail(nil, tail)
		return tooLong
	}
}

// Writer writes frames to a stream, one a line. It is for one goroutine.
type Writer struct {
	dst io.Writer
	buf []byte
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{dst: w} }

// Write writes the frame and its newline in one call, unless it is larger than any pipe, and at once: both official
// TypeScript clients lose a progress notification that they read together with its result, so frames are never
// gathered, and never torn. A frame that holds newlines between its tokens, as a pretty-printed HTTP body does, is compacted; one
// that is then still no line is refused.
func (w *Writer) Write(frame []byte) error {
	if bytes.IndexByte(frame, '\n') >= 0 {
		compact, err := Compact(frame)
		if err != nil {
			return fmt.Errorf("writing a frame of several lines: %w", err)
		}
		frame = compact
	}
	if len(frame) > keepBuffer {
		// More than a pipe takes at once anyway, and much to copy for one byte.
		if _, err := w.dst.Write(frame); err != nil {
			return err
		}
		_, err := w.dst.Write([]byte{'\n'})
		return err
	}
	w.buf = append(append(w.buf[:0], frame...), '\n')
	_, err := w.dst.Write(w.buf)
	return err
}
