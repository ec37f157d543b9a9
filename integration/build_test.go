//go:build unix

package integration

import (
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

// noticed is longer than the watcher takes to find a change.
const noticed = time.Second

// terminalBuild is a `devproxyctl build` of a test.
type terminalBuild struct {
	command        *exec.Cmd
	stdout, stderr *lockedBuffer
	ended          chan error
}

// building starts `devproxyctl build` without a terminal, in a session of its own.
func (p *project) building(t *testing.T, args ...string) *terminalBuild {
	t.Helper()
	b := &terminalBuild{
		command: exec.Command(program(t, "devproxyctl"), append([]string{"build"}, args...)...),
		stdout:  &lockedBuffer{}, stderr: &lockedBuffer{}, ended: make(chan error, 1),
	}
	b.command.Dir, b.command.Env = p.root, p.terminalEnv()
	b.command.Stdout, b.command.Stderr = b.stdout, b.stderr
	b.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b.command.WaitDelay = time.Second
	if err := b.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.command.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-b.command.Process.Pid, syscall.SIGKILL) })
	return b
}

// script is a build that says when it has begun, and goes on when it is told to.
func script(before, after string) []string {
	return []string{"--", "sh", "-c", before + "; echo begun; while test ! -e go; do sleep 0.02; done; " + after}
}

func (b *terminalBuild) awaitBegun(t *testing.T) { t.Helper(); awaitText(t, b.stdout, "begun") }

// end waits for the exit code.
func (b *terminalBuild) end(t *testing.T) int {
	t.Helper()
	select {
	case err := <-b.ended:
		b.ended <- err
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatalf("build: %v\n%s", err, b.stderr)
		}
	case <-time.After(patience):
		t.Fatalf("the build does not end\n%s\n%s", b.stdout, b.stderr)
	}
	checkRaces(t, "devproxyctl build", b.stderr.String())
	return b.command.ProcessState.ExitCode()
}

// wantEnd waits for the end with that exit code and these words on stderr.
func (b *terminalBuild) wantEnd(t *testing.T, code int, words ...string) {
	t.Helper()
	if got := b.end(t); got != code {
		t.Errorf("the exit code is %d, want %d\n%s", got, code, b.stderr)
	}
	for _, part := range words {
		if !strings.Contains(b.stderr.String(), part) {
			t.Errorf("stderr lacks %q:\n%s", part, b.stderr)
		}
	}
}

func features(tool string) string {
	return fmt.Sprintf(`printf '{"tools":["%s"]}' > dist/features.json`, tool)
}

// built makes a project with a daemon and a backend that runs.
func newBuiltProject(t *testing.T, more ...string) *project {
	t.Helper()
	p := newProject(t)
	p.rebuild(t, "first")
	p.use(t, backendNamed(t, "go-stdio"), more...)
	p.startDaemon(t)
	p.ctl(t, "start")
	return p
}

