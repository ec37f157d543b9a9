package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// MarkerVariable is the environment variable that marks every process of a group, so that even
// one that left the group can be recognised as ours. Its value is [Spec].Marker.
const MarkerVariable = "DEVPROXY_BACKEND"

// ErrReleased is returned by a second [Process.Release].
var ErrReleased = errors.New("process was released already")

// ErrEnded is returned by [Process.Release] when the gate was gone before it could open.
var ErrEnded = errors.New("process ended before it was released")

// Spec says what to run.
type Spec struct {
	Path string   // the program's file, as [LookPath] found it; also its argv[0]
	Args []string // the arguments after argv[0]
	Dir  string   // working directory; empty: the caller's

	// Env is the whole environment of the command, passed on byte for byte. Only an inherited
	// DEVPROXY_BACKEND is replaced.
	Env []string

	// Marker becomes the value of DEVPROXY_BACKEND: "<project hash>:<generation>". Empty means
	// unmarked, and then the process group is all that is tracked.
	Marker string

	// Merge joins stderr to stdout in one pipe, which keeps the order of their lines.
	// Stderr then is empty.
	Merge bool

	verbatim string // Windows: the command line as it is, set by Shell
}

// Process is one started process with its group. See the package comment for its life.
type Process struct {
	proc     *os.Process
	identity Identity
	group    *group

	stdin          *input
	stdout, stderr *output

	message  []byte // what the gate is to run
	gate     *os.File
	status   *os.File
	released atomic.Bool

	done chan struct{}
	exit Exit // written before done closes

	ending sync.Mutex // one ladder at a time
	ended  atomic.Bool
}

// Start spawns the gate for spec in its own process group, with pipes for stdin, stdout and
// stderr. The command itself runs after [Process.Release].
func Start(spec Spec) (*Process, error) {
	message, err := encode(spec)
	if err != nil {
		return nil, err
	}
	if insideGate() {
		return nil, errors.New("starting a process: the program must call process.Main first")
	}
	group, err := newGroup()
	if err != nil {
		return nil, err
	}
	pipes, err := openPipes(spec.Merge)
	if err != nil {
		group.close()
		return nil, fmt.Errorf("opening pipes: %w", err)
	}
	proc, err := spawnGate(pipes, group, spec.Marker)
	pipes.closeTheirs()
	if err != nil {
		pipes.closeOurs()
		group.close()
		return nil, fmt.Errorf("spawning the gate process: %w", err)
	}
	p := &Process{
		proc:    proc,
		group:   group,
		message: message,
		stdin:   &input{file: pipes.stdin.ours},
		stdout:  newOutput(pipes.stdout.ours),
		stderr:  newOutput(pipes.stderr.ours),
		gate:    pipes.gate.ours,
		status:  pipes.status.ours,
		done:    make(chan struct{}),
	}
	if err := p.adopt(spec.Marker); err != nil {
		_ = proc.Kill()
		_, _ = proc.Wait()
		pipes.closeOurs()
		group.close()
		return nil, err
	}
	go p.wait()
	return p, nil
}

// adopt learns who the child is and takes hold of its group. The child is unreaped and waits at
// the gate, so its pid cannot mean anybody else.
func (p *Process) adopt(marker string) error {
	identity, err := identify(p.proc.Pid)
	if err != nil {
		return fmt.Errorf("identifying process %d: %w", p.proc.Pid, err)
	}
	identity.Marker = marker
	p.identity = identity
	if err := p.group.follow(identity, p.gate); err != nil {
		return fmt.Errorf("taking hold of process %d: %w", p.proc.Pid, err)
	}
	return nil
}

// wait is the only place that waits for the leader. It does not look at the pipes, which a
// grandchild may hold for as long as it likes (golang/go#23019).
func (p *Process) wait() {
	state, err := p.proc.Wait()
	p.exit = exitOf(state, err)
	p.group.leaderReaped()
	close(p.done)
}

