//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// screen is a terminal of tmux with a shell in it.
type screen struct {
	project *project
	socket  string
}

// newScreen opens a terminal in the project's folder.
func newScreen(t testing.TB, p *project, columns, lines int) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("this test needs tmux, which .ci/run installs:", err)
		}
		t.Skip("no tmux here, which shows what a terminal shows; on Debian: apt-get install tmux")
	}
	s := &screen{project: p, socket: filepath.Join(p.base, "tmux")}
	s.tmux(t, "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(lines), "/bin/sh")
	t.Cleanup(func() { s.tmux(t, "kill-server") })
	s.enter(t, "PS1=; PATH="+filepath.Dir(program(t, "devproxyctl"))+":$PATH; clear; echo ready")
	s.await(t, "ready")
	return s
}

func (s *screen) tmux(t testing.TB, args ...string) string {
	t.Helper()
	command := exec.Command("tmux", append([]string{"-u", "-S", s.socket, "-f", "/dev/null"}, args...)...)
	command.Dir = s.project.root
	command.Env = append(s.project.terminalEnv(), "TERM=xterm-256color")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// press presses keys, by tmux's names.
func (s *screen) press(t testing.TB, keys ...string) {
	t.Helper()
	s.tmux(t, append([]string{"send-keys"}, keys...)...)
}

// enter types a line.
func (s *screen) enter(t testing.TB, line string) {
	t.Helper()
	s.tmux(t, "send-keys", "-l", line)
	s.press(t, "Enter")
}

// shows is what the terminal shows.
func (s *screen) shows(t testing.TB) string {
	t.Helper()
	return s.tmux(t, "capture-pane", "-p")
}

// await waits until the terminal shows all of these regular expressions.
func (s *screen) await(t testing.TB, patterns ...string) {
	t.Helper()
	await(t, fmt.Sprintf("%q on the terminal", patterns), func() (bool, string) {
		shown := s.shows(t)
		for _, pattern := range patterns {
			if !regexp.MustCompile("(?m)" + pattern).MatchString(shown) {
				return false, shown
			}
		}
		return true, shown
	})
}

// checkSane checks that a program has left the terminal as it found it.
func (s *screen) checkSane(t testing.TB) {
	t.Helper()
	s.enter(t, "clear; stty -a | tr ' ;' '\\n\\n' | grep -c -x -e echo -e icanon -e isig -e opost; echo checked")
	s.await(t, "^checked")
	if got := strings.Fields(s.shows(t)); len(got) != 2 || got[0] != "4" {
		t.Errorf("the terminal is left as\n%s", s.shows(t))
	}
	if flags := strings.TrimSpace(s.tmux(t, "display-message", "-p", "#{alternate_on} #{cursor_flag}")); flags != "0 1" {
		t.Errorf("alternate screen and cursor are %s", flags)
	}
}

func newScreenProject(t *testing.T) *project {
	t.Helper()
	p := newProject(t)
	p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\n", tomlStrings([]string{
		"/bin/sh", "-c", "echo up >&2; exec " + fixture(t, "goserver") + " stdio none.json",
	})))
	p.startDaemon(t)
	p.ctl(t, "start")
	return p
}

// What a person sees who keeps top open while all sorts of things happen.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	p := newScreenProject(t)
	s := newScreen(t, p, 80, 24)
	s.enter(t, "devproxyctl top; echo code $?")
	s.await(t, "^backend  running, generation 1, pid", "^clients  none", "none since this began", "^q quit")

	c := newRawClient(t, p.clientEnv(), program(t, "devproxy-shim"), "--project", p.root)
	c.initialize(t)
	c.echo(t, 7, "hello")
	s.await(t, `^clients  #1 raw `, `^TIME .* OUTCOME`, `#1 raw .* tools/call echo .*  ok$`)

	s.press(t, "r")
	s.await(t, "^backend  running, generation 2, pid", "^ended    #1 .*restart", "^restarted")
	s.tmux(t, "resize-window", "-x", "44", "-y", "14")
	s.await(t, `^..:..:..  echo .* ok$`)
	s.tmux(t, "resize-window", "-x", "100", "-y", "30")
	s.press(t, "l")
	s.await(t, "backend#2  up", "l back$")
	s.press(t, "l", "?")
	s.await(t, "What becomes of a call:")
	s.press(t, "Escape")
	s.await(t, `#1 raw .* tools/call echo .*  ok$`)

	p.mustRun(t, "devproxyd", "restart")
	s.await(t, "^another daemon, pid", "^backend  ")
	p.mustRun(t, "devproxyd", "stop")
	s.await(t, "no daemon$", "^the daemon has ended; waiting for the next one")
	p.startDaemon(t)
	s.await(t, "^another daemon, pid", "^backend  idle")

	s.press(t, "q")
	s.await(t, "^code 0")
	s.checkSane(t)
}

func TestStatusWatchOnATerminal(t *testing.T) {
	t.Parallel()
	p := newScreenProject(t)
	s := newScreen(t, p, 120, 24)
	s.enter(t, "devproxyctl status --watch; echo code $?")
	s.await(t, "^backend  running, generation 1", "^clients  none", "^q quit")
	p.ctl(t, "restart")
	s.await(t, "^backend  running, generation 2", "generation 1 ended .*restart")
	s.tmux(t, "resize-window", "-x", "60", "-y", "8")
	s.await(t, "^↑↓ scroll  q quit")
	s.press(t, "End")
	s.await(t, "^clients  none")
	p.mustRun(t, "devproxyd", "stop")
	s.await(t, "^the daemon has ended; waiting for the next one")
	p.startDaemon(t)
	s.await(t, "^clients  none", "^↑↓ scroll  q quit")
	s.press(t, "C-c")
	s.await(t, "^code 0")
	s.checkSane(t)

	// A signal ends it as well, and leaves the terminal in order.
	s.enter(t, "clear; timeout -s TERM 2 devproxyctl top; echo code $?")
	s.await(t, "^q quit")
	s.await(t, "^code 124")
	s.checkSane(t)
}
