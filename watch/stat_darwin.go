package watch

import (
	"io/fs"
	"syscall"
)

// metadataOf is what the system says of a file.
func metadataOf(info fs.FileInfo) metadata {
	meta := metadata{size: info.Size(), modified: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		meta.changed = syscall.TimespecToNsec(stat.Ctimespec)
		meta.inode, meta.device = stat.Ino, uint64(stat.Dev)
	}
	return meta
}
