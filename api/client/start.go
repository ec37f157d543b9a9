package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/debugmcp/devproxy/internal/project"
)

const (
	// firstWait and maxWait bound the growing pause between two dials. A daemon
	// needs tens of milliseconds to serve, so the first pauses are short; later
	// ones only have to be quick to a person.
	firstWait = 4 * time.Millisecond
	maxWait   = 200 * time.Millisecond
	// respawnAfter is how long a client whose daemon found another one running
	// dials that one before it starts again: the other may be ending, and one
	// that drains must not be asked thousands of times.
	respawnAfter = time.Second
	// startLockPatience is how long a client lets another one start the daemon
	// before it starts one itself: the other may be stopped with the lock held.
	startLockPatience = 5 * time.Second
	// handoverGap is how long nobody serves between two daemons of which the first
	// has ended, at most: the second waits for nothing else.
	handoverGap = time.Second
	// maxStartLog is the size above which the start log is begun anew. It holds
	// a few lines per start and the trace of a crash.
	maxStartLog = 256 << 10
	// maxTail bounds the tail of the start log in an error: a person and a model
	// read it whole.
	maxTail = 4 << 10
)

// errExited says that the daemon process ended before it served, without an
// exit status that tells more.
var errExited = errors.New("it ended before it served")

// StartError says that a daemon could not be started.
type StartError struct {
	// Err is why: an exit status, a binary that is not there, an end of waiting.
	Err error
	// Tail is what the daemon last wrote to its stderr; it may be empty.
	Tail string
	// LogPath is the file that Tail comes from; empty when no process was
	// started.
	LogPath string
}

