package process

import (
	"context"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

func isZombie(pid int) bool {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && info.Proc.P_stat == zombieState
}

// leftProcesses cannot look: environments are hidden here.
func leftProcesses() error { return nil }

func endOwnGroup(string) {
	id, err := identify(os.Getppid())
	must(err)
	_, err = EndOrphan(context.Background(), id, 0)
	must(errors.Join(err))
}
