package main

import (
	"syscall"
	"testing"
	"time"
)

func TestUsageOfAGroup(t *testing.T) {
	var m meter
	group := syscall.Getpgrp()
	first := m.read(group)
	if first == nil || first.Processes < 1 || first.MemoryBytes < 1<<20 || first.CPUPercent != 0 {
		t.Fatalf("this group uses %+v", first)
	}
	// Some work, until the clock of the kernel has seen it.
	until, sum := time.Now().Add(20*time.Second), 0
	for time.Now().Before(until) {
		for i := range 1 << 22 {
			sum += i
		}
		if l := m.read(group); l != nil && l.CPUPercent > 0 {
			until = time.Time{}
		}
	}
	if !until.IsZero() {
		t.Errorf("no work was seen (%d)", sum)
	}
	if l := m.read(0); l != nil {
		t.Errorf("nobody uses %+v", l)
	}
	const none = 1 << 30 // more than there may be
	if l := m.read(none); l != nil {
		t.Errorf("a group that there is not uses %+v", l)
	}
}
