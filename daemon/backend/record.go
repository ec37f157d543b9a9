package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/debugmcp/devproxy/internal/process"
)

// record is what a later daemon must know to end the process if this one dies.
// It is on disk before the first instruction of the command runs.
type record struct {
	Process    process.Identity `json:"process"`
	Generation uint64           `json:"generation"`
	Command    []string         `json:"command"`
	StartedAt  time.Time        `json:"started_at"`
	// Engine is the program of the container engine with its global options;
	// empty if the command runs no container.
	Engine []string `json:"engine,omitempty"`
}

func writeRecord(path string, r record) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("encoding the backend's record: %w", err)
	}
	return replaceFile(path, append(content, '\n'))
}

// readRecord returns the record, and whether there is one.
func readRecord(path string) (record, bool, error) {
	content, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return record{}, false, nil
	case err != nil:
		return record{}, false, fmt.Errorf("reading the backend's record: %w", err)
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, false, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, true, nil
}

func removeRecord(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the backend's record: %w", err)
	}
	return nil
}
