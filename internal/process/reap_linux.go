package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// reapInterval catches adopted children whose SIGCHLD coincided with another one. A zombie
	// costs nothing but its pid, so there is no hurry.
	reapInterval = 10 * time.Second

	// reapPause keeps a backend that spawns processes in a loop from making us scan /proc in one.
	reapPause = 100 * time.Millisecond
)

// Subreaper makes this process the one that orphaned descendants fall to, and reaps them when
// they exit, until ctx ends; then it restores what was before. It also does what PID 1 of a
// container must do. On Linux only: elsewhere orphans fall to the system, and Subreaper just
// waits for ctx.
//
// It never takes a child from whoever in this program waits for it. Go's os.Process holds a
// pidfd for each child until it was waited for, so a zombie child without one is nobody's but
// ours. Where pidfds do not work (before Linux 5.4, some sandboxes) only those children are
// reaped whose process group shows that they cannot have been started by this program; an
// adopted session leader stays a zombie there until we exit.
func Subreaper(ctx context.Context) error {
	var before int32
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&before)), 0, 0, 0); err != nil {
		return fmt.Errorf("becoming child subreaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming child subreaper: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(before), 0, 0, 0) }()

	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	slow := time.NewTicker(reapInterval)
	defer slow.Stop()
	pause := time.NewTimer(reapPause)
	defer pause.Stop()

	foreign := foreignByGroup
	if pidfdsWork() {
		foreign = foreignByPidfd
	}
	for {
		reap(foreign)
		pause.Reset(reapPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-children:
		case <-slow.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// reap collects the zombies that nobody else will. Errors need no words: the next pass sees the
// same zombies again.
func reap(foreign func([]stat) []stat) {
	stats, err := listStats()
	if err != nil {
		return
	}
	var zombies []stat
	for _, s := range stats {
		if s.zombie() && s.parent == os.Getpid() {
			zombies = append(zombies, s)
		}
	}
	if len(zombies) == 0 {
		return
	}
	for _, s := range foreign(zombies) {
		_, _ = unix.Wait4(s.pid, nil, unix.WNOHANG, nil)
	}
}

// foreignByPidfd leaves out the zombies that a pidfd of ours refers to. The kernel makes a
// child's pidfd together with the child, so there is no moment in which it is missing.
func foreignByPidfd(zombies []stat) []stat {
	awaited, err := pidfds()
	if err != nil {
		return nil
	}
	var foreign []stat
	for _, s := range zombies {
		if !awaited[s.pid] {
			foreign = append(foreign, s)
		}
	}
	return foreign
}

// foreignByGroup keeps the zombies that are in somebody else's process group: what this program
// starts is in our own, or leads one.
func foreignByGroup(zombies []stat) []stat {
	var foreign []stat
	for _, s := range zombies {
		if s.group != unix.Getpgrp() && s.group != s.pid {
			foreign = append(foreign, s)
		}
	}
	return foreign
}

// pidfds lists the processes that descriptors of ours refer to. It fails rather than miss one.
func pidfds() (map[int]bool, error) {
	entries, err := os.ReadDir(fdinfo)
	if err != nil {
		return nil, err
	}
	pids := map[int]bool{}
	for _, entry := range entries {
		pid, err := pidOfDescriptor(entry.Name())
		switch {
		case err == nil:
			pids[pid] = true
		case errors.Is(err, os.ErrNotExist): // closed meanwhile: its process was waited for
		default:
			return nil, err
		}
	}
	return pids, nil
}

const fdinfo = "/proc/self/fdinfo/"

// pidOfDescriptor gives the pid that a pidfd refers to, and 0 for any other descriptor. Only a
// pidfd has a line "Pid:" (proc_pid_fdinfo(5)).
func pidOfDescriptor(fd string) (int, error) {
	info, err := os.ReadFile(fdinfo + fd)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(info) {
		if value, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	return 0, nil
}

// pidfdsWork reports whether os.Process uses pidfds here and the kernel shows us what they refer
// to, by asking for the one process that is surely there.
func pidfdsWork() bool {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return false
	}
	defer func() { _ = self.Release() }()
	works := false
	err = self.WithHandle(func(handle uintptr) {
		pid, err := pidOfDescriptor(strconv.FormatUint(uint64(handle), 10))
		works = err == nil && pid == os.Getpid()
	})
	return err == nil && works
}
