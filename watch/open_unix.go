//go:build unix

package watch

import (
	"io/fs"
	"os"
)

// queueHoldsEvents: what is not read for a moment waits for all directories
// together, in a queue of many thousands.
const queueHoldsEvents = true

// openFile opens a file to read it.
func openFile(path string) (*os.File, error) { return os.Open(path) }

// readDir lists a directory.
func readDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