// A build in a terminal restarts once, at its end; one that changes nothing, or
// fails, leaves the backend alone, and all who are asked say so.
func TestBuildInATerminal(t *testing.T) {
	t.Parallel()
	p := newBuiltProject(t, "[build]", `command = "sh build.sh"`)
	c := p.client(t, "ts2-auto")
	c.connect(t)

	b := p.building(t, script("rm -r dist; mkdir dist; "+features("half"), features("second")+"; echo done >&2")...)
	b.awaitBegun(t)
	if build := p.status(t).Build; build == nil || !build.Running {
		t.Errorf("while it runs the build is told as %+v", build)
	}
	time.Sleep(noticed)
	p.wantStarts(t, 1)
	p.write(t, "go", "")
	b.wantEnd(t, 0, "done\n", "] running, generation 2")
	p.wantStarts(t, 2)
	if build := p.status(t).Build; build == nil || build.Running || !build.OK {
		t.Errorf("after it the build is told as %+v", build)
	}

	// The same once more.
	same := p.run(t, "devproxyctl", "build", "sh", "-c", features("second"))
	if same.code != 0 || same.stdout != "" || !strings.Contains(same.stderr, "nothing that is watched has changed; running, generation 2") {
		t.Errorf("the same build: %v", same)
	}

	failed := p.run(t, "devproxyctl", "build", "--", "sh", "-c", features("bad")+"; echo wrong; exit 3")
	if failed.code != 3 || failed.stdout != "wrong\n" || !strings.Contains(failed.stderr, "the build failed: exited with status 3; a backend that runs is left alone") {
		t.Errorf("a build that fails: %v", failed)
	}
	time.Sleep(noticed)
	p.wantStarts(t, 2)
	const message = "the build failed: exited with status 3"
	if build := p.status(t).Build; build == nil || build.OK || build.Message != message {
		t.Errorf("after a failed build it is told as %+v", build)
	}
	if page := p.ctl(t, "status"); !strings.Contains(page, message) {
		t.Errorf("the status lacks the failure:\n%s", page)
	}
	if log := p.ctl(t, "logs", "--source", "daemon"); !strings.Contains(log, "build failed") || !strings.Contains(log, "exited with status 3") {
		t.Errorf("the log lacks the failure:\n%s", log)
	}
	if result := c.tool(t, "dev_server_status", nil); !strings.Contains(result.text(), message) {
		t.Errorf("dev_server_status lacks the failure: %s", result.text())
	}

	// The configured command, from anywhere.
	p.write(t, "build.sh", features("third"))
	if o := p.runIn(t, p.base, p.terminalEnv(), "devproxyctl", "build", "--project", p.root); o.code != 0 || !strings.Contains(o.stderr, "generation 3") {
		t.Errorf("the configured build: %v", o)
	}
	p.wantStarts(t, 3)

	// What was built does not start, and is not what it should be.
	if o := p.run(t, "devproxyctl", "build", "--", "sh", "-c", "echo '{' > dist/features.json"); o.code != 1 || !strings.Contains(o.stderr, "failed") {
		t.Errorf("a build that cannot be run: %v", o)
	}
	if o := p.run(t, "devproxyctl", "build", "--", "rm", "dist/features.json"); o.code != 1 || !strings.Contains(o.stderr, "dist/features.json is missing or empty") {
		t.Errorf("a build without the entry file: %v", o)
	}
	// The next good one is started though nothing ran.
	if o := p.run(t, "devproxyctl", "build", "--", "sh", "-c", features("fourth")); o.code != 0 || !strings.Contains(o.stderr, "running") {
		t.Errorf("a good build after that: %v", o)
	}
}

// The command is run whoever is there, and what it says and does is its own.
func TestBuildWithoutADaemon(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	if o := p.run(t, "devproxyctl", "build", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); o.code != 7 ||
		o.stdout != "out\n" || !strings.HasPrefix(o.stderr, "devproxyctl: no daemon runs for "+p.root) || !strings.Contains(o.stderr, "\nerr\n") {
		t.Errorf("without a daemon: %v", o)
	}
	if o := p.run(t, "devproxyctl", "build", "no-such-command"); o.code != 127 || !strings.Contains(o.stderr, `command "no-such-command" not found`) {
		t.Errorf("no command: %v", o)
	}
	p.write(t, "plain.txt", "")
	if o := p.run(t, "devproxyctl", "build", "./plain.txt"); o.code != 126 {
		t.Errorf("no program: %v", o)
	}
	if o := p.run(t, "devproxyctl", "build"); o.code != 2 || !strings.Contains(o.stderr, "[build] command") {
		t.Errorf("no build: %v", o)
	}
	if o := p.run(t, "devproxyctl", "build", "--", "sh", "-c", "kill -9 $$"); o.code != 137 || !strings.Contains(o.stderr, "ended by SIGKILL") {
		t.Errorf("a command that is killed: %v", o)
	}
	if len(p.daemons(t)) > 0 {
		t.Error("a daemon was started")
	}

	// A signal to devproxyctl alone is the command's, who has the last word.
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		b := p.building(t, "--", "sh", "-c", "trap 'echo told; exit 9' TERM INT HUP; echo begun; while :; do sleep 0.02; done")
		b.awaitBegun(t)
		if err := b.command.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		b.wantEnd(t, 9)
		if !strings.Contains(b.stdout.String(), "told") {
			t.Errorf("the command did not get %v", s)
		}
	}
}

