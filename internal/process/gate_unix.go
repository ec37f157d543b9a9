//go:build unix

package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The gate child finds its two pipes right behind the standard three.
const (
	gateFD   = 3
	statusFD = 4
)

const (
	gateStaysOpen    = false // after exec there is nobody left to read it
	execClosesStatus = true  // and nobody to write a status
)

// spawnGate runs this program again as a gate, leading a process group of its own. The child joins
// it between fork and exec, before the first instruction of the gate, so nothing can be outside.
func spawnGate(p *pipes, _ *group, marker string) (*os.Process, error) {
	self, err := ownExecutable()
	if err != nil {
		return nil, err
	}
	// Small on purpose: only what the gate itself needs, and what marks it as ours from the start.
	env := markerEnv([]string{gateVariable + "=pipe"}, marker)
	return os.StartProcess(self, gateArgs(), &os.ProcAttr{
		Env:   env,
		Files: []*os.File{p.stdin.theirs, p.stdout.theirs, p.stderr.theirs, p.gate.theirs, p.status.theirs},
		Sys:   &unix.SysProcAttr{Setpgid: true},
	})
}

// openGate runs the gate if its pipes are there, and otherwise reports false.
func openGate(string) bool {
	if !isPipe(gateFD) || !isPipe(statusFD) {
		return false
	}
	// The status pipe closing on exec is the sign that the command runs.
	unix.CloseOnExec(gateFD)
	unix.CloseOnExec(statusFD)
	runGate(os.NewFile(gateFD, "gate"), os.NewFile(statusFD, "gate status"))
	return true
}

func isPipe(fd int) bool {
	var stat unix.Stat_t
	err := unix.Fstat(fd, &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO
}

// become replaces the gate by the command: same pid, same group. It returns only on failure.
func become(spec Spec, _, _ *os.File) *ExecError {
	closeStrangersOnExec()
	if spec.Dir != "" {
		if err := unix.Chdir(spec.Dir); err != nil {
			return newExecError(opEnter, spec.Dir, err)
		}
	}
	argv := append([]string{spec.Path}, spec.Args...)
	return newExecError(opRun, spec.Path, unix.Exec(spec.Path, argv, spec.Env))
}

// closeStrangersOnExec keeps descriptors from the command that the daemon itself inherited from
// whoever started it; Go marks only its own. Best effort: without /dev/fd there is no list.
func closeStrangersOnExec() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