// Error gives the reason, what the daemon said and where more of it is.
func (e *StartError) Error() string {
	text := "starting devproxyd: " + e.Err.Error()
	if e.Tail != "" {
		text += "; it said:\n" + e.Tail
	}
	if e.LogPath != "" {
		text += "\n(log: " + e.LogPath + ")"
	}
	return text
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// Options says which daemon EnsureRunning is about and how to start it.
type Options struct {
	// Project is the daemon's project.
	Project project.Project
	// Socket overrides the socket path; empty means the project's own.
	Socket string
	// DialOnly forbids to start a daemon.
	DialOnly bool
	// Binary is the path of devproxyd. Empty means the one beside this program's
	// executable, else the first in PATH.
	Binary string
	// Args are the arguments of devproxyd. Nil means those of a daemon that a
	// shim starts: run --autostarted --project ROOT, and --socket if overridden.
	Args []string
	// Environment is the daemon's environment. Nil means this process's.
	Environment []string
}

// EnsureRunning connects to the project's daemon. If none runs it starts one,
// in a session of its own and with no file of ours, and waits until it serves.
// Callers in any number of processes get connections to the same daemon.
//
// Errors: ErrNoDaemon (only with DialOnly), a *StartError when the daemon ended
// before it served or had not served when ctx ended, a *project.NotFoundError
// when there is nothing to start one for, a *project.UnsafeError when the
// socket or its folder is not ours, ErrNotServing when a daemon holds the socket
// and did not answer before ctx ended. A daemon that is slow to start is left
// running when ctx ends.
func EnsureRunning(ctx context.Context, o Options) (*Client, error) {
	c, err := o.dial(ctx)
	if err == nil || o.DialOnly || !worthWaiting(err) {
		return c, err
	}
	if err := o.Project.HasConfig(); err != nil {
		return nil, err
	}
	if err := o.Project.EnsureDirs(); err != nil {
		return nil, err
	}
	s := starter{options: o, began: time.Now(), lock: flock.New(o.Project.StartLock())}
	defer s.unlock()
	return s.run(ctx)
}

// worthWaiting reports whether a dial that failed with err may succeed soon.
func worthWaiting(err error) bool {
	return errors.Is(err, ErrNoDaemon) || errors.Is(err, ErrNotServing)
}

// dial connects to the daemon at the socket of the options, or at the one that
// the project's daemon recorded: there is one daemon per project, wherever it
// was told to listen.
func (o Options) dial(ctx context.Context) (*Client, error) {
	socket, err := o.Project.Socket(o.Socket)
	if err != nil {
		return nil, err
	}
	c, err := Dial(ctx, socket)
	recorded := o.Project.RecordedSocket()
	if !errors.Is(err, ErrNoDaemon) || recorded == "" || recorded == socket {
		return c, err
	}
	if c, err := Dial(ctx, recorded); err == nil {
		return c, nil
	}
	return nil, err
}

// starter is one attempt to get a daemon running. It belongs to the goroutine
// in run.
type starter struct {
	options Options
	began   time.Time
	// lock is held while we start a daemon; see startLockPatience.
	lock *flock.Flock
	// child is the process that we started and that has not ended; or nil.
	child *child
	// notBefore is when the next process may be started.
	notBefore time.Time
	// silent is the error of the last dial if somebody holds the socket and does
	// not answer; else nil.
	silent error
}

// child is a daemon process that we started.
type child struct {
	pid int64
	log *startLog
	// exited gets the outcome once, when the process has ended.
	exited chan error
	// kill ends the process, unless it has ended.
	kill func() error
}

func (s *starter) run(ctx context.Context) (*Client, error) {
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		mayStart := s.mayStart()
		// Dialled with the lock held: who held it before us may have succeeded.
		c, err := s.options.dial(ctx)
		if err == nil || (ctx.Err() == nil && !worthWaiting(err)) {
			return c, err
		}
		s.silent = nil
		if errors.Is(err, ErrNotServing) {
			s.silent = err
		}
		if mayStart && errors.Is(err, ErrNoDaemon) {
			if s.child, err = s.options.start(); err != nil {
				return nil, err
			}
			wait = firstWait
		}
		if err := s.pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// mayStart reports whether it is on us to start a process now.
func (s *starter) mayStart() bool {
	if s.child != nil || time.Now().Before(s.notBefore) {
		return false
	}
	if s.lock.Locked() {
		return true
	}
	// A lock that cannot be had for another reason than a holder, say on a
	// read-only disk, is no reason to start nothing.
	held, err := s.lock.TryLock()
	return held || err != nil || time.Since(s.began) > startLockPatience
}

func (s *starter) unlock() {
	// Closing the file releases the lock in any case.
	_ = s.lock.Unlock()
}

// pause waits for d, for the end of our child or for the end of ctx. The error
// is why there is nothing left to wait for.
func (s *starter) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var exited chan error
	if s.child != nil {
		exited = s.child.exited
	}
	select {
	case <-timer.C:
		return nil
	case err := <-exited:
		return s.childEnded(ctx, err)
	case <-ctx.Done():
		if s.silent != nil && s.child == nil {
			return Unresponsive(s.options.Project, s.silent)
		}
		return s.startError(fmt.Errorf("not serving yet: %w", context.Cause(ctx)))
	}
}

// Unresponsive adds to an ErrNotServing which process it is about, as far as the
// project knows, and what to do. It returns any other error as it is.
func Unresponsive(p project.Project, err error) error {
	if !errors.Is(err, ErrNotServing) {
		return err
	}
	who := "its process"
	if pid := p.DaemonPID(); pid != 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	return fmt.Errorf("%w; it may be stopped or stuck: let it go on, or end %s with SIGKILL and the next daemon cleans up after it", err, who)
}

func (s *starter) childEnded(ctx context.Context, outcome error) error {
	if exit, ok := errors.AsType[*exec.ExitError](outcome); ok && exit.ExitCode() == ExitRunning {
		s.child = nil
		s.notBefore = time.Now().Add(respawnAfter)
		return nil
	}
	failure := s.startError(outcome)
	// Somebody else's daemon may serve by now, or in a moment, if ours handed over
	// to it; then ours does not matter.
	var until time.Time
	if errors.Is(outcome, errExited) {
		until = time.Now().Add(handoverGap)
	}
	ticker := time.NewTicker(firstWait)
	defer ticker.Stop()
	for {
		if c, err := s.options.dial(ctx); err == nil {
			s.child = nil
			return c.Close()
		}
		if !time.Now().Before(until) {
			return failure
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return failure
		}
	}
}

func (s *starter) startError(err error) error {
	if s.child == nil {
		return &StartError{Err: err}
	}
	return &StartError{Err: err, Tail: s.child.log.tail(), LogPath: s.child.log.path}
}

// start starts a daemon process. The goroutine it leaves behind is the one that
// nobody waits for: it reaps the process, which is meant to outlive the caller,
// and ends with it or with this program.
func (o Options) start() (*child, error) {
	binary, err := o.binary()
	if err != nil {
		return nil, &StartError{Err: err}
	}
	log, err := openStartLog(o.Project.StartLog(), append([]string{binary}, o.args()...))
	if err != nil {
		return nil, &StartError{Err: err}
	}
	defer func() { _ = log.file.Close() }()
	cmd, err := startDetached(exec.Cmd{
		Path:   binary,
		Args:   append([]string{binary}, o.args()...),
		Dir:    o.Project.Root,
		Env:    o.environment(),
		Stdout: log.file,
		Stderr: log.file,
	})
	if err != nil {
		return nil, &StartError{Err: err}
	}
	c := &child{pid: int64(cmd.Process.Pid), log: log, exited: make(chan error, 1), kill: cmd.Process.Kill}
	go func() {
		err := cmd.Wait()
		if err == nil {
			err = errExited
		}
		c.exited <- err
	}()
	return c, nil
}

func (o Options) args() []string {
	if o.Args != nil {
		return o.Args
	}
	args := []string{"run", "--autostarted", "--project", o.Project.Root}
	if o.Socket != "" {
		args = append(args, "--socket", o.Socket)
	}
	return args
}

// backendMark is the variable that marks the processes of a backend.
const backendMark = "DEVPROXY_BACKEND="

// environment is the daemon's, without the mark of a backend: a server under
// development may use devproxy itself, and the end of that server must not be
// the end of a daemon that it started.
func (o Options) environment() []string {
	environment := o.Environment
	if environment == nil {
		environment = os.Environ()
	}
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return strings.HasPrefix(variable, backendMark)
	})
}

