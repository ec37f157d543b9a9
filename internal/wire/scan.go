package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxNesting is how deep arrays and objects may be nested. The Go SDK refuses more than 1000 levels, so
// nothing deeper could reach it anyway, and the bound keeps the recursive scanner's stack small.
const MaxNesting = 1000

// ErrNesting is wrapped by the [SyntaxError] of a text nested deeper than [MaxNesting].
var ErrNesting = errors.New("nested deeper than 1000 levels")

// SyntaxError says that a text is no JSON, and from which byte on. It calls for [CodeParse].
type SyntaxError struct {
	Offset int    // of the first byte that cannot be, counted from 0
	Reason string // in words, without the offset

	cause error
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Reason)
}

// Unwrap returns [ErrNesting] where the depth was the reason.
func (e *SyntaxError) Unwrap() error { return e.cause }

func syntaxError(offset int, reason string) error {
	return &SyntaxError{Offset: offset, Reason: reason}
}

// Valid reports as a *[SyntaxError] why raw is not exactly one JSON value.
func Valid(raw []byte) error {
	end, err := skipValue(raw, skipSpace(raw, 0), 0)
	if err != nil {
		return err
	}
	return onlySpace(raw, end)
}

func onlySpace(raw []byte, pos int) error {
	if pos = skipSpace(raw, pos); pos < len(raw) {
		return syntaxError(pos, "more text after the value")
	}
	return nil
}

