package process

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// absoluteTime stands in for a boot id: creation times on Windows are of the wall clock, so they
// need none.
const absoluteTime = "absolute"

// identify reads who pid is now.
func identify(pid int) (Identity, error) {
	handle, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return Identity{}, fmt.Errorf("opening process %d: %w", pid, err)
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	return identifyHandle(handle, pid)
}

func identifyHandle(handle windows.Handle, pid int) (Identity, error) {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(handle, &created, &exited, &kernel, &user); err != nil {
		return Identity{}, fmt.Errorf("reading times of process %d: %w", pid, err)
	}
	start := uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime)
	return Identity{BootID: absoluteTime, PID: pid, StartTime: start}, nil
}
