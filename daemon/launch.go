package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/build"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// maxPast bounds the environments whose secrets are still hidden, the latest
// ones: as many as somebody tries out in a day.
const maxPast = 64

var errNoBuild = errors.New("there is no build command; set [build] command in devproxy.toml")

// launcher says how to start the next generation, and how to build. The
// configuration is read anew for each, so that a person who corrects [backend]
// or [build] needs no new daemon; the other sections are those the daemon
// started with.
type launcher struct {
	root          string
	marker        string
	overridesFile string
	origin        origin
	// terminalPath is the PATH of the last start from a terminal, for commands
	// that a GUI client's short PATH does not have. Empty if there was none.
	terminalPath string
	log          *slog.Logger

	// masker knows the secrets of past. It is asked for by whoever logs, so
	// nothing may be waited for there.
	masker atomic.Pointer[logs.Masker]

	// keeping orders the changes of the overrides on disk and in memory.
	keeping sync.Mutex

	started *config.Config // of the daemon's start

	mu        sync.Mutex
	config    *config.Config    // the last one without a fault
	notice    string            // what of the file is not in force, and why; empty for nothing
	overrides map[string]string // the set of dev_restart and "devproxyctl restart --env"
	// past are the environments that a backend or build was given, the last one
	// at the end. What an earlier one printed is still in the log.
	past []map[string]string
}

// newLauncher adopts what earlier daemons of the project kept, or replaces it.
func newLauncher(c *config.Config, p project.Project, given origin, log *slog.Logger) (*launcher, error) {
	l := &launcher{root: c.Root, marker: p.Hash, overridesFile: p.Overrides(), log: log, started: c, config: c}
	var err error
	if l.terminalPath, err = adoptTerminalPath(p.TerminalPath(), given, log); err != nil {
		return nil, err
	}
	if l.origin, err = adoptOrigin(p.Environment(), given, log); err != nil {
		return nil, err
	}
	if l.overrides, err = adoptOverrides(p.Overrides(), given, log); err != nil {
		return nil, err
	}
	l.remember(newEnvironment(l.origin.Variables))
	l.remember(l.overrides)
	return l, nil
}

// current returns the configuration of the last start, or the daemon's, and
// what a person should know of a file that is not in force as it is.
func (l *launcher) current() (c *config.Config, notice string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config, l.notice
}

// currentOverrides returns a copy of the set of overrides.
func (l *launcher) currentOverrides() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.overrides)
}

// mask returns what knows the secrets of the backend's environment.
func (l *launcher) mask() *logs.Masker { return l.masker.Load() }

// remember has the secrets of an environment hidden from now on. The caller
// holds mu or has the launcher for itself.
func (l *launcher) remember(env map[string]string) {
	if n := len(l.past); n > 0 && (len(env) == 0 || maps.Equal(l.past[n-1], env)) {
		return
	}
	l.past = append(l.past, maps.Clone(env))
	if len(l.past) > maxPast {
		// The first one is the daemon's own, which is there to stay.
		l.past = append(l.past[:1], l.past[2:]...)
	}
	l.masker.Store(logs.NewMasker(l.past...))
}

// check returns the configuration as it is now if it could be used, before a
// person's restart gives up a backend that runs.
func (l *launcher) check() (*config.Config, error) {
	c, err := config.Load(l.root)
	if err != nil {
		return nil, err
	}
	_, err = c.LoadEnv()
	return c, err
}

// setOverrides replaces the set of overrides, on disk too.
func (l *launcher) setOverrides(overrides map[string]string) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	if err := keep(l.overridesFile, overrides); err != nil {
		return fmt.Errorf("keeping the overrides: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overrides = maps.Clone(overrides)
	l.remember(l.overrides)
	return nil
}

// maxOverrides bounds the names and values of one set of overrides, in bytes:
// half of what Linux lets a program have of arguments and environment together.
const maxOverrides = 1 << 20

// checkOverrides reports what no environment can hold.
func checkOverrides(overrides map[string]string) error {
	size := 0
	for name, value := range overrides {
		if size += len(name) + len(value); size > maxOverrides {
			return fmt.Errorf("the overrides have more than %d bytes", maxOverrides)
		}
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%q is no name for an environment variable", name)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("the value of %s must not contain a NUL character", name)
		}
	}
	return nil
}