// Who is killed in the middle of a build holds nothing back any more.
func TestBuildThatIsKilled(t *testing.T) {
	t.Parallel()
	p := newBuiltProject(t)
	b := p.building(t, script(features("half"), "true")...)
	b.awaitBegun(t)
	time.Sleep(noticed)
	p.wantStarts(t, 1)
	if err := b.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.awaitStarts(t, 2)
	if build := p.status(t).Build; build == nil || build.Running || build.OK || !strings.Contains(build.Message, "is gone") {
		t.Errorf("the build is told as %+v", build)
	}
	p.write(t, "go", "")
}

// Builds that meet end in one restart, which both hear of; a failed one does not
// take away what the other has built.
func TestBuildsThatMeet(t *testing.T) {
	t.Parallel()
	p := newBuiltProject(t)
	long := p.building(t, script("true", "exit 1")...)
	long.awaitBegun(t)
	var short []*terminalBuild
	for range 2 {
		b := p.building(t, "--", "sh", "-c", features("second"))
		short = append(short, b)
		awaitText(t, b.stderr, "another build goes on, and the restart follows its end: sh -c true; echo begun")
	}
	p.wantStarts(t, 1)
	p.write(t, "go", "")
	long.wantEnd(t, 1)
	for _, b := range short {
		b.wantEnd(t, 0, "running, generation 2")
	}
	p.wantStarts(t, 2)
}

// What is a build for a person may be part of another one: it is one build then.
func TestBuildInABuild(t *testing.T) {
	t.Parallel()
	ctl := program(t, "devproxyctl")
	p := newBuiltProject(t, "[build]", fmt.Sprintf("command = %q", ctl+" build -- sh build.sh"))
	p.write(t, "build.sh", features("second"))
	if o := p.mustRun(t, "devproxyctl", "build", "--", ctl, "build"); strings.Count(o.stderr, "running, generation 2") != 1 || strings.Contains(o.stderr, "nothing") {
		t.Errorf("the build says %s", o.stderr)
	}
	p.write(t, "build.sh", features("third")+"; exit 5")
	if o := p.run(t, "devproxyctl", "build", "--", ctl, "build", "sh", "build.sh"); o.code != 5 {
		t.Errorf("a build that fails: %v", o)
	}
	p.write(t, "build.sh", features("third"))
	p.mustRun(t, "devproxyctl", "restart", "--rebuild")
	p.wantStarts(t, 3)

	// A daemon that is started within a build is not part of it, nor is what it runs.
	p.mustRun(t, "devproxyctl", "build", "--", program(t, "devproxyd"), "restart")
	await(t, "the end of the first daemon", func() (bool, string) {
		daemons := p.daemons(t)
		return len(daemons) == 1, fmt.Sprint(daemons)
	})
	if slices.ContainsFunc(p.environment(t), func(pair string) bool { return strings.HasPrefix(pair, "DEVPROXY_BUILDING") }) {
		t.Errorf("the daemon's environment is %v", p.environment(t))
	}

	p.use(t, backendNamed(t, "go-stdio"), "[build]", fmt.Sprintf("command = %q", ctl+" build"))
	if o := p.run(t, "devproxyctl", "build"); o.code != 2 || !strings.Contains(o.stderr, "let it name what to run") {
		t.Errorf("a build that runs itself: %v", o)
	}
}

