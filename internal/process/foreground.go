package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
)

// Foreground runs a command in the caller's place and returns when it has ended, with its exit: it
// has the caller's standard streams, terminal, process group and, but for spec.Env if that is not
// nil, environment. What it starts is nobody's concern, as if a shell had run it. spec.Marker and
// spec.Merge mean nothing here. The error is an [*ExecError] if the command cannot be run.
//
// Signals that ask to end (Ctrl-C, SIGTERM, SIGHUP) are the command's: it gets those that came to
// the caller alone, and the caller lives on until it has ended.
func Foreground(spec Spec) (Exit, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, foregroundSignals...)
	defer signal.Stop(signals)

	child, err := startForeground(spec)
	if err != nil {
		return Exit{}, err
	}
	ended := make(chan Exit, 1)
	go func() { ended <- exitOf(child.Wait()) }()
	for {
		select {
		case exit := <-ended:
			return exit, nil
		case s := <-signals:
			if !sharedWithChild(s) {
				_ = child.Signal(s) // else it has just ended
			}
		}
	}
}

// startForeground starts the command as it is, behind no gate.
func startForeground(spec Spec) (*os.Process, error) {
	if spec.Path == "" {
		return nil, errors.New("starting a process: no program given")
	}
	if spec.Dir != "" {
		if info, err := os.Stat(spec.Dir); err != nil {
			return nil, newExecError(opEnter, spec.Dir, reasonOf(err))
		} else if !info.IsDir() {
			return nil, newExecError(opEnter, spec.Dir, errors.New("not a directory"))
		}
	}
	attributes := &os.ProcAttr{
		Dir: spec.Dir, Env: spec.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	}
	path, argv, err := foregroundCommand(spec, attributes)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Path, err)
	}
	child, err := os.StartProcess(path, argv, attributes)
	if err != nil {
		return nil, newExecError(opRun, spec.Path, reasonOf(err))
	}
	return child, nil
}

// reasonOf is the operating system's own error, whose path the caller names himself.
func reasonOf(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
