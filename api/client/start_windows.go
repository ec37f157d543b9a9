package client

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// startDetached starts a process without our console and, where the job we may
// be in allows it, outside of that job: hosts put their children into jobs that
// end everything in them.
func startDetached(command exec.Cmd) (*exec.Cmd, error) {
	const detached = windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS
	free := command
	free.SysProcAttr = &syscall.SysProcAttr{
		HideWindow: true, CreationFlags: detached | windows.CREATE_BREAKAWAY_FROM_JOB,
	}
	err := free.Start()
	if !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return &free, err
	}
	bound := command
	bound.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: detached}
	return &bound, bound.Start()
}
