// Package cli is what the command lines of devproxyd and devproxyctl share:
// which project is meant, exit codes, and how an error is told.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/project"
)

// Exit codes of the programs.
const (
	ExitOK = 0
	// ExitFailed: what was asked for did not happen.
	ExitFailed = 1
	// ExitUsage: the command line or the configuration is wrong.
	ExitUsage = 2
	// ExitNoDaemon: no daemon runs for the project.
	ExitNoDaemon = 3
	// ExitInterrupted: Ctrl-C.
	ExitInterrupted = 130
)

// ExitCodes documents the exit codes, for help texts.
const ExitCodes = `Exit codes: 0 done; 1 it did not happen, stderr says why; 2 wrong usage or
configuration; 3 no daemon runs for the project; 130 interrupted.`

// Group is the Args of a command that only holds others: whatever follows it is
// no command.
func Group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	advice := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
	if close := suggestions(cmd, args[0]); len(close) > 0 {
		// One who stopped typing is more likely than one who mistyped.
		began := max(0, slices.IndexFunc(close, func(name string) bool { return strings.HasPrefix(name, args[0]) }))
		advice = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+close[began])
	}
	return Usage(fmt.Errorf("unknown command %q; %s", args[0], advice))
}

// suggestions are the commands that are nearest to a word.
func suggestions(cmd *cobra.Command, word string) []string {
	most := cmd.SuggestionsMinimumDistance
	defer func() { cmd.SuggestionsMinimumDistance = most }()
	for cmd.SuggestionsMinimumDistance = min(1, most); ; cmd.SuggestionsMinimumDistance++ {
		if close := cmd.SuggestionsFor(word); len(close) > 0 || cmd.SuggestionsMinimumDistance >= most {
			return close
		}
	}
}

// usageError is an error of the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks err as the user's own: ExitUsage.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// WithCode gives err an exit code of its own.
func WithCode(err error, code int) error { return codedError{err, code} }

// finalError is an error whose exit code is that of a command which was run for
// the person, and has had its own word on Ctrl-C.
type finalError struct{ codedError }

// Final is WithCode, also after Ctrl-C.
func Final(err error, code int) error { return finalError{codedError{err, code}} }

// IsUsage reports whether err is the user's own.
func IsUsage(err error) bool { return errors.As(err, new(usageError)) }

// errTold is an error that a person has read already.
var errTold = errors.New("told already")

// Told is the error of a command that has said itself what is wrong.
func Told(code int) error { return WithCode(errTold, code) }

// Target is the daemon that a command is about.
type Target struct {
	// Dir is --project; empty means upwards from the working directory.
	Dir string
	// SocketPath is --socket or DEVPROXY_SOCKET; empty means the project's own.
	SocketPath string
}

// AddFlags adds --project and --socket to a command and all below it.
func (t *Target) AddFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&t.Dir, "project", "", "folder of the project, `DIR` (default: upwards from here to a devproxy.toml)")
	flags.StringVar(&t.SocketPath, "socket", os.Getenv("DEVPROXY_SOCKET"), "socket of the daemon, `PATH` (default: the project's own)")
	_ = cmd.MarkPersistentFlagDirname("project")
}

// Project returns the project that is meant.
func (t *Target) Project() (project.Project, error) {
	if t.Dir != "" {
		p, err := project.At(t.Dir)
		return p, Usage(err)
	}
	p, err := project.Find(".")
	if errors.Is(err, project.ErrNotFound) {
		err = fmt.Errorf("%w; \"devproxyctl init\" writes one; or name the project with --project DIR", err)
	}
	return p, Usage(err)
}

// Dial connects to the project's daemon, as Find does, and makes sure that it
// speaks the contract of this program; of another version it warns on stderr.
func (t *Target) Dial(cmd *cobra.Command) (*client.Client, project.Project, error) {
	defer Waiting(cmd, "the daemon to answer")()
	c, p, err := t.Find(cmd.Context())
	if err != nil {
		return nil, p, err
	}
	status, err := c.Status(cmd.Context(), false)
	if err == nil {
		err = CheckBuild(cmd, status)
	}
	if err != nil {
		return nil, p, errors.Join(fmt.Errorf("talking to the daemon of %s on %s: %w", p.Root, c.Socket(), err), c.Close())
	}
	return c, p, nil
}

// OwnBuild is the build of the program that cmd belongs to, for comparisons.
func OwnBuild(cmd *cobra.Command) client.Build {
	return client.Build{Program: cmd.Root().Name(), Version: cmd.Root().Version, Contract: client.Contract}
}

// CheckBuild reports a daemon of another contract, and warns on stderr of one of
// another version. It is the person who acts on either.
func CheckBuild(cmd *cobra.Command, status *client.Status) error {
	const replace = `"devproxyd restart" replaces the daemon by the installed version`
	ours, theirs := OwnBuild(cmd), client.RunningBuild(status)
	err := client.CheckContract(ours, theirs)
	if other, ok := errors.AsType[*client.IncompatibleError](err); ok && other.TheirsIsOlder() {
		return fmt.Errorf("%w; %s", err, replace)
	}
	if err != nil {
		return err
	}
	if skew := client.Skew(ours, theirs); skew != "" {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s; %s\n", ours.Program, skew, replace)
	}
	return nil
}

// awayError says that the daemon runs and has no socket. It is an ErrNoDaemon.
type awayError struct {
	root   string
	pid    int
	socket string
}

func (e *awayError) Error() string {
	return fmt.Sprintf("the daemon of %s, pid %d, runs, but its socket %s is gone; it makes a new one within a second, unless it just starts or ends: ask again", e.root, e.pid, e.socket)
}

