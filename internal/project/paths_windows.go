package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// maxSocketPath is the limit of sockaddr_un on Windows: 108 bytes with the NUL.
const maxSocketPath = 107

// stateBase is the folder that holds the state folders of all projects of this
// user.
func stateBase() (string, error) {
	if local := os.Getenv("LOCALAPPDATA"); filepath.IsAbs(local) {
		return filepath.Join(local, "devproxy"), nil
	}
	local, err := windows.KnownFolderPath(windows.FOLDERID_LocalAppData, 0)
	if err != nil {
		return "", fmt.Errorf("finding LocalAppData: %w", err)
	}
	return filepath.Join(local, "devproxy"), nil
}

// shortSocketDir is empty: Windows has no folder that is both short and ours
// whatever the environment says, so a path that is too long is an error.
func shortSocketDir() string { return "" }

// verifyPrivate trusts the ACL that LocalAppData hands down.
func verifyPrivate(string, fs.FileInfo, fs.FileMode) error { return nil }

func verifyOwner(string, fs.FileInfo) error { return nil }

// spelling returns path: EvalSymlinks has already put it into the spelling of
// the file system.
func spelling(path string) string { return path }

// folderID says nothing: what mounts a folder twice on Windows, a junction or a
// substituted drive, EvalSymlinks sees through.
func folderID(fs.FileInfo) string { return "" }

const (
	// renamePatience is how long a file that is open elsewhere is waited for: a
	// reader of ours or a virus scanner is done with it within milliseconds.
	renamePatience = time.Second
	renamePause    = 5 * time.Millisecond
)

// rename puts the file from in the place of to. Windows refuses while somebody
// has to open, and Go opens files without the permission to replace them.
func rename(from, to string) error {
	for deadline := time.Now().Add(renamePatience); ; time.Sleep(renamePause) { //nolint:forbidigo // nothing tells that a file was closed
		err := os.Rename(from, to)
		inUse := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !inUse || time.Now().After(deadline) {
			return err
		}
	}
}
