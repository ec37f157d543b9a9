//go:build unix

package watch

import (
	"io/fs"
	"os"
)

// openFile opens a file to read it.
func openFile(path string) (*os.File, error) { return os.Open(path) }

// readDir lists a directory.
func readDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
