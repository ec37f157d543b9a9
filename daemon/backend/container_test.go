//go:build unix

package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFindRun(t *testing.T) {
	for _, test := range []struct {
		command string
		want    string // the same with the labels; empty if it runs no container
		globals int
	}{
		{"docker run image run", "docker run LABELS image run", 1},
		{"docker run --rm -i --label mine=1 image", "docker run LABELS --rm -i --label mine=1 image", 1},
		{"podman run image", "podman run LABELS image", 1},
		{"/usr/local/bin/docker run image", "/usr/local/bin/docker run LABELS image", 1},
		{"docker.exe run image", "docker.exe run LABELS image", 1},
		{"docker container run image", "docker container run LABELS image", 1},
		{"docker --context run run image", "docker --context run run LABELS image", 3},
		{"docker --context=run container run image", "docker --context=run container run LABELS image", 2},
		{"docker -c x -D -H unix:///x run image", "docker -c x -D -H unix:///x run LABELS image", 6},
		{"docker -Dc x --tlsverify -lerror -Htcp://c run image", "docker -Dc x --tlsverify -lerror -Htcp://c run LABELS image", 6},
		{"podman --remote --url x --log-level error container run image", "podman --remote --url x --log-level error container run LABELS image", 6},
		{"docker", "", 0},
		{"docker --context", "", 0},
		{"docker ps", "", 0},
		{"docker compose run web", "", 0},
		{"docker container ls run", "", 0},
		{"docker start run", "", 0},
		{"docker model run x", "", 0},
		{"node docker run", "", 0},
		{"docker-run run", "", 0},
		{"", "", 0},
	} {
		command := strings.Fields(test.command)
		globals, _, ok := findRun(command)
		if ok != (test.want != "") || ok && globals != test.globals {
			t.Errorf("%q: %v, %d global words; want %d", test.command, ok, globals, test.globals)
		}
		if !ok {
			test.want = test.command
		}
		want := strings.ReplaceAll(test.want, "LABELS", "--label devproxy.project=p --label devproxy.backend=p:3")
		if got := strings.Join(labelled(command, "p", "p:3"), " "); got != want {
			t.Errorf("%q became %q, want %q", test.command, got, want)
		}
		if got := strings.Join(command, " "); got != test.command {
			t.Errorf("%q itself was changed to %q", test.command, got)
		}
	}
}

