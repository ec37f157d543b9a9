package watch

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adviceFor says what to do about an error of the event system.
func adviceFor(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "the system's file watches are used up" + sysctl("max_user_watches", 524288)
	case errors.Is(err, syscall.EMFILE):
		return "the system's inotify instances or this program's open files are used up" + sysctl("max_user_instances", 512)
	}
	return err.Error()
}

func sysctl(name string, enough int) string {
	now := ""
	if text, err := os.ReadFile("/proc/sys/fs/inotify/" + name); err == nil {
		now = " (now " + strings.TrimSpace(string(text)) + ")"
		if value, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			enough = max(enough, 2*value)
		}
	}
	return fmt.Sprintf("; raise fs.inotify.%s%s with: sudo sysctl fs.inotify.%s=%d", name, now, name, enough)
}

// silentFileSystem names the kind of file system that path is on if changes
// made by others (the Windows side of WSL, the host of a container, another
// machine) send no events there; "" otherwise.
func silentFileSystem(path string) string {
	var stat unix.Statfs_t
	if unix.Statfs(path, &stat) != nil {
		return ""
	}
	// The type is signed on some processors and not on others.
	return silentKind(uint32(stat.Type))
}

// vboxMagic is the type of VirtualBox's shared folders, in no header of Linux.
const vboxMagic = 0x786f4256

// silentKind names the silent file systems by their type. What is mounted through
// FUSE is not among them: it may be anything, and its own events come. Where those
// of others do not, that is found out.
func silentKind(magic uint32) string {
	switch magic {
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "SMB"
	case vboxMagic:
		return "VirtualBox"
	}
	return ""
}
