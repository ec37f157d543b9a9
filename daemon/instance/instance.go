package instance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/debugmcp/devproxy/internal/project"
)

const (
	// lockPoll is how often a successor looks whether the lock is free. Clients
	// wait out the gap between two daemons, so it is short.
	lockPoll = 10 * time.Millisecond
	// lockAttempts bounds how often a lock file that is removed while we lock it
	// is opened again. Once is an accident, many times is a script gone wild.
	lockAttempts = 20
	// probeTimeout bounds the dial that tells a stale socket from a live one. A
	// kernel answers at once; a full backlog or a stopped daemon does not.
	probeTimeout = time.Second
	// watchInterval is how often Watch looks at the socket: two stats, and a
	// person who removed it waits no longer.
	watchInterval = time.Second
)

// ErrRunning is what every *RunningError is.
var ErrRunning = errors.New("a daemon of this project is running")

// RunningError says that another process is the project's daemon.
type RunningError struct {
	// Project is the canonical path of the project.
	Project string
	// PID is the daemon's process id as it recorded it; 0 if it has not yet.
	PID int
	// Socket is the path it recorded to serve; empty if it has not yet.
	Socket string
}

// Error names the project and what is known of the daemon.
func (e *RunningError) Error() string {
	text := "a daemon of " + e.Project + " is running"
	if e.PID != 0 {
		text += " as process " + strconv.Itoa(e.PID)
	}
	if e.Socket != "" {
		text += " at " + e.Socket
	}
	return text
}

// Is reports whether target is ErrRunning.
func (e *RunningError) Is(target error) bool { return target == ErrRunning }

// SocketInUseError says that somebody serves the socket who does not hold the
// project's lock, such as the daemon of another project that was given the same
// path.
type SocketInUseError struct {
	// Socket is the path.
	Socket string
}

// Error names the path and what to do.
func (e *SocketInUseError) Error() string {
	return "somebody else serves " + e.Socket + "; choose another socket path"
}

// Instance is the right to be the daemon of a project, and its socket. Its
// methods may be called from several goroutines.
type Instance struct {
	project project.Project
	socket  string
	log     *slog.Logger

	mu       sync.Mutex // guards what follows
	lock     *flock.Flock
	listener *listener
	bound    fs.FileInfo // of the socket as we made it
	closed   bool
}

// Acquire makes this process the daemon of p and binds its socket: override if
// it is not empty, else the project's own. The error is a *RunningError if
// another process is the daemon, a *SocketInUseError or *project.UnsafeError if
// the socket's path is taken or not ours to use.
func Acquire(ctx context.Context, p project.Project, override string, log *slog.Logger) (*Instance, error) {
	return acquire(ctx, p, override, log, (*flock.Flock).TryLock)
}

// AcquireWhenFree is Acquire for a successor: it waits for the lock until ctx
// ends, whose cause is then the error.
func AcquireWhenFree(ctx context.Context, p project.Project, override string, log *slog.Logger) (*Instance, error) {
	return acquire(ctx, p, override, log, func(l *flock.Flock) (bool, error) {
		held, err := l.TryLockContext(ctx, lockPoll)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return held, err
	})
}

// locker takes a lock; false means that somebody else has it.
type locker func(*flock.Flock) (bool, error)

func acquire(ctx context.Context, p project.Project, override string, log *slog.Logger, take locker) (*Instance, error) {
	socket, err := p.Socket(override)
	if err != nil {
		return nil, err
	}
	if err := p.EnsureDirs(); err != nil {
		return nil, err
	}
	lock, err := lockFile(p, take)
	if err != nil {
		return nil, err
	}
	if err := p.RemoveUnfinished(); err != nil {
		log.Warn("cleaning up after an earlier daemon", "error", err)
	}
	i := &Instance{project: p, socket: socket, log: log, lock: lock}
	if err := errors.Join(i.recordPID(), i.bind(ctx)); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// lockFile locks the project's lock file and makes sure that it is still the
// one at its path.
func lockFile(p project.Project, take locker) (*flock.Flock, error) {
	for range lockAttempts {
		lock := flock.New(p.Lock())
		held, err := take(lock)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", p.Lock(), err)
		}
		if !held {
			return nil, runningError(p)
		}
		if atPath(lock) {
			return lock, nil
		}
		if err := lock.Unlock(); err != nil {
			return nil, fmt.Errorf("unlocking %s: %w", p.Lock(), err)
		}
	}
	return nil, fmt.Errorf("locking %s: it is removed again and again", p.Lock())
}

// atPath reports whether the locked file is the one that others would open.
func atPath(lock *flock.Flock) bool {
	ours, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(lock.Path())
	return err == nil && os.SameFile(ours, there)
}

func runningError(p project.Project) error {
	return &RunningError{Project: p.Root, PID: p.DaemonPID(), Socket: p.RecordedSocket()}
}

func (i *Instance) recordPID() error {
	return project.WriteFile(i.project.PIDFile(), []byte(strconv.Itoa(os.Getpid())+"\n"))
}

