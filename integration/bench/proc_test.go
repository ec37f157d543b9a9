//go:build linux

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// field returns the number behind a name in a file such as /proc/self/status.
func field(t testing.TB, path, name string) int64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if after, found := strings.CutPrefix(line, name+":"); found {
			number, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}

// pss is a process's share of the memory, in bytes.
func pss(t testing.TB, pid int) float64 {
	t.Helper()
	return float64(field(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss") << 10)
}

// rss is its resident memory, and the most it had since forgetPeak, in bytes.
func rss(t testing.TB, pid int) (now, peak float64) {
	t.Helper()
	status := fmt.Sprintf("/proc/%d/status", pid)
	return float64(field(t, status, "VmRSS") << 10), float64(field(t, status, "VmHWM") << 10)
}

func forgetPeak(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// cpu is the time that the threads of a process have run. Those that have ended
// do not count; Go's do not end.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all time.Duration
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ran, err := strconv.ParseInt(string(bytes.Fields(data)[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all += time.Duration(ran)
	}
	return all
}

// systemCalls is how often a process has read and written so far.
func systemCalls(t testing.TB, pid int) int64 {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/io", pid)
	return field(t, path, "syscr") + field(t, path, "syscw")
}

// machine describes where the measurement runs.
func machine(t testing.TB) string {
	t.Helper()
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	model := "unknown processor"
	cores := 0
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name":
			model = strings.TrimSpace(value)
		case "processor":
			cores++
		}
	}
	const kibiPerGibi = 1 << 20
	memory := (field(t, "/proc/meminfo", "MemTotal") + kibiPerGibi/2) / kibiPerGibi
	return fmt.Sprintf("%d × %s, %d GiB, Linux %s", cores, model, memory, strings.TrimSpace(read("/proc/sys/kernel/osrelease")))
}

func load(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))[0]
}