// A start that a request needs waits for the end of the build; one that somebody
// asks for by name does not, be it from within.
func TestStartsDuringABuild(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.rebuild(t, "first")
	p.use(t, backendNamed(t, "go-stdio"))
	p.startDaemon(t)
	b := p.building(t, script(features("half"), features("whole"))...)
	b.awaitBegun(t)
	c := p.raw(t)
	c.initialize(t)
	c.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`)
	p.awaitStatus(t, "a start that waits", func(s status) bool {
		return strings.Contains(s.Backend.Message, "waits for the end of a build that somebody runs: sh -c")
	})
	p.wantStarts(t, 0)
	p.write(t, "go", "")
	if answer := c.awaitID(t, "1"); !strings.Contains(answer.line, "hi") {
		t.Errorf("the call gave %s", answer.line)
	}
	b.wantEnd(t, 0)
	p.wantStarts(t, 1)

	if o := p.run(t, "devproxyctl", "build", "--", "sh", "-c", features("third")+"; "+program(t, "devproxyctl")+" restart"); o.code != 0 {
		t.Errorf("a restart within a build: %v", o)
	}
	p.wantStarts(t, 2)
}

// The next daemon holds changes back for a build that has begun under the one
// before it.
func TestBuildThroughAHandover(t *testing.T) {
	t.Parallel()
	p := newBuiltProject(t)
	b := p.building(t, script("true", features("half")+"; sleep 1; "+features("second"))...)
	b.awaitBegun(t)
	first := p.status(t).Daemon.PID
	p.mustRun(t, "devproxyd", "restart")
	held := p.awaitStatus(t, "the hold of the next daemon", func(s status) bool { return s.Build != nil && s.Build.Running })
	if held.Daemon.PID == first {
		t.Fatal("it is the same daemon")
	}
	p.ctl(t, "start")
	p.write(t, "go", "")
	b.wantEnd(t, 0, "running, generation 2")
	p.wantStarts(t, 3)

	// Without a next one it ends as the command does.
	if err := os.Remove(filepath.Join(p.root, "go")); err != nil {
		t.Fatal(err)
	}
	b = p.building(t, script("true", "true")...)
	b.awaitBegun(t)
	p.mustRun(t, "devproxyd", "stop")
	p.write(t, "go", "")
	b.wantEnd(t, 0, "the daemon ended during the build")
}

// Ctrl-C during restart --rebuild, or a client's cancel of the tool, ends the
// build, and the backend is left alone.
func TestCancelledRebuild(t *testing.T) {
	t.Parallel()
	p := newBuiltProject(t, "[build]", `command = "echo $$ > building; `+strings.ReplaceAll(features("half"), `"`, `\"`)+`; sleep 1000"`)
	c := p.raw(t)
	c.initialize(t)
	building := filepath.Join(p.root, "building")
	for name, cancel := range map[string]func(t *testing.T) (after func()){
		"Ctrl-C": func(t *testing.T) func() {
			command := exec.Command(program(t, "devproxyctl"), "restart", "--rebuild")
			command.Dir, command.Env = p.root, p.terminalEnv()
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			return func() {
				_ = command.Process.Signal(syscall.SIGINT)
				if _ = command.Wait(); command.ProcessState.ExitCode() != 130 {
					t.Errorf("devproxyctl ended with %v", command.ProcessState)
				}
			}
		},
		"cancelled": func(t *testing.T) func() {
			c.send(t, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"dev_rebuild_and_restart","arguments":{}}}`)
			return func() {
				c.send(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(building)
			after := cancel(t)
			await(t, "the build", func() (bool, string) {
				content, err := os.ReadFile(building)
				return err == nil && strings.HasSuffix(string(content), "\n"), fmt.Sprint(err)
			})
			after()
			s := p.awaitStatus(t, "the end of the build", func(s status) bool { return s.Build != nil && !s.Build.Running })
			if s.Build.OK || !strings.Contains(s.Build.Message, "cancelled by whoever asked for it") {
				t.Errorf("the build is told as %+v", s.Build)
			}
			time.Sleep(noticed)
			p.wantStarts(t, 1)
		})
	}
}

// environment is what the daemon gives to what it runs.
func (p *project) environment(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(p.stateDir() + "/*/environment.json")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return decode[struct{ Variables []string }](t, content).Variables
}

