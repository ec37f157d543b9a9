//go:build unix

package process

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// makeExecutable says how a file becomes a program that can be run.
const makeExecutable = "chmod +x %s, or put the program that runs it before it"

// findExecutable returns file if it can be run, and otherwise an error that wraps
// fs.ErrPermission if something else is there.
func findExecutable(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	// The mode is looked at as well: root may do anything, but cannot run a file without x.
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fs.ErrPermission
	}
	if err := unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS); err != nil {
		return "", err
	}
	return file, nil
}

func isPathVariable(name string) bool { return name == "PATH" }
