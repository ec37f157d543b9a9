//go:build unix

package instance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"go.uber.org/goleak"

	"github.com/debugmcp/devproxy/internal/project"
)

// strangerSocket makes the test binary a program that connects to the socket
// it names and prints what came of it.
const strangerSocket = "DEVPROXY_TEST_STRANGER_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(strangerSocket); socket != "" {
		os.Exit(stranger(socket))
	}
	goleak.VerifyTestMain(m)
}

// stranger connects, waits for the other end to close or say something, and
// exits with 0 if it was closed.
func stranger(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		return 2
	}
	said, err := io.ReadAll(conn)
	if err != nil || len(said) > 0 {
		return 3
	}
	return 0
}

// newProject returns a project whose state lies in a short folder of its own.
func newProject(t *testing.T) project.Project {
	t.Helper()
	t.Setenv("HOME", shortDir(t))
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, project.ConfigName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shortDir is a temporary folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func mustAcquire(t *testing.T, p project.Project, override string) *Instance {
	t.Helper()
	i, err := Acquire(t.Context(), p, override, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, i) })
	return i
}

func mustClose(t *testing.T, i *Instance) {
	t.Helper()
	if err := i.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// mustAnswer fails the test unless a connection to socket comes out of l.
func mustAnswer(t *testing.T, l net.Listener, socket string) {
	t.Helper()
	client, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
}

func socketOf(t *testing.T, p project.Project) string {
	t.Helper()
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	return socket
}

func TestOneInstance(t *testing.T) {
	p := newProject(t)
	i := mustAcquire(t, p, "")
	mustAnswer(t, i.Listener(), i.Socket())
	info, err := os.Lstat(i.Socket())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", info.Mode(), err)
	}
	if got := p.RecordedSocket(); got != i.Socket() {
		t.Errorf("recorded socket %q, want %q", got, i.Socket())
	}

	_, err = Acquire(t.Context(), p, "", quiet())
	running, ok := errors.AsType[*RunningError](err)
	if !ok || !errors.Is(err, ErrRunning) {
		t.Fatalf("a second Acquire gives %v", err)
	}
	if running.PID != os.Getpid() || running.Socket != i.Socket() || running.Project != p.Root {
		t.Errorf("the error knows %+v", running)
	}
	if _, err := Acquire(t.Context(), p, filepath.Join(shortDir(t), "s"), quiet()); !errors.Is(err, ErrRunning) {
		t.Errorf("another socket path gives %v: one daemon per project, wherever it listens", err)
	}

	mustClose(t, i)
	for _, gone := range []string{i.Socket(), p.SocketFile(), p.PIDFile()} {
		if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left after Close: %v", gone, err)
		}
	}
	if _, err := os.Stat(p.Lock()); err != nil {
		t.Errorf("the lock file must stay: %v", err)
	}
	mustAcquire(t, p, "")
}

func TestOnlyOneOfManyWins(t *testing.T) {
	p := newProject(t)
	var wins atomic.Int32
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			i, err := Acquire(t.Context(), p, "", quiet())
			switch {
			case err == nil:
				wins.Add(1)
				t.Cleanup(func() { _ = i.Close() })
			case !errors.Is(err, ErrRunning):
				t.Errorf("a loser gets %v", err)
			}
		})
	}
	group.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d winners", wins.Load())
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	p := newProject(t)
	socket := socketOf(t, p)
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	i := mustAcquire(t, p, "")
	mustAnswer(t, i.Listener(), socket)
}