// buildWatch is what status says of the build watcher.
type buildWatch struct {
	Command  string
	PID      number
	Restarts number
	Message  string
	Tail     []string
}

func (p *project) awaitWatcher(t *testing.T, what string, want func(buildWatch) bool) buildWatch {
	t.Helper()
	var last buildWatch
	await(t, what, func() (bool, string) {
		s := p.status(t)
		if s.BuildWatch != nil {
			last = *s.BuildWatch
		} else {
			last = buildWatch{}
		}
		return want(last), fmt.Sprintf("%+v", last)
	})
	return last
}

// The build watcher lives with the daemon: what it builds restarts the backend,
// it is started again when it ends, and nothing is left of it.
func TestBuildWatcher(t *testing.T) {
	t.Parallel()
	const watcher = `echo "watching with $TOKEN"
while :; do
	cmp -s src dist/features.json || { cp src next; mv next dist/features.json; }
	sleep 0.05
done
`
	p := newProject(t)
	p.rebuild(t, "first")
	p.write(t, "src", `{"tools":["first"]}`)
	p.write(t, "watch.sh", watcher)
	p.write(t, ".env", "TOKEN=hush-hush-hush\n")
	configure := func(command string) {
		p.use(t, backendNamed(t, "go-stdio"), `env_file = ".env"`, "[build]", fmt.Sprintf("watch = %q", command))
	}
	configure("sh watch.sh")
	p.startDaemon(t)
	runs := func(w buildWatch) bool { return w.PID != 0 && len(w.Tail) > 0 }
	first := p.awaitWatcher(t, "the watcher", runs)
	if first.Command != "sh watch.sh" || first.Message != "" || first.Restarts != 0 || first.Tail[0] != "watching with ***" {
		t.Errorf("the watcher is told as %+v", first)
	}
	if log := p.ctl(t, "logs", "--source", "build"); !strings.Contains(log, "watching with ***") || strings.Contains(log, "hush") {
		t.Errorf("the log says %s", log)
	}
	p.ctl(t, "start")
	p.write(t, "src", `{"tools":["second"]}`)
	p.awaitStarts(t, 2)
	p.awaitState(t, "running")

	// It ends by itself.
	if err := syscall.Kill(-int(first.PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := p.awaitWatcher(t, "the next watcher", func(w buildWatch) bool { return runs(w) && w.PID != first.PID })
	if second.Restarts != 1 {
		t.Errorf("the next watcher is told as %+v", second)
	}
	if page := p.ctl(t, "status"); !strings.Contains(page, "sh watch.sh") || !strings.Contains(page, fmt.Sprintf("pid %d", second.PID)) {
		t.Errorf("the status lacks the watcher:\n%s", page)
	}

	// Its daemon is killed.
	killDaemon(t, p)
	if !alive(t, int(second.PID)) {
		t.Error("it died with its daemon, so that nothing can be seen here")
	}
	p.startDaemon(t)
	third := p.awaitWatcher(t, "the watcher of the next daemon", runs)
	if alive(t, int(second.PID)) || third.PID == second.PID {
		t.Errorf("the orphan %d lives beside %d", second.PID, third.PID)
	}

	// Its daemon hands over.
	p.mustRun(t, "devproxyd", "restart")
	fourth := p.awaitWatcher(t, "the watcher of the successor", runs)
	if alive(t, int(third.PID)) || fourth.PID == third.PID {
		t.Errorf("%d lives beside %d", third.PID, fourth.PID)
	}

	// Another command, once somebody asks for a restart; and a broken one.
	configure("echo beside; exit 4")
	if now := p.awaitWatcher(t, "the watcher", runs); now.PID != fourth.PID {
		t.Errorf("a saved file alone has changed %+v to %+v", fourth, now)
	}
	p.ctl(t, "restart")
	broken := p.awaitWatcher(t, "a watcher that ends", func(w buildWatch) bool {
		return strings.Contains(w.Message, "exited with status 4; it starts again in")
	})
	if alive(t, int(fourth.PID)) || broken.Command != "echo beside; exit 4" {
		t.Errorf("%d lives beside %+v", fourth.PID, broken)
	}
	c := p.client(t, "go")
	c.connect(t)
	if text := c.tool(t, "dev_server_status", nil).text(); !strings.Contains(text, `"buildWatch"`) || !strings.Contains(text, "exited with status 4") {
		t.Errorf("dev_server_status lacks the watcher: %s", text)
	}
	if log := p.ctl(t, "logs", "--source", "daemon"); !strings.Contains(log, "the build watcher ended") {
		t.Errorf("the log lacks the end of the watcher:\n%s", log)
	}
	configure("sh watch.sh")
	p.ctl(t, "restart")
	p.awaitWatcher(t, "the watcher once more", runs)
	p.use(t, backendNamed(t, "go-stdio"))
	p.ctl(t, "restart")
	p.awaitWatcher(t, "no watcher", func(w buildWatch) bool { return w.Command == "" })
}

// A backend that writes into what is watched restarts itself: it is found out, named
// and slowed down.
func TestFeedbackLoop(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.rebuild(t, "first")
	server := backendNamed(t, "go-stdio").command(t, p)
	p.write(t, "run.sh", "echo x >> dist/server.log\nexec "+strings.Join(server, " ")+"\n")
	p.configure(t, fmt.Sprintf("[backend]\ncommand = [\"sh\", \"run.sh\"]\ntransport = \"stdio\"\nenv = { FIXTURE_STARTS = %q }\n", p.startsFile()))
	p.startDaemon(t)
	p.ctl(t, "start")
	named := p.awaitStatus(t, "the loop is named", func(s status) bool { return s.Watch.Problem != "" })
	for _, words := range []string{"dist/server.log changed right after each of the last", "add the file to ignore in [watch]"} {
		if !strings.Contains(named.Watch.Problem, words) {
			t.Errorf("the problem is %q", named.Watch.Problem)
		}
	}
	starts := p.starts(t)
	time.Sleep(3 * noticed)
	if now := p.starts(t); now > starts+1 {
		t.Errorf("it was restarted %d times more", now-starts)
	}
	if page := p.ctl(t, "status"); !strings.Contains(page, "writes into what is watched") && !strings.Contains(page, "write into what is") {
		t.Errorf("the page lacks the problem:\n%s", page)
	}
}

// What is watched, and what changed last, is told; a file that was only touched, or
// is ignored, is no change; several paths and a link for one are watched alike.
func TestWhatIsWatched(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]string{"events": "0s", "poll": "200ms"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.write(t, "out/one/features.json", `{"tools":["first"]}`)
			if err := os.Symlink("out/one", filepath.Join(p.root, "dist")); err != nil {
				t.Fatal(err)
			}
			p.write(t, "lib/a.js", "1")
			p.use(t, backendNamed(t, "go-stdio"), "[watch]", `paths = ["dist", "lib"]`, fmt.Sprintf("poll = %q", poll))
			p.startDaemon(t)
			p.ctl(t, "start")
			s := p.status(t)
			if strings.Join(s.Watch.Paths, " ") != "dist lib" || s.Watch.Mode != name || s.Watch.Files != 2 || s.Watch.Entry != "dist/features.json" {
				t.Errorf("at first: %+v", s.Watch)
			}
			now := time.Now()
			if err := os.Chtimes(filepath.Join(p.root, "lib/a.js"), now, now); err != nil {
				t.Fatal(err)
			}
			p.write(t, "lib/a.js", "1")
			p.write(t, "lib/a.js.map", "2")
			time.Sleep(noticed)
			p.wantStarts(t, 1)

			p.write(t, "lib/a.js", "2")
			p.awaitStarts(t, 2)
			p.awaitState(t, "running")
			if last := p.status(t).Watch.LastChanged; last != "lib/a.js" {
				t.Errorf("the last change is told as %q", last)
			}

			// The link is pointed elsewhere in one step.
			p.write(t, "out/two/features.json", `{"tools":["second"]}`)
			if err := errors.Join(
				os.Symlink("out/two", filepath.Join(p.root, "next")), os.Rename(filepath.Join(p.root, "next"), filepath.Join(p.root, "dist")),
			); err != nil {
				t.Fatal(err)
			}
			p.awaitStarts(t, 3)
			p.awaitState(t, "running")
			time.Sleep(noticed)
			p.wantStarts(t, 3)
			if page := p.ctl(t, "status"); !strings.Contains(page, "dist, lib: 2 files, by "+name) || !strings.Contains(page, "last change") ||
				!strings.Contains(page, "dist/features.json") {
				t.Errorf("the page is\n%s", page)
			}
		})
	}
}

