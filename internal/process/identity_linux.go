package process

import (
	"fmt"
	"os"
	"strings"
)

// identify reads who pid is now.
func identify(pid int) (Identity, error) {
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	stat, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{BootID: boot, PID: pid, StartTime: stat.start}, nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
