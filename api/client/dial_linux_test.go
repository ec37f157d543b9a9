package client

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/debugmcp/devproxy/internal/project"
)

// The file is ours, but another user listens on it, as on one that was put in
// the place of the daemon's after a look at it.
func TestDialRefusesAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("another user can only be played by root")
	}
	const nobody = 65534
	socket := filepath.Join(shortDir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	listened := make(chan error)
	go func() {
		// The raw call changes this thread alone, which ends with the goroutine
		// because it stays locked to it. The system notes who calls listen.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); errno != 0 {
			listened <- errno
			return
		}
		listened <- unix.Listen(fd, 1)
	}()
	if err := <-listened; err != nil {
		t.Fatal(err)
	}
	_, err = Dial(t.Context(), socket)
	if stranger, is := errors.AsType[*project.StrangerError](err); !is || stranger.UID != nobody {
		t.Errorf("Dial = %v", err)
	}
}
