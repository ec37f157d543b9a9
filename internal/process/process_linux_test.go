package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

var _ = keepMain()

// keepMain keeps main on the first thread in the helper that ends it. Only before
// main begins is it sure to be there.
func keepMain() bool {
	keep := len(os.Args) > 2 && os.Args[2] == "headless"
	if keep {
		runtime.LockOSThread()
	}
	return keep
}

// endFirstThread ends the first thread while others live on.
func endFirstThread() {
	go sleepForever()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// leftProcesses finds what any test of this run has left behind.
func leftProcesses() error {
	stats, err := listStats()
	if err != nil {
		return err
	}
	for _, s := range stats {
		if strings.HasPrefix(markerOf(s.pid), fmt.Sprintf("test%d-", os.Getpid())) && !s.dead() {
			err = errors.Join(err, fmt.Errorf("process %d: %s", s.pid, CommandLine(s.pid)))
		}
	}
	return err
}

func TestEnvironmentIsExact(t *testing.T) {
	env := []string{
		"PLAIN=1", "TWICE=first", "TWICE=second", "EMPTY=", "NOEQUALS", "LINES=a\nb", "BYTES=\xff\xfe",
		MarkerVariable + "=inherited:9", "GOMEMLIMIT=nonsense", "GODEBUG=nonsense", "PATH=/nowhere",
	}
	p := run(t, Spec{Path: "/bin/cat", Args: []string{"/proc/self/environ"}, Env: env, Marker: newMarker()})
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	want := append([]string{MarkerVariable + "=" + p.Identity().Marker}, env[:7]...)
	want = append(want, env[8:]...)
	if !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}

func TestNoStrayDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	// A duplicate is not closed on exec, like what a shell has left to the daemon.
	stray, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD, 50)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(stray) }()
	script := fmt.Sprintf("test -e /proc/$$/fd/%d && echo leaked || echo clean", stray)
	p := run(t, Spec{Path: "/bin/sh", Args: []string{"-c", script}})
	if got := nextLine(t, p.Stdout()); got != "clean" {
		t.Errorf("descriptor %d is %s", stray, got)
	}
}

func TestMarkedEscapeeEnds(t *testing.T) {
	p := run(t, helper("escape"))
	escapee := identity(t, nextPID(t, p.Stdout()))
	awaitDone(t, p)
	members, err := p.Members()
	if err != nil || !slices.Equal(members, []int{escapee.PID}) {
		t.Fatalf("members %v, %v, want the escapee %d", members, err, escapee.PID)
	}
	terminate(t, p, 20*time.Millisecond, patience)
	if lives(escapee) {
		t.Error("the escapee lives on")
	}
}

func TestMarkerOfAnotherGenerationIsNotOurs(t *testing.T) {
	other := run(t, helper("sleep"))
	nextLine(t, other.Stdout())
	spec := helper("exit", "0")
	spec.Marker = strings.TrimSuffix(other.Identity().Marker, ":1") + ":12"
	p := run(t, spec)
	terminate(t, p, time.Hour, patience)
	if !lives(other.Identity()) {
		t.Error("the end of one generation ended another")
	}
}

// skipAsInit skips tests of orphans in a container whose first process is the test: orphans fall
// to it, and what descends from us is nobody's orphan.
func skipAsInit(t *testing.T) {
	t.Helper()
	if os.Getpid() == 1 {
		t.Skip("orphans descend from pid 1")
	}
}

func TestEndOrphanEndsTheGroup(t *testing.T) {
	skipAsInit(t)
	daemon, id := startDaemon(t, "release", "ignore-term")
	kill(t, daemon)
	ended, err := EndOrphan(t.Context(), id, 20*time.Millisecond)
	if err != nil || !slices.Equal(ended, []int{id.PID}) {
		t.Errorf("ended %v, %v, want %d", ended, err, id.PID)
	}
	if lives(id) {
		t.Error("the orphan lives on")
	}
}

func TestEndOrphanFindsTheMarked(t *testing.T) {
	skipAsInit(t)
	daemon, id := startDaemon(t, "release", "escape")
	kill(t, daemon)
	await(t, "the leader is gone", func() bool { return !lives(id) })
	// A later daemon knows perhaps another generation, and not who the leader was.
	project, _, _ := strings.Cut(id.Marker, ":")
	ended, err := EndOrphan(t.Context(), Identity{Marker: project + ":77"}, 20*time.Millisecond)
	if err != nil || len(ended) != 1 {
		t.Fatalf("ended %v, %v, want the escapee", ended, err)
	}
	if Alive(ended[0]) {
		t.Error("the escapee lives on")
	}
}

