package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clockTicks is the unit of the times in /proc: hundredths of a second on every
// Linux that Go runs on.
const clockTicks = 100

// usageOf reads what a process group has used: the sum over its processes. It
// reports false if there is none.
func usageOf(group int) (usage, bool) {
	u := usage{at: time.Now()}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return u, false
	}
	page := int64(os.Getpagesize())
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// A name may hold anything; what follows it has no closing parenthesis.
		fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		const processGroup, userTime, systemTime, resident = 2, 11, 12, 21 // as in proc(5), from field 3 on
		number := func(field int) int64 {
			n, _ := strconv.ParseInt(string(fields[field]), 10, 64)
			return n
		}
		if len(fields) <= resident || number(processGroup) != int64(group) {
			continue
		}
		u.processes++
		u.cpu += time.Duration(number(userTime)+number(systemTime)) * time.Second / clockTicks
		u.memory += number(resident) * page
	}
	return u, u.processes > 0
}