// reload reads the configuration. A fault in it must not take down a backend
// that nobody asked to restart, so the last good one stands in; a restart that
// somebody asks for is refused by check.
func (l *launcher) reload() *config.Config {
	c, err := config.Load(l.root)
	if err != nil {
		l.log.Warn("the configuration cannot be used, the last good one stands in", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.notice = "the last good configuration is used; the one there is now is faulty:\n" + err.Error()
		return l.config
	}
	l.config, l.notice = c, l.pending(c)
	return c
}

// pending says which sections of the file have changed that the daemon reads at
// its own start only; empty if none.
func (l *launcher) pending(c *config.Config) string {
	var sections []string
	if !reflect.DeepEqual(c.Watch, l.started.Watch) {
		sections = append(sections, "[watch]")
	}
	if c.Proxy != l.started.Proxy {
		sections = append(sections, "[proxy]")
	}
	if len(sections) == 0 {
		return ""
	}
	return strings.Join(sections, " and ") + " of devproxy.toml changed since the daemon started; `devproxyd restart` applies it"
}

// launch returns how to start the next generation.
func (l *launcher) launch(context.Context) (backend.Launch, error) {
	c := l.reload()
	env, own, err := l.environment(c)
	if err != nil {
		return backend.Launch{}, err
	}
	b := c.Backend
	path, err := l.resolve(b, env)
	if err != nil {
		return backend.Launch{}, err
	}
	return backend.Launch{
		Command: b.Command, Path: path, Dir: b.Cwd, Env: env.pairs(), PortIn: own,
		Transport: backend.Transport(b.Transport), Port: b.Port, Endpoint: b.Path, Health: b.Health,
		Era:          choices[b.Era],
		StartTimeout: b.StartTimeout, StopTimeout: b.StopTimeout, DrainTimeout: b.DrainTimeout,
		RestartOnCrash: b.OnCrash == config.RestartOnCrash,
		MaxRequest:     c.Proxy.MaxRequest,
	}, nil
}

var choices = map[config.Era]link.Choice{
	config.EraAuto: link.Auto, config.EraLegacy: link.LegacyOnly, config.EraModern: link.ModernOnly,
}

// build returns how to build.
func (l *launcher) build() (build.Spec, error) {
	c := l.reload()
	if !c.Build.Command.Configured() {
		return build.Spec{}, errNoBuild
	}
	spec, err := l.buildSpec(c, c.Build.Command)
	spec.Timeout, spec.Marker = c.Build.Timeout, l.marker+":build"
	return spec, err
}

// buildWatch returns how to build continuously. Its marker is its own: what a
// build leaves behind is ended with it.
func (l *launcher) buildWatch() (build.Spec, error) {
	c := l.reload()
	if !c.Build.Watch.Configured() {
		return build.Spec{}, build.ErrNoWatcher
	}
	spec, err := l.buildSpec(c, c.Build.Watch)
	spec.Marker = l.marker + ":watch"
	return spec, err
}

// buildSpec is how a command of [build] is run.
func (l *launcher) buildSpec(c *config.Config, command config.Command) (build.Spec, error) {
	env, _, err := l.environment(c)
	if err != nil {
		return build.Spec{}, err
	}
	// What a build script calls is anybody's guess, so the terminal's PATH is
	// there for what the own one does not have.
	switch own := env.path(); {
	case l.terminalPath == "" || l.terminalPath == own:
	case own == "":
		env.set("PATH", l.terminalPath)
	default:
		env.set("PATH", own+string(os.PathListSeparator)+l.terminalPath)
	}
	return build.Spec{Command: command.Script, Argv: command.Argv, Dir: c.Root, Env: env.pairs()}, nil
}

// environment returns the backend's: the daemon's, then env_file, then env, then
// the overrides; and the names of what is not the daemon's.
func (l *launcher) environment(c *config.Config) (env environment, own []string, err error) {
	if env, own, err = l.layered(c, l.currentOverrides()); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(env)
	return env, own, nil
}

// layered is environment with a set of overrides.
func (l *launcher) layered(c *config.Config, overrides map[string]string) (env environment, own []string, err error) {
	file, err := c.LoadEnv()
	if err != nil {
		return nil, nil, err
	}
	env = newEnvironment(l.origin.Variables)
	for _, layer := range []map[string]string{file, c.Backend.Env, overrides} {
		env.overlay(layer)
		own = slices.AppendSeq(own, maps.Keys(layer))
	}
	return env, own, nil
}

// checkProgram reports that the program of the command cannot be run. A nil set of
// overrides stands for the one there is.
func (l *launcher) checkProgram(c *config.Config, overrides map[string]string) error {
	if overrides == nil {
		overrides = l.currentOverrides()
	}
	env, _, err := l.layered(c, overrides)
	if err != nil {
		return err
	}
	_, err = l.resolve(c.Backend, env)
	if missing, ok := errors.AsType[*process.NotFoundError](err); ok && missing.Advice() != "" {
		return fmt.Errorf("%w; %s", err, missing.Advice())
	}
	return err
}

// resolve finds the command's program in the backend's PATH, else in that of the
// last terminal.
func (l *launcher) resolve(b config.Backend, env environment) (string, error) {
	if _, err := os.Stat(b.Cwd); err != nil {
		return "", fmt.Errorf("the working directory ([backend] cwd): %w", err)
	}
	path, err := process.LookPath(b.Command[0], env.path(), b.Cwd)
	if err == nil {
		return path, nil
	}
	if missing, ok := errors.AsType[*process.NotFoundError](err); ok && missing.Search != "" {
		whose := "the project sets"
		if env.path() == newEnvironment(l.origin.Variables).path() {
			whose = "came from " + l.origin.String()
		}
		err = fmt.Errorf("%w (that PATH %s)", err, whose)
	}
	if l.terminalPath == "" {
		return "", err
	}
	path, terminalErr := process.LookPath(b.Command[0], l.terminalPath, b.Cwd)
	if terminalErr != nil {
		return "", err
	}
	// A script such as npx looks its interpreter up in the same place.
	env.set("PATH", l.terminalPath)
	return path, nil
}
