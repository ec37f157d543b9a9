package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// NotFoundError says that a command is no program that can be run. It wraps fs.ErrNotExist or
// fs.ErrPermission.
type NotFoundError struct {
	Name   string // the command as it was given
	File   string // the one file that was looked at, for a name with a slash; else empty
	Search string // the PATH that was searched, for a name without one
	Err    error
}

func (e *NotFoundError) Error() string {
	switch {
	case e.Name == "":
		return "command is empty"
	case e.File != "" && errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("command %q: %s is not an executable file", e.Name, e.File)
	case e.File != "":
		return fmt.Sprintf("command %q not found: there is no %s", e.Name, e.File)
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("command %q found, but not executable; PATH searched: %s", e.Name, e.searched())
	case e.Search == "":
		return fmt.Sprintf("command %q not found: PATH is empty", e.Name)
	default:
		return fmt.Sprintf("command %q not found; PATH searched: %s", e.Name, e.searched())
	}
}

// shownFolders are how many folders of a PATH a line tells.
const shownFolders = 3

// searched is the PATH as one line can hold it.
func (e *NotFoundError) searched() string {
	folders := filepath.SplitList(e.Search)
	if more := len(folders) - shownFolders; more > 1 {
		return fmt.Sprintf("%s and %d more folders", strings.Join(folders[:shownFolders], string(filepath.ListSeparator)), more)
	}
	return e.Search
}

// Advice says what to do about a file that was named by its path and is there, but is
// no program; empty for all else.
func (e *NotFoundError) Advice() string {
	if e.File == "" || !errors.Is(e.Err, fs.ErrPermission) {
		return ""
	}
	if info, err := os.Stat(e.File); err == nil && info.IsDir() {
		return "it is a folder: name a program in it"
	}
	return fmt.Sprintf(makeExecutable, e.File)
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// LookPath finds the program that name means, as an absolute path if dir is one. A name with a
// slash is taken relative to dir; any other is searched in path, the value of PATH, whose
// relative and empty entries are relative to dir too, since that is where the command will run.
// The error is a [*NotFoundError].
func LookPath(name, path, dir string) (string, error) {
	if name == "" {
		return "", &NotFoundError{Err: fs.ErrNotExist}
	}
	if filepath.Base(name) != name {
		file, err := findExecutable(within(dir, name))
		if err != nil {
			return "", &NotFoundError{Name: name, File: within(dir, name), Err: reason(err)}
		}
		return file, nil
	}
	failure := fs.ErrNotExist
	for _, entry := range filepath.SplitList(path) {
		file, err := findExecutable(within(dir, filepath.Join(entry, name)))
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			failure = fs.ErrPermission
		}
	}
	return "", &NotFoundError{Name: name, Search: path, Err: failure}
}

// SearchPath gives the value of PATH in an environment, as a program started with it would see
// it: the first one, whatever its case on Windows, and empty without one.
func SearchPath(env []string) string {
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok && isPathVariable(name) {
			return value
		}
	}
	return ""
}

func within(dir, file string) string {
	if filepath.IsAbs(file) {
		return filepath.Clean(file)
	}
	return filepath.Join(dir, file)
}

// reason leaves two: the file cannot be run, or it is not there.
func reason(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fs.ErrPermission
	}
	return fs.ErrNotExist
}
