package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
)

// launcher says how to start the next generation. The configuration is read
// anew for each, so that a person who corrects [backend] or [build] needs no
// new daemon; the other sections are those the daemon started with.
type launcher struct {
	root          string
	overridesFile string
	environment   environment
	// terminalPath is the PATH of the last start from a terminal, for commands
	// that a GUI client's short PATH does not have. Empty if there was none.
	terminalPath string
	log          *slog.Logger

	mu        sync.Mutex
	config    *config.Config    // the last one without a fault
	overrides map[string]string // the set of dev_restart and "devproxyctl restart --env"
	masker    *logs.Masker      // knows the secrets of the environment below
}

func newLauncher(c *config.Config, overridesFile string, env environment, terminalPath string, log *slog.Logger) (*launcher, error) {
	overrides, _, err := readJSON[map[string]string](overridesFile)
	if err != nil {
		return nil, fmt.Errorf("reading the kept overrides: %w", err)
	}
	l := &launcher{
		root: c.Root, overridesFile: overridesFile, environment: env, terminalPath: terminalPath, log: log,
		config: c, overrides: overrides,
	}
	l.masker = l.newMasker(nil)
	return l, nil
}

// current returns the configuration of the last start, or the daemon's.
func (l *launcher) current() *config.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

// currentOverrides returns a copy of the set of overrides.
func (l *launcher) currentOverrides() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.overrides)
}

// mask returns what knows the secrets of the backend's environment.
func (l *launcher) mask() *logs.Masker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.masker
}

// check reports whether the configuration as it is now could be used, before a
// restart gives up a backend that runs.
func (l *launcher) check() error {
	c, err := config.Load(l.root)
	if err != nil {
		return err
	}
	_, err = c.LoadEnv()
	return err
}

// setOverrides replaces the set of overrides, on disk too.
func (l *launcher) setOverrides(overrides map[string]string) error {
	if err := writeJSON(l.overridesFile, overrides); err != nil {
		return fmt.Errorf("keeping the overrides: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overrides = maps.Clone(overrides)
	return nil
}

// reload reads the configuration. A fault in it must not take down a backend
// that nobody asked to restart, so the last good one stands in; a restart that
// somebody asks for is refused by check.
func (l *launcher) reload() *config.Config {
	c, err := config.Load(l.root)
	if err != nil {
		l.log.Warn("the configuration is faulty, the last good one is used", "error", err)
		return l.current()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config = c
	return c
}

// launch returns how to start the next generation.
func (l *launcher) launch(context.Context) (backend.Launch, error) {
	c := l.reload()
	env, err := l.variables(c)
	if err != nil {
		return backend.Launch{}, err
	}
	path, err := l.resolve(c, env)
	if err != nil {
		return backend.Launch{}, err
	}
	b := c.Backend
	return backend.Launch{
		Command: b.Command, Path: path, Dir: b.Cwd, Env: pairs(env),
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

// variables returns the backend's environment: the daemon's, then env_file,
// then env, then the overrides.
func (l *launcher) variables(c *config.Config) (map[string]string, error) {
	file, err := c.LoadEnv()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	env := toMap(l.environment.Variables)
	for _, layer := range []map[string]string{file, c.Backend.Env, l.overrides} {
		maps.Copy(env, layer)
	}
	l.masker = l.newMasker(env)
	return env, nil
}

func (l *launcher) newMasker(env map[string]string) *logs.Masker {
	return logs.NewMasker(toMap(l.environment.Variables), env, l.overrides)
}

// resolve finds the command's program in the backend's PATH, else in that of the
// last terminal.
func (l *launcher) resolve(c *config.Config, env map[string]string) (string, error) {
	path, err := process.LookPath(c.Backend.Command[0], env["PATH"], c.Backend.Cwd)
	if err == nil || l.terminalPath == "" {
		return path, err
	}
	path, terminalErr := process.LookPath(c.Backend.Command[0], l.terminalPath, c.Backend.Cwd)
	if terminalErr != nil {
		return "", err
	}
	// A script such as npx looks its interpreter up in the same place.
	env["PATH"] = l.terminalPath
	return path, nil
}

func toMap(variables []string) map[string]string {
	env := make(map[string]string, len(variables))
	for _, pair := range variables {
		// Windows keeps the directories of its drives in variables such as "=C:".
		for i := 1; i < len(pair); i++ {
			if pair[i] == '=' {
				env[pair[:i]] = pair[i+1:]
				break
			}
		}
	}
	return env
}

func pairs(env map[string]string) []string {
	variables := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		variables = append(variables, name+"="+env[name])
	}
	return variables
}
