package project

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// privateDir is the mode of every folder of ours: nobody else may look in,
	// so nobody can put a socket or a record of his own there.
	privateDir fs.FileMode = 0o700
	// privateFile is the mode of every file of ours.
	privateFile fs.FileMode = 0o600
)

// UnsafeError says why a file or folder is not used: somebody else could have
// made it, or could change it.
type UnsafeError struct {
	// Path is the file or folder.
	Path string
	// Reason says what is wrong with it.
	Reason string
	// Fix says what to do about it.
	Fix string
}

// Error names the path, what is wrong and what to do.
func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s is not safe to use: %s; %s", e.Path, e.Reason, e.Fix)
}

// SocketPathError says that a socket path does not fit the system's limit.
type SocketPathError struct {
	// Path is the path that is too long.
	Path string
	// Limit is how many bytes a path may have.
	Limit int
}

// Error names the path, its length and the limit.
func (e *SocketPathError) Error() string {
	return fmt.Sprintf("socket path %s has %d bytes, this system allows %d; choose a shorter one",
		e.Path, len(e.Path), e.Limit)
}

// Socket returns the absolute path of the socket that the project's daemon is
// to serve: override if it is not empty, else a path in StateDir if it fits
// sun_path, else one in the short folder /tmp/devproxy-<uid>. A daemon that was
// started with another override is found by RecordedSocket.
func (p Project) Socket(override string) (string, error) {
	if override == "" {
		path := filepath.Join(p.StateDir, "daemon.sock")
		if len(path) > maxSocketPath && shortSocketDir() != "" {
			path = filepath.Join(shortSocketDir(), p.Hash+".sock")
		}
		return path, checkLength(path)
	}
	path, err := filepath.Abs(override)
	if err != nil {
		return "", fmt.Errorf("finding the socket %s: %w", override, err)
	}
	return path, checkLength(path)
}

func checkLength(socket string) error {
	if len(socket) > maxSocketPath {
		return &SocketPathError{Path: socket, Limit: maxSocketPath}
	}
	return nil
}

// EnsureDirs makes StateDir and verifies it and the folder above it: ours, mode
// 0700, no symbolic link. The same goes for our files in it, of mode 0600, which
// may come from a time when the folder was another's or open to others. What does
// not hold is an *UnsafeError. It notes Root in RootFile.
func (p Project) EnsureDirs() error {
	base := filepath.Dir(p.StateDir)
	if err := os.MkdirAll(filepath.Dir(base), privateDir); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	for _, dir := range []string{base, p.StateDir} {
		if err := ensurePrivate(dir); err != nil {
			return fmt.Errorf("making the state folder: %w", err)
		}
	}
	for _, path := range p.files() {
		if err := checkFile(path); err != nil {
			return fmt.Errorf("looking at the state folder: %w", err)
		}
	}
	return errors.Join(writeIfChanged(p.RootFile(), p.Root), p.noteFolder())
}

// checkFile verifies that path is a plain file that is ours alone, if it is
// there.
func checkFile(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &UnsafeError{
			Path: path, Reason: "it is " + kind(info.Mode()) + ", not a plain file", Fix: "remove it",
		}
	}
	return verifyPrivate(path, info, privateFile)
}

// EnsureSocketDir makes the folder that socket lies in, unless it is there, and
// verifies it as EnsureDirs does. The folder above it must exist.
func EnsureSocketDir(socket string) error {
	if err := ensurePrivate(filepath.Dir(socket)); err != nil {
		return fmt.Errorf("making the socket's folder: %w", err)
	}
	return nil
}

// ensurePrivate makes dir if it is missing and verifies that it is ours alone.
func ensurePrivate(dir string) error {
	err := os.Mkdir(dir, privateDir)
	switch {
	case err == nil:
		// The umask may have taken away from our own rights.
		if err := os.Chmod(dir, privateDir); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	return checkDir(dir, info)
}

// CheckSocket verifies that path is a socket that this user owns, before it is
// dialled or removed. The error is fs.ErrNotExist if nothing is there, and an
// *UnsafeError if it is something else or somebody else's.
func CheckSocket(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, &UnsafeError{
			Path: path, Reason: "it is " + kind(info.Mode()) + ", not a socket",
			Fix: "move it away or choose another socket path",
		}
	}
	return info, verifyOwner(path, info)
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a plain file"
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a special file"
	}
}

// RecordedSocket returns the path of the socket that the last daemon of the
// project served, or "" if none is recorded. A daemon that was started with a
// socket path of its own is found by this.
func (p Project) RecordedSocket() string {
	return line(p.SocketFile())
}

// RecordSocket notes the path of the socket that the daemon serves.
func (p Project) RecordSocket(socket string) error {
	return writeIfChanged(p.SocketFile(), socket)
}

// writeIfChanged replaces the one-line file path atomically, so that a reader
// sees the old line or the new one. It leaves an equal file alone, so that a
// read-only disk does not matter to a daemon that changes nothing.
func writeIfChanged(path, line string) error {
	content := []byte(line + "\n")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return WriteFile(path, content)
}

// WriteFile replaces the file path with content, atomically and with mode 0600:
// a reader or a crash sees the old content or the new, never a part.
func WriteFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), unfinished(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(privateFile)
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

// unfinished is the pattern of the names under which path is written until it
// is whole.
func unfinished(path string) string { return "." + filepath.Base(path) + "-*" }

// longestWrite is far above what writing one line takes.
const longestWrite = time.Minute

// RemoveUnfinished removes what a daemon left that was killed while it wrote a
// file. The caller holds the lock, so nobody else writes these files; of those
// that every program may write, it leaves what somebody may be at.
func (p Project) RemoveUnfinished() error {
	entries, err := os.ReadDir(p.StateDir)
	if err != nil {
		return fmt.Errorf("looking for unfinished files: %w", err)
	}
	daemons := []string{
		p.PIDFile(), p.SocketFile(), p.Record(), p.BuildWatchRecord(), p.Snapshot(), p.Environment(), p.Overrides(),
		p.TerminalPath(),
	}
	everybodys := []string{p.RootFile(), p.FolderFile()}
	var errs []error
	for _, entry := range entries {
		left := isUnfinished(entry, daemons) || isUnfinished(entry, everybodys) && isOlder(entry, longestWrite)
		if !left {
			continue
		}
		err := os.Remove(filepath.Join(p.StateDir, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing an unfinished file: %w", err))
		}
	}
	return errors.Join(errs...)
}

func isUnfinished(entry fs.DirEntry, of []string) bool {
	return entry.Type().IsRegular() && slices.ContainsFunc(of, func(path string) bool {
		match, err := filepath.Match(unfinished(path), entry.Name())
		return err == nil && match
	})
}

func isOlder(entry fs.DirEntry, age time.Duration) bool {
	info, err := entry.Info()
	return err == nil && time.Since(info.ModTime()) > age
}
