package process

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const zombieState = 5 // SZOMB of sys/proc.h

// group is what has to be gone: the leader's process group. macOS shows nobody the environment
// of another process, so a member that leaves the group is out of reach.
type group struct {
	leader Identity

	mu     sync.Mutex
	closed bool // nothing of it can be signalled any more
	empty  bool // the process group was seen to be empty: its number may be somebody else's now
}

// newGroup makes the group of a child to come. There is nothing of it yet: its number will be the
// child's pid.
func newGroup() (*group, error) { return &group{}, nil }

// follow takes hold of the group of a child that is not reaped yet.
func (g *group) follow(leader Identity, _ *os.File) error {
	g.leader = leader
	return nil
}

// orphanedGroup finds the process group of an earlier daemon's process, if its leader is still
// the recorded one.
func orphanedGroup(leader Identity) (*group, error) {
	g := &group{leader: leader, empty: true}
	if leader.PID <= 0 {
		return g, nil
	}
	now, err := identify(leader.PID)
	if err != nil {
		return g, nil //nolint:nilerr // it cannot be read because it is gone: nothing is left to end
	}
	if pgid, err := unix.Getpgid(leader.PID); err == nil && pgid == leader.PID && now.same(leader) {
		g.empty = false
	}
	return g, nil
}

// leaderReaped notes whether anything of the process group is left. While the leader was
// unreaped nobody else could have its number.
func (g *group) leaderReaped() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noticeEmpty()
}

// noticeEmpty asks the kernel whether the process group exists. Once it did not, its number is
// never used again: a stranger may get it.
func (g *group) noticeEmpty() {
	if !g.empty && errors.Is(unix.Kill(-g.leader.PID, 0), unix.ESRCH) {
		g.empty = true
	}
}

// look lists the live members, without us and our ancestors; shared reports whether it left
// any of those out.
func (g *group) look() (pids []int, shared bool, err error) {
	g.noticeEmpty()
	if g.closed || g.empty {
		return nil, false, nil
	}
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", g.leader.PID)
	if err != nil {
		return nil, false, err
	}
	protected := lineage()
	for _, info := range infos {
		pid := int(info.Proc.P_pid)
		switch {
		case info.Proc.P_stat == zombieState:
		case protected[pid]:
			shared = true
		default:
			pids = append(pids, pid)
		}
	}
	return pids, shared, nil
}

// lineage gives ourselves and our ancestors, who are never to be signalled.
func lineage() map[int]bool {
	family := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !family[pid]; {
		family[pid] = true
		info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
		if err != nil {
			break
		}
		pid = int(info.Eproc.Ppid)
	}
	return family
}

// members lists the live members.
func (g *group) members() ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pids, _, err := g.look()
	return pids, err
}

// gone reports whether no member is seen.
func (g *group) gone() (bool, error) {
	members, err := g.members()
	return err == nil && len(members) == 0, err
}

// terminate asks every member to end. Stopped ones are continued, or they would not hear it.
func (g *group) terminate() error { return g.signal(unix.SIGTERM, unix.SIGCONT) }

// kill ends every member that is there now.
func (g *group) kill() error { return g.signal(unix.SIGKILL) }

// signal reaches the group as a whole, so that a member that forks cannot outrun it; only where
// an ancestor of ours is among them, one by one. What does not arrive shows in the next look.
func (g *group) signal(signals ...unix.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	pids, shared, err := g.look()
	if err != nil {
		return err
	}
	if !shared && len(pids) > 0 {
		pids = []int{-g.leader.PID}
	}
	for _, pid := range pids {
		for _, signal := range signals {
			_ = unix.Kill(pid, signal)
		}
	}
	return nil
}

// close ends the use of the group: it is gone, and its numbers may come to mean strangers.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
