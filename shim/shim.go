package shim

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// ErrSlowConsumer says that the client was given up because it does not read.
var ErrSlowConsumer = errors.New("the client does not read: the session is closed and not resumed")

// Config says for whom the shim works and with what.
type Config struct {
	// Stdin, Stdout and Stderr are the client's. Each is interrupted when Run
	// returns, if it can be: by its SetDeadline, or by Close if it is no file.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Dir is where the search for the project begins, upwards; empty means the
	// working directory.
	Dir string
	// ProjectDir is the project's folder itself; empty means to search.
	ProjectDir string
	// Socket overrides the path of the daemon's socket; may be empty.
	Socket string
	// NoAutostart forbids to start a daemon.
	NoAutostart bool
	// Version is that of this build.
	Version string
	// Environ is the client's environment, for a daemon that is started.
	Environ []string
	// Connect gets a connection to a daemon, which it may start if autostart is
	// set. Nil means the project's.
	Connect func(ctx context.Context, autostart bool) (Daemon, error)
}

const (
	// exitWithin is how long Run goes on after the end of its stdin: a promise of
	// 250 ms less what the end of a process takes on a busy machine.
	exitWithin = 180 * time.Millisecond
	// pumpGrace is how long a pump that was given something may take to write
	// it, when Run ends at once.
	pumpGrace = 20 * time.Millisecond
)

// Run carries the client's messages until its input has ended and what was read
// is answered, or exitWithin is over; until ctx ends or stdout is lost, at once.
// All of these are nil. The one error is ErrSlowConsumer.
//
// A pump that is stuck in a descriptor which cannot be interrupted is left
// behind; it touches nothing any more, and the program is expected to end.
func Run(ctx context.Context, config Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var pumps sync.WaitGroup // of the attempts and links, which ctx ends
	s := newSession(config, &pumps)
	streams := startStreams(config)
	err := s.run(ctx, streams)
	cancel(errLeft)
	streams.finish(ctx, s.out, s.finishBy(err))
	if s.link != nil {
		s.link.leave()
	}
	pumps.Wait()
	s.dropAttempt()
	return err
}

// streams are the pumps of the three standard streams.
type streams struct {
	config Config
	lines  chan line
	frames chan []byte
	notes  chan string
	failed chan error    // of stdout
	stop   chan struct{} // ends readLines unless it is stuck

	reader, writer, noter chan struct{} // closed by each at its end
}

func startStreams(config Config) *streams {
	s := &streams{
		config: config,
		lines:  make(chan line),
		frames: make(chan []byte),
		notes:  make(chan string, maxNotes),
		failed: make(chan error, 1),
		stop:   make(chan struct{}),
	}
	s.reader = running(func() { readLines(config.Stdin, s.lines, s.stop) })
	s.writer = running(func() { writeLines(config.Stdout, s.frames, s.failed) })
	s.noter = running(func() { writeNotes(config.Stderr, s.notes) })
	return s
}

// running runs f in a goroutine and returns what is closed at its end.
func running(f func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// finish writes what is left until the time is up, and ends the pumps. It goes
// on after the end of ctx.
func (s *streams) finish(ctx context.Context, rest [][]byte, by time.Time) {
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(ctx), by, errLeft)
	defer cancel()
	for _, frame := range rest {
		select {
		case s.frames <- frame:
		case <-s.writer:
		case <-ctx.Done():
		}
	}
	close(s.frames)
	close(s.notes)
	close(s.stop)
	grace, cancelGrace := context.WithTimeoutCause(context.WithoutCancel(ctx),
		max(pumpGrace, time.Until(by)), errLeft)
	defer cancelGrace()
	join(s.writer, s.config.Stdout, grace.Done())
	join(s.noter, s.config.Stderr, grace.Done())
	join(s.reader, s.config.Stdin, ctx.Done())
}

// join waits for a pump to end, until patience is over, and then interrupts it
// in file, or leaves it behind if that does not help.
func join(pump <-chan struct{}, file any, patience <-chan struct{}) {
	select {
	case <-pump:
		return
	case <-patience:
	}
	if interrupt(file) {
		select {
		case <-pump:
		case <-time.After(pumpGrace):
		}
	}
}
