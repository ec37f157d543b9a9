//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// fault is one thing that goes wrong. Its strike returns when it is over, and
// what was taken away is given back.
type fault struct {
	name   string
	weight int
	needs  func(plan) bool // nil: nothing
	strike func(w *world, d dice, actor string)
}

// longestPause bounds how long a process is stopped.
const longestPause = 5 * time.Second

// pauseLength is mostly short, so that much happens in a world.
func pauseLength(d dice) time.Duration {
	if d.chance(25) {
		return d.between(time.Second, longestPause)
	}
	return d.between(100*time.Millisecond, time.Second)
}

// faults are everything that goes wrong.
var faults = []fault{
	{"kill daemon", 7, nil, func(w *world, _ dice, actor string) { w.kill(actor, w.daemons()) }},
	{"restart daemon", 6, nil, func(w *world, _ dice, actor string) {
		w.command(w.t.Context(), actor, "devproxyd", "restart")
	}},
	{"restart backend", 8, nil, func(w *world, _ dice, actor string) {
		w.command(w.t.Context(), actor, "devproxyctl", "restart")
	}},
	{"stop", 2, nil, (*world).stopAndStart},
	{"kill backend", 7, nil, func(w *world, _ dice, actor string) { w.kill(actor, w.leaders()) }},
	{"kill group", 4, nil, func(w *world, _ dice, actor string) {
		groups := w.leaders()
		for i := range groups {
			groups[i] = -groups[i]
		}
		w.kill(actor, groups)
	}},
	{"pause daemon", 5, nil, func(w *world, d dice, actor string) { w.stopProcesses(actor, w.daemons(), d) }},
	{"pause backend", 4, nil, func(w *world, d dice, actor string) { w.stopProcesses(actor, w.leaders(), d) }},
	{"pause shim", 5, nil, (*world).pauseShim},
	{"rebuild", 10, func(p plan) bool { return p.watch }, (*world).rebuild},
	{"steal port", 5, func(p plan) bool { return p.listens() && p.fixedPort }, (*world).stealPort},
	{"read-only state", 5, nil, (*world).sealState},
	{"upgrade", 4, nil, (*world).upgradeDaemon},
}

// havoc is the actor of the faults: one after the other, and two at once now
// and then.
func (w *world) havoc(ctx context.Context) {
	var choices []weighted[fault]
	for _, f := range faults {
		choices = append(choices, weighted[fault]{w.plan.faultTimes[f.name], f})
	}
	for step := 1; ; step++ {
		d := roll(w.seed, "havoc", step)
		if !pause(ctx, d.between(w.plan.faultGap/2, w.plan.faultGap*3/2)) {
			return
		}
		count := 1
		if d.chance(25) {
			count = 2
		}
		var striking sync.WaitGroup
		for n := range count {
			f := choose(d, choices)
			actor := fmt.Sprintf("fault%d", n+1)
			own := roll(w.seed, f.name, 2*step+n)
			striking.Go(func() {
				w.tally.faults.Add(1)
				w.timeline.notef(actor, "%s", f.name)
				f.strike(w, own, actor)
				w.timeline.notef(actor, "%s is over", f.name)
			})
		}
		striking.Wait()
	}
}

// kill ends processes, or groups, at once.
func (w *world) kill(actor string, pids []int) {
	for _, pid := range pids {
		w.timeline.notef(actor, "kill -9 %d", pid)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			w.violatef(actor, "kill -9 %d: %v", pid, err)
		}
	}
}

// stopProcesses stops processes for a while.
func (w *world) stopProcesses(actor string, pids []int, d dice) {
	length := pauseLength(d)
	for _, pid := range pids {
		w.timeline.notef(actor, "stops %d for %v", pid, length.Round(time.Millisecond))
		// A handle that cannot come to mean another process.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		_ = process.Signal(syscall.SIGSTOP)
		defer func() { _ = process.Signal(syscall.SIGCONT) }()
	}
	if len(pids) > 0 {
		pause(w.t.Context(), length)
	}
}