func TestOurLabelsAreOurs(t *testing.T) {
	for command, refused := range map[string]bool{
		"docker run --label a=devproxy.project image":                                     false,
		"docker run --label devproxy.projects=1 -l devproxy=2 --label=devproxy.x=3 image": false,
		"docker run image devproxy.project=x":                                             false,
		"docker run --label devproxy.project=x image":                                     true,
		"docker run --label devproxy.backend image":                                       true,
		"docker run -i -l devproxy.project=x image":                                       true,
		"docker run --label a=b --label=devproxy.backend=x:1 image":                       true,
	} {
		err := checkLabels(strings.Fields(command))
		f, ok := errors.AsType[*Failure](err)
		if refused != (err != nil) || refused && (!ok || f.Reason != ConfigInvalid) {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestWhatAContainerPublishes(t *testing.T) {
	for _, test := range []struct {
		inspected, address string
		want               bool
	}{
		{`{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"3001"}]}`, "127.0.0.1:3001", true},
		{`{"8080/tcp":[{"HostIp":"0.0.0.0","HostPort":"3001"},{"HostIp":"::","HostPort":"3001"}]}`, "127.0.0.1:3001", true},
		{`{"8080/tcp":[{"HostIp":"","HostPort":"3001"}]}`, "[::1]:3001", true},
		{`{"80/tcp":null,"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"3002"},{"HostIp":"127.0.0.1","HostPort":"3001"}]}`, "127.0.0.1:3001", true},
		{`{"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"3001"}]}`, "[::1]:3001", false},
		{`{"8080/tcp":[{"HostIp":"10.0.0.1","HostPort":"3001"}]}`, "127.0.0.1:3001", false},
		{`{"8080/udp":[{"HostIp":"127.0.0.1","HostPort":"3001"}]}`, "127.0.0.1:3001", false},
		{`{"3001/tcp":[{"HostIp":"127.0.0.1","HostPort":"30010"}]}`, "127.0.0.1:3001", false},
		{`{"3001/tcp":null}`, "127.0.0.1:3001", false},
		{`null`, "127.0.0.1:3001", false},
	} {
		var c container
		text := `{"Id":"x","State":{"Pid":7,"Running":true},"HostConfig":{"NetworkMode":"bridge"},"NetworkSettings":{"Ports":` + test.inspected + `}}`
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if got := c.serves(netip.MustParseAddrPort(test.address)); got != test.want {
			t.Errorf("%s serves %s: %v", test.inspected, test.address, got)
		}
		c.State.Pid = 0
		if c.serves(netip.MustParseAddrPort(test.address)) {
			t.Errorf("%s serves %s after its end", test.inspected, test.address)
		}
	}
}

// On the network of the host the container itself listens, or what descends from
// its first process.
func TestWhoServesOnTheHostsNetwork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("who listens is not told here")
	}
	l, _ := mustListen(t, "tcp", "127.0.0.1:0")
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	const nobody = 1 << 30 // more than the system has: a process of another machine
	for pid, want := range map[int]bool{os.Getpid(): true, os.Getppid(): true, nobody: true, other.Process.Pid: false, 0: false} {
		c := container{}
		c.State.Pid, c.HostConfig.NetworkMode = pid, "host"
		if got := c.serves(addressOf(l.Addr().String())); got != want {
			t.Errorf("pid %d serves: %v", pid, got)
		}
		c.HostConfig.NetworkMode = "bridge"
		if c.serves(addressOf(l.Addr().String())) {
			t.Errorf("pid %d serves on a network of its own", pid)
		}
	}
}

// dock is a container engine of a test. There is none at hand, so its CLI is
// testdata/docker, which does what the documentation of docker and podman says
// of the few commands and options that are needed here; see there for what it
// does not do.
type dock struct {
	t       *testing.T
	dir     string // the engine's state
	program string // the CLI
}

var (
	dockerDir   string
	buildDocker = sync.OnceValue(func() error {
		var err error
		if dockerDir, err = os.MkdirTemp("", "docker"); err != nil {
			return err
		}
		build := exec.Command("go", "build", "-o", dockerDir, "./testdata/docker")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building testdata/docker: %w\n%s", err, output)
		}
		return nil
	})
)

func removeDocker() {
	if dockerDir != "" {
		_ = os.RemoveAll(dockerDir)
	}
}

// newDock makes an engine whose CLI has that name. Its one image is called
// server, and is what selfAs starts.
func newDock(t *testing.T, name string) *dock {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program")
	}
	if err := buildDocker(); err != nil {
		t.Fatal(err)
	}
	d := &dock{t: t, dir: t.TempDir(), program: filepath.Join(t.TempDir(), name)}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"containers", "faults", "images"} {
		if err := os.Mkdir(filepath.Join(d.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Symlink(filepath.Join(dockerDir, "docker"), d.program),
		os.Symlink(self, filepath.Join(d.dir, "images", "server")),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("calls of the engine:\n%s", strings.Join(d.calls(), "\n"))
		}
		if left := d.containers(); len(left) > 0 {
			t.Errorf("containers left: %v", left)
			d.remove(left...)
		}
	})
	return d
}

// launch runs the server in a container, in a role and with tricks. options come
// after run.
func (d *dock) launch(role string, options []string, tricks ...string) Launch {
	l := selfAs(role, tricks...)
	l.Path, l.Command = d.program, append([]string{filepath.Base(d.program), "run"}, options...)
	for _, variable := range l.Env[1:] {
		l.Command = append(l.Command, "-e", variable)
	}
	if l.Transport != Stdio {
		l.Command = append(l.Command, "-p", "127.0.0.1:{port}:8080", "--env", "PORT=8080")
	}
	l.Command = append(l.Command, "server")
	l.Env = []string{l.Env[0], "DOCKER_HOST=unix://" + d.dir}
	return l
}

// cli runs the CLI as a person would, whatever became of the backend's.
func (d *dock) cli(args ...string) (string, error) {
	command := exec.Command(filepath.Join(dockerDir, "docker"), args...)
	command.Env = []string{"DOCKER_HOST=unix://" + d.dir}
	output, err := command.CombinedOutput()
	return string(output), err
}

func (d *dock) remove(ids ...string) {
	d.t.Helper()
	d.fault("rm", "")
	if output, err := d.cli(append([]string{"rm", "-f"}, ids...)...); err != nil {
		d.t.Errorf("%v: %s", err, output)
	}
}

