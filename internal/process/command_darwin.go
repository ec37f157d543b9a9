package process

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// commandLine reads KERN_PROCARGS2: the number of arguments, the path of the program, padding,
// then the arguments, each ended by a NUL.
func commandLine(pid int) string {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(raw) < 4 {
		return ""
	}
	count := int(binary.NativeEndian.Uint32(raw))
	path, rest, ok := bytes.Cut(raw[4:], []byte{0})
	if !ok {
		return ""
	}
	arguments := bytes.Split(bytes.TrimLeft(rest, "\x00"), []byte{0})
	if count <= 0 || count > len(arguments) {
		return string(path)
	}
	return string(bytes.Join(arguments[:count], []byte{' '}))
}
