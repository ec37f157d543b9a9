package project

import (
	"bytes"
	"os"
	"syscall"
	"unsafe"
)

// maxSocketPath is the size of sun_path, 104 bytes, less its NUL.
const maxSocketPath = 103

// maxPath is MAXPATHLEN, which F_GETPATH demands of its buffer.
const maxPath = 1024

// spelling returns path in the spelling the file system keeps, because it
// compares names without regard to case and Unicode form: a shell in
// ~/Work/app and one in ~/work/App are in one project. It returns path as it is
// if the system does not say.
func spelling(path string) string {
	dir, err := os.Open(path)
	if err != nil {
		return path
	}
	defer func() { _ = dir.Close() }()
	var name [maxPath]byte
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, dir.Fd(), syscall.F_GETPATH,
		uintptr(unsafe.Pointer(&name[0])))
	end := bytes.IndexByte(name[:], 0)
	if errno != 0 || end <= 0 {
		return path
	}
	return string(name[:end])
}
