package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// environment is where the backend's environment comes from. It is kept on disk
// so that every daemon that starts by itself gives the backend the same
// variables as the one before; only a start from a terminal replaces it, and a
// stop forgets it.
type environment struct {
	// Terminal tells a person's "devproxyd start" from a client's shim.
	Terminal bool      `json:"terminal"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
	// Variables are "NAME=value" pairs.
	Variables []string `json:"variables"`
}

// origin says in words whose environment it is.
func (e environment) origin() string {
	who := "the client that started the daemon first"
	if e.Terminal {
		who = "a terminal"
	}
	return fmt.Sprintf("%s, pid %d, %s", who, e.PID, e.Since.Format(time.DateTime))
}

// adoptEnvironment returns the environment for this daemon's backend: the kept
// one if the daemon started by itself and one is kept, otherwise the given one,
// which is kept from then on.
func adoptEnvironment(file string, given environment) (environment, error) {
	if !given.Terminal {
		kept, found, err := readJSON[environment](file)
		if err != nil {
			return environment{}, fmt.Errorf("reading the kept environment: %w", err)
		}
		if found {
			return kept, nil
		}
	}
	if err := writeJSON(file, given); err != nil {
		return environment{}, fmt.Errorf("keeping the environment: %w", err)
	}
	return given, nil
}

// lookup returns the value of a variable in "NAME=value" pairs, where the last
// one counts.
func lookup(variables []string, name string) string {
	value := ""
	for _, pair := range variables {
		if n, v, ok := strings.Cut(pair, "="); ok && n == name {
			value = v
		}
	}
	return value
}

// readJSON reads a file that writeJSON wrote. A file that does not exist is no
// error.
func readJSON[T any](file string) (value T, found bool, err error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false, nil
	}
	if err != nil {
		return value, false, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, false, fmt.Errorf("%s: %w", file, err)
	}
	return value, true, nil
}

// writeJSON replaces a file of the state folder in one step, readable by its
// owner alone: what is kept there holds secrets.
func writeJSON(file string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(raw)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}

// forget removes a kept file.
func forget(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
