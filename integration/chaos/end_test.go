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
	"sync"
	"syscall"
	"time"
)

const (
	// slackFDs is how many descriptors more than a fresh daemon one may have that
	// has seen everything.
	slackFDs = 2
	// settleTime is how long a daemon may keep what it does not need any more.
	settleTime = 2 * lastBreath
	// lastBreath is how long what the last client had in work needs to end: longer
	// than a backend has for an answer to a cancelled request, and than idle
	// connections to it are kept.
	lastBreath = 5 * time.Second
)

// vitals are what a daemon holds that has served, while nobody is attached.
type vitals struct {
	fds        []string
	goroutines map[string]int // by what they were started for
}

// references are the vitals of fresh daemons, by configuration.
var references sync.Map

// reference returns the vitals of a fresh daemon of the same configuration that
// has served a client of each era. It lives in a world of its own.
func (w *world) reference(ctx context.Context) (vitals, bool) {
	key := fmt.Sprint(w.plan.transport, w.plan.era, w.plan.watch)
	if known, ok := references.Load(key); ok {
		return known.(vitals), true
	}
	other := newWorld(w.t, w.seed, true)
	other.plan = w.plan
	other.plan.dump = true
	defer other.remove()
	if err := other.make(); err != nil {
		w.violatef("compare", "making a world for comparison: %v", err)
		return vitals{}, false
	}
	v, ok := other.examineFresh(ctx)
	other.end()
	if other.isBroken() {
		w.violatef("compare", "in a world without faults:\n%s\n%s", strings.Join(other.faulty, "\n"), other.timeline)
		return vitals{}, false
	}
	references.Store(key, v)
	return v, ok
}

func (w *world) examineFresh(ctx context.Context) (vitals, bool) {
	w.calmBackend()
	if o := w.command(ctx, "compare", "devproxyd", "start"); o.code != 0 {
		w.violatef("compare", "devproxyd start: %v", o)
		return vitals{}, false
	}
	for _, modern := range []bool{false, true} {
		c := &client{world: w, name: fmt.Sprintf("visitor%v", modern), modern: modern, version: "2025-11-25"}
		c.recover(ctx)
		c.leave(leaveByEOF)
	}
	pid, ok := w.lonely(ctx)
	if !ok {
		return vitals{}, false
	}
	return w.examine(ctx, pid)
}

// compare compares the daemon that has lived through the storm with a fresh one.
func (w *world) compare(ctx context.Context) {
	fresh, ok := w.fresh()
	if !ok {
		return
	}
	pid, ok := w.lonely(ctx)
	if !ok {
		return
	}
	var fds []string
	if !await(ctx, settleTime, func() bool {
		fds = descriptors(pid)
		return len(fds) <= len(fresh.fds)+slackFDs
	}) {
		w.violatef("compare", "the daemon has %d descriptors after the storm, a fresh one %d:\n%s\n---\n%s",
			len(fds), len(fresh.fds), strings.Join(fds, "\n"), strings.Join(fresh.fds, "\n"))
	}
	if !w.plan.dump {
		return
	}
	worn, ok := w.examine(ctx, pid)
	if !ok {
		return
	}
	for _, entry := range slices.Sorted(maps.Keys(worn.goroutines)) {
		n, usual := worn.goroutines[entry], fresh.goroutines[entry]
		if strings.HasPrefix(entry, "net/http.") {
			usual += slackFDs
		}
		if n > usual {
			w.violatef("compare", "the daemon has %d goroutines in %s after the storm, a fresh one %d", n, entry, usual)
		}
	}
}

// lonely returns the pid of the daemon once nobody is attached to it.
func (w *world) lonely(ctx context.Context) (pid int, ok bool) {
	var s status
	if !await(ctx, recovery, func() bool {
		var ok bool
		s, ok = w.status(ctx, "compare")
		return ok && len(s.Sessions) == 0
	}) {
		w.violatef("compare", "%d sessions are left of clients that are gone", len(s.Sessions))
		return 0, false
	}
	return int(s.Daemon.PID), true
}

// examine takes the vitals of a daemon, which does not survive it.
func (w *world) examine(ctx context.Context, pid int) (vitals, bool) {
	if !pause(ctx, lastBreath) {
		return vitals{}, false
	}
	v := vitals{fds: descriptors(pid)}
	var err error
	if v.goroutines, err = w.dumpGoroutines(ctx, pid); err != nil {
		w.violatef("compare", "the daemon's goroutines: %v", err)
		return v, false
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
// does when it dies of SIGQUIT, and counts them by what they were started for.
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
	goroutines := map[string]int{}
	for block := range strings.SplitSeq(dump, "\n\n") {
		if entry := entryOf(block); entry != "" {
			goroutines[entry]++
		}
	}
	if len(goroutines) == 0 {
		return nil, errors.New("the dump has no goroutines")
	}
	w.timeline.notef("compare", "%v", goroutines)
	return goroutines, nil
}

// entryOf returns the function that a goroutine of a dump was started for, or ""
// for what is none.
func entryOf(block string) string {
	trace, _, created := strings.Cut(block, "\ncreated by ")
	if !created {
		return ""
	}
	entry := ""
	for line := range strings.Lines(trace) {
		name := line[:max(0, strings.LastIndexByte(line, '('))]
		isCall := name != "" && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "goroutine ")
		if isCall && !strings.HasPrefix(name, "sync.(*WaitGroup).Go") && name != "runtime.goexit" {
			entry = name
		}
	}
	return entry
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
	// One that died of an examination left socket and backend to the next.
	if w.plan.dump {
		w.command(ctx, "end", "devproxyd", "start")
	}
	if o := w.stop(ctx, "end"); o.code != 0 {
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
