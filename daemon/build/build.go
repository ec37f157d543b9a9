package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/internal/process"
)

const (
	// maxLine bounds one line of output, in bytes. Compilers print long paths and minified code;
	// what is longer is no message for a person.
	maxLine = 16 << 10

	// tailLines and tailBytes bound Result.Tail: the end of a compiler's output says what is
	// wrong, and has to fit into an answer that a model reads.
	tailLines = 100
	tailBytes = 32 << 10

	// stopRung is how long a build gets to end after SIGTERM. It has nothing to save but its own
	// half-written output.
	stopRung = 2 * time.Second
)

// Spec says what to build, and where.
type Spec struct {
	Command string   // run through the platform's shell: /bin/sh -c, or cmd /C on Windows
	Argv    []string // instead of Command: the program, found in Env's PATH, and its arguments

	Dir string   // working directory
	Env []string // the whole environment

	// Timeout is how long the build may take; 0 means without limit.
	Timeout time.Duration

	// Marker marks the processes of the build, "<project hash>:build", so that a later daemon
	// finds those of one that was killed.
	Marker string
}

// Result says how a build went.
type Result struct {
	// Err is nil if the build succeeded. Else it is, possibly wrapped or joined with what went
	// wrong in ending the group: an [*ExitError], a [*TimeoutError], an [*process.ExecError] or
	// [*process.NotFoundError] if there was nothing to run, or the cause of ctx.
	Err error

	Duration time.Duration

	// Tail is the end of the output, at most 100 lines and 32 KiB of it.
	Tail []string
}

// ExitError says that the build ran and failed.
type ExitError struct{ Exit process.Exit }

func (e *ExitError) Error() string { return e.Exit.String() }

// TimeoutError says that the build took too long. It names the key that a user can change.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("not finished after %s (build.timeout)", words(e.After))
}

// words writes a duration as in devproxy.toml: 2m, not 2m0s.
func words(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}

// Run builds. It gives out every line of stdout and stderr, in the order in which they were
// written, from one goroutine that has ended when Run returns; out holds up the build while it
// runs. The end of ctx ends the build; Run returns once the whole group is gone.
func Run(ctx context.Context, spec Spec, out func(line string)) Result {
	began := time.Now()
	var end tail
	err := run(ctx, spec, func(line string) {
		end.add(line)
		out(line)
	})
	return Result{Err: err, Duration: time.Since(began), Tail: end.lines}
}

func run(ctx context.Context, spec Spec, out func(string)) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if spec.Timeout > 0 {
		var cancel context.CancelFunc
		late := &TimeoutError{After: spec.Timeout}
		ctx, cancel = context.WithTimeoutCause(ctx, spec.Timeout, late)
		defer cancel()
	}
	command, err := spec.process()
	if err != nil {
		return err
	}
	p, err := process.Start(command)
	if err != nil {
		return err
	}
	// Nobody answers questions: whoever asks one learns it from the end of the input.
	_ = p.Stdin().Close()

	printed := make(chan error, 1)
	go func() { printed <- process.Lines(p.Stdout(), maxLine, out) }()
	released := make(chan error, 1)
	go func() { released <- p.Release(); close(released) }()

	err = outcome(ctx, p, released)
	// The input ended long ago, so the ladder need not begin with it.
	_ = p.Interrupt()
	// What the command left behind goes too, and all of it goes even though ctx has ended.
	gone := p.Terminate(context.WithoutCancel(ctx), stopRung)
	for range released { // a gate that never opened has just been ended
	}
	return errors.Join(err, gone, <-printed)
}

// outcome waits until the command has ended, or ctx. A gate that does not open (a signal may
// have stopped it) holds up neither.
func outcome(ctx context.Context, p *process.Process, released <-chan error) error {
	select {
	case err := <-released:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if exit := p.Exit(); !exit.Success() {
		return &ExitError{Exit: exit}
	}
	return nil
}

// process is the command that spec means.
func (s Spec) process() (process.Spec, error) {
	command, err := s.command()
	command.Dir, command.Env, command.Marker, command.Merge = s.Dir, s.Env, s.Marker, true
	return command, err
}

func (s Spec) command() (process.Spec, error) {
	if len(s.Argv) == 0 {
		if strings.TrimSpace(s.Command) == "" {
			return process.Spec{}, errors.New("no build command given")
		}
		return process.Shell(s.Command)
	}
	path, err := process.LookPath(s.Argv[0], process.SearchPath(s.Env), s.Dir)
	if err != nil {
		return process.Spec{}, err
	}
	return process.Spec{Path: path, Args: s.Argv[1:]}, nil
}

// tail keeps the end of an output.
type tail struct {
	lines []string
	bytes int
}

func (t *tail) add(line string) {
	t.lines = append(t.lines, line)
	t.bytes += len(line)
	// A single line is within tailBytes: maxLine is less.
	for len(t.lines) > tailLines || t.bytes > tailBytes {
		t.bytes -= len(t.lines[0])
		t.lines = t.lines[1:]
	}
}
