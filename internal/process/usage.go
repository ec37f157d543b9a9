package process

import "time"

// Usage is what the processes of a group have used by a moment.
type Usage struct {
	At        time.Time
	Processes int
	// CPU is the time they have run since they began.
	CPU time.Duration
	// Memory is what they have resident, in bytes; what they share counts for each.
	Memory int64
}

// UsageOf reads what a process group has used: the sum over its processes. It reports false if
// there is none, and everywhere but on Linux.
func UsageOf(group int) (Usage, bool) { return usageOf(group) }

// Stopped reports whether a process was stopped, as by SIGSTOP or Ctrl-Z. Elsewhere than on Linux
// none is.
func Stopped(pid int) bool { return stopped(pid) }
