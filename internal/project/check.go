package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Faults returns all that EnsureDirs would object to, as far as it is there, and
// makes nothing: each is an *UnsafeError, or says that something may not be looked
// at.
func (p Project) Faults() []error {
	var faults []error
	for _, dir := range []string{filepath.Dir(p.StateDir), p.StateDir} {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return faults // and nothing is below it
		case err == nil:
			err = checkDir(dir, info)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("looking at the state folder: %w", err))
		}
	}
	for _, path := range p.files() {
		if err := checkFile(path); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

func checkDir(dir string, info fs.FileInfo) error {
	if !info.IsDir() {
		return &UnsafeError{
			Path: dir, Reason: "it is " + kind(info.Mode()) + ", not a folder", Fix: "remove it",
		}
	}
	return verifyPrivate(dir, info, privateDir)
}
