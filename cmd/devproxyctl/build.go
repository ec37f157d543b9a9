package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// Exit codes of a command that cannot be run, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

const (
	// heldWithin is how long the daemon gets to hold changes back, and to hear how a
	// build failed: far above what either takes.
	heldWithin = 5 * time.Second
	// holdAgain is how often a daemon is looked for while a build goes on without one.
	holdAgain = 500 * time.Millisecond
	// silence is after how long somebody wants to know why nothing happens.
	silence = time.Second
)

var errHeldTooLate = fmt.Errorf("no answer within %s", heldWithin)

func newBuild(target *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build [--] [COMMAND [ARGUMENT...]]",
		Short: "Build in this terminal, with one restart when the build has succeeded",
		Long: `Run a command that builds your server in this terminal, as if you had run it
alone: its input and output are the terminal's, Ctrl-C goes to it, and its exit
code is this program's. Without a command that of [build] in devproxy.toml runs, in
the project's folder; environment and terminal are those from here either way.

Until it ends the daemon holds back what changes in the watched paths, and starts no
backend by itself, so that nothing half built is ever run. If it succeeds and what is
watched has changed, the one restart follows and its outcome is shown; if that fails
the exit code is 1. If the build fails, a backend that runs is left alone, whatever
was written, until a build succeeds. Where no daemon runs, the command runs all the same.

A restart that is asked for meanwhile, with "devproxyctl restart" or by a tool, does
not wait for the end of the build. Within a build, this program only runs the
command. For a command that builds for as long as it runs
(tsc --watch) there is [build] watch in devproxy.toml.

All messages of this program go to stderr.

` + cli.ExitCodes + `
Otherwise the command's own; 126 or 127 if it cannot be run.`,
		Example: `  devproxyctl build
  devproxyctl build -- npm run build
  devproxyctl build -- sh -c 'tsc && cp -r assets dist'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := target.Project()
			if err != nil {
				return err
			}
			inner, configured := buildAround(p)
			if configured && len(args) == 0 {
				return cli.Usage(errors.New("[build] command runs \"devproxyctl build\", which runs that again; let it name what to run"))
			}
			words, spec, err := commandOf(p, args)
			if err != nil {
				return err
			}
			spec.Env = building(p, configured || len(args) == 0)
			b := foregroundBuild{cmd: cmd, target: target, words: words, inner: inner}
			return b.run(spec)
		},
	}
	// What follows the command is the command's.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// commandOf returns the command in words, and as it is to be run.
func commandOf(p project.Project, args []string) (words string, spec process.Spec, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", spec, err
	}
	if len(args) == 0 {
		c, err := config.Load(p.Root)
		if err != nil {
			return "", spec, cli.Usage(err)
		}
		command := c.Build.Command
		if !command.Configured() {
			return "", spec, cli.Usage(errors.New("there is no build command: give one, as in \"devproxyctl build -- npm run build\", or set [build] command in devproxy.toml"))
		}
		if command.Script != "" {
			spec, err := process.Shell(command.Script)
			spec.Dir = c.Root
			return command.String(), spec, err
		}
		args, dir, spec.Dir = command.Argv, c.Root, c.Root
	}
	path, err := process.LookPath(args[0], process.SearchPath(os.Environ()), dir)
	if err != nil {
		return "", spec, notRun(err)
	}
	spec.Path, spec.Args = path, args[1:]
	return strings.Join(args, " "), spec, nil
}

// ofConfigured follows the project in client.BuildingVariable, where it is the
// configured build.
const ofConfigured = ":configured"

// buildAround reports whether this program is part of a build of the project, be it
// the daemon's own, and of the configured one. It must not wait for what the one
// around it waits for.
func buildAround(p project.Project) (inner, configured bool) {
	around := os.Getenv(client.BuildingVariable)
	configured = around == p.Hash+ofConfigured || os.Getenv(process.MarkerVariable) == p.Hash+":build"
	return configured || around == p.Hash, configured
}

// building is the environment of a build.
func building(p project.Project, configured bool) []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, client.BuildingVariable+"=") })
	around := p.Hash
	if configured {
		around += ofConfigured
	}
	return append(env, client.BuildingVariable+"="+around)
}

// notRun is an error of a command that cannot be run.
func notRun(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return cli.WithCode(err, exitNotFound)
	}
	return cli.WithCode(err, exitNotExecutable)
}

// foregroundBuild is one run of the command. While it runs, hold and its client
// belong to the goroutine of keep.
type foregroundBuild struct {
	cmd    *cobra.Command
	target *cli.Target
	words  string
	// inner: it is part of a build that has changes held back, and does the rest.
	inner bool

	client *client.Client
	hold   *client.Hold
	// lost: a daemon held changes back, and is gone.
	lost bool
}

func (b *foregroundBuild) run(spec process.Spec) error {
	// Ctrl-C ends the command; how that ends is the daemon's affair all the same.
	ctx := context.WithoutCancel(b.cmd.Context())
	if err := b.begin(); err != nil {
		return err
	}
	defer b.leave()

	var keeping sync.WaitGroup
	lasting, built := context.WithCancelCause(ctx)
	if !b.inner {
		keeping.Go(func() { b.keep(lasting) })
	}
	exit, err := process.Foreground(spec)
	built(nil)
	keeping.Wait()

	switch {
	case err != nil:
		b.failed(ctx, err.Error())
		return notRun(err)
	case !exit.Success():
		return cli.Final(fmt.Errorf("the build failed: %v%s", exit, b.failed(ctx, exit.String())), exit.ShellCode())
	}
	return b.succeeded()
}

// say tells a line. The command writes to the same terminal.
func (b *foregroundBuild) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.cmd.ErrOrStderr(), "%s: %s\n", b.cmd.Root().Name(), cli.Printable(fmt.Sprintf(format, args...)))
}

// begin has changes held back, if there is somebody to do so.
func (b *foregroundBuild) begin() error {
	if b.inner {
		return nil
	}
	c, p, err := b.target.Dial(b.cmd)
	switch {
	case errors.Is(err, client.ErrNoDaemon):
		b.say("no daemon runs for %s; the command runs all the same", p.Root)
		return nil
	case cli.IsUsage(err):
		return err
	case err != nil:
		b.say("%v; the command runs all the same, and changes are not held back", err)
		return nil
	}
	if err := b.take(b.cmd.Context(), c); errors.Is(err, client.ErrUnknownCall) {
		b.say("the daemon is too old to hold changes back, \"devproxyd restart\" replaces it; the command runs all the same")
	} else if err != nil {
		b.say("%v; the command runs all the same", err)
	}
	return nil
}

// take holds changes back at a daemon, whose connection is closed if that fails.
func (b *foregroundBuild) take(ctx context.Context, c *client.Client) error {
	hold, err := holdWithin(ctx, c, b.words)
	if err != nil {
		_ = c.Close()
		return err
	}
	b.client, b.hold = c, hold
	return nil
}

// holdWithin is HoldChanges with a bound on the wait for it, but none on the hold.
func holdWithin(ctx context.Context, c *client.Client, words string) (*client.Hold, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	late := time.AfterFunc(heldWithin, func() { cancel(errHeldTooLate) })
	hold, err := c.HoldChanges(ctx, words)
	if !late.Stop() && err == nil {
		hold.Close()
		err = errHeldTooLate
	}
	if err != nil {
		cancel(nil)
	}
	return hold, err
}

// keep has changes held back for as long as ctx lasts: where the daemon ends
// meanwhile, by the next one.
func (b *foregroundBuild) keep(ctx context.Context) {
	ticker := time.NewTicker(holdAgain)
	defer ticker.Stop()
	for {
		if b.hold != nil {
			if !b.hold.Lost(ctx) {
				return
			}
			b.leave()
			b.lost = true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		c, _, err := b.target.Find(ctx)
		if err != nil {
			continue
		}
		if err := b.take(ctx, c); errors.Is(err, client.ErrUnknownCall) {
			return
		} else if err == nil {
			b.lost = false
		}
	}
}

// leave ends the hold and the connection.
func (b *foregroundBuild) leave() {
	if b.hold == nil {
		return
	}
	b.hold.Close()
	_ = b.client.Close()
	b.hold, b.client = nil, nil
}

// failed tells the daemon, and says what that does about it.
func (b *foregroundBuild) failed(ctx context.Context, message string) string {
	if b.hold == nil {
		return ""
	}
	ctx, cancel := context.WithTimeoutCause(ctx, heldWithin, errHeldTooLate)
	defer cancel()
	if err := b.hold.End(ctx, message, func(*client.Step) {}); err != nil {
		return fmt.Sprintf("; %v", err)
	}
	return "; a backend that runs is left alone"
}

// succeeded tells the daemon, and a person what comes of it.
func (b *foregroundBuild) succeeded() error {
	ctx := b.cmd.Context()
	if b.hold == nil {
		if b.lost {
			b.say("the daemon ended during the build; the next one starts the backend from what was built")
		}
		return nil
	}
	restarted := false
	tell := teller{out: b.cmd.ErrOrStderr(), prefix: b.cmd.Root().Name() + ": ", began: time.Now()}
	err := b.awaited(ctx, func() error {
		return b.hold.End(ctx, "", func(step *client.Step) {
			restarted = true
			tell.step(step)
		})
	})
	if _, ok := errors.AsType[*client.OutcomeError](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return nil // the command has succeeded
	}
	var status *client.Status
	if err == nil {
		status, err = b.client.Status(ctx, false)
	}
	if err != nil {
		b.say("the build succeeded; what comes of it is not known: %v", err)
		return nil
	}
	backend := status.GetBackend()
	switch {
	case restarted:
		if line := describe(backend); line != tell.last {
			b.say("%s", line)
		}
	case client.StateName(backend.GetState()) == "idle":
		b.say("the backend is idle; it %s", backend.GetMessage())
	default:
		b.say("nothing that is watched has changed; %s", describe(backend))
	}
	return nil
}

// awaited does something that may take a while, and says so then if it is another
// build that it waits for.
func (b *foregroundBuild) awaited(ctx context.Context, do func() error) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, done := context.WithCancelCause(ctx)
	defer done(nil)
	connection := b.client
	waiting.Go(func() {
		select {
		case <-time.After(silence):
		case <-ctx.Done():
			return
		}
		if status, err := connection.Status(ctx, false); err == nil && status.GetBuild().GetRunning() {
			b.say("another build goes on, and the restart follows its end: %s", status.GetBuild().GetCommand())
		}
	})
	return do()
}
