//go:build unix

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"go.uber.org/goleak"

	"github.com/debugmcp/devproxy/internal/project"
)

// asDaemon makes the test binary a daemon in miniature. Its value says what it
// does; see fakeDaemon.
const asDaemon = "DEVPROXY_TEST_DAEMON"

func TestMain(m *testing.M) {
	if what := os.Getenv(asDaemon); what != "" {
		os.Exit(fakeDaemon(what))
	}
	goleak.VerifyTestMain(m)
}

// fakeDaemon notes its pid in the file pids of the project, and then serves,
// fails with a message, ends without one, hangs, or serves elsewhere.
func fakeDaemon(what string) int {
	root := os.Args[len(os.Args)-1]
	p, err := project.At(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := note(filepath.Join(root, "pids"), os.Getpid()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	socket, err := p.Socket("")
	if err != nil {
		return 1
	}
	switch what {
	case "fail":
		fmt.Fprint(os.Stderr, "devproxy.toml:3: unknown key \"comand\"\nfix it\xff\n")
		return 2
	case "end":
		return 0
	case "flood":
		fmt.Fprint(os.Stderr, strings.Repeat("noise, noise\n", maxStartLog/10)+"the last word\n")
		return 2
	case "hang":
		time.Sleep(time.Hour)
	case "elsewhere":
		socket = filepath.Join(p.StateDir, "other.sock")
		err = p.RecordSocket(socket)
	}
	if err != nil {
		return 1
	}
	return fakeServe(p, socket)
}

func fakeServe(p project.Project, socket string) int {
	lock := flock.New(p.Lock())
	if held, err := lock.TryLock(); err != nil || !held {
		return ExitRunning
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := newServer(attachFunc{serve: greet}).Serve(l); err != nil {
		return 1
	}
	return 0
}

func note(path string, pid int) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, pid)
	return errors.Join(err, file.Close())
}

// fakeOptions makes EnsureRunning start the test binary. What it starts is
// ended with the test.
func fakeOptions(t *testing.T, p project.Project, what string) Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range started(t, p) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return Options{
		Project: p, Binary: self, Args: []string{"run", p.Root},
		Environment: append(os.Environ(), asDaemon+"="+what),
	}
}

// started returns the pids of the processes that were started for p.
func started(t *testing.T, p project.Project) []int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(p.Root, "pids"))
	if err != nil {
		return nil
	}
	var pids []int
	for word := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func mustEnsure(t *testing.T, o Options) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("no daemon within a minute"))
	defer cancel()
	c, err := EnsureRunning(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEnsureRunningStartsOneAndFindsItAgain(t *testing.T) {
	p := newProject(t)
	o := fakeOptions(t, p, "serve")
	first := mustGreet(t, mustEnsure(t, o)).GetPid()
	second := mustGreet(t, mustEnsure(t, o)).GetPid()
	if pids := started(t, p); len(pids) != 1 || int(first) != pids[0] || first != second {
		t.Errorf("served by %d and %d, started %v", first, second, pids)
	}
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(first), 0, 0)
	if errno != 0 || int64(sid) != first {
		t.Errorf("the daemon's session is %d (%v), not its own", sid, errno)
	}
}

