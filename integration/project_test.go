//go:build unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// project is a project folder with a home, and so a daemon, of its own.
type project struct {
	base string
	// home is the user's home directory: the daemon's state follows from it.
	home string
	// root is the folder of devproxy.toml.
	root string
	// tmp is TMPDIR of what a terminal starts; empty at the end.
	tmp string
}

// newProject makes an empty project. What it starts is stopped, and looked
// for, when the test ends.
func newProject(t testing.TB) *project {
	t.Helper()
	program(t, "devproxyd")
	p := newFolders(t)
	t.Cleanup(func() { p.end(t) })
	return p
}

// newFolders makes the folders of a project that will have no daemon.
func newFolders(t testing.TB) *project {
	t.Helper()
	base, err := testbed.ShortTempDir("dp")
	if err != nil {
		t.Fatal(err)
	}
	p := &project{base: base, home: base + "/h", root: base + "/p", tmp: base + "/t"}
	for _, dir := range []string{p.home, p.root, p.tmp, base + "/x"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(p.base); err != nil {
			t.Error(err)
		}
	})
	return p
}

// configure writes devproxy.toml. Every fixture finds the file in which it
// counts its starts in its environment.
func (p *project) configure(t testing.TB, toml string) {
	t.Helper()
	p.write(t, "devproxy.toml", toml)
}

// write makes a file of the project, at once as a good build tool does.
func (p *project) write(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// The temporary file lies outside the watched folders.
	next, err := os.CreateTemp(p.base, "write")
	if err != nil {
		t.Fatal(err)
	}
	_, err = next.WriteString(content)
	if err := errors.Join(err, next.Chmod(0o644), next.Close(), os.Rename(next.Name(), path)); err != nil {
		t.Fatal(err)
	}
}

// rebuild pretends a build whose output offers these tools more.
func (p *project) rebuild(t testing.TB, tools ...string) {
	t.Helper()
	features, err := json.Marshal(map[string][]string{"tools": tools})
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "dist/features.json", string(features))
}

func (p *project) startsFile() string { return filepath.Join(p.base, "starts") }

// starts returns how often a fixture backend was started.
func (p *project) starts(t testing.TB) int {
	t.Helper()
	return len(p.startedPIDs(t))
}

