package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCommandRunsOnlyAfterRelease(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	p := start(t, helper("touch", file))
	members, err := p.Members()
	if err != nil || len(members) != 1 || members[0] != p.PID() {
		t.Fatalf("members behind the gate: %v, %v; want the leader %d", members, err, p.PID())
	}
	if got := identity(t, p.PID()); !got.same(p.Identity()) {
		t.Fatalf("behind the gate it is %+v, recorded %+v", got, p.Identity())
	}
	if exists(file) {
		t.Fatal("the command ran before its release")
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	if !exists(file) {
		t.Fatal("the command did not run after its release")
	}
	if !p.Exit().Success() {
		t.Errorf("exit %v", p.Exit())
	}
}

func TestIdentityOutlivesRelease(t *testing.T) {
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	if got := identity(t, p.PID()); !got.same(p.Identity()) {
		t.Errorf("running it is %+v, recorded %+v", got, p.Identity())
	}
	text, err := json.Marshal(p.Identity())
	if err != nil {
		t.Fatal(err)
	}
	var read Identity
	if err := json.Unmarshal(text, &read); err != nil || read != p.Identity() {
		t.Errorf("read back from disk: %+v, %v; want %+v", read, err, p.Identity())
	}
}

func TestTerminateBehindTheGateRunsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	p := start(t, helper("touch", file))
	said := make(chan string, 1)
	go func() {
		out, err := io.ReadAll(p.Stderr())
		said <- fmt.Sprint(string(out), err)
	}()
	terminate(t, p, time.Hour, patience)
	if exists(file) {
		t.Error("the command ran without a release")
	}
	if err := p.Release(); !errors.Is(err, ErrEnded) {
		t.Errorf("late release: %v, want ErrEnded", err)
	}
	if !p.Exit().Success() {
		t.Errorf("the gate should exit quietly, it %v", p.Exit())
	}
	if got := <-said; got != "<nil>" {
		t.Errorf("the gate said %q", got)
	}
}

func TestCommandNeverRunsWhenItsDaemonIsKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	daemon, id := startDaemon(t, "gated", "touch", file)
	if !lives(id) {
		t.Fatal("the gate is not there")
	}
	kill(t, daemon)
	await(t, "the gate is gone", func() bool { return !lives(id) })
	if exists(file) {
		t.Error("the command ran though its daemon died before the release")
	}
}

// startDaemon runs a helper that starts args and then does nothing, and reads who it started.
func startDaemon(t *testing.T, release string, args ...string) (*exec.Cmd, Identity) {
	t.Helper()
	daemon := exec.Command(os.Args[0], append([]string{"helper", "daemon", release, newMarker()}, args...)...)
	daemon.Stderr = os.Stderr
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, daemon) })
	var id Identity
	if err := json.Unmarshal([]byte(nextLine(t, out)), &id); err != nil {
		t.Fatal(err)
	}
	return daemon, id
}

// kill kills one process alone, and reaps it.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState != nil {
		return
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func TestReleaseTwice(t *testing.T) {
	p := run(t, helper("exit", "0"))
	if err := p.Release(); !errors.Is(err, ErrReleased) {
		t.Errorf("second release: %v, want ErrReleased", err)
	}
}

