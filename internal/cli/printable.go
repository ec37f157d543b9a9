package cli

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// colour is the escape sequence that servers and compilers write most. It
// changes nothing but the look of what follows.
var colour = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

// Printable is a text of another program, such as a server's output or a
// client's name, as it may go to a terminal: without colours, and with what
// would make the terminal do something shown as an escape. Line ends and tabs
// stay.
func Printable(text string) string { return printable(text, "\n\t") }

// PrintableLine is Printable for a text that has to stay within its line.
func PrintableLine(text string) string { return printable(text, "\t") }

func printable(text, stays string) string {
	text = colour.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	acts := func(r rune) bool { return active(r) && !strings.ContainsRune(stays, r) }
	if strings.IndexFunc(text, acts) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !acts(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// forModels are the tools of devproxy that the daemon names beside the command that
// does the same, for it does not know who reads.
var forModels = regexp.MustCompile("[\\w-]*(?:server_status|rebuild_and_restart|restart|logs) or (`devproxyctl [^`]*`)")

// ForPerson is advice of the daemon for one at a terminal: where it names a tool for
// models and a command, only the command is left.
func ForPerson(text string) string { return forModels.ReplaceAllString(text, "$1") }

// PrintableJSON is a JSON text in which the characters that may act on a
// terminal are escaped, which JSON leaves alone above U+001F. Its meaning is the
// same.
func PrintableJSON(raw []byte) []byte {
	escape := func(r rune) bool { return r >= ' ' && active(r) }
	text := string(raw)
	if strings.IndexFunc(text, escape) < 0 {
		return raw
	}
	var b strings.Builder
	for _, r := range text {
		if escape(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

// active reports whether a terminal may do something with a character but show
// it: control characters of both sets, and those that turn the direction of the
// text around them.
func active(r rune) bool {
	return unicode.IsControl(r) || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