// Release opens the gate: the child becomes the command. It returns once that happened, or an
// [*ExecError] when it cannot be run; the gate has exited then. It blocks while the gate is
// stopped by a signal, until somebody continues or terminates it.
func (p *Process) Release() error {
	if !p.released.CompareAndSwap(false, true) {
		return ErrReleased
	}
	defer func() { _ = p.status.Close() }()
	_, err := p.gate.Write(p.message)
	p.message = nil
	if !gateStaysOpen {
		_ = p.gate.Close()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return decodeFailure(p.status)
}

// PID is the leader's process id, the same before and after Release.
func (p *Process) PID() int { return p.identity.PID }

// Identity tells this process from any other that may get its pid later.
func (p *Process) Identity() Identity { return p.identity }

// Stdin is the way into the command. Closing it twice is fine; Terminate closes it too.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout gives what the group writes to standard output. It has one reader, who must read to the
// end, or the command stalls. The end comes when all writers are gone, and at the latest when
// Terminate returns.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Stderr is like Stdout for standard error.
func (p *Process) Stderr() io.Reader { return p.stderr }

// Done is closed when the leader has exited and was reaped, whatever became of its group and of
// the pipes.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the leader ended. It is the zero Exit until Done is closed.
func (p *Process) Exit() Exit {
	select {
	case <-p.done:
		return p.exit
	default:
		return Exit{}
	}
}

// Members lists the live processes of the group, the leader included, in ascending order. See
// the package comment for what belongs to a group where. After a successful Terminate it is
// always empty.
func (p *Process) Members() ([]int, error) {
	if p.ended.Load() {
		return nil, nil
	}
	members, err := p.group.members()
	if err != nil {
		return nil, fmt.Errorf("listing the group of process %d: %w", p.identity.PID, err)
	}
	slices.Sort(members)
	return members, nil
}

// pipe is one pipe between us and the child.
type pipe struct{ ours, theirs *os.File }

func pipeIn() (pipe, error) {
	theirs, ours, err := os.Pipe()
	return pipe{ours: ours, theirs: theirs}, err
}

func pipeOut() (pipe, error) {
	ours, theirs, err := os.Pipe()
	return pipe{ours: ours, theirs: theirs}, err
}

// pipes are the five ways between us and the child. With merged output stderr has no end of ours,
// and its other end is that of stdout.
type pipes struct{ stdin, stdout, stderr, gate, status pipe }

func openPipes(merge bool) (*pipes, error) {
	var p pipes
	var errs [5]error
	p.stdin, errs[0] = pipeIn()
	p.stdout, errs[1] = pipeOut()
	if merge {
		p.stderr.theirs = p.stdout.theirs
	} else {
		p.stderr, errs[2] = pipeOut()
	}
	p.gate, errs[3] = pipeIn()
	p.status, errs[4] = pipeOut()
	if err := errors.Join(errs[:]...); err != nil {
		p.closeOurs()
		p.closeTheirs()
		return nil, err
	}
	return &p, nil
}

// closeOurs and closeTheirs rely on Close of a nil or closed *os.File being a harmless error.
func (p *pipes) closeOurs() {
	for _, end := range []pipe{p.stdin, p.stdout, p.stderr, p.gate, p.status} {
		_ = end.ours.Close()
	}
}

func (p *pipes) closeTheirs() {
	for _, end := range []pipe{p.stdin, p.stdout, p.stderr, p.gate, p.status} {
		_ = end.theirs.Close()
	}
}

// input is the writing end of stdin. It remembers when it was closed, because the first rung of
// the ladder counts from then.
type input struct {
	file *os.File

	mu       sync.Mutex
	closedAt time.Time
}

func (in *input) Write(b []byte) (int, error) { return in.file.Write(b) }

func (in *input) Close() error {
	in.close()
	return nil
}

// close closes stdin if it is still open, and reports since when it is closed.
func (in *input) close() time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closedAt.IsZero() {
		in.closedAt = time.Now()
		_ = in.file.Close()
	}
	return in.closedAt
}

// output is the reading end of stdout or stderr. It knows when its reader has seen the end, so
// that Terminate need not cut off what is still in the pipe.
type output struct {
	file  *os.File      // nil: merged into the other one
	ended chan struct{} // closed when a Read met the end or an error
	once  sync.Once
}

func newOutput(file *os.File) *output {
	return &output{file: file, ended: make(chan struct{})}
}

// Read reports the closing by Terminate as the end: nothing of the group writes any more then.
func (o *output) Read(b []byte) (int, error) {
	if o.file == nil {
		return 0, io.EOF
	}
	n, err := o.file.Read(b)
	if err != nil {
		o.once.Do(func() { close(o.ended) })
	}
	if errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// close ends the reading side once its reader saw the end, or when the grace is over.
func (o *output) close(grace <-chan struct{}) {
	if o.file == nil {
		return
	}
	select {
	case <-o.ended:
	case <-grace:
	}
	_ = o.file.Close()
}

// markerEnv gives the command's environment: Env without any inherited marker, and ours first.
func markerEnv(env []string, marker string) []string {
	marked := make([]string, 0, len(env)+1)
	if marker != "" {
		marked = append(marked, MarkerVariable+"="+marker)
	}
	for _, entry := range env {
		if !strings.HasPrefix(entry, MarkerVariable+"=") {
			marked = append(marked, entry)
		}
	}
	return marked
}