func TestStartRefuses(t *testing.T) {
	tests := []struct {
		name string
		spec Spec
		want string
	}{
		{"no program", Spec{}, "no program given"},
		{"NUL in an argument", Spec{Path: os.Args[0], Args: []string{"a\x00b"}}, `NUL byte in "a\x00b"`},
		{"NUL in the environment", Spec{Path: os.Args[0], Env: []string{"A=\x00"}}, `NUL byte in "A=\x00"`},
		{"too much", Spec{Path: os.Args[0], Env: []string{strings.Repeat("x", maxMessage)}}, "over the limit of 16777216"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Start(test.spec)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// Without this a program that forgot Main would start itself again without end.
func TestStartRefusesInsideAGate(t *testing.T) {
	t.Setenv(gateVariable, "pipe")
	if _, err := Start(helper("exit", "0")); err == nil || !strings.Contains(err.Error(), "process.Main") {
		t.Errorf("error %v, want one that names process.Main", err)
	}
}

func TestMainIgnoresAVariableWithoutPipes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command(os.Args[0], "helper", "touch", file)
	cmd.Env = append(os.Environ(), gateVariable+"=pipe")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !exists(file) {
		t.Error("the program did not run on")
	}
}

func TestExecFailureIsReported(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	tests := []struct {
		name string
		spec Spec
		is   error
		want string
	}{
		{"no such program", Spec{Path: missing}, fs.ErrNotExist, "running " + missing + ": "},
		{"no such directory", Spec{Path: os.Args[0], Dir: missing}, fs.ErrNotExist, "entering directory " + missing + ": "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.spec.Env = os.Environ()
			p := start(t, test.spec)
			err := p.Release()
			failure, ok := errors.AsType[*ExecError](err)
			if !ok || !errors.Is(err, test.is) || !strings.HasPrefix(err.Error(), test.want) {
				t.Fatalf("error %v (%T), want an ExecError %q that is %v", err, err, test.want, test.is)
			}
			if failure.Path == "" || failure.Op == "" {
				t.Errorf("incomplete error %#v", failure)
			}
			awaitDone(t, p)
			if p.Exit().Code != exitNotRun {
				t.Errorf("exit %v, want status %d", p.Exit(), exitNotRun)
			}
		})
	}
}

func TestExitStatus(t *testing.T) {
	p := run(t, helper("exit", "3"))
	awaitDone(t, p)
	if got := p.Exit(); got != (Exit{Code: 3}) || got.Success() || got.String() != "exited with status 3" {
		t.Errorf("exit %#v, %q", got, got)
	}
}

func TestExitIsZeroBeforeDone(t *testing.T) {
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	if p.Exit() != (Exit{}) {
		t.Errorf("exit %v of a running process", p.Exit())
	}
}

func TestExitInWords(t *testing.T) {
	for want, exit := range map[string]Exit{
		"exited with status 0":          {},
		"exited with status 255":        {Code: 255},
		"ended by SIGKILL":              {Code: -1, Signal: "SIGKILL"},
		"ended with unknown status":     {Code: -1},
		"exited with status 0xc0000005": {Code: 0xc0000005},
	} {
		if exit.String() != want {
			t.Errorf("%#v: %q, want %q", exit, exit, want)
		}
	}
	if got := exitOf(nil, fs.ErrInvalid); got.Success() {
		t.Errorf("a lost status counts as success: %v", got)
	}
}

func TestOutputIsComplete(t *testing.T) {
	p := run(t, helper("flood", "x"))
	var stdout, stderr []byte
	var errs [2]error
	var readers sync.WaitGroup
	readers.Go(func() { stdout, errs[0] = io.ReadAll(p.Stdout()) })
	readers.Go(func() { stderr, errs[1] = io.ReadAll(p.Stderr()) })
	readers.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	wantOut := bytes.Repeat([]byte(strings.Repeat("x", 127)+"\n"), 8<<10)
	wantErr := bytes.Repeat([]byte(strings.Repeat("E", 127)+"\n"), 8<<10)
	if !bytes.Equal(stdout, wantOut) || !bytes.Equal(stderr, wantErr) {
		t.Errorf("got %d and %d bytes, want %d twice", len(stdout), len(stderr), len(wantOut))
	}
}

func TestTerminateLosesNoOutput(t *testing.T) {
	p := run(t, helper("echo"))
	const last = "last words\n"
	if _, err := io.WriteString(p.Stdin(), last); err != nil {
		t.Fatal(err)
	}
	if err := p.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, p)
	heard := make(chan string, 1)
	go func() {
		out, err := io.ReadAll(p.Stdout())
		heard <- fmt.Sprint(string(out), err)
	}()
	if err := p.Terminate(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != last+"<nil>" {
		t.Errorf("heard %q, want %q", got, last)
	}
}

func TestMergedOutputKeepsItsOrder(t *testing.T) {
	spec := helper("flood", "y")
	spec.Merge = true
	p := run(t, spec)
	var marks []byte // the helper alternates between stdout and stderr
	err := Lines(p.Stdout(), 1<<10, func(line string) { marks = append(marks, line[0]) })
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Repeat([]byte("yE"), 8<<10); !bytes.Equal(marks, want) {
		t.Errorf("%d lines out of order, want %d", len(marks), len(want))
	}
	if rest, err := io.ReadAll(p.Stderr()); err != nil || len(rest) > 0 {
		t.Errorf("stderr has %d bytes, %v, want none", len(rest), err)
	}
}

func TestStdinEndSuffices(t *testing.T) {
	p := run(t, helper("echo"))
	if _, err := io.WriteString(p.Stdin(), "hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := nextLine(t, p.Stdout()); got != "hello" {
		t.Errorf("echo of %q", got)
	}
	terminate(t, p, time.Hour, patience)
	if !p.Exit().Success() {
		t.Errorf("it %v, want a quiet exit", p.Exit())
	}
}

func TestTreeEnds(t *testing.T) {
	const depth = 4
	p := run(t, helper("tree", fmt.Sprint(depth)))
	var tree []Identity
	for len(tree) < depth {
		if line := nextLine(t, p.Stdout()); line != "ready" {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err != nil {
				t.Fatal(err)
			}
			tree = append(tree, identity(t, pid))
		}
	}
	members, err := p.Members()
	if err != nil || len(members) < depth {
		t.Fatalf("members %v, %v, want %d of them", members, err, depth)
	}
	terminate(t, p, 50*time.Millisecond, patience)
	for _, id := range tree {
		if lives(id) {
			t.Errorf("process %d outlived the group", id.PID)
		}
	}
}

// A wrapper that dies before its server (npx, sh -c) must not take the server for dead.
func TestGroupOutlivesItsLeader(t *testing.T) {
	p := run(t, helper("orphan"))
	child := identity(t, nextPID(t, p.Stdout()))
	awaitDone(t, p) // though the child holds stdout and stderr
	members, err := p.Members()
	if err != nil || !slices.Contains(members, child.PID) || slices.Contains(members, p.PID()) {
		t.Fatalf("members %v, %v, want the child %d without the leader", members, err, child.PID)
	}
	terminate(t, p, 50*time.Millisecond, patience)
	if lives(child) {
		t.Error("the child outlived the group")
	}
}

func TestDoneContextHurries(t *testing.T) {
	p := run(t, helper("ignore-term"))
	nextLine(t, p.Stdout())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("in a hurry"))
	began := time.Now()
	if err := p.Terminate(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %v", took)
	}
	awaitDone(t, p)
}

