package main

import (
	"fmt"

	"github.com/debugmcp/devproxy/internal/process"
)

// load is what a group uses.
type load struct {
	Processes   int     `json:"processes"`
	CPUPercent  float64 `json:"cpuPercent"` // of one processor
	MemoryBytes int64   `json:"memoryBytes"`
}

// meter measures the load of one process group.
type meter struct {
	group int
	last  process.Usage
}

// read returns the load since it was read last; nil if there is none to tell.
func (m *meter) read(group int) *load {
	if group != m.group {
		m.group, m.last = group, process.Usage{}
	}
	if group == 0 {
		return nil
	}
	now, ok := process.UsageOf(group)
	if !ok {
		return nil
	}
	l := &load{Processes: now.Processes, MemoryBytes: now.Memory}
	// A process that has ended takes its time along.
	if passed := now.At.Sub(m.last.At); !m.last.At.IsZero() && passed > 0 && now.CPU > m.last.CPU {
		l.CPUPercent = 100 * float64(now.CPU-m.last.CPU) / float64(passed)
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