func (w *world) pauseShim(d dice, actor string) {
	s := w.clients[d.IntN(len(w.clients))].current()
	length := pauseLength(d)
	if s == nil || s.isEnded() {
		return
	}
	w.timeline.notef(actor, "stops the shim of %s for %v", s.name, length.Round(time.Millisecond))
	s.noteStop(length + time.Second)
	_ = s.command.Process.Signal(syscall.SIGSTOP)
	defer func() { _ = s.command.Process.Signal(syscall.SIGCONT) }()
	pause(w.t.Context(), length)
}

func (w *world) stopAndStart(d dice, actor string) {
	w.stop(w.t.Context(), actor)
	pause(w.t.Context(), d.between(0, 2*time.Second))
	w.command(w.t.Context(), actor, "devproxyd", "start")
}

// upgradeDaemon replaces the program of the daemon, and mostly the daemon too;
// else the next one that is started is of the new version.
func (w *world) upgradeDaemon(d dice, actor string) {
	version, err := w.upgrade()
	if err != nil {
		w.violatef(actor, "replacing devproxyd: %v", err)
		return
	}
	w.timeline.notef(actor, "devproxyd is %s", version)
	if d.chance(65) {
		w.command(w.t.Context(), actor, "devproxyd", "restart")
	}
}

// stealPort lets a stranger listen on the backend's port for a second, as soon
// as it is free.
func (w *world) stealPort(_ dice, actor string) {
	const patience, tenure = 3 * time.Second, time.Second
	var listener net.Listener
	if !await(w.t.Context(), patience, func() (done bool) {
		var err error
		listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(w.port)))
		return err == nil
	}) {
		return
	}
	w.timeline.notef(actor, "a stranger has port %d", w.port)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	})
	pause(w.t.Context(), tenure)
	listener.Close()
	serving.Wait()
}

// sealing keeps two seals from giving back what the other has found.
var sealing sync.Mutex

// sealState makes the state folder read-only for a while.
func (w *world) sealState(d dice, actor string) {
	length := d.between(300*time.Millisecond, 2*time.Second)
	sealing.Lock()
	defer sealing.Unlock()
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(w.stateDir(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return nil // it has just gone, or is the socket, which takes no harm
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		modes[path] = info.Mode().Perm()
		return nil
	})
	if err != nil {
		w.violatef(actor, "looking at the state folder: %v", err)
	}
	w.timeline.notef(actor, "%d files and folders are read-only for %v", len(modes), length.Round(time.Millisecond))
	for path, mode := range modes {
		chmod(path, mode&^0o222)
	}
	pause(w.t.Context(), length)
	for path, mode := range modes {
		chmod(path, mode)
	}
}

// chmod changes a mode, unless the file has just gone.
func chmod(path string, mode fs.FileMode) { _ = os.Chmod(path, mode) }

// builds are the builds of a world's project.
type builds struct {
	mu     sync.Mutex // held while one is written
	number int
}

// name is the tool that the current build adds.
func (b *builds) name() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("build_%d", b.number)
}

func (b *builds) next() []byte {
	b.number++
	return fmt.Appendf(nil, "build_%d\n", b.number)
}

// replace writes a build as a good build tool does: at once.
func (b *builds) replace(root string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	dist := filepath.Join(root, "dist")
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	next := filepath.Join(root, "next")
	if err := os.WriteFile(next, b.next(), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dist, "build"))
}

// overwrite writes a build in place, and takes its time.
func (b *builds) overwrite(root string, took time.Duration) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content := b.next()
	file, err := os.OpenFile(filepath.Join(root, "dist", "build"), os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, part := range [][]byte{content[:3], content[3:]} {
		if _, err := file.Write(part); err != nil {
			return err
		}
		time.Sleep(took / 2)
	}
	return nil
}

// recreate removes the folder and writes it anew after a while.
func (b *builds) recreate(root string, after time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	dist := filepath.Join(root, "dist")
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	time.Sleep(after)
	if err := os.Mkdir(dist, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, "build"), b.next(), 0o644)
}

func (w *world) rebuild(d dice, actor string) {
	how, length := d.IntN(4), d.between(0, time.Second)
	var err error
	switch how {
	case 0:
		err = w.builds.overwrite(w.root, length)
	case 1:
		err = w.builds.recreate(w.root, length)
	default:
		err = w.builds.replace(w.root)
	}
	if err != nil {
		w.violatef(actor, "writing a build: %v", err)
	}
	w.timeline.notef(actor, "%s is there", w.builds.name())
}
