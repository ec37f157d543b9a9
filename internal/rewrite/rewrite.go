// Package rewrite changes text files that belong to somebody else: it keeps a
// backup beside the file, replaces it atomically, keeps its mode and follows
// symbolic links, so that a link into a folder of dotfiles stays one.
//
// It does not keep the owner of a file and its extended attributes, and a hard
// link is left with the old content.
package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// BackupSuffix is added to the name of a file for its backup, and a number
	// from the second backup on.
	BackupSuffix = ".devproxy-backup"
	// maxBackups bounds the backups of one file, each of which differs.
	maxBackups = 100
)

// maxFile bounds what is read: a client's state file has some megabytes after
// a year of use, and nothing that people edit has more.
const maxFile = 64 << 20

// ErrChanged is the error for a file that somebody else changed between Open
// and Write.
var ErrChanged = errors.New("it was changed by somebody else meanwhile; try again")

// File is a text file as it was when it was opened.
type File struct {
	// Path is the file itself, behind symbolic links.
	Path string
	// Exists is false for a file that is yet to be made.
	Exists bool
	// Content is empty if the file does not exist.
	Content []byte

	mode fs.FileMode
}

// Open reads the file that path leads to. That it does not exist is no error;
// that it is no plain file is one.
func Open(path string) (*File, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missing(path)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(target)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no plain file", target)
	}
	content, err := read(target)
	if err != nil {
		return nil, err
	}
	return &File{Path: target, Exists: true, Content: content, mode: info.Mode().Perm()}, nil
}

func missing(path string) (*File, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s is a symbolic link that leads nowhere", path)
	}
	// The folder may be a link.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return &File{Path: path}, nil
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return content, err
}

// Write replaces the file with content, or makes it and the folders above it.
// An existing file keeps its mode, and what it held before is kept in the file
// whose path is returned; a new one has newMode, less the umask. The error is
// ErrChanged if the file is no longer as it was opened.
func (f *File) Write(content []byte, newMode fs.FileMode) (backup string, err error) {
	if err := f.check(); err != nil {
		return "", fmt.Errorf("writing %s: %w", f.Path, err)
	}
	if !f.Exists {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o777); err != nil {
			return "", err
		}
		return "", replace(f.Path, content, newMode, false)
	}
	if backup, err = f.backUp(); err != nil {
		return "", fmt.Errorf("keeping a backup: %w", err)
	}
	return backup, replace(f.Path, content, f.mode, true)
}

// backUp copies what the file held, unless there is such a copy. It never replaces
// an earlier one, which may be all that is left of what a person wrote.
func (f *File) backUp() (string, error) {
	path := f.Path + BackupSuffix
	for n := 2; n <= maxBackups+1; n++ {
		earlier, err := read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, replace(path, f.Content, f.mode, true)
		case err != nil:
			return "", err
		case bytes.Equal(earlier, f.Content):
			return path, nil
		}
		path = fmt.Sprintf("%s%s-%d", f.Path, BackupSuffix, n)
	}
	return "", fmt.Errorf("there are %d of %s already; remove some", maxBackups, f.Path)
}

// Backups are the copies of the file that are there, the oldest first.
func (f *File) Backups() []string {
	var there []string
	path := f.Path + BackupSuffix
	for n := 2; n <= maxBackups+1; n++ {
		if _, err := os.Lstat(path); err != nil {
			break
		}
		there = append(there, path)
		path = fmt.Sprintf("%s%s-%d", f.Path, BackupSuffix, n)
	}
	return there
}

// Remove removes the file, and the folders above it that are empty then, up to the
// folder that is named, which stays. The error is ErrChanged if the file is no longer
// as it was opened.
func (f *File) Remove(upTo string) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("removing %s: %w", f.Path, err)
	}
	if err := os.Remove(f.Path); err != nil {
		return err
	}
	for dir := filepath.Dir(f.Path); ; dir = filepath.Dir(dir) {
		rel, err := filepath.Rel(upTo, dir)
		if err != nil || rel == "." || !filepath.IsLocal(rel) || os.Remove(dir) != nil {
			return nil //nolint:nilerr // what is not empty stays
		}
	}
}

func (f *File) check() error {
	now, err := read(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.Exists:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return ErrChanged
	case err != nil:
		return err
	case !f.Exists || !bytes.Equal(now, f.Content):
		return ErrChanged
	}
	return nil
}

// replace puts a file in the place of path at once: a reader or a crash sees the
// old content or the new, never a part. With exact the mode is as given, whatever
// the umask.
func replace(path string, content []byte, mode fs.FileMode, exact bool) error {
	file, err := create(path, mode)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = file.Write(content)
	if err == nil && exact {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// create makes a file with a new name beside path. Unlike that of os.CreateTemp
// its mode is the one asked for, less the umask.
func create(path string, mode fs.FileMode) (*os.File, error) {
	for attempt := range 1000 {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s-%d-%d", filepath.Base(path), os.Getpid(), attempt))
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
	}
	return nil, fs.ErrExist
}
