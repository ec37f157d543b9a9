//go:build unix

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// newProject returns a project with that configuration and a home of its own.
func newProject(t *testing.T, toml string) project.Project {
	t.Helper()
	base, err := os.MkdirTemp("", "daemon") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	t.Setenv("HOME", base)
	root := filepath.Join(base, "project")
	if err := os.MkdirAll(filepath.Join(root, "dist"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := project.At(root)
	if err == nil {
		err = p.EnsureDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.Config(), toml)
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

const plain = "[backend]\ncommand = [\"server\"]\ntransport = \"stdio\"\n"

func launcherOf(t *testing.T, p project.Project, given origin) *launcher {
	t.Helper()
	c, err := config.Load(p.Root)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLauncher(c, p, given, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func terminal(variables ...string) origin {
	return origin{Terminal: true, PID: 1, Variables: variables, Since: time.Unix(1, 0)}
}

func shim(variables ...string) origin {
	return origin{PID: 2, Variables: variables, Since: time.Unix(2, 0)}
}

// Who starts a daemon decides whose environment and overrides the backend gets.
func TestAdoption(t *testing.T) {
	type want struct{ variable, override, path string }
	p := newProject(t, plain)
	start := func(given origin, w want) {
		t.Helper()
		l := launcherOf(t, p, given)
		got := want{newEnvironment(l.origin.Variables)["A"], l.currentOverrides()["O"], l.terminalPath}
		if got != w {
			t.Errorf("started by %v: %+v, want %+v", given, got, w)
		}
	}
	start(shim("A=shim", "PATH=/short"), want{variable: "shim"})
	start(shim("A=another shim"), want{variable: "shim"})
	start(terminal("A=terminal", "PATH=/long"), want{"terminal", "", "/long"})
	if err := launcherOf(t, p, shim()).setOverrides(map[string]string{"O": "1"}); err != nil {
		t.Fatal(err)
	}
	start(shim("A=shim", "PATH=/short"), want{"terminal", "1", "/long"})
	start(terminal("A=terminal again", "PATH=/longer"), want{"terminal again", "", "/longer"})
	start(shim(), want{"terminal again", "", "/longer"})
	for _, file := range []string{p.Environment(), p.TerminalPath()} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", file, info, err)
		}
	}
	// A stop forgets what belongs to a start.
	if err := errors.Join(forget(p.Environment()), forget(p.Overrides())); err != nil {
		t.Fatal(err)
	}
	start(shim("A=shim", "PATH=/short"), want{"shim", "", "/longer"})
}

// What an earlier daemon kept and cannot be read is as good as nothing, and said.
func TestUnreadableKeptFiles(t *testing.T) {
	p := newProject(t, plain)
	write(t, p.Environment(), "{not json")
	write(t, p.Overrides(), `["no", "map"]`)
	if err := os.Mkdir(p.TerminalPath(), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(p.Root)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l, err := newLauncher(c, p, shim("A=1"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.currentOverrides()) != 0 || l.terminalPath != "" || !slices.Equal(l.origin.Variables, []string{"A=1"}) {
		t.Errorf("overrides %v, PATH %q, origin %v", l.currentOverrides(), l.terminalPath, l.origin)
	}
	for _, file := range []string{p.Environment(), p.Overrides(), p.TerminalPath()} {
		if !strings.Contains(log.String(), file) {
			t.Errorf("the log does not name %s:\n%s", file, log.String())
		}
	}
}

func TestEnvironmentLayers(t *testing.T) {
	p := newProject(t, plain+"env = { B = \"env\", C = \"env\", D = \"env\" }\nenv_file = \".env\"\n")
	write(t, filepath.Join(p.Root, ".env"), "C=file\nB=file\nE=file\n")
	l := launcherOf(t, p, shim("A=daemon", "B=daemon", "E=daemon", "A=last one", "=C:=C:\\dir", "no pair"))
	if err := l.setOverrides(map[string]string{"D": "override"}); err != nil {
		t.Fatal(err)
	}
	c, _ := l.current()
	env, own, err := l.environment(c)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(own); !slices.Equal(slices.Compact(own), []string{"B", "C", "D", "E"}) {
		t.Errorf("written for the backend are %v", own)
	}
	want := environment{"A": "last one", "B": "env", "C": "env", "D": "override", "E": "file", "=C:": `C:\dir`}
	if !maps.Equal(env, want) {
		t.Errorf("environment = %v, want %v", env, want)
	}
	if got := env.pairs(); !slices.IsSorted(got) || len(got) != len(want) || !slices.Contains(got, "D=override") {
		t.Errorf("pairs = %v", got)
	}
	write(t, filepath.Join(p.Root, ".env"), "C='never closed\n")
	if _, _, err := l.environment(c); err == nil || !strings.Contains(err.Error(), ".env") {
		t.Errorf("a faulty env_file gives %v", err)
	}
}

// A secret stays hidden as long as a line with it may be shown, also once the
// override that brought it is gone.
func TestSecretsStayHidden(t *testing.T) {
	p := newProject(t, plain)
	l := launcherOf(t, p, shim("DAEMON_TOKEN=of-the-daemon"))
	environ := func() {
		t.Helper()
		c, _ := l.current()
		if _, _, err := l.environment(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.setOverrides(map[string]string{"MY_SECRET": "of-the-override"}); err != nil {
		t.Fatal(err)
	}
	const line = "of-the-daemon of-the-override"
	if got := l.mask().Mask(line); got != "*** ***" {
		t.Errorf("before the next start a line reads %q", got)
	}
	environ()
	if err := l.setOverrides(map[string]string{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxPast {
		environ()
		if i < maxPast/2 {
			if err := l.setOverrides(map[string]string{"N_TOKEN": fmt.Sprintf("token-number-%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(l.past) > maxPast {
		t.Errorf("%d environments are kept", len(l.past))
	}
	if got := l.mask().Mask("of-the-daemon token-number-31"); got != "*** ***" {
		t.Errorf("after many starts a line reads %q", got)
	}
}

func TestFaultyConfiguration(t *testing.T) {
	p := newProject(t, plain)
	l := launcherOf(t, p, shim("PATH=/bin"))
	write(t, p.Config(), "[backend]\ncommand = [\"sh\"]\ntransport = \"stdio\"\nprot = 1\n")
	if _, err := l.check(); err == nil || !strings.Contains(err.Error(), "devproxy.toml:4") {
		t.Errorf("check = %v, want the line", err)
	}
	if c := l.reload(); c.Backend.Command[0] != "server" {
		t.Errorf("the last good configuration is not used, but %v", c.Backend.Command)
	}
	if _, fault := l.current(); !strings.Contains(fault, "devproxy.toml:4") {
		t.Errorf("the fault is %q", fault)
	}
	write(t, p.Config(), "[backend]\ncommand = [\"sh\"]\ntransport = \"stdio\"\n")
	launch, err := l.launch(t.Context())
	if _, fault := l.current(); err != nil || fault != "" || launch.Path != "/bin/sh" {
		t.Errorf("after the correction: %+v, fault %q, %v", launch, fault, err)
	}
	// What the daemon reads once is not in force, and nobody has to guess it.
	write(t, p.Config(), "[backend]\ncommand = [\"sh\"]\ntransport = \"stdio\"\n[watch]\nsettle = \"7s\"\n[proxy]\nfront = \"legacy\"\n")
	l.reload()
	if _, notice := l.current(); !strings.HasPrefix(notice, "[watch] and [proxy] of devproxy.toml changed") || !strings.Contains(notice, "devproxyd restart") {
		t.Errorf("the notice is %q", notice)
	}
	if err := os.Remove(p.Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.check(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("check without a file = %v", err)
	}
	if err := os.RemoveAll(p.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := l.launch(t.Context()); err == nil || !strings.Contains(err.Error(), "working directory") || !strings.Contains(err.Error(), p.Root) {
		t.Errorf("a launch in a project that is gone: %v", err)
	}
}

// A GUI client's PATH is short; the terminal's is there for what it lacks.
func TestTerminalPath(t *testing.T) {
	p := newProject(t, plain)
	bin := filepath.Join(filepath.Dir(p.Root), "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(bin, "server")
	if err := os.WriteFile(server, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := launcherOf(t, p, shim("PATH=/nowhere"))
	missing, ok := errors.AsType[*process.NotFoundError](launchError(t, l))
	if !ok || missing.Search != "/nowhere" {
		t.Errorf("without a terminal: %v", missing)
	}
	launcherOf(t, p, terminal("PATH="+bin))
	if err := forget(p.Environment()); err != nil {
		t.Fatal(err)
	}
	write(t, p.Config(), plain+"[build]\ncommand = \"make\"\n")
	l = launcherOf(t, p, shim("PATH=/nowhere"))
	launch, err := l.launch(t.Context())
	if err != nil || launch.Path != server || process.SearchPath(launch.Env) != bin {
		t.Errorf("with the PATH of a terminal: %+v, %v", launch, err)
	}
	spec, err := l.build()
	if err != nil || process.SearchPath(spec.Env) != "/nowhere:"+bin || spec.Command != "make" || spec.Marker != p.Hash+":build" {
		t.Errorf("a build: %+v, %v", spec, err)
	}
	// A command that is nowhere is told with the PATH that the backend has.
	if err := os.Remove(server); err != nil {
		t.Fatal(err)
	}
	if missing, ok := errors.AsType[*process.NotFoundError](launchError(t, l)); !ok || missing.Search != "/nowhere" {
		t.Errorf("a command that is nowhere: %v", missing)
	}
}

func launchError(t *testing.T, l *launcher) error {
	t.Helper()
	_, err := l.launch(t.Context())
	if err == nil {
		t.Fatal("the launch succeeded")
	}
	return err
}

func TestNoBuild(t *testing.T) {
	l := launcherOf(t, newProject(t, plain), shim())
	if _, err := l.build(); !errors.Is(err, errNoBuild) {
		t.Errorf("build = %v, want %v", err, errNoBuild)
	}
}

func TestCheckOverrides(t *testing.T) {
	large := strings.Repeat("x", maxOverrides/2)
	for _, bad := range []map[string]string{{"": "x"}, {"A=B": "x"}, {"A\x00": "x"}, {"A": "x\x00y"}, {"A": large, "B": large}} {
		if err := checkOverrides(bad); err == nil {
			t.Errorf("%.100q passes", bad)
		}
	}
	if err := checkOverrides(map[string]string{"A": large, "B": large[2:]}); err != nil {
		t.Errorf("as much as may be gives %v", err)
	}
	if err := checkOverrides(map[string]string{"A": "", "B_C": "= \n"}); err != nil {
		t.Errorf("good ones give %v", err)
	}
}

// It is told who brought the environment, as far as that is known.
func TestOriginInWords(t *testing.T) {
	for want, o := range map[string]origin{
		"a terminal, pid 1,": {Terminal: true, PID: 1, Program: "devproxyd"},
		"the client that started the daemon first, pid 2,":   {PID: 2, Program: "devproxy-shim"},
		"a devproxyctl that started the daemon first, pid 3": {PID: 3, Program: "devproxyctl"},
	} {
		if got := o.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %q, want it to begin with %q", o, got, want)
		}
	}
	if self, _ := os.Executable(); runtime.GOOS == "linux" && programName(os.Getpid()) != filepath.Base(self) {
		t.Errorf("this program is taken for %q, not %q", programName(os.Getpid()), filepath.Base(self))
	}
}
