package testbed

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Process is a live process, as far as the system tells.
type Process struct {
	PID     int
	Command string
	// Environ is empty where the system does not tell.
	Environ []string
}

// Variable returns the value of a variable in the process's environment.
func (p Process) Variable(name string) (value string, found bool) {
	for _, entry := range p.Environ {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value, true
		}
	}
	return "", false
}

// Processes lists the live processes.
func Processes() ([]Process, error) {
	if runtime.GOOS == "linux" {
		return listProc()
	}
	return listPS()
}

// listProc reads /proc. A process that ends meanwhile is left out, and so is a
// zombie: its environment is empty.
func listProc() ([]Process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || len(environ) == 0 {
			continue
		}
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		all = append(all, Process{
			PID:     pid,
			Command: strings.ReplaceAll(strings.TrimRight(string(command), "\x00"), "\x00", " "),
			Environ: strings.Split(string(environ), "\x00"),
		})
	}
	return all, nil
}

func listPS() ([]Process, error) {
	output, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil, err
	}
	var all []Process
	for line := range strings.Lines(string(output)) {
		pid, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.Atoi(pid)
		if err != nil {
			continue
		}
		all = append(all, Process{PID: number, Command: strings.TrimSpace(command)})
	}
	return all, nil
}