// bind binds the socket, after the removal of a stale one, and records its
// path. The caller holds mu or has the Instance for itself. The listener before
// it stays as it is.
func (i *Instance) bind(ctx context.Context) error {
	if err := project.EnsureSocketDir(i.socket); err != nil {
		return err
	}
	if err := removeStale(ctx, i.socket); err != nil {
		return err
	}
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: i.socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("binding the socket: %w", err)
	}
	// Go would remove whatever is at the path by then.
	inner.SetUnlinkOnClose(false)
	bound, err := seal(i.socket)
	if err == nil {
		err = i.project.RecordSocket(i.socket)
	}
	if err != nil {
		// What is left at the path is stale, as the next bind will find.
		return errors.Join(fmt.Errorf("binding the socket: %w", err), inner.Close())
	}
	i.listener, i.bound = &listener{UnixListener: inner, log: i.log}, bound
	return nil
}

// seal closes the new socket to other users. They could not connect before
// either, since its folder is 0700.
func seal(socket string) (fs.FileInfo, error) {
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, err
	}
	return os.Lstat(socket)
}

// removeStale removes a socket that a daemon left behind. The lock must be
// held: without it, the socket of a daemon that is about to listen would look
// stale too.
func removeStale(ctx context.Context, socket string) error {
	found, err := project.CheckSocket(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("binding the socket: %w", err)
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close()
		return &SocketInUseError{Socket: socket}
	}
	if !refused(err) {
		return fmt.Errorf("asking who serves the socket that is there (it stays): %w", err)
	}
	if now, err := os.Lstat(socket); err != nil || !same(now, found) {
		return &SocketInUseError{Socket: socket}
	}
	if err := os.Remove(socket); err != nil {
		return fmt.Errorf("removing the stale socket: %w", err)
	}
	return nil
}

// same reports whether two infos are of one file. The time tells apart two
// files of which the second got the inode of the first.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// Socket is the path of the socket.
func (i *Instance) Socket() string { return i.socket }

// Listener returns the listener on the socket, which yields connections of our
// uid only. Closing it leaves the socket's file to Close.
func (i *Instance) Listener() net.Listener {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.listener
}

// Watch looks until ctx ends whether the socket is still ours, and binds it
// again if it vanished or was replaced. serve gets each new listener and must
// return at once; the listener before it is closed, so a grpc.Server that
// serves it gets net.ErrClosed there and keeps its connections. What stands in
// the way is logged once and tried again.
//
// The error is a *RunningError if the lock file was removed and another process
// locked the new one: this process is the daemon no longer.
func (i *Instance) Watch(ctx context.Context, serve func(net.Listener)) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var told string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		fresh, err := i.check(ctx)
		if errors.Is(err, ErrRunning) {
			return err
		}
		if err != nil {
			if told != err.Error() {
				told = err.Error()
				i.log.Warn("the socket is lost and cannot be bound again", "socket", i.socket, "error", err)
			}
			continue
		}
		told = ""
		if fresh != nil {
			i.log.Warn("the socket had vanished; it is bound again", "socket", i.socket)
			serve(fresh)
		}
	}
}

// check returns a new listener if the socket had to be bound again, and nil if
// it is where it was.
func (i *Instance) check(ctx context.Context) (net.Listener, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, nil //nolint:nilnil // nil means unchanged, as documented
	}
	if err := i.relock(); err != nil {
		return nil, err
	}
	if now, err := os.Lstat(i.socket); err == nil && same(now, i.bound) {
		return nil, nil //nolint:nilnil // nil means unchanged, as documented
	}
	old := i.listener
	if err := i.bind(ctx); err != nil {
		return nil, err
	}
	_ = old.Close()
	return i.listener, nil
}

// relock takes the lock at its path if the file that we locked is gone.
func (i *Instance) relock() error {
	if atPath(i.lock) {
		return nil
	}
	if err := i.project.EnsureDirs(); err != nil {
		return err
	}
	lock, err := lockFile(i.project, (*flock.Flock).TryLock)
	if err != nil {
		return err
	}
	i.log.Warn("the lock file had vanished; the new one is locked", "lock", i.project.Lock())
	_ = i.lock.Unlock() // of a file that nobody can open any more
	i.lock = lock
	return i.recordPID()
}

// Close ends the listener, removes the socket if it is ours, and then gives up
// the lock. Call it last: whoever waits for the lock is the daemon then.
func (i *Instance) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	var failures []error
	if i.listener != nil {
		if err := i.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			failures = append(failures, err)
		}
	}
	if now, err := os.Lstat(i.socket); err == nil && i.bound != nil && same(now, i.bound) {
		failures = append(failures, os.Remove(i.socket))
	}
	if atPath(i.lock) { // else the records are somebody else's
		failures = append(failures, removeIfThere(i.project.PIDFile()), removeIfThere(i.project.SocketFile()))
	}
	if err := errors.Join(append(failures, i.lock.Unlock())...); err != nil {
		return fmt.Errorf("leaving %s: %w", i.socket, err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
