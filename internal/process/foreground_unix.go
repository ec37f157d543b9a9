//go:build unix

package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// foregroundSignals are those that ask a program to end.
var foregroundSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

func foregroundCommand(spec Spec, _ *os.ProcAttr) (path string, argv []string, err error) {
	return spec.Path, append([]string{spec.Path}, spec.Args...), nil
}

// sharedWithChild reports whether the child has that signal too: what the keys of a terminal
// send, its whole foreground group gets. Nothing tells who has sent a signal, so one that somebody
// sends from elsewhere to a program in the foreground is held to be the terminal's.
func sharedWithChild(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	terminal, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = terminal.Close() }()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
