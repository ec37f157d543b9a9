package process

import (
	"io"
	"os"
	"strings"
)

func commandLine(pid int) string {
	file, err := os.Open(procPath(pid, "cmdline"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	arguments, err := io.ReadAll(io.LimitReader(file, maxCommandLine+1))
	if err != nil {
		return ""
	}
	if len(arguments) > 0 {
		return string(arguments) // NUL-separated; control characters become spaces
	}
	// Kernel threads and zombies have no arguments, but a name.
	name, err := os.ReadFile(procPath(pid, "comm"))
	if err != nil {
		return ""
	}
	return "[" + strings.TrimSpace(string(name)) + "]"
}