// The daemon's own build: its output is shown while it runs, without secrets, to
// whoever asked; it ends in time; and those who meet share a restart.
func TestRebuildIsShown(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.rebuild(t, "first")
	p.write(t, ".env", "API_TOKEN=hush-hush-hush\n")
	configure := func(command, timeout string) {
		p.use(t, backendNamed(t, "go-stdio"), `env_file = ".env"`, "[build]", fmt.Sprintf("command = %q\ntimeout = %q", command, timeout))
	}
	configure("echo the token is $API_TOKEN; while test ! -e go; do sleep 0.02; done; exit 2", "1m")
	p.startDaemon(t)
	p.ctl(t, "start")

	type rebuild struct {
		*exec.Cmd
		output *lockedBuffer
	}
	begin := func() rebuild {
		r := rebuild{exec.Command(program(t, "devproxyctl"), "restart", "--rebuild"), &lockedBuffer{}}
		r.Dir, r.Env, r.Stderr = p.root, p.terminalEnv(), r.output
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	failing := begin()
	awaitText(t, failing.output, "the token is ***")
	p.write(t, "go", "")
	if _ = failing.Wait(); failing.ProcessState.ExitCode() != 1 || !strings.Contains(failing.output.String(), "the build failed: exited with status 2") {
		t.Errorf("it ended with %v and %s", failing.ProcessState, failing.output)
	}

	c := p.client(t, "go")
	c.connect(t)
	result := c.tool(t, "dev_rebuild_and_restart", nil)
	if text := result.text(); !result.IsError || !strings.Contains(text, "exited with status 2") || !strings.Contains(text, "the token is ***") {
		t.Errorf("the tool gave %s", text)
	}
	for what, text := range map[string]string{
		"status": p.ctl(t, "status"), "log": p.ctl(t, "logs"), "tool": c.tool(t, "dev_server_status", nil).text(),
	} {
		if !strings.Contains(text, "exited with status 2") || !strings.Contains(text, "the token is ***") || strings.Contains(text, "hush") {
			t.Errorf("the %s says\n%s", what, text)
		}
	}

	configure("sleep 1000", "300ms")
	if o := p.run(t, "devproxyctl", "restart", "--rebuild"); o.code != 1 || !strings.Contains(o.stderr, "not finished after 300ms (build.timeout)") {
		t.Errorf("a build that takes too long: %v", o)
	}
	p.wantStarts(t, 1)
	// The first build goes on until everybody has come.
	configure(features("second")+"; echo x >> builds; while test ! -e come; do sleep 0.02; done", "1m")
	meeting := []rebuild{begin(), begin(), begin()}
	for _, r := range meeting {
		awaitText(t, r.output, "still building")
	}
	p.write(t, "come", "")
	for _, r := range meeting {
		if err := r.Wait(); err != nil {
			t.Errorf("builds that meet: %v, %s", err, r.output)
		}
	}
	if builds, err := os.ReadFile(filepath.Join(p.root, "builds")); err != nil || len(builds) > 2*len("x\n") {
		t.Errorf("there were builds %q, %v", builds, err)
	}
	if starts := p.starts(t); starts > 3 {
		t.Errorf("there were %d starts", starts)
	}
}
