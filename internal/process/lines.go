package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// linesBuffer is how much Lines reads at once: what a pipe holds, so that a writer is rarely
// kept waiting.
const linesBuffer = 64 << 10

// Lines reads r to its end and gives fn every line, without its line end. It is the pump of a
// process's output, so it reads on whatever comes and keeps little:
//
//   - A line over limit bytes is cut there and says so: "… [line cut: 70000 bytes]".
//   - "\n" and "\r\n" end a line. So does a lone "\r", or a progress bar would never be seen;
//     what is empty between lone ones is left out.
//   - Bytes that are no UTF-8 become U+FFFD.
//   - What is left without a line end at the end is a line too.
//
// fn is called from the caller's goroutine, in order, and holds up the writer while it runs, so
// it must be quick. The end of r is no error.
func Lines(r io.Reader, limit int, fn func(line string)) error {
	s := splitter{limit: limit, fn: fn}
	buffer := make([]byte, linesBuffer)
	for {
		n, err := r.Read(buffer)
		s.write(buffer[:n])
		if err == nil {
			continue
		}
		s.end()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("reading output: %w", err)
	}
}

// splitter cuts a stream into lines. Between writes it holds the start of one line at most.
type splitter struct {
	limit int
	fn    func(string)

	line []byte // the kept start of the current line
	size int    // how long the current line is so far
	cr   bool   // the last byte was a carriage return, whose line is not given out yet
}

func (s *splitter) write(p []byte) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.segment(p)
			return
		}
		s.segment(p[:end])
		s.cr = false
		s.flush()
		p = p[end+1:]
	}
}

// segment takes bytes without a newline.
func (s *splitter) segment(p []byte) {
	for len(p) > 0 {
		if s.cr { // not followed by a newline: a line end by itself
			s.cr = false
			if s.size > 0 {
				s.flush()
			}
		}
		end := bytes.IndexByte(p, '\r')
		if end < 0 {
			s.keep(p)
			return
		}
		s.keep(p[:end])
		s.cr = true
		p = p[end+1:]
	}
}

func (s *splitter) keep(p []byte) {
	s.size += len(p)
	s.line = append(s.line, p[:min(len(p), s.limit-len(s.line))]...)
}

func (s *splitter) flush() {
	kept := s.line
	if s.size > len(kept) {
		kept = wholeRunes(kept)
	}
	text := strings.ToValidUTF8(string(kept), "\uFFFD")
	if s.size > len(s.line) {
		text += fmt.Sprintf("… [line cut: %d bytes]", s.size)
	}
	s.line, s.size = s.line[:0], 0
	s.fn(text)
}

// end gives out what has no line end.
func (s *splitter) end() {
	if s.size > 0 {
		s.flush()
	}
}

// wholeRunes drops a character that a cut has split.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			return b
		}
	}
	return b
}
