//go:build unix

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// process is a live process, as far as the system tells.
type process struct {
	pid     int
	command string
	// environ is empty where the system does not tell.
	environ []string
}

// processes returns the live processes that keep matches.
func processes(t testing.TB, keep func(process) bool) []process {
	t.Helper()
	list := listProc
	if runtime.GOOS != "linux" {
		list = listPS
	}
	all, err := list()
	if err != nil {
		t.Fatalf("listing processes: %v", err)
	}
	var kept []process
	for _, p := range all {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// listProc reads /proc. A process that ends meanwhile is left out, and so is a
// zombie: its environment is empty.
func listProc() ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []process
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
		all = append(all, process{
			pid:     pid,
			command: strings.ReplaceAll(strings.TrimRight(string(command), "\x00"), "\x00", " "),
			environ: strings.Split(string(environ), "\x00"),
		})
	}
	return all, nil
}

func listPS() ([]process, error) {
	output, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil, err
	}
	var all []process
	for line := range strings.Lines(string(output)) {
		pid, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.Atoi(pid)
		if err != nil {
			continue
		}
		all = append(all, process{pid: number, command: strings.TrimSpace(command)})
	}
	return all, nil
}

// alive says whether a process exists that is no zombie.
func alive(t testing.TB, pid int) bool {
	t.Helper()
	return len(processes(t, func(p process) bool { return p.pid == pid })) > 0
}
