package demo

import (
	"os"

	"golang.org/x/sys/windows"
)

// alive reports whether the process exists and has not ended.
func alive(process *os.Process) bool {
	handle, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(process.Pid))
	if err != nil {
		return false
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	event, err := windows.WaitForSingleObject(handle, 0)
	return err == nil && event == uint32(windows.WAIT_TIMEOUT)
}
