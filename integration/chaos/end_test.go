//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// slackFDs is how many descriptors more than a fresh daemon one may have that
	// has seen everything: connections to the backend that are kept for a while.
	slackFDs = 2
	// idleTime is longer than idle connections to the backend are kept.
	idleTime = 6 * time.Second
)

// vitals are what a daemon holds while nobody is attached.
type vitals struct {
	fds        []string
	goroutines map[string]int // by who created them
}

// compare compares the daemon that has lived through the storm with a fresh one
// that has served as little as it needs to be in the same state.
func (w *world) compare(ctx context.Context) {
	w.timeline.notef("compare", "the worn daemon")
	worn, ok := w.examine(ctx)
	if !ok {
		return
	}
	w.endDaemon(ctx)
	w.timeline.notef("compare", "a fresh daemon")
	if o := w.command(ctx, "compare", "devproxyd", "start"); o.code != 0 {
		w.violatef("compare", "a fresh daemon does not start: %v", o)
		return
	}
	w.visit(ctx)
	fresh, ok := w.examine(ctx)
	if !ok {
		return
	}
	if len(worn.fds) > len(fresh.fds)+slackFDs {
		w.violatef("compare", "the daemon has %d descriptors after the storm, a fresh one %d:\n%s\n---\n%s",
			len(worn.fds), len(fresh.fds), strings.Join(worn.fds, "\n"), strings.Join(fresh.fds, "\n"))
	}
	for _, creator := range slices.Sorted(maps.Keys(worn.goroutines)) {
		if n, usual := worn.goroutines[creator], fresh.goroutines[creator]; n > usual {
			w.violatef("compare", "the daemon has %d goroutines created by %s after the storm, a fresh one %d", n, creator, usual)
		}
	}
}

// visit lets a client of each era use the backend and leave.
func (w *world) visit(ctx context.Context) {
	for _, modern := range []bool{false, true} {
		c := &client{world: w, name: fmt.Sprintf("visitor%v", modern), modern: modern, version: "2025-11-25"}
		c.recover(ctx)
		c.leave(leaveByEOF)
	}
}

// endDaemon ends the daemon in the way that the plan says, and looks for what is
// left in either case.
func (w *world) endDaemon(ctx context.Context) {
	if w.plan.dump {
		return // the examination was its end
	}
	w.stops.Add(1)
	if o := w.command(ctx, "compare", "devproxyd", "stop"); o.code != 0 {
		w.violatef("compare", "devproxyd stop: %v", o)
	}
	w.checkLeftovers()
}

// examine takes the vitals of the daemon once nobody is attached and what lingers
// is over. If the plan wants the goroutines, the daemon does not survive it.
func (w *world) examine(ctx context.Context) (vitals, bool) {
	var s status
	if !await(ctx, recovery, func() bool {
		var ok bool
		s, ok = w.status(ctx, "compare")
		return ok && len(s.Sessions) == 0
	}) {
		w.violatef("compare", "%d sessions are left of clients that are gone", len(s.Sessions))
		return vitals{}, false
	}
	pid := int(s.Daemon.PID)
	var v vitals
	began := time.Now()
	for {
		if fds := descriptors(pid); v.fds == nil || len(fds) < len(v.fds) {
			v.fds = fds
		}
		if time.Since(began) > idleTime {
			break
		}
		if !pause(ctx, 500*time.Millisecond) {
			return v, false
		}
	}
	if w.plan.dump {
		var err error
		if v.goroutines, err = w.dumpGoroutines(ctx, pid); err != nil {
			w.violatef("compare", "the daemon's goroutines: %v", err)
			return v, false
		}
	}
	return v, true
}

// descriptors returns what the descriptors of a process are.
func descriptors(pid int) []string {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil
	}
	var fds []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			fds = append(fds, target)
		}
	}
	slices.Sort(fds)
	return fds
}

// dumpGoroutines lets a daemon say what its goroutines are, which a Go program
// does when it dies of SIGQUIT, and counts them by who created them.
func (w *world) dumpGoroutines(ctx context.Context, pid int) (map[string]int, error) {
	before := w.startLog()
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return nil, err
	}
	if !await(ctx, recovery, func() bool { return !slices.Contains(w.daemons(), pid) }) {
		return nil, errors.New("it does not die of SIGQUIT")
	}
	_, dump, found := strings.Cut(w.startLog()[len(before):], "SIGQUIT: quit")
	if !found {
		return nil, errors.New("start.log has no dump")
	}
	created := map[string]int{}
	for _, block := range strings.Split(dump, "\n\n") {
		if _, by, found := strings.Cut(block, "\ncreated by "); found {
			by, _, _ = strings.Cut(by, " in goroutine")
			by, _, _ = strings.Cut(by, "\n")
			created[by]++
		}
	}
	if len(created) == 0 {
		return nil, errors.New("the dump has no goroutines")
	}
	w.timeline.notef("compare", "%v", created)
	return created, nil
}

// startLog is what detached daemons wrote to their stderr.
func (w *world) startLog() string {
	for path, content := range w.logs() {
		if filepath.Base(path) == "start.log" {
			return content
		}
	}
	return ""
}

// end stops the daemon for good and looks for what is left.
func (w *world) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 2*commandPatience)
	defer cancel()
	// The one that died of the examination left the backend to the next.
	if w.plan.dump && !w.isBroken() {
		w.command(ctx, "end", "devproxyd", "start")
	}
	w.stops.Add(1)
	if o := w.command(ctx, "end", "devproxyd", "stop"); o.code != 0 {
		w.violatef("end", "devproxyd stop: %v", o)
	}
	w.followJournal()
	w.checkLogs()
	w.checkLeftovers()
}

// checkLeftovers looks for processes, sockets and temporary files after a stop,
// and ends the processes, so that they spoil nothing else.
func (w *world) checkLeftovers() {
	left := w.live()
	for deadline := time.Now().Add(2 * time.Second); len(left) > 0 && time.Now().Before(deadline); left = w.live() {
		time.Sleep(glance)
	}
	for _, p := range left {
		w.violatef("end", "process %d is left: %s", p.PID, p.Command)
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	for _, dir := range []string{w.stateDir(), w.tmp, "/tmp/devproxy-" + fmt.Sprint(w.uid())} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.Type()&fs.ModeSocket != 0:
				w.violatef("end", "socket %s is left", path)
			case entry.IsDir():
			case dir != w.stateDir() || strings.HasPrefix(entry.Name(), ".") || strings.Contains(entry.Name(), "tmp"):
				w.violatef("end", "file %s is left", path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.violatef("end", "looking for what is left: %v", err)
		}
	}
}

// uid is whom the programs run as.
func (w *world) uid() int {
	if credential() != nil {
		return stranger
	}
	return os.Getuid()
}
