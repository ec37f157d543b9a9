package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// origin is where the backend's environment comes from. It is kept on disk so
// that every daemon that starts by itself gives the backend the same variables
// as the one before; only a start from a terminal replaces it, and a stop
// forgets it.
type origin struct {
	// Terminal tells a person's "devproxyd start" from a client's shim.
	Terminal bool `json:"terminal"`
	PID      int  `json:"pid"`
	// Program is the name of what started it, if that can be told.
	Program string    `json:"program,omitempty"`
	Since   time.Time `json:"since"`
	// Variables are "NAME=value" pairs.
	Variables []string `json:"variables"`
}

// String says in words whose environment it is.
func (o origin) String() string {
	who := "the client that started the daemon first"
	switch {
	case o.Terminal:
		who = "a terminal"
	case o.Program == "devproxyctl":
		who = "a devproxyctl that started the daemon first"
	}
	return fmt.Sprintf("%s, pid %d, %s", who, o.PID, o.Since.Format(time.DateTime))
}

// programName is the name of the program that a process runs; empty if the system
// does not tell.
func programName(pid int) string {
	path, _, _ := strings.Cut(process.CommandLine(pid), " ")
	if path == "" {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(filepath.FromSlash(path)), ".exe")
}

// adoptOrigin returns the environment for this daemon's backend: the kept one
// if the daemon started by itself and one is kept, otherwise the given one,
// which is kept from then on.
func adoptOrigin(file string, given origin, log *slog.Logger) (origin, error) {
	if !given.Terminal {
		if kept, found := readKept[origin](file, log); found {
			return kept, nil
		}
	}
	if err := keep(file, given); err != nil {
		return origin{}, fmt.Errorf("keeping the environment: %w", err)
	}
	return given, nil
}

// adoptTerminalPath returns the PATH of the last start from a terminal, which is
// this one's if it is one. It outlives a stop: a GUI client may be the next to
// start a daemon.
func adoptTerminalPath(file string, given origin, log *slog.Logger) (string, error) {
	if !given.Terminal {
		path, _ := readKept[string](file, log)
		return path, nil
	}
	path := process.SearchPath(given.Variables)
	if err := keep(file, path); err != nil {
		return "", fmt.Errorf("keeping the terminal's PATH: %w", err)
	}
	return path, nil
}

// adoptOverrides returns the overrides of the daemon before, if it is to be
// succeeded by this one: a start from a terminal begins without any.
func adoptOverrides(file string, given origin, log *slog.Logger) (map[string]string, error) {
	if !given.Terminal {
		overrides, _ := readKept[map[string]string](file, log)
		return overrides, nil
	}
	if err := forget(file); err != nil {
		return nil, fmt.Errorf("forgetting the overrides: %w", err)
	}
	return nil, nil //nolint:nilnil // there are none
}

// readKept reads a file that keep wrote. One that cannot be read is as good as
// none: what it kept is a convenience, and must not keep the daemon from starting.
func readKept[T any](file string, log *slog.Logger) (value T, found bool) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false
	}
	var kept T
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	if err != nil {
		log.Warn("ignoring what an earlier daemon kept", "file", file, "error", err)
		return value, false
	}
	return kept, true
}

// keep writes a file of the state folder, readable by its owner alone: what is
// kept there holds secrets.
func keep(file string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return project.WriteFile(file, raw)
}

// forget removes a kept file.
func forget(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// environment is variables by name. Where the system does not tell names apart
// by their case, at most one spelling of each is in it.
type environment map[string]string

// newEnvironment reads "NAME=value" pairs, of which the last one counts.
func newEnvironment(pairs []string) environment {
	e := make(environment, len(pairs))
	for _, pair := range pairs {
		// Windows keeps the directories of its drives in variables such as "=C:".
		for i := 1; i < len(pair); i++ {
			if pair[i] == '=' {
				e.set(pair[:i], pair[i+1:])
				break
			}
		}
	}
	return e
}

func (e environment) set(name, value string) {
	maps.DeleteFunc(e, func(other, _ string) bool { return sameVariable(other, name) })
	e[name] = value
}

// overlay sets all variables of another set.
func (e environment) overlay(variables map[string]string) {
	for name, value := range variables {
		e.set(name, value)
	}
}

func (e environment) pairs() []string {
	pairs := make([]string, 0, len(e))
	for _, name := range slices.Sorted(maps.Keys(e)) {
		pairs = append(pairs, name+"="+e[name])
	}
	return pairs
}

func (e environment) path() string { return process.SearchPath(e.pairs()) }
