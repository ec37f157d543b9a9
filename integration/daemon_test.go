//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start and stop do nothing when there is nothing to do, and say so.
func TestDaemonStartAndStop(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	if o := p.mustRun(t, "devproxyd", "stop"); !strings.Contains(o.stdout+o.stderr, p.root) {
		t.Errorf("stop without a daemon: %v", o)
	}
	p.startDaemon(t)
	first := p.status(t).Daemon.PID
	p.startDaemon(t)
	if second := p.status(t).Daemon.PID; second != first {
		t.Errorf("a second start gave daemon %d, before it was %d", second, first)
	}
	// Another path to the project is the same project.
	link := filepath.Join(p.base, "link")
	if err := os.Symlink(p.root, link); err != nil {
		t.Fatal(err)
	}
	if o := p.mustRun(t, "devproxyctl", "--project", link, "status", "--json"); parseStatus(t, o.stdout).Daemon.PID != first {
		t.Errorf("through a link to the project: %v", o)
	}
	p.ctl(t, "start")
	backend := int(p.status(t).Backend.PID)
	p.mustRun(t, "devproxyd", "stop")
	if alive(t, int(first)) || alive(t, backend) {
		t.Errorf("after stop daemon %d lives: %v, backend %d lives: %v", first, alive(t, int(first)), backend, alive(t, backend))
	}
	p.startDaemon(t)
	if third := p.status(t).Daemon.PID; third == first {
		t.Error("after a stop the same daemon is back")
	}
}

// foreground is a daemon that a test has started in the foreground.
type foreground struct {
	command *exec.Cmd
	output  *lockedBuffer
	ended   chan error
}

// inForeground starts one by the command, and waits until it serves.
func (p *project) inForeground(t *testing.T, command ...string) *foreground {
	t.Helper()
	f := &foreground{command: exec.Command(command[0], command[1:]...), output: &lockedBuffer{}, ended: make(chan error, 1)}
	f.command.Dir, f.command.Env = p.root, p.terminalEnv()
	f.command.Stdout, f.command.Stderr = f.output, f.output
	if err := f.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- f.command.Wait() }()
	t.Cleanup(func() { _ = f.command.Process.Kill() })
	p.awaitDaemon(t)
	return f
}

// awaitEnd waits for the orderly end of one that was sent SIGTERM.
func (f *foreground) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-f.ended:
		if err != nil {
			t.Errorf("run ended with %v\n%s", err, f.output)
		}
	case <-time.After(patience):
		t.Fatalf("run did not end on SIGTERM\n%s", f.output)
	}
	checkRaces(t, "devproxyd run", f.output.String())
}

// run stays in the foreground and stops in an orderly way on a signal.
func TestDaemonInTheForeground(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	daemon := p.inForeground(t, program(t, "devproxyd"), "run")
	p.ctl(t, "start")
	backend := int(p.status(t).Backend.PID)
	// A second one is refused and names the first.
	if o := p.run(t, "devproxyd", "run"); o.code == 0 || !strings.Contains(o.stderr, fmt.Sprint(daemon.command.Process.Pid)) {
		t.Errorf("a second run: %v", o)
	}
	if err := daemon.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	daemon.awaitEnd(t)
	if alive(t, backend) {
		t.Error("the backend outlived its daemon")
	}
}

// run outlives whoever read its log, as in "devproxyd run 2>&1 | tee log" after
// Ctrl-C, which ends tee: it still has the backend to stop.
func TestForegroundDaemonOutlivesItsLogReader(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program(t, "devproxyd"), "run")
	command.Dir, command.Env, command.Stderr = p.root, p.terminalEnv(), writer
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill() })
	if err := errors.Join(writer.Close(), reader.Close()); err != nil {
		t.Fatal(err)
	}
	p.awaitDaemon(t)
	p.ctl(t, "start")
	backend := int(p.status(t).Backend.PID)
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("run did not end on SIGINT")
	}
	if alive(t, backend) {
		t.Error("the backend outlived its daemon")
	}
}

// After a kill -9 of the daemon the next one ends the orphan before it starts
// a generation of its own, and nothing else.
func TestOrphanIsEnded(t *testing.T) {
	for _, name := range []string{"go-http", "ts2-stdio"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.use(t, backendNamed(t, name))
			p.startDaemon(t)
			p.ctl(t, "start")
			first := p.status(t)
			bystander := exec.Command("sleep", "1000")
			if err := bystander.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = bystander.Process.Kill()
				_ = bystander.Wait()
			})
			if err := syscall.Kill(int(first.Daemon.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await(t, "the daemon's end", func() (bool, string) { return !alive(t, int(first.Daemon.PID)), "alive" })
			p.startDaemon(t)
			p.ctl(t, "start")
			second := p.status(t)
			if alive(t, int(first.Backend.PID)) {
				t.Errorf("the orphan %d lives beside %d", first.Backend.PID, second.Backend.PID)
			}
			if !alive(t, bystander.Process.Pid) {
				t.Error("a bystander was killed")
			}
			p.wantStarts(t, 2)
		})
	}
}

