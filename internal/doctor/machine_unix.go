//go:build unix

package doctor

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func mayWrite(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

func isUnsupported(err error) bool {
	return errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL)
}

func openToOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