func (*awayError) Unwrap() error { return client.ErrNoDaemon }

// Find connects to the project's daemon, whatever its version. Where none runs
// the error says for which project and on which socket, and what to do.
func (t *Target) Find(ctx context.Context) (*client.Client, project.Project, error) {
	p, err := t.Project()
	if err != nil {
		return nil, p, err
	}
	socket, err := t.Socket(p)
	if err != nil {
		return nil, p, err
	}
	c, err := dial(ctx, socket)
	if errors.Is(err, client.ErrNoDaemon) {
		if client.Held(p) {
			return nil, p, &awayError{p.Root, p.DaemonPID(), socket}
		}
		advice := "start one with \"devproxyd start\""
		if p.HasConfig() != nil {
			advice = "there is no " + project.ConfigName + " either, so check --project"
		}
		return nil, p, fmt.Errorf("%w for %s (socket %s); %s", client.ErrNoDaemon, p.Root, socket, advice)
	}
	if err == nil && t.SocketPath != "" {
		err = checkServes(ctx, c, p)
	}
	if err != nil {
		return nil, p, fmt.Errorf("talking to the daemon of %s on %s: %w", p.Root, socket, client.Unresponsive(p, err))
	}
	return c, p, nil
}

// FromTerminal says how to start the daemon from this terminal, with more
// arguments if there are some.
func (t *Target) FromTerminal(p project.Project, more ...string) client.Options {
	args := []string{"run", "--detached", "--project", p.Root}
	if t.SocketPath != "" {
		args = append(args, "--socket", t.SocketPath)
	}
	return client.Options{Project: p, Socket: t.SocketPath, Args: append(args, more...)}
}

// endingWithin is how long a daemon that ends may hang up on those who come.
const endingWithin = 3 * time.Second

// dial connects to a daemon that serves. One that ends in this moment is none.
func dial(ctx context.Context, socket string) (*client.Client, error) {
	const pause = 20 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for until := time.Now().Add(endingWithin); ; {
		c, err := client.Dial(ctx, socket)
		if !errors.Is(err, client.ErrHungUp) || time.Now().After(until) {
			return c, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Ensure returns the status of a daemon that serves, starting one if need be.
func Ensure(ctx context.Context, o client.Options) (*client.Status, error) {
	const tries = 10 // more people than restart one daemon at the same time
	for try := 1; ; try++ {
		c, err := client.EnsureRunning(ctx, o)
		if err != nil {
			return nil, err
		}
		status, err := c.Status(ctx, false)
		_ = c.Close()
		if !errors.Is(err, client.ErrNotServing) || try == tries {
			return status, err
		}
	}
}

// checkServes closes a client whose daemon is not that of the project.
func checkServes(ctx context.Context, c *client.Client, p project.Project) error {
	status, err := c.Status(ctx, false)
	if err == nil {
		err = CheckServes(status, p)
	}
	if err != nil {
		_ = c.Close()
	}
	return err
}

// CheckServes reports a daemon that is not that of the project: a socket that
// somebody named may be anybody's.
func CheckServes(status *client.Status, p project.Project) error {
	if root := status.GetDaemon().GetProjectRoot(); root != p.Root {
		return Usage(fmt.Errorf("the daemon there serves %s, not %s; check --socket and DEVPROXY_SOCKET", root, p.Root))
	}
	return nil
}

// Socket returns the path of the project's socket: the one named, the one a
// daemon wrote down, or the one that a new daemon would serve.
func (t *Target) Socket(p project.Project) (string, error) {
	if t.SocketPath == "" {
		if recorded := p.RecordedSocket(); recorded != "" {
			return recorded, nil
		}
	}
	socket, err := p.Socket(t.SocketPath)
	return socket, Usage(err)
}

// Moment is how long a person waits before he wonders whether anything happens.
const Moment = time.Second

// Waiting tells on stderr what a command waits for, if that takes longer than a
// moment. The function returned keeps it from doing so.
func Waiting(cmd *cobra.Command, what string) (stop func()) {
	told := make(chan struct{})
	timer := time.AfterFunc(Moment, func() {
		defer close(told)
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s; Ctrl-C ends it\n", what)
	})
	return func() {
		if !timer.Stop() {
			<-told
		}
	}
}

// suggested is how many letters a slip in typing has, at most.
const suggested = 2

// Main runs a program's root command and returns its exit code. SIGINT and
// SIGTERM end the command's context.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	// The sources of these are not errors worth the usage text.
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage(flagWords(cmd, err))
	})
	root.SuggestionsMinimumDistance = suggested
	root.SetHelpCommand(newHelp(root))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if ctx.Err() != nil && !errors.As(err, new(finalError)) {
		return ExitInterrupted
	}
	if errors.Is(err, errTold) {
		return exitCode(err)
	}
	// It may be made of what a server said last.
	text := Printable(ForPerson(strings.TrimRight(err.Error(), "\n")))
	_, _ = fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.Name(), text)
	return exitCode(err)
}

func exitCode(err error) int {
	if final, ok := errors.AsType[finalError](err); ok {
		return final.code
	}
	if coded, ok := errors.AsType[codedError](err); ok {
		return coded.code
	}
	switch {
	case errors.Is(err, client.ErrNoDaemon):
		return ExitNoDaemon
	case IsUsage(err):
		return ExitUsage
	}
	return ExitFailed
}

// Args wraps a check of arguments so that its failure is one of usage.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return argsWords(cmd, args, check, err)
		}
		return nil
	}
}

// Version returns the version of this build: what the linker was told, else
// what the Go toolchain knows of the module.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
