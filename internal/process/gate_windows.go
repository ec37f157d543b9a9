package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"

	"golang.org/x/sys/windows"
)

const (
	gateStaysOpen    = true  // the gate stays, as the parent of the command, and takes requests
	execClosesStatus = false // it says that the command runs

	// breakRequest, sent through the open gate, asks for a CTRL_BREAK in the command's console.
	breakRequest = 'b'
)

// spawnGate runs this program again as a gate in the job of the group. It gets a console of its own
// without a window, which the command inherits: nothing flashes up on the desktop, and the Ctrl-C of
// the daemon's terminal does not reach it.
func spawnGate(p *pipes, g *group, marker string) (*os.Process, error) {
	self, err := ownExecutable()
	if err != nil {
		return nil, err
	}
	gate, status := windows.Handle(p.gate.theirs.Fd()), windows.Handle(p.status.theirs.Fd())
	// The system's own variables (SystemRoot) are needed to run at all.
	env := markerEnv(os.Environ(), marker)
	env = append(env, fmt.Sprintf("%s=%d,%d", gateVariable, gate, status))
	return birth{
		path:   self,
		args:   gateArgs(),
		env:    env,
		std:    [3]windows.Handle{windows.Handle(p.stdin.theirs.Fd()), windows.Handle(p.stdout.theirs.Fd()), windows.Handle(p.stderr.theirs.Fd())},
		others: []windows.Handle{gate, status},
		flags:  windows.CREATE_NO_WINDOW | windows.CREATE_NEW_PROCESS_GROUP,
		job:    g.job,
	}.start()
}

// openGate runs the gate if its pipes are there, and otherwise reports false.
func openGate(value string) bool {
	var handles [2]windows.Handle
	if _, err := fmt.Sscanf(value, "%d,%d", &handles[0], &handles[1]); err != nil {
		return false
	}
	for _, handle := range handles {
		if kind, err := windows.GetFileType(handle); err != nil || kind != windows.FILE_TYPE_PIPE {
			return false
		}
		// They are for the gate alone; the command must not hold them open.
		_ = windows.SetHandleInformation(handle, windows.HANDLE_FLAG_INHERIT, 0)
	}
	runGate(os.NewFile(uintptr(handles[0]), "gate"), os.NewFile(uintptr(handles[1]), "gate status"))
	return true
}

// become runs the command as a child, since Windows has no exec, and exits as it exits. It
// returns only when the command cannot be run.
func become(spec Spec, gate, status *os.File) *ExecError {
	if info, err := os.Stat(spec.Dir); spec.Dir != "" && (err != nil || !info.IsDir()) {
		if err == nil {
			err = windows.ERROR_DIRECTORY
		}
		return newExecError(opEnter, spec.Dir, err)
	}
	// CTRL_BREAK is for the command; the gate outlives it to pass on its exit code.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	command, err := startCommand(spec)
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err // the path is said once
		}
		return newExecError(opRun, spec.Path, err)
	}
	_, _ = status.Write(encodeFailure(nil))
	// The ends of the output must be the command's alone.
	for _, file := range []*os.File{os.Stdin, os.Stdout, os.Stderr, status} {
		_ = file.Close()
	}
	go passRequests(gate)
	state, err := command.Wait()
	if err != nil {
		os.Exit(exitNotRun) //nolint:forbidigo // the gate is a program of its own
	}
	os.Exit(state.ExitCode()) //nolint:forbidigo // the gate is a program of its own
	return nil
}

func startCommand(spec Spec) (*os.Process, error) {
	spec, err := throughShell(spec)
	if err != nil {
		return nil, err
	}
	return os.StartProcess(spec.Path, append([]string{spec.Path}, spec.Args...), &os.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &windows.SysProcAttr{CmdLine: spec.verbatim},
	})
}

// passRequests serves the open gate until its end, which means that the daemon is gone or done
// with us; the job ends us then.
func passRequests(gate *os.File) {
	request := make([]byte, 1)
	for {
		if _, err := gate.Read(request); err != nil {
			return
		}
		if request[0] == breakRequest {
			_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, 0)
		}
	}
}