// containers returns the ids of all containers, without asking the engine.
func (d *dock) containers() []string {
	entries, _ := os.ReadDir(filepath.Join(d.dir, "containers"))
	var ids []string
	for _, entry := range entries {
		if id := entry.Name(); !strings.HasSuffix(id, "~") {
			ids = append(ids, id[:12])
		}
	}
	return ids
}

// fault makes a command of the CLI misbehave; "" ends that.
func (d *dock) fault(command, how string) {
	d.t.Helper()
	path := filepath.Join(d.dir, "faults", command)
	err := os.WriteFile(path, []byte(how), 0o600)
	if how == "" {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.t.Fatal(err)
	}
}

// calls returns the CLI's calls so far.
func (d *dock) calls() []string {
	content, _ := os.ReadFile(filepath.Join(d.dir, "calls"))
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// called returns those of a command, which follows the words before.
func (d *dock) called(before string) []string {
	return slices.DeleteFunc(d.calls(), func(call string) bool { return !strings.HasPrefix(call, before+" ") })
}

// noOverlap checks that no two containers of a project were there at once.
func (d *dock) noOverlap() {
	d.t.Helper()
	if overlaps := d.called("overlap"); len(overlaps) > 0 {
		d.t.Errorf("two at once: %v", overlaps)
	}
}

// bystander starts a container that is none of ours, and checks in the end that
// it was left alone.
func (d *dock) bystander(options ...string) {
	d.t.Helper()
	args := slices.Concat([]string{"run"}, options, []string{"-e", roleVariable + "=stdio", "-e", tricksVariable + "=deaf hang", "server"})
	command := exec.Command(d.program, args...)
	command.Env = []string{"DOCKER_HOST=unix://" + d.dir}
	if err := command.Start(); err != nil {
		d.t.Fatal(err)
	}
	var id string
	for deadline := time.Now().Add(longEnough); id == "" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ids := d.containers(); len(ids) > 0 {
			id = ids[0]
		}
	}
	d.t.Cleanup(func() {
		if !slices.Contains(d.containers(), id) {
			d.t.Errorf("the bystander %q is gone", id)
		} else {
			d.remove(id)
		}
		_ = command.Wait()
	})
}

func (h *house) mustStop() {
	h.t.Helper()
	if err := h.Stop(h.t.Context(), nil); err != nil {
		h.t.Fatal(err)
	}
}

// failure is why a call fails.
func (h *house) failure(err error, want Reason) *Failure {
	h.t.Helper()
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Reason != want {
		h.t.Fatalf("error = %v, want %s", err, want)
	}
	return f
}

func TestABackendInAContainer(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"http", "stdio"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			d := newDock(t, "docker")
			l := d.launch(role, []string{"-i", "--rm", "--label", "mine=1"})
			h := newHouse(t, l)
			status := h.mustStart()
			// What it was told is what it is told without a daemon; our variables
			// end at the border of the container.
			if env := h.ask(); env["marker"] != "" || env["exit"] != "" || role == "http" && env["PORT"] == "" {
				t.Errorf("the backend sees %v", env)
			}
			if diff := cmp.Diff(l.Command, status.Command); diff != "" {
				t.Errorf("the command shown (-configured +shown):\n%s", diff)
			}
			labels, err := d.cli("ps", "--filter", "label=devproxy.project="+markerOf(t), "--filter", "label=devproxy.backend="+markerOf(t)+":1")
			if err != nil || !strings.Contains(labels, "mine:1") || len(d.called("docker run")) != 1 {
				t.Errorf("by its labels: %q, %v; runs: %q", labels, err, d.called("docker run"))
			}
			if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
				t.Fatal(err)
			}
			h.ask()
			h.mustStop()
			d.noOverlap()
			if e := h.Status().LastExit; role == "stdio" && e.Status != "exited with status 0" {
				t.Errorf("last exit = %+v", e)
			}
			if removals := d.called("docker rm"); role == "stdio" && len(removals) > 0 {
				t.Errorf("--rm alone would have done, but: %q", removals)
			}
		})
	}
}

