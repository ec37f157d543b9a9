//go:build unix

package chaos

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

const (
	// glance is how often the world is looked at.
	glance = 100 * time.Millisecond
	// largestDaemon bounds the memory of the daemon: six clients that do not read
	// have 32 MiB each in their outboxes, large results are copied a few times on
	// their way, and the race detector's bookkeeping multiplies all that.
	largestDaemon = 1 << 30
	// backendMark is the variable that marks the processes of a backend.
	backendMark = "DEVPROXY_BACKEND"
)

// watch looks at the world all the time until ctx ends.
func (w *world) watch(ctx context.Context) {
	for n := 0; pause(ctx, glance); n++ {
		w.followJournal()
		w.checkGenerations()
		if n%5 == 0 {
			w.checkDaemons()
			w.checkAnswers()
			w.checkLogs()
		}
	}
}

// live returns the processes of this world: all have its home in their
// environment, and what the daemon starts the mark of its project.
func (w *world) live() []testbed.Process {
	all, err := testbed.Processes()
	if err != nil {
		w.violatef("watch", "listing processes: %v", err)
	}
	states, err := filepath.Glob(w.stateDir() + "/*")
	if err != nil {
		w.violatef("watch", "listing states: %v", err)
	}
	return slices.DeleteFunc(all, func(p testbed.Process) bool {
		if home, _ := p.Variable("HOME"); home == w.home {
			return false
		}
		mark, marked := p.Variable(backendMark)
		return !marked || !slices.ContainsFunc(states, func(state string) bool {
			return strings.HasPrefix(mark, filepath.Base(state)+":")
		})
	})
}

func (w *world) stateDir() string { return filepath.Join(w.home, ".local", "state", "devproxy") }

// generation says to which life of the backend a process belongs: by the pid of
// its leader, since a new daemon counts generations anew.
func generation(p testbed.Process) (leader int, marked bool) {
	if _, marked := p.Variable(backendMark); !marked {
		return 0, false
	}
	if _, after, found := strings.Cut(p.Command, " -grandchild "); found {
		if leader, err := strconv.Atoi(after); err == nil {
			return leader, true
		}
	}
	// What a backend has forked is its double until it executes something, and may
	// outlive it as that.
	if _, flags := statOf(p.PID); flags&forkedOnly != 0 {
		return 0, false
	}
	return p.PID, true
}

// forkedOnly is the kernel's flag PF_FORKNOEXEC.
const forkedOnly = 0x40

// hasExited reports whether a process is over, be it that nobody has waited for it.
func hasExited(pid int) bool {
	state, _ := statOf(pid)
	return state == "" || state == "Z"
}

// statOf returns the state and the flags of a process; "" if it is gone.
func statOf(pid int) (state string, flags uint64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // behind the name
	var parent, group, session, terminal, foreground int
	if _, err := fmt.Sscan(fields, &state, &parent, &group, &session, &terminal, &foreground, &flags); err != nil {
		return "", 0
	}
	return state, flags
}

// checkGenerations looks for processes of two generations that are alive
// together. A listing is no snapshot; what is in two of them lived in between.
func (w *world) checkGenerations() {
	first := generations(w.live())
	if len(first) < 2 {
		return
	}
	second := generations(w.live())
	var together []string
	for leader, members := range first {
		for pid, command := range members {
			if _, still := second[leader][pid]; still {
				together = append(together, fmt.Sprintf("%d of %d: %s", pid, leader, command))
				break
			}
		}
	}
	if len(together) > 1 {
		w.violatef("watch", "two generations are alive:\n%s", strings.Join(together, "\n"))
	}
}

// generations sorts processes by leader and pid.
func generations(processes []testbed.Process) map[int]map[int]string {
	found := map[int]map[int]string{}
	for _, p := range processes {
		if leader, marked := generation(p); marked {
			if found[leader] == nil {
				found[leader] = map[int]string{}
			}
			found[leader][p.PID] = p.Command
		}
	}
	return found
}

// leaders returns the leaders of the backend that are alive.
func (w *world) leaders() []int {
	var pids []int
	for _, p := range w.live() {
		if leader, marked := generation(p); marked && leader == p.PID && strings.HasPrefix(p.Command, program("chaosbackend")) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// daemons returns the processes that are a daemon, or about to be one.
func (w *world) daemons() []int {
	var pids []int
	for _, p := range w.live() {
		if _, marked := p.Variable(backendMark); !marked && strings.HasPrefix(p.Command, w.program("devproxyd")+" run ") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// checkDaemons looks for two daemons that serve, and for one that is too large.
func (w *world) checkDaemons() {
	serving := listeners(w.home)
	if len(serving) > 1 {
		// One may have ended while the list was read.
		again := listeners(w.home)
		both := slices.DeleteFunc(serving, func(inode string) bool { return !slices.Contains(again, inode) })
		if len(both) > 1 {
			w.violatef("watch", "%d sockets of daemons serve: inodes %v", len(both), both)
		}
	}
	for _, pid := range w.daemons() {
		size := resident(pid)
		if size > w.largest.Load() {
			w.largest.Store(size)
		}
		if size > largestDaemon {
			w.violatef("watch", "daemon %d has %d MiB", pid, size>>20)
		}
	}
}

// listeners returns the inodes of the listening sockets below a folder.
func listeners(dir string) []string {
	content, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	const accepting = "00010000"
	var inodes []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[3] == accepting && strings.HasPrefix(fields[7], dir+"/") {
			inodes = append(inodes, fields[6])
		}
	}
	return inodes
}

// resident returns the memory of a process in bytes; 0 if it is gone.
func resident(pid int) int64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// checkAnswers looks for requests that should have been answered.
func (w *world) checkAnswers() {
	for _, c := range w.clients {
		if s := c.current(); s != nil {
			if overdue := s.overdue(); overdue != "" {
				w.violatef(s.name, "%s", overdue)
			}
		}
	}
}

// logs returns the daemon's text files by path.
func (w *world) logs() map[string]string {
	found := map[string]string{}
	_ = filepath.WalkDir(w.stateDir(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && strings.Contains(entry.Name(), ".log") {
			if content, err := os.ReadFile(path); err == nil {
				found[path] = string(content)
			}
		}
		return nil // what has just gone was nothing to read
	})
	return found
}

func (w *world) checkLogs() {
	for path, content := range w.logs() {
		w.checkText(path, content)
	}
}
