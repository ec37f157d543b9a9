package process

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// group is what has to be gone: the leader, its process group, and every marked process.
type group struct {
	leader  Identity
	orphan  bool              // an earlier daemon's: what descends from us is none of it
	session int               // the one session all of the process group is in
	marked  func(string) bool // whether a marker is one of this group's; nil: none is

	mu     sync.Mutex
	closed bool   // nothing of it can be signalled any more
	reaped bool   // the leader is reaped, its pid no longer holds the group's number
	empty  bool   // the process group was seen to be empty: its number may be somebody else's now
	known  []stat // the live members of the last look
}

// newGroup makes the group of a child to come. There is nothing of it yet: its number will be the
// child's pid.
func newGroup() (*group, error) { return &group{}, nil }

// follow takes hold of the group of a child that is not reaped yet.
func (g *group) follow(leader Identity, _ *os.File) error {
	s, err := readStat(leader.PID)
	if err != nil {
		return err
	}
	g.leader, g.session = leader, s.session
	if leader.Marker != "" {
		g.marked = func(marker string) bool { return marker == leader.Marker }
	}
	return nil
}

// orphanedGroup finds what is left of the group of a process of an earlier daemon: its process
// group if the leader is still the recorded one, and everything marked for the same project.
func orphanedGroup(leader Identity) (*group, error) {
	g := &group{leader: leader, orphan: true, reaped: true, empty: true}
	// The marker is "<project hash>:<generation>", and any generation may have left something.
	if project, _, ok := strings.Cut(leader.Marker, ":"); ok && project != "" {
		g.marked = func(marker string) bool { return strings.HasPrefix(marker, project+":") }
	} else if leader.Marker != "" {
		g.marked = func(marker string) bool { return marker == leader.Marker }
	}
	if leader.PID <= 0 {
		return g, nil
	}
	now, err := identify(leader.PID)
	if vanished(err) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := readStat(leader.PID)
	if err == nil && now.same(leader) && s.group == leader.PID && s.start == leader.StartTime {
		g.session, g.empty = s.session, false
	}
	return g, nil
}

// leaderReaped notes whether anything of the process group is left. While the leader was
// unreaped nobody else could have its number.
func (g *group) leaderReaped() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reaped = true
	g.noticeEmpty()
}

// noticeEmpty asks the kernel whether the process group exists. Once it did not, its number is
// never used again: a stranger may get it.
func (g *group) noticeEmpty() {
	if !g.empty && errors.Is(unix.Kill(-g.leader.PID, 0), unix.ESRCH) {
		g.empty = true
	}
}

// look is what one pass over /proc found of the group.
type look struct {
	grouped []stat // live members of the process group
	others  []stat // live members outside of it: marked ones, or a leader that moved
	shared  bool   // the process group contains somebody who must not be signalled
}

func (l look) all() []stat { return slices.Concat(l.grouped, l.others) }

func (g *group) look() (look, error) {
	g.noticeEmpty()
	if g.empty && g.marked == nil {
		return look{}, nil
	}
	stats, err := listStats()
	if err != nil {
		return look{}, err
	}
	var found look
	family := kin(stats)
	for _, s := range stats {
		grouped := g.contains(s)
		switch {
		case s.dead():
		case g.protects(family, s.pid):
			found.shared = found.shared || grouped
		case grouped:
			found.grouped = append(found.grouped, s)
		case g.isLeader(s) || g.isMarked(s):
			found.others = append(found.others, s)
		}
	}
	g.known = found.all()
	return found, nil
}

// protects reports whether pid is never to be signalled: ourselves and our ancestors, who carry
// the marker when a backend started us, and for an orphan what we have started since.
func (g *group) protects(family kinship, pid int) bool {
	return family.above(pid, os.Getpid()) || g.orphan && family.above(os.Getpid(), pid)
}

// contains reports whether s is in the process group. A group lies within one session, so a
// stranger's group that got the same number later is told apart by it.
func (g *group) contains(s stat) bool {
	return !g.empty && s.group == g.leader.PID && s.session == g.session
}

// isLeader finds a leader that moved itself to another group. It is known by its start time.
func (g *group) isLeader(s stat) bool {
	return !g.empty && s.pid == g.leader.PID && s.start == g.leader.StartTime
}

func (g *group) isMarked(s stat) bool {
	return g.marked != nil && s.flags&kernelThread == 0 && g.marked(markerOf(s.pid))
}

// members lists the live members.
func (g *group) members() ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil
	}
	found, err := g.look()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, s := range found.all() {
		pids = append(pids, s.pid)
	}
	return pids, nil
}

// gone reports whether no member is seen. It is cheap while one that was seen before is still
// there, because a stop may poll it for seconds beside hundreds of other processes.
func (g *group) gone() (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return true, nil
	}
	for _, s := range g.known {
		if now, err := readStat(s.pid); err == nil && now.start == s.start && !now.dead() {
			return false, nil
		}
	}
	found, err := g.look()
	return err == nil && len(found.all()) == 0, err
}

// terminate asks every member to end. Stopped ones are continued, or they would not hear it.
func (g *group) terminate() error { return g.signal(unix.SIGTERM, unix.SIGCONT) }

// kill ends every member that is there now.
func (g *group) kill() error { return g.signal(unix.SIGKILL) }

// signal looks first, so that what is signalled is the group as it is now. Signals that do not
// arrive (another user's process, one that is just gone) show in the next look.
func (g *group) signal(signals ...unix.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	found, err := g.look()
	if err != nil {
		// Out of descriptors, perhaps. Nobody else can have the group's number before the reaping.
		if !g.reaped {
			g.signalGroup(signals)
		}
		return err
	}
	single := found.others
	if found.shared {
		single = found.all()
	} else if len(found.grouped) > 0 {
		g.signalGroup(signals)
	}
	for _, s := range single {
		g.signalOne(s, signals)
	}
	return nil
}

// signalGroup signals the process group as a whole, so that a member that forks cannot outrun it.
func (g *group) signalGroup(signals []unix.Signal) {
	for _, signal := range signals {
		_ = unix.Kill(-g.leader.PID, signal)
	}
}

// signalOne signals one process that a look found, through a handle that cannot come to mean
// another process. What it is gets checked again once the handle is held.
func (g *group) signalOne(found stat, signals []unix.Signal) {
	send := func(signal unix.Signal) { _ = unix.Kill(found.pid, signal) }
	// Kernels before 5.3 and some sandboxes have no pidfd; the check alone must do there.
	if fd, err := unix.PidfdOpen(found.pid, 0); err == nil {
		defer func() { _ = unix.Close(fd) }()
		send = func(signal unix.Signal) { _ = unix.PidfdSendSignal(fd, signal, nil, 0) }
	}
	now, err := readStat(found.pid)
	if err != nil || now.start != found.start || now.dead() {
		return
	}
	if g.contains(now) || g.isLeader(now) || g.isMarked(now) {
		for _, signal := range signals {
			send(signal)
		}
	}
}

// close ends the use of the group: it is gone, and its numbers may come to mean strangers.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
