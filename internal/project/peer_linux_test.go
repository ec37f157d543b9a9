package project

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// CheckPeer looks at both ends: whoever listens counts for who dials. That a
// listener drops the connections of others is tested with its owner.
func TestCheckPeer(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, nobody)
	}
	for _, uid := range uids {
		path := filepath.Join(dir, "s")
		listenAs(t, path, uid)
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		err = CheckPeer(conn)
		if stranger, is := errors.AsType[*StrangerError](err); uid == os.Getuid() && err != nil || uid != os.Getuid() && (!is || stranger.UID != uid) {
			t.Errorf("uid %d listens: %v", uid, err)
		}
		_ = conn.Close()
		if err := CheckPeer(conn); err == nil {
			t.Error("a closed connection passes")
		}
		_ = os.Remove(path)
	}
	if len(uids) == 1 {
		t.Skip("another user can only be played by root")
	}
}

// listenAs makes a socket of ours on which another user listens: the system
// notes the credentials of the thread that calls listen.
func listenAs(t *testing.T, path string, uid int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	listened := make(chan error)
	go func() {
		// The system call behind it changes the thread alone, which ends with the
		// goroutine because it stays locked to it.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			listened <- errno
			return
		}
		listened <- unix.Listen(fd, 1)
	}()
	if err := <-listened; err != nil {
		t.Fatal(err)
	}
}