func TestEndOrphanSparesStrangers(t *testing.T) {
	spec := helper("sleep")
	stranger := run(t, spec)
	nextLine(t, stranger.Stdout())
	is := stranger.Identity()
	project, _, _ := strings.Cut(is.Marker, ":")
	for name, id := range map[string]Identity{
		"other start time":       {BootID: is.BootID, PID: is.PID, StartTime: is.StartTime + 1},
		"other boot":             {BootID: "another", PID: is.PID, StartTime: is.StartTime},
		"no boot":                {PID: is.PID, StartTime: is.StartTime},
		"only a pid":             {PID: is.PID},
		"not the leader":         identity(t, os.Getpid()),
		"other project":          {Marker: project[:len(project)-1] + "x:1"},
		"prefix of the project":  {Marker: project[:len(project)-1] + ":1"},
		"marker without project": {Marker: ":1"},
		"project alone":          {Marker: project},
	} {
		t.Run(name, func(t *testing.T) {
			ended, err := EndOrphan(t.Context(), id, 0)
			if err != nil || len(ended) > 0 {
				t.Errorf("ended %v, %v", ended, err)
			}
			if !lives(is) {
				t.Fatal("a stranger was ended")
			}
		})
	}
}

// endOwnGroup is a daemon that its own orphan started: it is in the orphan's group and marked,
// as are its parent, who is its ancestor, a sibling, who is not, and a child of its own.
func endOwnGroup(marker string) {
	child := spawn(io.Discard, "sleep-quietly")
	id, err := identify(os.Getppid())
	must(err)
	id.Marker = marker
	ended, err := EndOrphan(context.Background(), id, time.Second)
	must(err)
	must(child.Process.Kill()) // it is still there
	_ = child.Wait()
	fmt.Println(ended)
}

func TestEndOrphanSparesOurFamily(t *testing.T) {
	spec := helper("end-orphan")
	spec.Path = "/bin/sh"
	spec.Args = []string{"-c", `"$0" helper sleep & echo $!; "$0" helper end-orphan "$1"; echo alive`, os.Args[0], spec.Marker}
	p := run(t, spec)
	var lines []string
	for len(lines) == 0 || lines[len(lines)-1] != "alive" {
		if line := nextLine(t, p.Stdout()); line != "ready" {
			lines = append(lines, line)
		}
	}
	if want := []string{lines[0], "[" + lines[0] + "]", "alive"}; !slices.Equal(lines, want) {
		t.Errorf("the group says %q, want %q", lines, want)
	}
}

// The leader that moved to another group is known by its start time.
func TestLeaderThatLeftItsGroupEnds(t *testing.T) {
	p := run(t, helper("leave-group"))
	nextLine(t, p.Stdout())
	members, err := p.Members()
	if err != nil || !slices.Contains(members, p.PID()) {
		t.Fatalf("members %v, %v, want the leader %d", members, err, p.PID())
	}
	terminate(t, p, 20*time.Millisecond, patience)
}

func TestSubreaperReapsAdoptedZombiesOnly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	finished := make(chan error, 1)
	go func() { finished <- Subreaper(ctx) }()
	defer cancel(nil)
	await(t, "we are a subreaper", isSubreaper)

	out, err := exec.Command(os.Args[0], "helper", "orphan-echo").Output()
	if err != nil {
		t.Fatal(err)
	}
	adopted := identity(t, nextPID(t, bytes.NewReader(out)))
	if s, err := readStat(adopted.PID); err != nil || s.parent != os.Getpid() {
		t.Fatalf("an orphan falls to %d, %v, want us, %d", s.parent, err, os.Getpid())
	}
	if err := unix.Kill(adopted.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the adopted child is reaped", func() bool {
		now, err := identify(adopted.PID)
		return err != nil || !now.same(adopted)
	})

	// Whoever waits for his own child gets its status, while orphans fall to us all the time.
	var own sync.WaitGroup
	for range 4 {
		own.Go(func() {
			for i := range 25 {
				cmd := exec.Command("/bin/sh", "-c", "setsid true & exit "+itoa(i))
				if i%2 == 0 {
					cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
				}
				err := cmd.Run()
				if got := cmd.ProcessState.ExitCode(); got != i {
					t.Errorf("own child: status %d, %v, want %d", got, err, i)
				}
			}
		})
	}
	own.Wait()
	await(t, "no zombie is left", func() bool { return len(zombies(t)) == 0 })
	cancel(errors.New("test over"))
	if err := <-finished; err != nil || isSubreaper() {
		t.Errorf("ended with %v, still a subreaper: %v", err, isSubreaper())
	}
}

func isSubreaper() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is == 1
}

func zombies(t *testing.T) []stat {
	t.Helper()
	stats, err := listStats()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(stats, func(s stat) bool { return !s.zombie() || s.parent != os.Getpid() })
}

