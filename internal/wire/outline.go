package wire

import (
	"bytes"
	"slices"
)

// Outline is what the two ends of a message that was not kept tell of it.
type Outline struct {
	Method string // "" if there is none, or it is not at the ends
	ID     ID     // "" likewise
	Answer bool   // a result or an error is at the ends, or begins there
}

// OutlineOf is the outline of a frame that is here but cannot be read, as it is no JSON or too deep.
func OutlineOf(frame []byte) Outline {
	e := TooLongError{Head: frame[:min(len(frame), headSize)], Tail: AppendTail(nil, frame)}
	return e.Outline()
}

// RequestID is the id of the request that the message was, "" if that does not say or the message was none.
func (o Outline) RequestID() ID {
	if o.Answer {
		return ""
	}
	return o.ID
}

// Outline makes out whose the line was: Go writes the envelope in front of what is large, TypeScript behind it.
func (e *TooLongError) Outline() Outline {
	var o Outline
	firstMembers(e.Head, o.take)
	var last Outline
	typed := false
	lastMembers(e.Tail, func(key string, value []byte) {
		last.take(key, value)
		typed = typed || key == "jsonrpc"
	})
	o.Answer = o.Answer || last.Answer
	if o.Method == "" {
		o.Method = last.Method
	}
	// Many a structured log line has an id, too.
	if o.ID == "" && (typed || o.Answer || o.Method != "") {
		o.ID = last.ID
	}
	return o
}

// take notes a member. value is nil if it is not a whole scalar.
func (o *Outline) take(key string, value []byte) {
	switch key {
	case "result", "error":
		o.Answer = true
	case "id":
		if value != nil && !bytes.Equal(value, []byte("null")) {
			o.ID = ID(value)
		}
	case "method":
		o.Method, _ = String(value)
	}
}

// firstMembers reads the members of an object that is cut off somewhere. It stops with the first that is not whole,
// which is the one that made the message too long. The value of an object or array is nil.
func firstMembers(head []byte, each func(key string, value []byte)) {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(head, blanks), []byte("{"))
	for ok {
		var key, value []byte
		if key, rest, ok = firstScalar(rest, ':'); !ok {
			return
		}
		name, _ := String(key)
		if end, err := skipContainer(rest); err == nil {
			rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest[end:], blanks), []byte(","))
		} else {
			value, rest, ok = firstScalar(rest, ',')
		}
		each(name, value)
	}
}

// skipContainer returns the position behind the object or array that text begins with.
func skipContainer(text []byte) (int, error) {
	start := skipSpace(text, 0)
	if start == len(text) || text[start] != '{' && text[start] != '[' {
		return 0, ErrNotObject
	}
	return skipValue(text, start, 0)
}

// lastMembers is the same from the end of an object whose beginning is cut off.
func lastMembers(tail []byte, each func(key string, value []byte)) {
	rest, ok := bytes.CutSuffix(bytes.TrimRight(tail, blanks), []byte("}"))
	for ok {
		var key, value []byte
		if value, rest, ok = lastScalar(rest, ":"); !ok {
			return
		}
		if key, rest, ok = lastScalar(rest, ",{"); !ok {
			return
		}
		name, _ := String(key)
		each(name, value)
	}
}

const (
	blanks = " \t"
	// delimiters end a scalar that is no string.
	delimiters = `,:{}[]"` + blanks
)

// firstScalar splits off one JSON value that is neither an object nor an array and is followed by end.
func firstScalar(text []byte, end byte) (value, rest []byte, ok bool) {
	text = bytes.TrimLeft(text, blanks)
	n := 0
	if len(text) > 0 && text[0] == '"' {
		n = closing(text)
	} else {
		n = bytes.IndexAny(text, delimiters)
	}
	if n <= 0 || Valid(text[:n]) != nil {
		return nil, nil, false
	}
	rest, ok = bytes.CutPrefix(bytes.TrimLeft(text[n:], blanks), []byte{end})
	if !ok {
		return nil, nil, false
	}
	return text[:n], rest, true
}

// lastScalar splits off such a value at the end of text that follows one of the bytes before.
func lastScalar(text []byte, before string) (value, rest []byte, ok bool) {
	text = bytes.TrimRight(text, blanks)
	n := 0
	if len(text) > 0 && text[len(text)-1] == '"' {
		n = opening(text)
	} else {
		n = bytes.LastIndexAny(text, delimiters) + 1
	}
	if n < 0 || Valid(text[n:]) != nil {
		return nil, nil, false
	}
	rest = bytes.TrimRight(text[:n], blanks)
	if len(rest) == 0 || !bytes.ContainsRune([]byte(before), rune(rest[len(rest)-1])) {
		return nil, nil, false // its beginning is not there
	}
	return text[n:], rest[:len(rest)-1], true
}

// closing is the length of the JSON string that text begins with, 0 if its end is not there.
func closing(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// opening is where the JSON string begins that text ends with, -1 if that is not there: at the last quote before its
// end that is not escaped.
func opening(text []byte) int {
	for i := len(text) - 2; i >= 0; i-- {
		if text[i] != '"' {
			continue
		}
		escapes := i - len(bytes.TrimRight(text[:i], `\`))
		if escapes%2 == 0 {
			return i
		}
	}
	return -1
}

// AppendTail returns a copy of what [TooLongError] keeps of the end of a line, when part follows what ended in tail.
func AppendTail(tail, part []byte) []byte { return appendLast(tail, part, tailSize) }

// appendLast makes the last bytes, at most size, of tail and part together. It reuses tail, and never part.
func appendLast(tail, part []byte, size int) []byte {
	part = part[max(0, len(part)-size):]
	drop := max(0, len(tail)+len(part)-size)
	return append(slices.Delete(tail, 0, drop), part...)
}
