package watch

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// queueHoldsEvents: each directory has a buffer of its own, of 64 KiB, which a
// build fills within a moment.
const queueHoldsEvents = false

// openFile opens a file or directory to read it, so that others may remove or
// rename it meanwhile: os.Open would make the build fail that does.
func openFile(path string) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	const all = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	handle, err := windows.CreateFile(name, windows.GENERIC_READ, all, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS, 0) // without the flag no directory is opened
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(handle), path), nil
}

// readDir lists a directory, in no order.
func readDir(path string) ([]fs.DirEntry, error) {
	dir, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return dir.ReadDir(-1)
}
