//go:build unix

package client

import (
	"os/exec"
	"syscall"
)

// startDetached starts a process in a session of its own, so that neither a
// signal to our process group nor the end of our terminal reaches it.
func startDetached(command exec.Cmd) (*exec.Cmd, error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &command, command.Start()
}