// The files of the daemon are its user's alone.
func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.startDaemon(t)
	socket := p.status(t).Daemon.Socket
	for path, want := range map[string]os.FileMode{
		filepath.Dir(socket): os.ModeDir | 0o700,
		socket:               os.ModeSocket | 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	if !strings.HasPrefix(socket, p.stateDir()+"/") {
		t.Errorf("the socket is %s, outside of %s", socket, p.stateDir())
	}
}

// devproxyctl: data on stdout, messages on stderr, and what to do when there
// is nobody to talk to.
func TestCtl(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))

	const noDaemon, usage = 3, 2
	for _, command := range []string{"status", "stop", "logs"} {
		o := p.run(t, "devproxyctl", command)
		if o.code != noDaemon || o.stdout != "" || !strings.Contains(o.stderr, p.root) ||
			!strings.Contains(o.stderr, ".sock") || !strings.Contains(o.stderr, "devproxyd start") {
			t.Errorf("%s without a daemon: %v", command, o)
		}
	}
	if o := p.run(t, "devproxyctl", "stauts"); o.code != usage || o.stderr == "" {
		t.Errorf("a misspelled command: %v", o)
	}
	if o := p.runIn(t, p.base, p.terminalEnv(), "devproxyctl", "status"); o.code != usage || !strings.Contains(o.stderr, "devproxy.toml") {
		t.Errorf("outside of a project: %v", o)
	}

	p.startDaemon(t)
	if human := p.ctl(t, "status"); !strings.Contains(human, "idle") || !strings.Contains(human, p.root) {
		t.Errorf("status says\n%s", human)
	}
	p.ctl(t, "start")
	running := p.status(t)
	if running.state() != "running" || running.Backend.Transport != "stdio" || running.Backend.ServerName != "go-fixture" ||
		running.Backend.ProtocolVersion == "" || running.Backend.ProtocolEra == "" || running.Backend.ReadyTime == "" ||
		running.Daemon.ConfigFile != filepath.Join(p.root, "devproxy.toml") {
		t.Errorf("status is %+v", running)
	}
	p.ctl(t, "start")
	p.wantStarts(t, 1)

	p.ctl(t, "restart", "--env", "MODE=a", "--env", "API_TOKEN=hush")
	changed := p.status(t)
	if changed.Backend.EnvironmentOverrides["MODE"] != "a" || changed.Backend.EnvironmentOverrides["API_TOKEN"] == "hush" ||
		len(changed.Backend.EnvironmentOverrides) != 2 || changed.Backend.Generation != 2 {
		t.Errorf("after restart --env the status is %+v", changed.Backend)
	}
	if o := p.run(t, "devproxyctl", "restart", "--env", "novalue"); o.code != usage {
		t.Errorf("restart --env novalue: %v", o)
	}

	p.ctl(t, "stop")
	if s := p.status(t); s.state() != "idle" || s.Backend.PID != 0 || s.Backend.ProtocolEra != "" {
		t.Errorf("after stop the status is %+v", s.Backend)
	}
	for _, name := range []string{"devproxyd", "devproxyctl", "devproxy-shim"} {
		args := map[bool][]string{true: {"--version"}, false: {"version"}}[name == "devproxy-shim"]
		if o := p.mustRun(t, name, args...); !strings.HasPrefix(o.stdout, name+" ") {
			t.Errorf("%s %v: %v", name, args, o)
		}
	}
}

func TestCtlLogs(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\n", tomlStrings([]string{
		"/bin/sh", "-c", "for i in 1 2 3 4 5; do echo line $i >&2; done; exec " + fixture(t, "goserver") + " stdio none.json",
	})))
	p.startDaemon(t)
	follow := exec.Command(program(t, "devproxyctl"), "logs", "-f", "--source", "backend")
	follow.Dir, follow.Env = p.root, p.terminalEnv()
	followed := &lockedBuffer{}
	follow.Stdout = followed
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = follow.Process.Signal(os.Interrupt)
		_ = follow.Wait()
	})
	p.ctl(t, "start")
	awaitText(t, followed, "line 5")
	p.awaitLog(t, "backend", "line 5", 1)

	if tail := p.ctl(t, "logs", "--source", "backend", "-n", "2"); strings.Count(tail, "\n") != 2 ||
		!strings.Contains(tail, "line 4") || !strings.Contains(tail, "line 5") {
		t.Errorf("logs -n 2 gave\n%s", tail)
	}
	if daemon := p.ctl(t, "logs", "--source", "daemon"); strings.Contains(daemon, "line 5") || daemon == "" {
		t.Errorf("logs --source daemon gave\n%s", daemon)
	}
	var texts []string
	decoder := json.NewDecoder(bytes.NewBufferString(p.ctl(t, "logs", "--source", "backend", "--json")))
	for decoder.More() {
		var entry struct {
			Source, Stream, Text string
			Generation           int
		}
		if err := decoder.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Source != "backend" || entry.Stream != "stderr" || entry.Generation != 1 {
			t.Errorf("entry %+v", entry)
		}
		texts = append(texts, entry.Text)
	}
	if !slices.Equal(texts, []string{"line 1", "line 2", "line 3", "line 4", "line 5"}) {
		t.Errorf("logs --json has %q", texts)
	}
}
