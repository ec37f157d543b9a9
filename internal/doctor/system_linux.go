package doctor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// inotifyUse counts what this user has of the kernel's events, in the processes
// that can be looked at. It is not known where /proc is not.
func inotifyUse(ctx context.Context) (use eventUse, known bool) {
	var ok [2]bool
	use.maxWatches, ok[0] = readNumber("/proc/sys/fs/inotify/max_user_watches")
	use.maxInstances, ok[1] = readNumber("/proc/sys/fs/inotify/max_user_instances")
	entries, err := os.ReadDir("/proc")
	if err != nil || !ok[0] || !ok[1] {
		return eventUse{}, false
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		watches, instances := inotifyOf(filepath.Join("/proc", entry.Name()))
		use.watches += watches
		use.instances += instances
	}
	return use, true
}

// inotifyOf counts what one process has, if it is one of this user.
func inotifyOf(process string) (watches, instances int) {
	info, err := os.Stat(process)
	if err != nil {
		return 0, 0
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
		return 0, 0
	}
	descriptors, err := os.ReadDir(filepath.Join(process, "fd"))
	if err != nil {
		return 0, 0
	}
	for _, descriptor := range descriptors {
		target, err := os.Readlink(filepath.Join(process, "fd", descriptor.Name()))
		if err != nil || target != "anon_inode:inotify" {
			continue
		}
		instances++
		if text, err := os.ReadFile(filepath.Join(process, "fdinfo", descriptor.Name())); err == nil {
			watches += bytes.Count(text, []byte("\ninotify "))
		}
	}
	return watches, instances
}

func readNumber(path string) (int, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}