func TestManyAtOnceGetOneDaemon(t *testing.T) {
	p := newProject(t)
	o := fakeOptions(t, p, "serve")
	var group sync.WaitGroup
	served := make(chan int64, 20)
	for range cap(served) {
		group.Go(func() {
			c, err := EnsureRunning(t.Context(), o)
			if err != nil {
				t.Errorf("EnsureRunning: %v", err)
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			served <- mustGreet(t, c).GetPid()
		})
	}
	group.Wait()
	close(served)
	for pid := range served {
		if pids := started(t, p); len(pids) != 1 || pid != int64(pids[0]) {
			t.Fatalf("served by %d, started %v", pid, pids)
		}
	}
}

// With a start lock that is of no use, many processes are started, and still
// everybody ends at the one that got the daemon's lock.
func TestLosersDialTheWinner(t *testing.T) {
	p := newProject(t)
	o := fakeOptions(t, p, "serve")
	var group sync.WaitGroup
	served := make(chan int64, 8)
	starters := make([]starter, cap(served))
	for i := range starters {
		group.Go(func() {
			s := &starters[i]
			*s = starter{options: o, began: time.Now(), lock: flock.New(t.TempDir())}
			c, err := s.run(t.Context())
			if err != nil {
				t.Errorf("starting: %v", err)
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			served <- mustGreet(t, c).GetPid()
		})
	}
	group.Wait()
	close(served)
	winner := <-served
	for pid := range served {
		if pid != winner {
			t.Errorf("served by %d and by %d", winner, pid)
		}
	}
	// The losers end by themselves, and must not outlive the test.
	ended := make(chan error, len(starters))
	running := -1 // the winner
	for _, s := range starters {
		if s.child != nil {
			running++
			go func() { ended <- <-s.child.exited }()
		}
	}
	for range running {
		<-ended
	}
	_ = syscall.Kill(int(winner), syscall.SIGKILL)
	<-ended
}

func TestFailedStartTellsWhatTheDaemonSaid(t *testing.T) {
	p := newProject(t)
	// What an earlier start said is not this one's.
	if err := os.WriteFile(p.StartLog(), []byte("of yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := EnsureRunning(t.Context(), fakeOptions(t, p, "fail"))
	failure, ok := errors.AsType[*StartError](err)
	if !ok {
		t.Fatalf("EnsureRunning = %v", err)
	}
	if want := "devproxy.toml:3: unknown key \"comand\"\nfix it\uFFFD"; failure.Tail != want || failure.LogPath != p.StartLog() {
		t.Errorf("tail %q of %s, want %q", failure.Tail, failure.LogPath, want)
	}
	for _, part := range []string{"exit status 2", "comand", p.StartLog()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestStartLogAndTailAreBounded(t *testing.T) {
	p := newProject(t)
	o := fakeOptions(t, p, "flood")
	for range 2 {
		_, err := EnsureRunning(t.Context(), o)
		failure, ok := errors.AsType[*StartError](err)
		if !ok || len(failure.Tail) > maxTail || !strings.HasSuffix(failure.Tail, "noise\nthe last word") ||
			!strings.HasPrefix(failure.Tail, "noise, ") {
			t.Fatalf("EnsureRunning = %v", err)
		}
	}
	content, err := os.ReadFile(p.StartLog())
	if err != nil || bytes.Count(content, []byte("the last word")) != 1 {
		t.Errorf("the log was not begun anew: %d bytes, %v", len(content), err)
	}
}

func TestOneThatEndsIsAFailedStart(t *testing.T) {
	_, err := EnsureRunning(t.Context(), fakeOptions(t, newProject(t), "end"))
	if failure, ok := errors.AsType[*StartError](err); !ok || !errors.Is(failure, errExited) {
		t.Errorf("EnsureRunning = %v", err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	p := newProject(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, enough)
	defer cancel()
	_, err := EnsureRunning(ctx, fakeOptions(t, p, "hang"))
	if failure, ok := errors.AsType[*StartError](err); !ok || !errors.Is(err, enough) || failure.LogPath == "" {
		t.Errorf("EnsureRunning = %v", err)
	}
	if pids := started(t, p); len(pids) == 1 && syscall.Kill(pids[0], 0) != nil {
		t.Error("a daemon that is slow was ended")
	}
}

// A daemon that does not hand over keeps its project: no successor lies in wait
// for its end.
func TestRefusedHandoverLeavesNoSuccessor(t *testing.T) {
	p := newProject(t)
	old := mustEnsure(t, fakeOptions(t, p, "serve"))
	if _, err := Replace(t.Context(), fakeOptions(t, p, "hang"), old); err == nil || !strings.Contains(err.Error(), "handing over") {
		t.Errorf("Replace = %v", err)
	}
	mustGreet(t, old)
	for _, pid := range started(t, p)[1:] {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("the successor, pid %d, is alive", pid)
		}
	}
}

// A daemon that was stopped, by SIGSTOP say, is told from one that starts.
func TestSilentDaemonIsNamed(t *testing.T) {
	p := newProject(t)
	mustListen(t, mustSocket(t, p))
	if err := project.WriteFile(p.PIDFile(), []byte("4711\n")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := EnsureRunning(ctx, fakeOptions(t, p, "serve"))
	if !errors.Is(err, ErrNotServing) || !strings.Contains(err.Error(), "end process 4711 with SIGKILL") {
		t.Errorf("EnsureRunning = %v", err)
	}
	if pids := started(t, p); len(pids) != 0 {
		t.Errorf("started %v beside it", pids)
	}
}

func TestDaemonAtAnotherSocketIsFound(t *testing.T) {
	p := newProject(t)
	o := fakeOptions(t, p, "elsewhere")
	first := mustGreet(t, mustEnsure(t, o)).GetPid()
	o.Args, o.DialOnly = nil, true
	o.Socket = filepath.Join(shortDir(t), "s")
	if second := mustGreet(t, mustEnsure(t, o)).GetPid(); second != first {
		t.Errorf("served by %d and %d", first, second)
	}
}

func TestNothingIsStarted(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, o *Options)
		check func(error) bool
	}{
		{"dial only", func(_ *testing.T, o *Options) { o.DialOnly = true },
			func(err error) bool { return errors.Is(err, ErrNoDaemon) }},
		{"no config", func(t *testing.T, o *Options) {
			t.Helper()
			if err := os.Remove(o.Project.Config()); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return errors.Is(err, project.ErrNotFound) }},
		{"unsafe state folder", func(t *testing.T, o *Options) {
			t.Helper()
			if err := os.Chmod(o.Project.StateDir, 0o777); err != nil {
				t.Fatal(err)
			}
		}, isUnsafe},
		{"plain file for a socket", func(t *testing.T, o *Options) {
			t.Helper()
			if err := os.WriteFile(mustSocket(t, o.Project), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, isUnsafe},
		{"no binary", func(t *testing.T, o *Options) {
			t.Helper()
			o.Binary = ""
			t.Setenv("PATH", t.TempDir())
		}, func(err error) bool {
			_, ok := errors.AsType[*StartError](err)
			return ok && strings.Contains(err.Error(), "devproxyd is neither in ")
		}},
		{"socket path too long", func(_ *testing.T, o *Options) { o.Socket = "/" + strings.Repeat("s", 200) },
			func(err error) bool { _, ok := errors.AsType[*project.SocketPathError](err); return ok }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newProject(t)
			o := fakeOptions(t, p, "serve")
			test.spoil(t, &o)
			if _, err := EnsureRunning(t.Context(), o); !test.check(err) {
				t.Errorf("EnsureRunning = %v", err)
			}
			if pids := started(t, p); len(pids) != 0 {
				t.Errorf("started %v", pids)
			}
		})
	}
}

func TestBinaryBesideOursComesFirst(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	inPath := t.TempDir()
	t.Setenv("PATH", inPath)
	elsewhere := placeProgram(t, filepath.Join(inPath, "devproxyd"))
	if got, err := (Options{}).binary(); err != nil || got != elsewhere {
		t.Errorf("binary = %s, %v; want %s", got, err, elsewhere)
	}
	beside := placeProgram(t, filepath.Join(filepath.Dir(self), "devproxyd"))
	if got, err := (Options{}).binary(); err != nil || got != beside {
		t.Errorf("binary = %s, %v; want %s", got, err, beside)
	}
}

func placeProgram(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

func TestDefaultArguments(t *testing.T) {
	o := Options{Project: project.Project{Root: "/p"}}
	if got := strings.Join(o.args(), " "); got != "run --autostarted --project /p" {
		t.Errorf("args %q", got)
	}
	o.Socket = "/s"
	if got := strings.Join(o.args(), " "); got != "run --autostarted --project /p --socket /s" {
		t.Errorf("args %q", got)
	}
}
