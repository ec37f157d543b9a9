package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// All returns the projects of this user that have state, in the order of their
// roots. Their folders are not looked at: one may be on a disk that does not
// answer.
func All() ([]Project, error) {
	base, err := stateBase()
	if err != nil {
		return nil, err
	}
	states, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the projects: %w", err)
	}
	var all []Project
	for _, state := range states {
		// What is not where it belongs is not ours, or another's copy of it.
		p, err := fromCanonical(line(filepath.Join(base, state.Name(), rootName)))
		if err == nil && p.Hash == state.Name() {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Project) int { return strings.Compare(a.Root, b.Root) })
	return all, nil
}