// The engine's CLI ends, or is killed, and the container goes on: it is removed
// by its label before the next generation starts, and nothing else is.
func TestAContainerThatOutlivesItsCLI(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role, cli string
		options   []string
		tricks    []string
	}{
		"http, without -i":            {"http", "", nil, []string{"no-stdin", "deaf"}},
		"http, a CLI without end":     {"http", "deaf", []string{"--rm"}, []string{"no-stdin"}},
		"stdio, a CLI that ends":      {"stdio", "brittle", []string{"-i", "--name", "me"}, []string{"deaf"}},
		"stdio, without --rm":         {"stdio", "", []string{"-i", "--name", "me"}, nil},
		"stdio, a CLI that is killed": {"stdio", "killed", []string{"-i", "--rm"}, []string{"deaf"}},
		"http, crashed, without --rm": {"http", "crash", []string{"--name", "me"}, []string{"no-stdin"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDock(t, "docker")
			d.bystander("--label", "devproxy.project="+markerOf(t)+"x", "--label", "app=mine")
			d.fault("run", map[string]string{"deaf": "deaf", "brittle": "brittle"}[test.cli])
			l := d.launch(test.role, test.options, test.tricks...)
			l.StopTimeout = 100 * time.Millisecond
			h := newHouse(t, l)
			status := h.mustStart()
			switch test.cli {
			case "killed":
				if err := syscall.Kill(status.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			case "crash":
				for _, id := range d.containers() {
					d.kill(id, markerOf(t))
				}
			default:
				if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			h.awaitGeneration(2)
			h.ask()
			d.noOverlap()
			h.mustStop()
			if removals := d.called("docker rm"); len(removals) == 0 {
				t.Error("nothing was removed by label")
			}
			if left := d.containers(); len(left) != 1 {
				t.Errorf("%d containers are left, want the bystander alone", len(left))
			}
		})
	}
}

// kill ends the process of a container of the project from within.
func (d *dock) kill(id, project string) {
	d.t.Helper()
	output, err := d.cli("inspect", id)
	if err != nil {
		d.t.Fatalf("%v: %s", err, output)
	}
	var found []struct {
		State  struct{ Pid int }
		Config struct{ Labels map[string]string }
	}
	if err := json.Unmarshal([]byte(output), &found); err != nil {
		d.t.Fatal(err)
	}
	if found[0].Config.Labels[projectLabel] == project {
		_ = syscall.Kill(found[0].State.Pid, syscall.SIGKILL)
	}
}

// After the daemon was killed, the next one removes the container that it left,
// before anything starts; with its record at once.
func TestTheContainerOfADeadDaemonIsRemoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role   string
		cliToo bool // the CLI is killed with the daemon
		record bool
		next   func(*dock, Launch) Launch
	}{
		"http":                     {role: "http", cliToo: true, record: true},
		"stdio":                    {role: "stdio", record: true},
		"http, without the record": {role: "http", cliToo: true},
		"a command without a container by now": {role: "stdio", cliToo: true, record: true, next: func(d *dock, l Launch) Launch {
			next := selfAs("stdio")
			next.Env = append(next.Env, l.Env[1])
			return next
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDock(t, "docker")
			port, err := choosePort(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			l := d.launch(test.role, []string{"-i", "--rm"}, "deaf")
			l.Port, l.StopTimeout = port, 200*time.Millisecond
			d.fault("run", "brittle")
			dir, marker := t.TempDir(), markerOf(t)
			pid := killedDaemon(t, dir, marker, l)
			if test.cliToo {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if len(d.containers()) != 1 {
				t.Fatalf("containers: %v", d.containers())
			}
			if !test.record {
				if err := os.Remove(filepath.Join(dir, "backend.json")); err != nil {
					t.Fatal(err)
				}
			}
			next := l
			if test.next != nil {
				next = test.next(d, l)
			}
			h := newHouseIn(t, dir, marker, next)
			if test.record {
				h.awaitOutside("the orphan to be removed", func() bool { return len(d.containers()) == 0 })
			}
			h.mustStart()
			h.ask()
			d.noOverlap()
			if pids := marked(marker); len(pids) != 1 || pids[0] == strconv.Itoa(pid) {
				t.Errorf("processes: %v; the orphan's CLI was %d", pids, pid)
			}
		})
	}
}

// awaitOutside waits for something that the supervisor does not announce.
func (h *house) awaitOutside(what string, is func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(longEnough); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// An engine's program that is gone for good must not keep another command from
// starting.
func TestTheOrphanOfAnEngineThatIsGone(t *testing.T) {
	t.Parallel()
	h := newHouseIn(t, t.TempDir(), markerOf(t), selfAs("stdio"))
	h.mustStart()
	h.mustEnd()
	err := writeRecord(filepath.Join(h.dir, "backend.json"), record{Command: []string{"docker", "run", "x"}, Engine: []string{"/no/such/docker"}})
	if err != nil {
		t.Fatal(err)
	}
	newHouseIn(t, h.dir, markerOf(t), selfAs("stdio")).mustStart()
}

// The CLI that removes is that of the command, with its global options and its
// environment, or it would speak to another engine.
func TestTheSameEngineIsAsked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program string
		globals []string
	}{
		"context":    {"docker", []string{"--debug", "--context", "run"}},
		"connection": {"podman", []string{"--connection=run"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDock(t, test.program)
			if err := os.Symlink(d.dir, filepath.Join(filepath.Dir(d.dir), "run")); err != nil {
				t.Fatal(err)
			}
			l := d.launch("http", []string{"--rm"}, "no-stdin", "deaf")
			l.Command = slices.Concat([]string{d.program}, test.globals, []string{"container"}, l.Command[1:])
			l.Env = []string{l.Env[0], "DOCKER_CONFIG=" + filepath.Dir(d.dir)}
			l.StopTimeout = 100 * time.Millisecond
			h := newHouse(t, l)
			h.mustStart()
			h.mustStop()
			words := strings.Join(slices.Concat([]string{d.program}, test.globals), " ")
			for _, command := range []string{"ps", "inspect", "rm"} {
				if len(d.called(strings.TrimPrefix(words, filepath.Dir(d.program)+"/")+" "+command)) == 0 {
					t.Errorf("no call of %s %s", words, command)
				}
			}
		})
	}
}

