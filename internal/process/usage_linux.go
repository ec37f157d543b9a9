package process

import (
	"os"
	"time"
)

// clockTicks is how many of the ticks in stat make a second: a hundred on every Linux that Go
// runs on.
const clockTicks = 100

func usageOf(group int) (Usage, bool) {
	u := Usage{At: time.Now()}
	stats, err := listStats()
	if err != nil {
		return u, false
	}
	for _, s := range stats {
		if s.group != group {
			continue
		}
		u.Processes++
		u.CPU += time.Duration(s.user+s.system) * time.Second / clockTicks
		u.Memory += int64(s.resident) * int64(os.Getpagesize())
	}
	return u, u.Processes > 0
}

func stopped(pid int) bool {
	s, err := readStat(pid)
	return err == nil && (s.state == 'T' || s.state == 't') // by a signal, or by a debugger
}
