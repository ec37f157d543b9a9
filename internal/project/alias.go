package project

import (
	"os"
	"path/filepath"
	"strings"
)

// known returns the project that the folder at the canonical path root is: the
// one of that path, unless the folder was used at another one before. A bind
// mount shows a folder at two paths, neither of which leads to the other.
func known(root string) (Project, error) {
	p, err := fromCanonical(root)
	if err != nil {
		return Project{}, err
	}
	if _, err := os.Lstat(p.RootFile()); err == nil {
		return p, nil
	}
	info, err := os.Stat(root)
	if err != nil {
		return p, nil //nolint:nilerr // one that has gone meanwhile is told by whoever uses it
	}
	id := folderID(info)
	base := filepath.Dir(p.StateDir)
	states, err := os.ReadDir(base)
	if id == "" || err != nil {
		return p, nil //nolint:nilerr // there is no state yet
	}
	for _, state := range states {
		// What the system calls a folder changes with a restart of it; and the path
		// of any other project may be one on a disk that does not answer.
		if line(filepath.Join(base, state.Name(), folderName)) != id {
			continue
		}
		other := line(filepath.Join(base, state.Name(), rootName))
		if there, err := os.Stat(other); err == nil && os.SameFile(info, there) {
			return fromCanonical(other)
		}
	}
	return p, nil
}

// line returns what a file of one line holds; empty if it cannot be read.
func line(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(content), "\n")
}

// noteFolder notes which folder Root is at the moment, for known.
func (p Project) noteFolder() error {
	info, err := os.Stat(p.Root)
	if err != nil {
		return nil //nolint:nilerr // a project that was removed is no other one
	}
	if id := folderID(info); id != "" {
		return writeIfChanged(p.FolderFile(), id)
	}
	return nil
}
