package process

import (
	"os"

	"golang.org/x/sys/windows"
)

// foregroundSignals are what Ctrl-C and Ctrl-Break come as.
var foregroundSignals = []os.Signal{os.Interrupt}

// foregroundCommand runs a batch file, such as npm.cmd, through the shell.
func foregroundCommand(spec Spec, attributes *os.ProcAttr) (path string, argv []string, err error) {
	spec, err = throughShell(spec)
	if err != nil {
		return "", nil, err
	}
	if spec.verbatim != "" {
		attributes.Sys = &windows.SysProcAttr{CmdLine: spec.verbatim}
	}
	return spec.Path, append([]string{spec.Path}, spec.Args...), nil
}

// sharedWithChild is true: a console's Ctrl-C goes to all of its processes, and nothing else can
// send one.
func sharedWithChild(os.Signal) bool { return true }
