//go:build unix

package project

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// stateBase is the folder that holds the state folders of all projects of this
// user. It is the same on every unix, because it must not depend on anything
// but the home directory.
func stateBase() (string, error) {
	home, err := homeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "devproxy"), nil
}

// homeDir is HOME as given, or the passwd entry where HOME is unset. A relative
// HOME would name another folder in each working directory, so it counts as
// unset.
func homeDir() (string, error) {
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return home, nil
	}
	entry, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "", fmt.Errorf("finding the home directory (HOME is not set): %w", err)
	}
	if !filepath.IsAbs(entry.HomeDir) {
		return "", fmt.Errorf("finding the home directory: HOME is not set and user %s has none",
			entry.Username)
	}
	return entry.HomeDir, nil
}

// shortSocketDir is where the socket goes when the home directory is too deep
// for sun_path. /tmp and not TMPDIR, because clients do not pass TMPDIR on.
func shortSocketDir() string { return "/tmp/devproxy-" + strconv.Itoa(os.Getuid()) }

// verifyPrivate returns an *UnsafeError unless path is ours and closed to
// everybody else, as with that mode.
func verifyPrivate(path string, info fs.FileInfo, want fs.FileMode) error {
	if err := verifyOwner(path, info); err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&^want != 0 || info.IsDir() && mode != want {
		return &UnsafeError{
			Path: path, Reason: fmt.Sprintf("its mode is %#o, not %#o", mode, want),
			Fix: fmt.Sprintf("run chmod %o on it, or remove it", want),
		}
	}
	return nil
}

func verifyOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &UnsafeError{Path: path, Reason: "its owner is unknown", Fix: "remove it"}
	}
	if int(stat.Uid) != os.Getuid() {
		return &UnsafeError{
			Path:   path,
			Reason: fmt.Sprintf("it belongs to uid %d, we are uid %d", stat.Uid, os.Getuid()),
			Fix:    "remove it, or check HOME and the socket path",
		}
	}
	return nil
}

// folderID is what the system calls a folder while it is mounted.
func folderID(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// rename puts the file from in the place of to. Who has to open meanwhile keeps what he has.
func rename(from, to string) error { return os.Rename(from, to) }
