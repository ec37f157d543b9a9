package process

import "strings"

// maxCommandLine bounds what CommandLine returns, in bytes: it is for people, in a message.
const maxCommandLine = 1 << 10

// CommandLine says what pid runs, for messages that name a process: its arguments joined by
// spaces, or as much as the system tells. It is empty for a process that is gone or hidden.
func CommandLine(pid int) string {
	line := commandLine(pid)
	if len(line) > maxCommandLine {
		line = line[:maxCommandLine] + "…"
	}
	// Whatever was in the arguments, a message stays one line of text.
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "\uFFFD"))
	return strings.TrimSpace(line)
}