func TestTerminateByManyAtOnce(t *testing.T) {
	p := start(t, helper("ignore-term"))
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.Release(); err != nil && !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
	for range 4 {
		all.Go(func() {
			if err := p.Terminate(t.Context(), time.Millisecond); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := p.Members(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { p.Exit() })
	}
	all.Wait()
	awaitDone(t, p)
	terminate(t, p, time.Hour, patience)
}

func TestEndOrphanWithNothingToEnd(t *testing.T) {
	p := run(t, helper("exit", "0"))
	awaitDone(t, p)
	terminate(t, p, time.Hour, patience)
	for name, id := range map[string]Identity{"zero": {}, "gone": p.Identity()} {
		if ended, err := EndOrphan(t.Context(), id, time.Hour); err != nil || len(ended) > 0 {
			t.Errorf("%s: ended %v, %v", name, ended, err)
		}
	}
}

func TestSurvivorsAreNamed(t *testing.T) {
	err := newSurvivorsError([]int{os.Getpid(), 0})
	want := fmt.Sprintf("after SIGKILL: 0, %d (%s", os.Getpid(), filepath.Dir(os.Args[0]))
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q in it", err, want)
	}
}

func TestCommandLine(t *testing.T) {
	if got := CommandLine(os.Getpid()); !strings.Contains(got, filepath.Base(os.Args[0])) {
		t.Errorf("own command line %q, want %q in it", got, filepath.Base(os.Args[0]))
	}
	if got := CommandLine(1 << 30); got != "" {
		t.Errorf("command line %q of nobody", got)
	}
}

func TestShell(t *testing.T) {
	spec, err := Shell(`echo "a b"`)
	if err != nil {
		t.Fatal(err)
	}
	spec.Env = os.Environ()
	p := run(t, spec)
	out, err := io.ReadAll(p.Stdout())
	if got := strings.Trim(strings.TrimSpace(string(out)), `"`); err != nil || got != "a b" {
		t.Errorf("the shell said %q, %v", out, err)
	}
}
