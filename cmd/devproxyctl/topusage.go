package main

import (
	"fmt"
	"time"
)

// usage is what the processes of a group have used by a moment.
type usage struct {
	at        time.Time
	processes int
	cpu       time.Duration // since they began
	memory    int64         // resident, in bytes; what they share counts for each
}

// load is what a group uses.
type load struct {
	Processes   int     `json:"processes"`
	CPUPercent  float64 `json:"cpuPercent"` // of one processor
	MemoryBytes int64   `json:"memoryBytes"`
}

// meter measures the load of one process group.
type meter struct {
	group int
	last  usage
}

// read returns the load since it was read last; nil if there is none to tell.
func (m *meter) read(group int) *load {
	if group != m.group {
		m.group, m.last = group, usage{}
	}
	if group == 0 {
		return nil
	}
	now, ok := usageOf(group)
	if !ok {
		return nil
	}
	l := &load{Processes: now.processes, MemoryBytes: now.memory}
	// A process that has ended takes its time along.
	if passed := now.at.Sub(m.last.at); !m.last.at.IsZero() && passed > 0 && now.cpu > m.last.cpu {
		l.CPUPercent = 100 * float64(now.cpu-m.last.cpu) / float64(passed)
	}
	m.last = now
	return l
}

func (l *load) String() string {
	text := fmt.Sprintf("cpu %.0f%%, %s", l.CPUPercent, size(int(l.MemoryBytes)))
	if l.Processes > 1 {
		text += fmt.Sprintf(" in %d processes", l.Processes)
	}
	return text
}
