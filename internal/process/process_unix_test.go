//go:build unix

package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func runSystemHelper(mode string, args []string) {
	switch mode {
	case "stop":
		os.Stdout.WriteString("ready\n")
		must(unix.Kill(os.Getpid(), unix.SIGSTOP))
		time.Sleep(time.Hour)
	case "escape": // leaves a child in a session of its own
		escape(os.Environ(), os.Stdout)
	case "escape-unmarked":
		escape(nil, os.Stdout)
	case "leave-group": // a leader that joins the group of its child
		child := exec.Command(os.Args[0], "helper", "sleep-quietly")
		child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(child.Start())
		must(unix.Setpgid(0, child.Process.Pid))
		sleepForever()
	case "end-orphan":
		endOwnGroup(args[0])
	case "headless":
		endFirstThread()
	default:
		must(errors.New("no such helper: " + mode))
	}
}

func escape(env []string, stdout *os.File) {
	cmd := exec.Command(os.Args[0], "helper", "sleep-quietly")
	cmd.Env = append(env, "LANG=C")
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(cmd.Start())
	_, err := stdout.WriteString(itoa(cmd.Process.Pid) + "\n")
	must(err)
}

func TestIgnoredTermIsFollowedByKill(t *testing.T) {
	p := run(t, helper("ignore-term"))
	nextLine(t, p.Stdout())
	terminate(t, p, 20*time.Millisecond, patience)
	if got := p.Exit(); got.Signal != "SIGKILL" || got.String() != "ended by SIGKILL" {
		t.Errorf("it %v", got)
	}
}

// Who closed stdin long before has given the first rung already.
func TestFirstRungCountsFromTheClosingOfStdin(t *testing.T) {
	p := start(t, helper("sleep"))
	if err := errors.Join(p.Stdin().Close(), p.Stdin().Close(), p.Release()); err != nil {
		t.Fatal(err)
	}
	nextLine(t, p.Stdout())
	p.stdin.closedAt = time.Now().Add(-time.Hour)
	terminate(t, p, time.Hour, patience)
}

func TestTermComesBeforeKill(t *testing.T) {
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	p.stdin.close()
	p.stdin.closedAt = time.Now().Add(-time.Hour)
	terminate(t, p, time.Hour, patience)
	if got := p.Exit(); got.Signal != "SIGTERM" {
		t.Errorf("it %v", got)
	}
}

func TestStoppedProcessHearsTerm(t *testing.T) {
	p := run(t, helper("stop"))
	nextLine(t, p.Stdout())
	p.stdin.close()
	p.stdin.closedAt = time.Now().Add(-time.Hour)
	terminate(t, p, time.Hour, patience)
	if got := p.Exit(); got.Signal != "SIGTERM" {
		t.Errorf("it %v, want the end by SIGTERM", got)
	}
}

func TestInterruptDoesNotWait(t *testing.T) {
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	if err := p.Interrupt(); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	if got := p.Exit(); got.Signal != "SIGTERM" {
		t.Errorf("it %v", got)
	}
}

func TestKillDoesNotWait(t *testing.T) {
	p := run(t, helper("ignore-term"))
	nextLine(t, p.Stdout())
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	if got := p.Exit(); got.Signal != "SIGKILL" {
		t.Errorf("it %v", got)
	}
}

func TestExecFailuresOfFiles(t *testing.T) {
	dir := t.TempDir()
	plain, lost := filepath.Join(dir, "plain"), filepath.Join(dir, "lost")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lost, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		is   error
		text string
	}{
		dir:   {fs.ErrPermission, "running " + dir + ": permission denied"},
		plain: {fs.ErrPermission, "running " + plain + ": permission denied"},
		lost:  {fs.ErrNotExist, "the interpreter in its first line is missing"},
	} {
		p := start(t, Spec{Path: path})
		err := p.Release()
		if !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: error %v, want %q", path, err, want.text)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := run(t, Spec{Path: "/bin/sh", Args: []string{"-c", "pwd -P"}, Dir: dir})
	if got := nextLine(t, p.Stdout()); got != dir {
		t.Errorf("ran in %s, want %s", got, dir)
	}
}

func TestProcessLeadsItsGroup(t *testing.T) {
	p := start(t, helper("exit", "0"))
	if pgid, err := unix.Getpgid(p.PID()); err != nil || pgid != p.PID() {
		t.Errorf("group %d, %v, want %d from the start", pgid, err, p.PID())
	}
}

// A process that got away may hold the pipe for ever; nobody may wait for it.
func TestPipeHolderDelaysNobody(t *testing.T) {
	p := run(t, helper("escape-unmarked"))
	stray := identity(t, nextPID(t, p.Stdout()))
	t.Cleanup(func() { _ = unix.Kill(stray.PID, unix.SIGKILL) })
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, p.Stdout())
		read <- err
	}()
	awaitDone(t, p)
	terminate(t, p, time.Hour, patience)
	if err := <-read; err != nil {
		t.Errorf("reading ended with %v, want the end", err)
	}
	if !lives(stray) {
		t.Error("the stray should still hold the pipe")
	}
}

func TestBlockedWriterToStdinIsFreed(t *testing.T) {
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Stdin().Write(make([]byte, 1<<20))
		wrote <- err
	}()
	terminate(t, p, time.Millisecond, patience)
	if err := <-wrote; err == nil {
		t.Error("a write that nobody read succeeded")
	}
}
