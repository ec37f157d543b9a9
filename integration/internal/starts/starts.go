// Package starts counts how often a fixture backend was started, and notices
// two that are alive at once.
package starts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Count adds a line for this process to the file at path, and one more for each
// earlier process of that file which is still alive. Without a path it does
// nothing.
func Count(path string) error {
	if path == "" {
		return nil
	}
	earlier, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "start %d\n", os.Getpid())
	for line := range strings.Lines(string(earlier)) {
		field, found := strings.CutPrefix(strings.TrimSpace(line), "start ")
		if !found {
			continue
		}
		pid, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		if pid != os.Getpid() && alive(pid) {
			fmt.Fprintf(&lines, "overlap %d %d\n", pid, os.Getpid())
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(lines.String())
	return errors.Join(err, file.Close())
}

// alive says whether a process exists that has not ended; good enough for the
// systems that the black-box tests run on.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil || process.Signal(syscall.Signal(0)) != nil {
		return false
	}
	// A zombie that its parent forgot, as some containers' init does, has
	// ended. Where there is no /proc the signal alone has to tell.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	return !strings.Contains(string(stat), ") Z ")
}
