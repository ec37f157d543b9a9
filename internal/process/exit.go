package process

import (
	"fmt"
	"os"
)

// Exit says how a process ended.
type Exit struct {
	Code   int    // exit status; -1 when a signal ended it or the status is unknown
	Signal string // "SIGKILL" and the like; empty when it exited by itself
}

// Success reports whether the process exited by itself with status 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == "" }

// String is the ending in words: "exited with status 3", "ended by SIGKILL".
func (e Exit) String() string {
	switch {
	case e.Signal != "":
		return "ended by " + e.Signal
	case e.Code == -1:
		return "ended with unknown status"
	case e.Code > 0xffff || e.Code < 0: // Windows: an NTSTATUS, which people know in hex
		return fmt.Sprintf("exited with status %#x", uint32(e.Code))
	default:
		return fmt.Sprintf("exited with status %d", e.Code)
	}
}

// ShellCode is the exit code that a shell gives for it: the code, or 128 and the signal's number.
func (e Exit) ShellCode() int {
	if e.Signal != "" {
		return 128 + signalNumber(e.Signal)
	}
	if e.Code < 0 {
		return 1
	}
	return e.Code
}

// exitOf translates what waiting gave. An error means that somebody else reaped the process.
func exitOf(state *os.ProcessState, err error) Exit {
	if err != nil {
		return Exit{Code: -1}
	}
	return Exit{Code: state.ExitCode(), Signal: signalOf(state)}
}