// startedPIDs returns the process of each start of a fixture, oldest first.
func (p *project) startedPIDs(t testing.TB) []int {
	t.Helper()
	var pids []int
	for _, line := range p.startLines(t) {
		if field, found := strings.CutPrefix(line, "start "); found {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *project) startLines(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile(p.startsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// wantStarts fails the test if the backend was not started n times so far.
func (p *project) wantStarts(t testing.TB, n int) {
	t.Helper()
	if got := p.starts(t); got != n {
		t.Fatalf("the backend was started %d times, want %d", got, n)
	}
}

// awaitStarts waits until the backend was started n times.
func (p *project) awaitStarts(t testing.TB, n int) {
	t.Helper()
	await(t, fmt.Sprintf("start %d of the backend", n), func() (bool, string) {
		got := p.starts(t)
		return got >= n, fmt.Sprint(got)
	})
}

// terminalEnv is the environment of a person's terminal. Its XDG folders are
// there to be ignored: the shim of a client does not know them.
func (p *project) terminalEnv() []string {
	return append(p.clientEnv(),
		"TMPDIR="+p.tmp,
		"LANG=C.UTF-8",
		"XDG_STATE_HOME="+p.base+"/x",
		"XDG_RUNTIME_DIR="+p.base+"/x",
		"XDG_CONFIG_HOME="+p.base+"/x",
		"FROM_TERMINAL=yes",
	)
}

// clientEnv is the environment that SDK clients give a server they start: six
// variables and no more, but for what the race detector needs.
func (p *project) clientEnv() []string {
	return append([]string{
		"HOME=" + p.home,
		"LOGNAME=tester",
		"PATH=" + os.Getenv("PATH"),
		"SHELL=/bin/sh",
		"TERM=dumb",
		"USER=tester",
	}, testbed.RaceEnv...)
}

// outcome is what a finished command left.
type outcome struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("exit code %d after %v\nstdout: %s\nstderr: %s", o.code, o.took, o.stdout, o.stderr)
}

// run runs one of the programs as from a terminal in the project's folder.
func (p *project) run(t testing.TB, name string, args ...string) outcome {
	t.Helper()
	return p.runIn(t, p.root, p.terminalEnv(), name, args...)
}

func (p *project) runIn(t testing.TB, dir string, env []string, name string, args ...string) outcome {
	t.Helper()
	// Not t.Context: cleanups stop daemons after it has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, program(t, name), args...)
	command.Dir, command.Env = dir, env
	// A detached daemon that kept the pipes would keep Wait from returning.
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	began := time.Now()
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("running %s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	o := outcome{
		stdout: stdout.String(), stderr: stderr.String(),
		code: command.ProcessState.ExitCode(), took: time.Since(began),
	}
	checkRaces(t, name, o.stderr)
	return o
}

// mustRun is run for a command that has to succeed.
func (p *project) mustRun(t testing.TB, name string, args ...string) outcome {
	t.Helper()
	o := p.run(t, name, args...)
	if o.code != 0 {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), o)
	}
	return o
}

// ctl runs devproxyctl, which has to succeed, and returns its stdout.
func (p *project) ctl(t testing.TB, args ...string) string {
	t.Helper()
	return p.mustRun(t, "devproxyctl", args...).stdout
}

// startDaemon starts the daemon as a person does.
func (p *project) startDaemon(t testing.TB) {
	t.Helper()
	p.mustRun(t, "devproxyd", "start")
}

// status is what `devproxyctl status --json` says, as far as tests ask.
type status struct {
	Daemon struct {
		Version           string
		PID               number
		ProjectRoot       string
		Socket            string
		LogFile           string
		Instance          string
		EnvironmentOrigin string
		ConfigFile        string
	}
	Backend struct {
		State                string
		Generation           number
		PID                  number
		Port                 number
		ReadyTime            string
		Transport            string
		Command              []string
		ProtocolEra          string
		ProtocolVersion      string
		EnvironmentOverrides map[string]string
		LastExit             *struct {
			Generation number
			Status     string
			Reason     string
			StderrTail []string
		}
		Message       string
		ServerName    string
		ServerVersion string
		Crashes       number
		SharedLink    bool
	}
	Sessions []struct {
		ID              number
		ClientName      string
		ClientVersion   string
		ProtocolEra     string
		ProtocolVersion string
		ShimPID         number
		Stale           string
		Link            string
		InFlight        number
	}
	Build *struct {
		Running bool
		OK      bool
		Message string
		Tail    []string
	}
	BuildWatch *buildWatch
	Watch      struct {
		Paths        []string
		Mode         string
		Files        number
		LastChanged  string
		Entry        string
		Problem      string
		EntryMissing bool
	}
}

// number is an integer of any size.
type number int64

// state returns the backend's state by its short name, such as "running".
func (s status) state() string {
	return strings.ToLower(strings.TrimPrefix(s.Backend.State, "BACKEND_STATE_"))
}

// status asks devproxyctl.
func (p *project) status(t testing.TB) status {
	t.Helper()
	return parseStatus(t, p.ctl(t, "status", "--json"))
}

func parseStatus(t testing.TB, output string) status {
	t.Helper()
	var document struct {
		Version int
		Status  status
	}
	if err := json.Unmarshal([]byte(output), &document); err != nil {
		t.Fatalf("status --json: %v\n%s", err, output)
	}
	if document.Version != 1 {
		t.Fatalf("status --json has version %d, want 1\n%s", document.Version, output)
	}
	return document.Status
}

// awaitDaemon waits until a daemon serves the project.
func (p *project) awaitDaemon(t testing.TB) {
	t.Helper()
	await(t, "the daemon", func() (bool, string) {
		o := p.run(t, "devproxyctl", "status")
		return o.code == 0, o.String()
	})
}

// awaitStatus asks until the answer is as wanted.
func (p *project) awaitStatus(t testing.TB, what string, want func(status) bool) status {
	t.Helper()
	var last status
	await(t, what, func() (bool, string) {
		output := p.ctl(t, "status", "--json")
		last = parseStatus(t, output)
		return want(last), output
	})
	return last
}

// awaitState waits for a state of the backend.
func (p *project) awaitState(t testing.TB, state string) status {
	t.Helper()
	return p.awaitStatus(t, "state "+state, func(s status) bool { return s.state() == state })
}

// stateDir returns where the daemon keeps its files.
func (p *project) stateDir() string { return filepath.Join(p.home, ".local", "state", "devproxy") }

// live returns the processes that belong to this project: every process of a
// test has the project's home in its environment, from the daemon to the last
// grandchild of a backend, and what a daemon starts has the project's hash.
func (p *project) live(t testing.TB) []process {
	t.Helper()
	states, err := filepath.Glob(p.stateDir() + "/*")
	if err != nil {
		t.Fatal(err)
	}
	return processes(t, func(candidate process) bool {
		if candidate.PID == os.Getpid() {
			return false
		}
		if strings.Contains(candidate.Command, p.base) || slices.Contains(candidate.Environ, "HOME="+p.home) {
			return true
		}
		return slices.ContainsFunc(states, func(state string) bool {
			marker := "DEVPROXY_BACKEND=" + filepath.Base(state)
			return slices.ContainsFunc(candidate.Environ, func(pair string) bool { return strings.HasPrefix(pair, marker) })
		})
	})
}

// liveNamed returns those of them whose command line begins with command.
func (p *project) liveNamed(t testing.TB, command string) []process {
	t.Helper()
	return slices.DeleteFunc(p.live(t), func(live process) bool { return !strings.HasPrefix(live.Command, command) })
}

// daemons returns the project's daemon processes.
func (p *project) daemons(t testing.TB) []process {
	t.Helper()
	return p.liveNamed(t, filepath.Join(binDir, "devproxyd"))
}

// end stops the daemon and fails the test for what is left.
func (p *project) end(t testing.TB) {
	t.Helper()
	if t.Failed() {
		p.explain(t)
	}
	if stopped := p.run(t, "devproxyd", "stop", "--project", p.root); stopped.code != 0 && len(p.daemons(t)) > 0 {
		t.Errorf("devproxyd stop: %v", stopped)
	}
	p.checkProcesses(t)
	p.checkFiles(t)
	for _, line := range p.startLines(t) {
		if strings.HasPrefix(line, "overlap") {
			t.Errorf("two backends were alive at once: %s", line)
		}
	}
}

// explain prints what helps to understand a failure.
func (p *project) explain(t testing.TB) {
	t.Helper()
	t.Logf("devproxyctl status: %v", p.run(t, "devproxyctl", "status"))
	for _, live := range p.live(t) {
		t.Logf("process %d: %s", live.PID, live.Command)
	}
	for path, content := range p.stateFiles(t) {
		const tail = 6000
		t.Logf("%s:\n%s", path, content[max(0, len(content)-tail):])
	}
}

// checkProcesses fails the test if a process of the project lives, and ends it
// so that it spoils no other test.
func (p *project) checkProcesses(t testing.TB) {
	t.Helper()
	// A shim may take a moment to see that its client has gone.
	deadline := time.Now().Add(2 * time.Second)
	left := p.live(t)
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
		left = p.live(t)
	}
	for _, live := range left {
		t.Errorf("process %d is left: %s", live.PID, live.Command)
		if err := syscall.Kill(live.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
}

// stateFiles returns the daemon's regular files that hold text.
func (p *project) stateFiles(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{}
	walk(t, p.stateDir(), func(path string, entry fs.DirEntry) {
		if !entry.Type().IsRegular() {
			return
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		files[path] = string(content)
	})
	return files
}

// checkFiles fails the test for a socket or a temporary file that is left, and
// for a data race that a daemon reported.
func (p *project) checkFiles(t testing.TB) {
	t.Helper()
	for _, dir := range []string{p.stateDir(), p.tmp, p.base + "/x"} {
		walk(t, dir, func(path string, entry fs.DirEntry) {
			switch {
			case entry.Type()&fs.ModeSocket != 0:
				t.Errorf("socket %s is left", path)
			case entry.IsDir():
			case dir != p.stateDir() || strings.Contains(entry.Name(), "tmp"):
				t.Errorf("file %s is left", path)
			}
		})
	}
	for path, content := range p.stateFiles(t) {
		checkRaces(t, path, content)
	}
}

// walk visits what is below dir, which need not exist.
func walk(t testing.TB, dir string, visit func(path string, entry fs.DirEntry)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		visit(path, entry)
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// checkRaces fails the test if a program reported a data race.
func checkRaces(t testing.TB, where, output string) {
	t.Helper()
	if strings.Contains(output, "WARNING: DATA RACE") {
		t.Errorf("%s reported a data race:\n%s", where, output)
	}
}