// What an engine does not do is told within its time, with what it says and with
// the containers, and is tried again with the next restart or stop.
func TestAnEngineThatFails(t *testing.T) {
	t.Parallel()
	const short = 2 * time.Second
	for name, test := range map[string]struct {
		before, after func(*dock)
		wait          time.Duration
		ids           bool
		message, hint string
	}{
		"listing hangs": {
			before: func(d *dock) { d.fault("ps", "hang") }, after: func(d *dock) { d.fault("ps", "") },
			wait: short, message: "docker ps: no answer within 2s", hint: "`docker ps`",
		},
		"removing is refused": {
			before: func(d *dock) { d.fault("rm", "cannot kill it") }, after: func(d *dock) { d.fault("rm", "") },
			wait: short, ids: true, message: "docker rm: exited with status 1: cannot kill it", hint: "docker rm --force ",
		},
		"its program is gone": {
			before: func(d *dock) { d.move(d.program, d.program+"~") }, after: func(d *dock) { d.move(d.program+"~", d.program) },
			wait: longEnough, message: "no such file or directory", hint: "`docker ps`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDock(t, "docker")
			l := d.launch("stdio", []string{"-i", "--rm"}, "deaf")
			l.StopTimeout = 100 * time.Millisecond
			h := newHouse(t, l)
			h.runner.(*processes).engineWait = test.wait
			h.mustStart()
			id := d.containers()[0]
			test.before(d)
			began := time.Now()
			f := h.failure(h.Stop(t.Context(), nil), Survivors)
			if took := time.Since(began); took > longEnough/2 {
				t.Errorf("told after %v", took)
			}
			if !strings.Contains(f.Message, test.message) || strings.Contains(f.Message, id) != test.ids || !strings.Contains(f.Hint, test.hint) {
				t.Errorf("message = %q\nhint = %q", f.Message, f.Hint)
			}
			if got := h.Status(); got.State != Failed {
				t.Errorf("state = %v", got.State)
			}
			test.after(d)
			if err := h.Restart(t.Context(), RestartOptions{}, nil); err != nil {
				t.Fatal(err)
			}
			d.noOverlap()
			h.ask()
		})
	}
}

func (d *dock) move(from, to string) {
	d.t.Helper()
	if err := os.Rename(from, to); err != nil {
		d.t.Fatal(err)
	}
}