func TestForeignZombies(t *testing.T) {
	if !pidfdsWork() {
		t.Skip("no pidfds here")
	}
	ours := exec.Command("/bin/true")
	ours.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := ours.Start(); err != nil {
		t.Fatal(err)
	}
	pid := ours.Process.Pid
	await(t, "our child is a zombie", func() bool { return !Alive(pid) })
	zombie, err := readStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	foreigner := zombie
	foreigner.pid, foreigner.group = 1<<30, 1<<29
	candidates := []stat{zombie, foreigner}
	for name, foreign := range map[string]func([]stat) []stat{
		"by pidfd": foreignByPidfd, "by group": foreignByGroup,
	} {
		if got := foreign(candidates); !slices.Equal(got, []stat{foreigner}) {
			t.Errorf("%s: foreign %+v, want %+v", name, got, foreigner)
		}
	}
	sibling := zombie
	sibling.pid, sibling.group = 1<<30, unix.Getpgrp()
	if got := foreignByGroup([]stat{sibling}); len(got) > 0 {
		t.Errorf("a child in our own group is taken for foreign: %+v", got)
	}
	if err := ours.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestParseStat(t *testing.T) {
	const tail = " 7 8 9 0 -1 4194560 5 0 0 0 1 2 3 4 20 0 6 0 123456789 10 11"
	for line, want := range map[string]stat{
		"42 (sh) S" + tail:              {pid: 42, state: 'S', parent: 7, group: 8, session: 9, flags: 4194560, threads: 6, start: 123456789, user: 1, system: 2, resident: 11},
		"42 (a b) Z (x)) Z" + tail:      {pid: 42, state: 'Z', parent: 7, group: 8, session: 9, flags: 4194560, threads: 6, start: 123456789, user: 1, system: 2, resident: 11},
		"42 (line\nbreak) R" + tail:     {pid: 42, state: 'R', parent: 7, group: 8, session: 9, flags: 4194560, threads: 6, start: 123456789, user: 1, system: 2, resident: 11},
		"42 () R" + tail + " 1 2 3 4 5": {pid: 42, state: 'R', parent: 7, group: 8, session: 9, flags: 4194560, threads: 6, start: 123456789, user: 1, system: 2, resident: 11},
	} {
		if got, err := parseStat(line); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "42", "42 (sh", "42 sh) S" + tail, "42 (sh) S 1 2", "x (sh) S" + tail, "42 (sh) SS" + tail, "42 (sh) S x" + tail} {
		if got, err := parseStat(line); err == nil {
			t.Errorf("%q: %+v, want an error", line, got)
		}
	}
}

func TestZombieWithLiveThreadsIsAlive(t *testing.T) {
	for _, test := range []struct {
		stat stat
		dead bool
	}{
		{stat{state: 'Z', threads: 1}, true},
		{stat{state: 'X'}, true},
		{stat{state: 'Z', threads: 3}, false},
		{stat{state: 'S', threads: 1}, false},
	} {
		if test.stat.dead() != test.dead {
			t.Errorf("%+v: dead %v, want %v", test.stat, test.stat.dead(), test.dead)
		}
	}
}

// The system shows such a process as a zombie, though it serves.
func TestLeaderWithoutItsFirstThreadLives(t *testing.T) {
	p := run(t, helper("headless"))
	nextLine(t, p.Stdout())
	await(t, "its first thread has ended", func() bool {
		s, err := readStat(p.PID())
		return err == nil && s.state == 'Z'
	})
	if members, err := p.Members(); err != nil || !slices.Equal(members, []int{p.PID()}) {
		t.Errorf("members %v, %v, want the leader %d", members, err, p.PID())
	}
	select {
	case <-p.Done():
		t.Error("it is taken for dead")
	default:
	}
	terminate(t, p, 20*time.Millisecond, patience)
	awaitDone(t, p)
}

// A group number may come to mean somebody else's group once ours was empty.
func TestEmptyGroupIsNeverSignalledAgain(t *testing.T) {
	p := run(t, helper("exit", "0"))
	awaitDone(t, p)
	if !p.group.empty {
		t.Fatal("the group was not seen to be empty when its leader was reaped")
	}
	stranger := run(t, helper("sleep"))
	nextLine(t, stranger.Stdout())
	p.group.leader.PID = stranger.PID() // as if the number had been given out again
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if members, err := p.Members(); err != nil || len(members) > 0 {
		t.Errorf("members %v, %v", members, err)
	}
	if !lives(stranger.Identity()) {
		t.Error("the new owner of the number was killed")
	}
}

func TestGroupOfAnotherSessionIsNotOurs(t *testing.T) {
	g := &group{leader: Identity{PID: 42}, session: 7}
	if !g.contains(stat{pid: 50, group: 42, session: 7}) {
		t.Error("a member is not recognised")
	}
	if g.contains(stat{pid: 50, group: 42, session: 8}) {
		t.Error("a stranger's group with the same number is taken for ours")
	}
}
