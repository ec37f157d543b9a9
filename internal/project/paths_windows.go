package project

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
