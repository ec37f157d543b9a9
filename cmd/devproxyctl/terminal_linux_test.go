package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/debugmcp/devproxy/api/client"
)

// openTerminal returns both ends of a terminal of that many columns.
func openTerminal(t *testing.T, columns uint16) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return person, program
}

// seen returns all that is printed on a terminal, which it closes.
func seen(t *testing.T, person, program *os.File, print func(*os.File) error) string {
	t.Helper()
	printed := make(chan error, 1)
	go func() { printed <- errors.Join(print(program), program.Close()) }()
	page, err := io.ReadAll(person)
	if !errors.Is(err, unix.EIO) { // which is the end of a terminal
		t.Fatal(err)
	}
	if err := <-printed; err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// On a terminal the page has its width, and colours unless NO_COLOR is set.
func TestStatusOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("CLICOLOR_FORCE", "")
	for noColour, want := range map[string]bool{"": true, "1": false, "yes": false} {
		t.Setenv("NO_COLOR", noColour)
		person, program := openTerminal(t, 72)
		if width := terminalWidth(program); width != 72 {
			t.Fatalf("the terminal has %d columns, want 72", width)
		}
		text := seen(t, person, program, func(out *os.File) error {
			return printStatus(out, statuses()["backoff"], now, terminalWidth(out))
		})
		if !strings.Contains(text, "/home/me/work/my-server") || strings.Contains(text, "\x1b[33m") != want || strings.Contains(text, "\x1b") != want {
			t.Errorf("with NO_COLOR=%q colours are wrong: %q", noColour, text)
		}
	}
}

// What others say of themselves, wherever it stands, does nothing to the
// terminal of the person who reads it.
func TestNothingActsOnTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	const evil = "name\x1b]0;title\x07\x1b[2J\x1b[1;31mred\u009b2J\u202e\r"
	const shown = `name\x1b]0;title\x07\x1b[2Jred\u009b2J\u202e\r`
	status := statuses()["failed"]
	fill(status.ProtoReflect(), evil+"\nnext")
	entry := &client.LogEntry{Text: evil, Stream: "stdout-noise"}
	traffic := &client.TrafficEntry{Method: evil, Id: evil, ClientName: evil, Session: 1, ProtocolEra: evil}
	for what, print := range map[string]func(*os.File) error{
		"status":        func(out *os.File) error { return printStatus(out, status, now, 0) },
		"status --json": func(out *os.File) error { return printStatusJSON(out, status) },
		"logs":          func(out *os.File) error { return printLine(out, entry) },
		"logs --json":   func(out *os.File) error { return printJSON(out, entry) },
		"trace":         func(out *os.File) error { return (&tracer{out: out, raw: true}).entry(traffic, []byte(evil)) },
		"trace --json":  func(out *os.File) error { return (&tracer{out: out, asJSON: true}).entry(traffic, []byte(evil)) },
		"a build": func(out *os.File) error {
			tellBuild(out, &client.BuildRun{Message: evil})
			return nil
		},
	} {
		person, program := openTerminal(t, 72)
		text := seen(t, person, program, print)
		for _, raw := range []string{"\x1b]", "\x07", "\x1b[2J", "\u009b", "\u202e"} {
			if strings.Contains(text, raw) {
				t.Errorf("%s writes %q: %q", what, raw, text)
			}
		}
		if !strings.HasSuffix(what, "--json") && !strings.Contains(text, shown) {
			t.Errorf("%s does not show what was said: %q", what, text)
		}
		// Only a message may have lines; the others say where theirs would be.
		if what == "status" && strings.Count(text, `\r\nnext`) < 10 {
			t.Errorf("a name makes a line of its own: %q", text)
		}
	}
}

// fill gives every text of a message the value, and each list and map one.
func fill(m protoreflect.Message, text string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		isString, isMessage := field.Kind() == protoreflect.StringKind, field.Kind() == protoreflect.MessageKind
		switch {
		case field.IsMap():
			entries := m.Mutable(field).Map()
			entries.Set(protoreflect.ValueOfString(text).MapKey(), protoreflect.ValueOfString(text))
		case field.IsList() && isString:
			m.Mutable(field).List().Append(protoreflect.ValueOfString(text))
		case field.IsList() && isMessage:
			list := m.Mutable(field).List()
			element := list.NewElement()
			fill(element.Message(), text)
			list.Append(element)
		case field.IsList():
		case isMessage && !strings.HasPrefix(string(field.Message().FullName()), "google."):
			fill(m.Mutable(field).Message(), text)
		case isString:
			m.Set(field, protoreflect.ValueOfString(text))
		}
	}
}