func skipSpace(s []byte, pos int) int {
	for pos < len(s) && isSpace(s[pos]) {
		pos++
	}
	return pos
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipValue returns the position after the value that begins at pos, having validated it. depth is the
// number of containers around it.
func skipValue(s []byte, pos, depth int) (int, error) {
	if pos >= len(s) {
		return pos, syntaxError(pos, "unexpected end of text")
	}
	switch c := s[pos]; {
	case c == '{':
		return walkObject(s, pos, depth, nil)
	case c == '[':
		return walkArray(s, pos, depth, nil)
	case c == '"':
		return skipString(s, pos)
	case c == '-' || isDigit(c):
		return skipNumber(s, pos)
	case c == 't':
		return skipWord(s, pos, "true")
	case c == 'f':
		return skipWord(s, pos, "false")
	case c == 'n':
		return skipWord(s, pos, "null")
	default:
		return pos, syntaxError(pos, "expected a value")
	}
}

// span is where something lies in a text: s[from:to].
type span struct{ from, to int }

func (p span) of(s []byte) []byte { return s[p.from:p.to:p.to] }

// walkObject validates the object at pos and calls member, if any, for each of its members in order.
func walkObject(s []byte, pos, depth int, member func(key, value span)) (int, error) {
	if depth >= MaxNesting {
		return pos, &SyntaxError{Offset: pos, Reason: ErrNesting.Error(), cause: ErrNesting}
	}
	pos = skipSpace(s, pos+1)
	if pos < len(s) && s[pos] == '}' {
		return pos + 1, nil
	}
	for {
		key, value, err := walkMember(s, pos, depth)
		if err != nil {
			return value.to, err
		}
		if member != nil {
			member(key, value)
		}
		pos = skipSpace(s, value.to)
		switch {
		case pos >= len(s):
			return pos, syntaxError(pos, "unexpected end of text in an object")
		case s[pos] == '}':
			return pos + 1, nil
		case s[pos] != ',':
			return pos, syntaxError(pos, "expected ',' or '}' after a member")
		}
		pos = skipSpace(s, pos+1)
	}
}

func walkMember(s []byte, pos, depth int) (key, value span, err error) {
	if pos >= len(s) || s[pos] != '"' {
		return key, value, syntaxError(pos, "expected a member name")
	}
	key.from = pos
	if key.to, err = skipString(s, pos); err != nil {
		return key, value, err
	}
	pos = skipSpace(s, key.to)
	if pos >= len(s) || s[pos] != ':' {
		return key, value, syntaxError(pos, "expected ':' after a member name")
	}
	value.from = skipSpace(s, pos+1)
	value.to, err = skipValue(s, value.from, depth+1)
	return key, value, err
}

// walkArray validates the array at pos and calls element, if any, for each of its elements in order.
func walkArray(s []byte, pos, depth int, element func(value span)) (int, error) {
	if depth >= MaxNesting {
		return pos, &SyntaxError{Offset: pos, Reason: ErrNesting.Error(), cause: ErrNesting}
	}
	pos = skipSpace(s, pos+1)
	if pos < len(s) && s[pos] == ']' {
		return pos + 1, nil
	}
	for {
		end, err := skipValue(s, pos, depth+1)
		if err != nil {
			return end, err
		}
		if element != nil {
			element(span{pos, end})
		}
		pos = skipSpace(s, end)
		switch {
		case pos >= len(s):
			return pos, syntaxError(pos, "unexpected end of text in an array")
		case s[pos] == ']':
			return pos + 1, nil
		case s[pos] != ',':
			return pos, syntaxError(pos, "expected ',' or ']' after an element")
		}
		pos = skipSpace(s, pos+1)
	}
}

func skipString(s []byte, pos int) (int, error) {
	pos++
	for {
		pos = skipPlain(s, pos)
		if pos >= len(s) {
			return pos, syntaxError(pos, "unexpected end of text in a string")
		}
		switch c := s[pos]; {
		case c == '"':
			return pos + 1, nil
		case c == '\\':
			n := escapeLen(s[pos:])
			if n == 0 {
				return pos, syntaxError(pos, "invalid escape in a string")
			}
			pos += n
		case c < ' ':
			return pos, syntaxError(pos, "control character in a string")
		default:
			r, n := utf8.DecodeRune(s[pos:])
			if r == utf8.RuneError && n == 1 {
				return pos, syntaxError(pos, "invalid UTF-8 in a string")
			}
			pos += n
		}
	}
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// skipPlain returns the position of the next byte of a string that needs a look: a quote, a backslash, a
// control character or one outside ASCII. It takes eight bytes a step, for the base64 text that makes up
// nearly all of a large result.
func skipPlain(s []byte, pos int) int {
	for pos+8 <= len(s) {
		w := binary.LittleEndian.Uint64(s[pos:])
		quote := w ^ (eachByte * '"')
		slash := w ^ (eachByte * '\\')
		// (x - 0x01…) &^ x has a high bit set for each zero byte of x, and (w - 0x20…) &^ w for each
		// byte below a space. A borrow can only report too much, above a true hit.
		special := (quote-eachByte)&^quote | (slash-eachByte)&^slash | (w-eachByte*' ')&^w | w
		if special&highBits != 0 {
			break
		}
		pos += 8
	}
	for pos < len(s) && isPlain(s[pos]) {
		pos++
	}
	return pos
}

func isPlain(c byte) bool { return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' }

// escapeLen returns the length of the escape sequence s begins with, or 0.
func escapeLen(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(s[2:]); ok {
			return 6
		}
	}
	return 0
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, c := range s[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func skipNumber(s []byte, pos int) (int, error) {
	if s[pos] == '-' {
		pos++
	}
	intPart := pos
	pos = skipDigits(s, pos)
	switch {
	case pos == intPart:
		return pos, syntaxError(pos, "expected a digit")
	case s[intPart] == '0' && pos > intPart+1:
		return intPart, syntaxError(intPart, "leading zero in a number")
	}
	if pos < len(s) && s[pos] == '.' {
		fraction := pos + 1
		if pos = skipDigits(s, fraction); pos == fraction {
			return pos, syntaxError(pos, "expected a digit after the decimal point")
		}
	}
	if pos < len(s) && (s[pos] == 'e' || s[pos] == 'E') {
		pos++
		if pos < len(s) && (s[pos] == '+' || s[pos] == '-') {
			pos++
		}
		exponent := pos
		if pos = skipDigits(s, exponent); pos == exponent {
			return pos, syntaxError(pos, "expected a digit in the exponent")
		}
	}
	return pos, nil
}

func skipDigits(s []byte, pos int) int {
	for pos < len(s) && isDigit(s[pos]) {
		pos++
	}
	return pos
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func skipWord(s []byte, pos int, word string) (int, error) {
	if len(s)-pos < len(word) || string(s[pos:pos+len(word)]) != word {
		return pos, syntaxError(pos, "expected a value")
	}
	return pos + len(word), nil
}

// Compact returns raw without insignificant white space, or the [SyntaxError] that keeps it from being
// JSON. Where there is nothing to remove the result is raw itself.
func Compact(raw []byte) ([]byte, error) {
	if err := Valid(raw); err != nil {
		return nil, err
	}
	var out []byte
	kept := 0 // raw[:kept] is in out, or is all of it as long as out is nil
	for pos := 0; pos < len(raw); {
		switch {
		case raw[pos] == '"':
			pos, _ = skipString(raw, pos) // valid, as checked above
		case isSpace(raw[pos]):
			if out == nil {
				out = make([]byte, 0, len(raw))
			}
			out = append(out, raw[kept:pos]...)
			pos = skipSpace(raw, pos)
			kept = pos
		default:
			pos++
		}
	}
	if out == nil {
		return raw, nil
	}
	return append(out, raw[kept:]...), nil
}
