package watch

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSilentFileSystems(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.V9FS_MAGIC: "9p", unix.NFS_SUPER_MAGIC: "NFS", unix.CIFS_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
		vboxMagic: "VirtualBox", unix.EXT4_SUPER_MAGIC: "", unix.BTRFS_SUPER_MAGIC: "", unix.OVERLAYFS_SUPER_MAGIC: "",
		unix.TMPFS_MAGIC: "", unix.FUSE_SUPER_MAGIC: "",
	} {
		if got := silentKind(magic); got != want {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
	if kind := silentFileSystem("/proc"); kind != "" {
		t.Errorf("/proc is %q", kind)
	}
	if kind := silentFileSystem("/no/such/folder"); kind != "" {
		t.Errorf("what is not there is %q", kind)
	}
}
