package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// On a terminal the page has its width, and colours unless NO_COLOR is set.
func TestStatusOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("CLICOLOR_FORCE", "")
	for noColour, want := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", noColour)
		person, program := openTerminal(t, 72)
		if width := terminalWidth(program); width != 72 {
			t.Fatalf("the terminal has %d columns, want 72", width)
		}
		if err := printStatus(program, statuses()["backoff"], now, terminalWidth(program)); err != nil {
			t.Fatal(err)
		}
		// All of it fits into the terminal's buffer.
		page := make([]byte, 16<<10)
		n, err := person.Read(page)
		if err != nil {
			t.Fatal(err)
		}
		text := string(page[:n])
		if !strings.Contains(text, "/home/me/work/my-server") || strings.Contains(text, "\x1b[33m") != want {
			t.Errorf("with NO_COLOR=%q colours are wrong: %q", noColour, text)
		}
	}
}