// A daemon that was killed while it wrote a file leaves no half of it for ever.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	p := newProject(t)
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{ // whether it stays
		".backend.json-123": false, ".snapshot.json-1": false, ".daemon.pid-9": false, ".environment.json-4": false,
		".root-1": true, ".folder-7": false, "backend.json-1": true, ".note-1": true,
	}
	for name := range left {
		path := filepath.Join(p.StateDir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if name == ".folder-7" {
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustAcquire(t, p, "")
	for name, stays := range left {
		if _, err := os.Lstat(filepath.Join(p.StateDir, name)); (err == nil) != stays {
			t.Errorf("%s: %v, stays: %v", name, err, stays)
		}
	}
}

func TestWhatIsNotStaleStays(t *testing.T) {
	tests := []struct {
		name  string
		place func(t *testing.T, socket string)
		check func(error) bool
	}{
		{"a live socket", func(t *testing.T, socket string) {
			t.Helper()
			live, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = live.Close() })
		}, func(err error) bool { _, ok := errors.AsType[*SocketInUseError](err); return ok }},
		{"a socket that does not answer", placeFullSocket, func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "it stays")
		}},
		{"a plain file", func(t *testing.T, socket string) {
			t.Helper()
			if err := os.WriteFile(socket, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, isUnsafe},
		{"a folder", func(t *testing.T, socket string) {
			t.Helper()
			if err := os.Mkdir(socket, 0o700); err != nil {
				t.Fatal(err)
			}
		}, isUnsafe},
		{"a symbolic link", func(t *testing.T, socket string) {
			t.Helper()
			if err := os.Symlink("/nowhere", socket); err != nil {
				t.Fatal(err)
			}
		}, isUnsafe},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newProject(t)
			socket := socketOf(t, p)
			test.place(t, socket)
			before, err := os.Lstat(socket)
			if err != nil {
				t.Fatal(err)
			}
			i, err := Acquire(t.Context(), p, "", quiet())
			if err == nil {
				mustClose(t, i)
			}
			if !test.check(err) {
				t.Errorf("Acquire gives %v", err)
			}
			after, err := os.Lstat(socket)
			if err != nil || !same(before, after) {
				t.Errorf("it did not stay: %v", err)
			}
			if _, err := os.Lstat(p.PIDFile()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a failed Acquire leaves its pid: %v", err)
			}
		})
	}
}

func isUnsafe(err error) bool { _, ok := errors.AsType[*project.UnsafeError](err); return ok }

// placeFullSocket makes a socket whose backlog is full, as that of a stopped
// daemon may be.
func placeFullSocket(t *testing.T, socket string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, nil)
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		cancel()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

func TestUnsafeSocketFolder(t *testing.T) {
	p := newProject(t)
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(t.Context(), p, filepath.Join(dir, "s"), quiet()); !isUnsafe(err) {
		t.Errorf("a folder that others can read gives %v", err)
	}
	inner := filepath.Join(dir, "inner")
	i := mustAcquire(t, p, filepath.Join(inner, "s"))
	mustAnswer(t, i.Listener(), filepath.Join(inner, "s"))
}

func TestLongProjectAndHomePaths(t *testing.T) {
	t.Setenv("HOME", filepath.Join(shortDir(t), strings.Repeat("h", 150)))
	root := filepath.Join(t.TempDir(), strings.Repeat("p", 100), strings.Repeat("q", 100))
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	// The short folder outlives its sockets; it goes unless somebody uses it.
	short := filepath.Join("/tmp", "devproxy-"+strconv.Itoa(os.Getuid()))
	t.Cleanup(func() { _ = os.Remove(short) })
	i := mustAcquire(t, p, "")
	if filepath.Dir(i.Socket()) != short {
		t.Errorf("the socket is %s", i.Socket())
	}
	mustAnswer(t, i.Listener(), i.Socket())
}

func TestSuccessorWaitsForTheLock(t *testing.T) {
	p := newProject(t)
	first := mustAcquire(t, p, "")
	got := make(chan *Instance, 1)
	go func() {
		second, err := AcquireWhenFree(t.Context(), p, "", quiet())
		if err != nil {
			t.Errorf("the successor: %v", err)
		}
		got <- second
	}()
	select {
	case <-got:
		t.Fatal("two daemons")
	case <-time.After(5 * lockPoll):
	}
	mustClose(t, first)
	second := <-got
	if second != nil {
		mustAnswer(t, second.Listener(), second.Socket())
		mustClose(t, second)
	}
}

func TestSuccessorGivesUpWithTheCause(t *testing.T) {
	p := newProject(t)
	mustAcquire(t, p, "")
	gaveUp := errors.New("gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	if _, err := AcquireWhenFree(ctx, p, "", quiet()); !errors.Is(err, gaveUp) {
		t.Errorf("the error is %v", err)
	}
}

