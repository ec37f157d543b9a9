package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// identify reads who pid is now.
func identify(pid int) (Identity, error) {
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return Identity{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	if int(info.Proc.P_pid) != pid {
		return Identity{}, fmt.Errorf("reading process %d: %w", pid, unix.ESRCH)
	}
	started := info.Proc.P_starttime
	micros := uint64(started.Sec)*1_000_000 + uint64(started.Usec)
	return Identity{BootID: boot, PID: pid, StartTime: micros}, nil
}

// bootID prefers the session's UUID: kern.boottime moves when the clock is set.
func bootID() (string, error) {
	if id, err := unix.Sysctl("kern.bootsessionuuid"); err == nil && id != "" {
		return id, nil
	}
	boot, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", fmt.Errorf("reading boot time: %w", err)
	}
	return fmt.Sprintf("%d.%06d", boot.Sec, boot.Usec), nil
}
