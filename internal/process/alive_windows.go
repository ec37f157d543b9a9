package process

import (
	"errors"

	"golang.org/x/sys/windows"
)

// alive asks whether the process has ended, too: it can be opened for as long as anybody holds a
// handle to it. One that we may not open is somebody else's, and there.
func alive(pid int) bool {
	handle, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	event, err := windows.WaitForSingleObject(handle, 0)
	return err != nil || event != windows.WAIT_OBJECT_0
}