// A lock file that is removed between opening and locking must not make two
// daemons.
func TestReplacedLockFileIsNoticed(t *testing.T) {
	p := newProject(t)
	socketOf(t, p)
	calls := 0
	lock, err := lockFile(p, func(l *flock.Flock) (bool, error) {
		calls++
		held, err := l.TryLock()
		if calls == 1 {
			if err := os.Remove(p.Lock()); err != nil {
				t.Fatal(err)
			}
		}
		return held, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	if calls != 2 || !atPath(lock) {
		t.Errorf("after %d locks the file is at its path: %v", calls, atPath(lock))
	}
}

func TestWatchBindsAgain(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, p project.Project, socket string)
	}{
		{"socket removed", func(t *testing.T, _ project.Project, socket string) {
			t.Helper()
			if err := os.Remove(socket); err != nil {
				t.Fatal(err)
			}
		}},
		{"socket replaced by a stale one", func(t *testing.T, _ project.Project, socket string) {
			t.Helper()
			if err := os.Remove(socket); err != nil {
				t.Fatal(err)
			}
			other, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			other.SetUnlinkOnClose(false)
			_ = other.Close()
		}},
		{"state folder removed", func(t *testing.T, p project.Project, _ string) {
			t.Helper()
			if err := os.RemoveAll(filepath.Dir(p.StateDir)); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newProject(t)
			i := mustAcquire(t, p, "")
			old := i.Listener()
			fresh := make(chan net.Listener, 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			watched := make(chan error, 1)
			go func() { watched <- i.Watch(ctx, func(l net.Listener) { fresh <- l }) }()
			test.spoil(t, p, i.Socket())
			l := <-fresh
			mustAnswer(t, l, i.Socket())
			if _, err := old.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener before gives %v", err)
			}
			if got := p.RecordedSocket(); got != i.Socket() {
				t.Errorf("recorded %q", got)
			}
			if _, err := Acquire(t.Context(), p, "", quiet()); !errors.Is(err, ErrRunning) {
				t.Errorf("another Acquire gives %v", err)
			}
			cancel(nil)
			if err := <-watched; err != nil {
				t.Errorf("Watch: %v", err)
			}
		})
	}
}

func TestWatchLeavesAnotherFileAlone(t *testing.T) {
	p := newProject(t)
	i := mustAcquire(t, p, "")
	if err := os.Remove(i.Socket()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(i.Socket(), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := i.check(t.Context()); !isUnsafe(err) || l != nil {
		t.Fatalf("check = %v, %v", l, err)
	}
	mustClose(t, i)
	if content, err := os.ReadFile(i.Socket()); err != nil || string(content) != "mine" {
		t.Errorf("the file holds %q, %v", content, err)
	}
}

func TestUnchangedSocketIsLeftAlone(t *testing.T) {
	i := mustAcquire(t, newProject(t), "")
	if l, err := i.check(t.Context()); l != nil || err != nil {
		t.Errorf("check = %v, %v", l, err)
	}
}

// If the state folder is removed and another daemon takes the new lock, the
// first one learns that it is the daemon no longer, and spoils nothing of the
// other's when it ends.
func TestWatchTellsOfALostLock(t *testing.T) {
	p := newProject(t)
	first := mustAcquire(t, p, "")
	if err := os.RemoveAll(filepath.Dir(p.StateDir)); err != nil {
		t.Fatal(err)
	}
	second := mustAcquire(t, p, "")
	if err := first.Watch(t.Context(), func(net.Listener) { t.Error("the first one binds again") }); !errors.Is(err, ErrRunning) {
		t.Fatalf("Watch = %v", err)
	}
	mustClose(t, first)
	mustAnswer(t, second.Listener(), second.Socket())
	if p.RecordedSocket() != second.Socket() {
		t.Error("the record of the second daemon is gone")
	}
}

func TestAnotherUserIsDropped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	p := newProject(t)
	var log bytes.Buffer
	i, err := Acquire(t.Context(), p, filepath.Join(shortDir(t), "d", "s"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, i)
	// What keeps others away is loosened step by step until only the check of
	// the peer is left.
	dir := filepath.Dir(i.Socket())
	program := copyOfTest(t)
	if code, said := runStranger(t, program, i.Socket()); code != 2 {
		t.Fatalf("another user gets through a folder of 0700: %d, %s", code, said)
	}
	for path := dir; path != "/tmp"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if code, said := runStranger(t, program, i.Socket()); code != 2 {
		t.Fatalf("another user gets through a socket of 0600: %d, %s", code, said)
	}
	if err := os.Chmod(i.Socket(), 0o666); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		conn, err := i.Listener().Accept()
		if err != nil {
			t.Errorf("Accept: %v", err)
		}
		accepted <- conn
	})
	if code, said := runStranger(t, program, i.Socket()); code != 0 {
		t.Errorf("the connection of another user was not closed: %d, %s", code, said)
	}
	conn, err := net.Dial("unix", i.Socket())
	if err != nil {
		t.Fatal(err)
	}
	_ = (<-accepted).Close()
	_ = conn.Close()
	accepting.Wait()
	if !strings.Contains(log.String(), "the peer is uid "+strconv.Itoa(nobody)) {
		t.Errorf("the log says %q", log.String())
	}
}

const nobody = 65534

// copyOfTest copies the test binary to where another user can run it.
func copyOfTest(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("no /proc:", err)
	}
	path := filepath.Join(dir, "stranger")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func runStranger(t *testing.T, program, socket string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{strangerSocket + "=" + socket}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	output, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(output)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(output)
}
