package clients

import (
	"bytes"
	"slices"
)

// source is the text of a file, in whatever format.
type source struct {
	// mark is the byte order mark, if there is one.
	mark []byte
	text []byte
}

const byteOrderMark = "\ufeff"

func sourceOf(content []byte) source {
	text, marked := bytes.CutPrefix(content, []byte(byteOrderMark))
	s := source{text: text}
	if marked {
		s.mark = []byte(byteOrderMark)
	}
	return s
}

// newline is how the file ends its lines.
func (s source) newline() string {
	if bytes.Contains(s.text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// splice is a change of a text: what stands from one offset to another is
// replaced.
type splice struct {
	from, to int
	with     string
}

// changed is the file with the changes made, which do not overlap.
func (s source) changed(splices ...splice) []byte {
	slices.SortStableFunc(splices, func(a, b splice) int { return a.from - b.from })
	out := slices.Clone(s.mark)
	at := 0
	for _, change := range splices {
		out = append(out, s.text[at:change.from]...)
		out = append(out, change.with...)
		at = change.to
	}
	return append(out, s.text[at:]...)
}
