package wire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// String decodes a JSON string. ok is false for anything else. An unpaired surrogate becomes U+FFFD.
func String(raw []byte) (value string, ok bool) {
	raw = trim(raw)
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	if end, err := skipString(raw, 0); err != nil || end != len(raw) {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if !escaped(body) {
		return string(body), true
	}
	return string(appendUnescaped(make([]byte, 0, len(body)), body)), true
}

func trim(raw []byte) []byte {
	raw = raw[skipSpace(raw, 0):]
	for len(raw) > 0 && isSpace(raw[len(raw)-1]) {
		raw = raw[:len(raw)-1]
	}
	return raw
}

func escaped(body []byte) bool { return bytes.IndexByte(body, '\\') >= 0 }

// appendUnescaped appends the text of a valid string body, the part between its quotes.
func appendUnescaped(dst, body []byte) []byte {
	for pos := 0; pos < len(body); {
		if body[pos] != '\\' {
			dst = append(dst, body[pos])
			pos++
			continue
		}
		switch c := body[pos+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := unescapeUnit(body[pos:])
			dst = utf8.AppendRune(dst, r)
			pos += n
			continue
		default: // one of " \ /
			dst = append(dst, c)
		}
		pos += 2
	}
	return dst
}

// unescapeUnit decodes the \uXXXX that s begins with, together with the second half of a surrogate pair.
func unescapeUnit(s []byte) (r rune, n int) {
	r, _ = hex4(s[2:])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		second, _ := hex4(s[8:])
		if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

const hexDigits = "0123456789abcdef"

// Quote encodes s as a JSON string. It escapes what JSON demands and nothing else, and replaces invalid
// UTF-8 by U+FFFD.
func Quote(s string) []byte { return appendQuoted(make([]byte, 0, len(s)+2), s) }

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for pos := 0; pos < len(s); {
		c := s[pos]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[pos:])
			dst = utf8.AppendRune(dst, r)
			pos += n
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		default:
			dst = append(dst, c)
		}
		pos++
	}
	return append(dst, '"')
}