// An engine that cannot be asked whether there is an earlier container starts no
// other one, and says why at once.
func TestAStartWithoutAnEngine(t *testing.T) {
	t.Parallel()
	d := newDock(t, "docker")
	d.fault("ps", "Cannot connect to the Docker daemon")
	h := newHouse(t, d.launch("stdio", []string{"-i", "--rm"}))
	h.runner.(*processes).engineWait = time.Hour
	f := h.failedStart(StartFailed)
	if !strings.Contains(f.Message, "docker ps: exited with status 1: Cannot connect to the Docker daemon") || !strings.Contains(f.Hint, "`docker ps`") {
		t.Errorf("failure = %+v", f)
	}
	if runs := d.called("docker run"); len(runs) > 0 {
		t.Errorf("a container was started: %q", runs)
	}
	d.fault("ps", "")
	h.mustStart()
}

// A stop does not wait for an engine that hangs during the start.
func TestAStopWhileTheEngineHangs(t *testing.T) {
	t.Parallel()
	d := newDock(t, "docker")
	d.fault("ps", "hang")
	h := newHouse(t, d.launch("stdio", []string{"-i", "--rm"}))
	h.runner.(*processes).engineWait = time.Hour
	h.Need(legacyClient)
	h.awaitOutside("docker ps", func() bool { return len(d.called("docker ps")) > 0 })
	h.mustStop()
	h.awaitState(Idle)
}

// An engine removes a container of --rm by itself, and refuses another removal
// meanwhile.
func TestARemovalThatIsInProgressAlready(t *testing.T) {
	t.Parallel()
	d := newDock(t, "docker")
	d.fault("rm", "once Error response from daemon: removal of container x is already in progress")
	l := d.launch("stdio", []string{"-i", "--rm"}, "deaf")
	l.StopTimeout = 100 * time.Millisecond
	h := newHouse(t, l)
	h.mustStart()
	h.mustStop()
	if removals := d.called("docker rm"); len(removals) != 2 {
		t.Errorf("removals: %q", removals)
	}
}

func TestACommandWithOurLabelIsRefused(t *testing.T) {
	t.Parallel()
	d := newDock(t, "docker")
	h := newHouse(t, d.launch("stdio", []string{"-i", "--label", "devproxy.project=mine"}))
	if f := h.failedStart(ConfigInvalid); !strings.Contains(f.Message, "the label devproxy.project") {
		t.Errorf("failure = %+v", f)
	}
}

// Who listens for a container is its engine, or the container itself on the
// network of the host. Anybody else is a stranger.
func TestTheOwnerOfAContainersPort(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("who listens is not told here")
	}
	hostNetwork := []string{"--rm", "--network", "host", "-e", "PORT={port}"}
	for name, test := range map[string]struct {
		options []string
		tricks  []string
		inspect string // its fault
		want    Reason // of the failure; empty if it starts
		message string
	}{
		"on the host's network":                {options: hostNetwork, tricks: []string{"no-stdin"}},
		"on the host's network, below a shell": {options: hostNetwork, tricks: []string{"no-stdin", "child"}},
		"a stranger": {
			options: []string{"--rm", "-p", "127.0.0.1:0:80"}, tricks: []string{"hang"},
			want: PortInUse, message: fmt.Sprintf("was taken by pid %d", os.Getpid()),
		},
		"not to be told": {
			options: []string{"--rm", "-p", "127.0.0.1:{port}:8080", "-e", "PORT=8080"}, tricks: []string{"no-stdin"}, inspect: "oh dear",
			want: StartFailed, message: "docker inspect: exited with status 1: oh dear",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDock(t, "docker")
			d.fault("inspect", test.inspect)
			l := d.launch("http", test.options, test.tricks...)
			l.StopTimeout = 200 * time.Millisecond
			// The way that launch publishes the port is not wanted here.
			l.Command = slices.Delete(l.Command, len(l.Command)-5, len(l.Command)-1)
			h := newHouse(t, l)
			if test.want == "" {
				h.mustStart()
				h.ask()
				return
			}
			started := make(chan error, 1)
			go func() { started <- h.Start(t.Context(), nil) }()
			if test.want == PortInUse {
				status := h.await("spawned", func(s Status) bool { return s.PID != 0 })
				mustListen(t, "tcp", fmt.Sprintf("127.0.0.1:%d", status.Port))
			}
			if f := h.failure(<-started, test.want); !strings.Contains(f.Message, test.message) {
				t.Errorf("message = %q", f.Message)
			}
		})
	}
}
