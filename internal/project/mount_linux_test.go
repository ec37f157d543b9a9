package project

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder that is mounted at two paths is one project, whichever is used first,
// as long as it is there.
func TestTwoMountsOfOneProjectAreOne(t *testing.T) {
	root := newProject(t)
	mount := mkdir(t, filepath.Join(t.TempDir(), "a mount"))
	writeFile(t, filepath.Join(mount, ConfigName))
	before, err := At(mount)
	if err != nil || before.Root != mount {
		t.Fatalf("before it is mounted: %+v, %v", before, err)
	}
	direct, err := At(root)
	if err == nil {
		err = direct.EnsureDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	inOwnMounts(t, func() {
		if err := unix.Mount(root, mount, "", unix.MS_BIND, ""); err != nil {
			t.Errorf("mounting: %v", err)
			return
		}
		for name, find := range map[string]func(string) (Project, error){"At": At, "Find": Find} {
			if p, err := find(mount); err != nil || p != direct {
				t.Errorf("%s of the mount: %+v, %v; want %+v", name, p, err, direct)
			}
		}
		if err := unix.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	if p, err := At(mount); err != nil || p != before {
		t.Errorf("once it is not mounted: %+v, %v; want %+v", p, err, before)
	}
	// The note of a folder that another one has taken the place of leads nowhere.
	if err := os.Rename(root, root+".old"); err != nil {
		t.Fatal(err)
	}
	mkdir(t, root)
	if p, err := At(root + ".old"); err != nil || p.Root != root+".old" {
		t.Errorf("a folder that was moved: %+v, %v", p, err)
	}
}

// inOwnMounts runs f where its mounts are nobody else's, on a thread that ends
// with it.
func inOwnMounts(t *testing.T, f func()) {
	t.Helper()
	unshared := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if unshared <- err; err == nil {
			f()
		}
	}()
	<-done
	if err := <-unshared; err != nil {
		t.Skip("no mounts of our own:", err)
	}
}