// binary finds devproxyd: beside our own executable first, because a client's
// PATH may be short.
func (o Options) binary() (string, error) {
	if o.Binary != "" {
		return filepath.Abs(o.Binary)
	}
	path, looked, err := Beside("devproxyd")
	if path != "" || err != nil {
		return path, err
	}
	if path, err = exec.LookPath("devproxyd"); err != nil {
		return "", fmt.Errorf("devproxyd is neither in %s nor in PATH: %w",
			strings.Join(looked, ", "), exec.ErrNotFound)
	}
	return filepath.Abs(path)
}

// Beside finds one of the programs beside our own executable, since they are
// installed together; a link to our executable counts as a place of its own. path
// is empty if it is in none of the folders that were looked at.
func Beside(program string) (path string, looked []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("finding our own executable: %w", err)
	}
	looked = []string{filepath.Dir(self)}
	if target, err := filepath.EvalSymlinks(self); err == nil && target != self {
		looked = append(looked, filepath.Dir(target))
	}
	for _, dir := range looked {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, looked, nil
		}
	}
	return "", looked, nil
}

// startLog is where a daemon process writes before it has a log of its own.
type startLog struct {
	path string
	file *os.File
	// offset is where the output of our process begins.
	offset int64
}

// openStartLog opens the log to append to it, so that processes that are
// started together do not write over each other.
func openStartLog(path string, command []string) (*startLog, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the start log: %w", err)
	}
	log := &startLog{path: path, file: file}
	if err := log.begin(command); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning the start log: %w", err), file.Close())
	}
	return log, nil
}

func (l *startLog) begin(command []string) error {
	if info, err := l.file.Stat(); err == nil && info.Size() > maxStartLog {
		// By its name: Windows does not let a file be cut that was opened to append.
		if err := os.Truncate(l.path, 0); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(l.file, "%s process %d starts %s\n",
		time.Now().Format(time.RFC3339), os.Getpid(), strings.Join(command, " "))
	if err != nil {
		return err
	}
	l.offset, err = l.file.Seek(0, io.SeekEnd)
	return err
}

// tail returns the last of what was written since our process was started.
func (l *startLog) tail() string {
	content, err := readFrom(l.path, l.offset)
	if err != nil {
		return ""
	}
	if cut := len(content) - maxTail; cut > 0 {
		content = content[cut:]
		if line := bytes.IndexByte(content, '\n'); line >= 0 {
			content = content[line+1:]
		}
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(content)), "\uFFFD")
}

func readFrom(path string, offset int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < offset {
		return nil, fs.ErrNotExist // begun anew by somebody else
	}
	offset = max(offset, info.Size()-maxStartLog)
	return io.ReadAll(io.NewSectionReader(file, offset, maxStartLog))
}
