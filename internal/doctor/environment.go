package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// kept is what a project's state folder holds for its daemons.
type kept struct {
	// variables are the backend's environment, nil where none is kept.
	variables []string
	// fromTerminal: a person's start brought it.
	fromTerminal bool
	overrides    map[string]string
	terminalPath string
}

// maxState bounds a file of the state folder: an environment has at most some
// megabytes.
const maxState = 16 << 20

// readKept reads what there is. What cannot be read is as good as not there: so a
// daemon sees it too.
func readKept(p project.Project) kept {
	var k kept
	var origin struct {
		Terminal  bool
		Variables []string
	}
	if readJSON(p.Environment(), &origin) {
		k.variables, k.fromTerminal = origin.Variables, origin.Terminal
	}
	readJSON(p.Overrides(), &k.overrides)
	readJSON(p.TerminalPath(), &k.terminalPath)
	return k
}

func readJSON(path string, into any) bool {
	text, err := readFile(path, maxState)
	return err == nil && json.Unmarshal(text, into) == nil
}

// readFile reads a plain file of at most limit bytes: a pipe that lies there would
// never end.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is no plain file of a size that makes sense", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, limit))
}

// environment is where the backend's programs are looked for.
type environment struct {
	path string
	// whose says in words where the path comes from.
	whose string
}

// environment is the one that a daemon gives the backend: the kept one, or else
// this terminal's, under what the project says.
func (f *facts) environment() environment {
	e := environment{path: process.SearchPath(f.Environ), whose: "this terminal's PATH"}
	if f.kept.variables != nil {
		last := slices.Clone(f.kept.variables)
		slices.Reverse(last) // the last one counts, and SearchPath takes the first
		e.path, e.whose = process.SearchPath(last), "the PATH of the client that started the daemon first"
		if f.kept.fromTerminal {
			e.whose = "the PATH of the terminal that the daemon was started from"
		}
	}
	file, _ := f.config.LoadEnv() // a fault is told by its own check
	for _, layer := range []struct {
		variables map[string]string
		whose     string
	}{{file, "the PATH of env_file"}, {f.config.Backend.Env, "the PATH of env in [backend]"}, {f.kept.overrides, "the PATH of the last restart --env"}} {
		for name, value := range layer.variables {
			if path := process.SearchPath([]string{name + "=" + value}); path != "" {
				e.path, e.whose = path, layer.whose
			}
		}
	}
	return e
}

// secrets are the environments that may hold some.
func (f *facts) secrets() []map[string]string {
	var all []map[string]string
	for _, pairs := range [][]string{f.Environ, f.kept.variables} {
		variables := map[string]string{}
		for _, pair := range pairs {
			if name, value, ok := strings.Cut(pair, "="); ok {
				variables[name] = value
			}
		}
		all = append(all, variables)
	}
	if f.config != nil {
		file, _ := f.config.LoadEnv() // a fault is told by its own check
		all = append(all, file, f.config.Backend.Env)
	}
	return all
}
