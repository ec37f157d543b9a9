package process

// Identity tells a process from every other one that had or will have its pid. It is meant to be
// kept on disk, so that a later daemon can find what an earlier one left ([EndOrphan]). The parent
// is no part of it: an orphan's may be pid 1, a subreaper or a service manager.
type Identity struct {
	// BootID changes with every boot, for start times that count from it.
	BootID string `json:"boot_id"`
	PID    int    `json:"pid"`
	// StartTime is in the platform's own unit: clock ticks since boot on Linux, microseconds of
	// the wall clock on macOS, 100 ns intervals of the wall clock on Windows. Only equality counts.
	StartTime uint64 `json:"start_time"`
	// Marker is the value of DEVPROXY_BACKEND in the environment of the process.
	Marker string `json:"marker"`
}

// same reports whether both mean one process. A marker is no part of it: it says who made the
// process, not which one it is.
func (id Identity) same(other Identity) bool {
	return id.PID > 0 && id.PID == other.PID && id.StartTime == other.StartTime && id.BootID == other.BootID
}
