package backend

import (
	"context"
	"log/slog"
	"time"

	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/era"
)

// Transport is how the daemon talks to the backend.
type Transport string

// The transports of `[backend] transport`.
const (
	HTTP  Transport = "http"
	Stdio Transport = "stdio"
	SSE   Transport = "sse"
)

// State is where the backend is in its life.
type State uint8

// The states. Only Starting to Stopping have a process.
const (
	// Idle: not running; the first request that needs it starts it.
	Idle State = iota
	// Building: the build that precedes a start runs, and nothing else does. A
	// build beside a running backend shows in Status.Building instead.
	Building
	// Starting: a generation is being prepared, spawned or waited for.
	Starting
	// Running: handshaken and serving.
	Running
	// Draining: calls in flight may finish before it stops.
	Draining
	// Stopping: the stop ladder is under way, or what a dead leader left behind
	// is being ended.
	Stopping
	// Backoff: crashed; starts again after a delay.
	Backoff
	// Failed: given up until a rebuild, a restart or a change in the watched
	// paths.
	Failed
)

// String names the state as status shows it.
func (s State) String() string {
	switch s {
	case Idle:
		return "idle"
	case Building:
		return "building"
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Draining:
		return "draining"
	case Stopping:
		return "stopping"
	case Backoff:
		return "backoff"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Config is what a Supervisor needs of its surroundings. Launch, RecordFile and
// Marker must be set.
type Config struct {
	// Launch says how to start the next generation. It is asked anew at each
	// start, so that configuration, env_file and overrides are those of that
	// moment. An error that wraps a *Failure keeps its reason; of the others one
	// that wraps exec.ErrNotFound becomes CommandNotFound, the rest
	// ConfigInvalid.
	Launch func(context.Context) (Launch, error)
	// Command is the configured command as Launch.Command will have it. It
	// selects the snapshot shown before the first start; nil takes the one of
	// the last handshake, whatever its command.
	Command []string
	// Greeting is what the shared handshake of a stdio backend says: era and
	// clientInfo of the session whose request starts it, and the union of the
	// capabilities of all. It must not block. nil greets as nobody in
	// particular.
	Greeting func() era.Peer
	// Build runs the build command and passes each line of its output to out,
	// which must not be called after the return. nil: no build is configured.
	Build func(ctx context.Context, out func(line string)) error
	// Output takes every line the backend writes outside the protocol. stream
	// is "stderr", "stdout" (http, sse) or "stdout-noise" (stdio). It is called
	// from several goroutines and must not block. nil drops the lines.
	Output func(generation uint64, stream, line string)
	// Baseline takes the content fingerprint of the watched paths. It is called
	// before every spawn; a missingEntry other than "" means that there is
	// nothing to start yet. nil checks nothing.
	Baseline func(context.Context) (missingEntry string, err error)
	// Taken is the number of the last change that a Baseline has seen: hearing of
	// it, or of one before, leads to nothing. It must not block. nil: none has
	// seen any.
	Taken func() uint64
	// Observer hears what becomes of the generations. nil: nobody does.
	Observer Observer
	// RecordFile keeps the identity of the running process for a daemon that
	// comes after this one.
	RecordFile string
	// SnapshotFile keeps what the backend said in its handshakes; "" keeps it
	// in memory only.
	SnapshotFile string
	// Marker names the project (its hash). With the generation appended it is
	// put into the environment of everything that is started.
	Marker string
	// Logger may be nil.
	Logger *slog.Logger
}

// Launch is how to start one generation. In the arguments of Command and in the
// variables of Env that PortIn names the text {port} stands for the port.
type Launch struct {
	// Command is the command and its arguments; Path is the file that
	// Command[0] resolved to.
	Command []string
	Path    string
	Dir     string
	Env     []string
	// PortIn are the variables that were written for this backend. In others, such
	// as PWD, the text is part of somebody's path.
	PortIn []string
	// Transport is http unless set.
	Transport Transport
	// Port is where an http or sse backend listens; 0 takes a free one.
	Port int
	// Endpoint is the path of the MCP endpoint, such as /mcp.
	Endpoint string
	// Health is the path to GET until it answers 2xx; "" waits for the port to
	// accept.
	Health string
	// Era limits the eras that are tried.
	Era link.Choice
	// StartTimeout bounds a start from the spawn to the handshake, StopTimeout
	// each rung of the stop ladder. Zero means 30 s and 5 s.
	StartTimeout time.Duration
	StopTimeout  time.Duration
	// DrainTimeout is how long calls in flight may finish before a restart;
	// zero does not wait.
	DrainTimeout time.Duration
	// RestartOnCrash starts it again after a crash.
	RestartOnCrash bool
	// MaxRequest is the largest message towards a stdio backend in bytes; 0
	// means no limit.
	MaxRequest int
}

// Observer hears what becomes of the generations. It is called from the
// supervisor's loop, in order, and must only post.
//
// Up is followed by Down of the same generation, with Draining between them if
// calls in flight get time. Starting is followed by Up, by Unavailable, or by
// another Starting: a start that is abandoned for a better one ends silently.
type Observer interface {
	// Starting: that generation is being prepared. A number comes again when
	// the attempt ended before a process existed.
	Starting(generation uint64)
	// Up: it serves.
	Up(*Generation)
	// Draining: send it nothing new; call Supervisor.Drained when nothing is in
	// flight any more.
	Draining(generation uint64)
	// Down: it serves no more; whatever is in flight on it is lost, for the
	// reason given.
	Down(generation uint64, why Failure)
	// Unavailable: no generation will come up for those who wait, or not
	// without something that the Failure names; then Failure.Waiting is set,
	// and Starting may follow at any time.
	Unavailable(Failure)
}

// Status is what the supervisor publishes: one consistent moment.
type Status struct {
	State State
	// Generation is the current or last one; 0 before the first process.
	Generation uint64
	// PID is that of the leader, 0 while there is none.
	PID int
	// Port is 0 for stdio and while none is chosen.
	Port int
	// ReadyAt is when the current generation came up; zero while none is.
	ReadyAt time.Time
	// Facts are those of the live handshake; nil while not running.
	Facts *era.Facts
	// Shared: every client shares one link.
	Shared bool
	// Command and Transport are those of the last launch; empty before it.
	Command   []string
	Transport Transport
	// LastExit is how the last generation ended; nil when none did.
	LastExit *Exit
	// History are the last generations, oldest first, the current one included.
	// A generation is in it once it has a process.
	History []Lived
	// Crashes counts those inside the current window.
	Crashes int
	// RetryAt is when the next start is due while in Backoff; zero otherwise.
	RetryAt time.Time
	// Message says what is wrong or what comes next.
	Message string
	// Failure is why the state is Failed; nil otherwise.
	Failure *Failure
	// NeverRan: the start that failed came to no process. Generation, LastExit and
	// History are about those before it.
	NeverRan bool
	// Building: the build command runs.
	Building bool
	// LastBuild is the last or running build; nil when none ran.
	LastBuild *Build
}

// Lived is one generation, as the history tells it.
type Lived struct {
	Generation uint64
	// PID is that of its leader.
	PID int
	// StartedAt is when its process was there, ReadyAt when it came up; zero if
	// it has not.
	StartedAt, ReadyAt time.Time
	// Exit is how it ended, without the lines on stderr; nil while it lives.
	Exit *Exit
}

// Exit is how a generation ended.
type Exit struct {
	Generation uint64
	At         time.Time
	// Status is the exit code or signal in words, such as "exit status 1".
	Status string
	// Reason is why it ended: "crash", "restart", "stop", "shutdown", "start
	// failed" or "start abandoned".
	Reason string
	// StderrTail are its last lines on stderr, not masked.
	StderrTail []string
	// Deaf: it did not end as its input did, and had to be asked again.
	Deaf bool
}

// Build is one run of the build command.
type Build struct {
	StartedAt time.Time
	// Duration is zero while it runs.
	Duration time.Duration
	Running  bool
	OK       bool
	// Message says how it ended; empty while it runs and when it succeeded.
	Message string
	// Tail are its last lines of output, not masked.
	Tail []string
}

// RestartOptions are the choices of a restart.
type RestartOptions struct {
	// Rebuild runs the build command first. When it fails the backend is left
	// alone.
	Rebuild bool
	// Keep reports whether a build goes on though whoever asked has left for that
	// cause. nil: it is cancelled, unless somebody else waits for it. The backend is
	// left alone then, as after one that fails.
	Keep func(cause error) bool
	// Before is called once, after a successful build and before the old
	// generation is stopped: the moment to replace the overrides. Its error
	// ends the restart. nil does nothing.
	Before func() error
}

// Step is one thing that happened during a start, stop or restart. Exactly one
// of Status, Output and Build is set.
type Step struct {
	// Status is the state after a change of it.
	Status *Status
	// Output is a line of the build's output.
	Output *string
	// Build is the build that has ended.
	Build *Build
}
