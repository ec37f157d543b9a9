package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

func newStart(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "start",
		Short: "Start the backend now instead of on the first request",
		Long: `Start the backend now instead of on the first request that needs it, and return
when it is up. If it runs already, say so and succeed. Where no daemon runs one
is started first, as by "devproxyd start", with the environment of this terminal.`,
		Example: `  devproxyctl start`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dialStarting(cmd, target)
			if err != nil {
				return err
			}
			return faultOfFile(target, follow(cmd, c, (*client.Client).Start))
		},
	}
}

func newStop(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the backend; the daemon goes on and starts it on the next request",
		Long: `Stop the backend and return when all of its processes are gone. The daemon and
its clients stay, and the next request that needs the backend starts it again.
To stop the daemon too, see "devproxyd stop".`,
		Example: `  devproxyctl stop`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := target.Dial(cmd)
			if err != nil {
				return err
			}
			return follow(cmd, c, (*client.Client).Stop)
		},
	}
}

func newRestart(target *cli.Target) *cobra.Command {
	var rebuild, clearEnv bool
	var assignments []string
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Restart the backend; clients keep their connections",
		Long: `Restart the backend. Clients keep their connections and hear that lists may have
changed. With --rebuild the build command runs first, its output is shown, and
if it fails the running backend is left alone; so it is when Ctrl-C ends the build.
Where no daemon runs it is a start.

--env replaces the set of environment overrides, which lasts until it is
replaced again, cleared with --clear-env, or forgotten by "devproxyd stop" or a
"devproxyd start" that starts a daemon.`,
		Example: `  devproxyctl restart
  devproxyctl restart --rebuild
  devproxyctl restart --env LOG_LEVEL=debug --env FEATURE_X=1
  devproxyctl restart --clear-env`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			overrides, err := parseEnv(assignments)
			if err != nil {
				return cli.Usage(err)
			}
			if clearEnv {
				if overrides != nil {
					return cli.Usage(errors.New("--env and --clear-env exclude each other"))
				}
				overrides = map[string]string{}
			}
			c, err := dialStarting(cmd, target)
			if err != nil {
				return err
			}
			return faultOfFile(target, follow(cmd, c, func(c *client.Client, ctx context.Context, step func(*client.Step)) error {
				return c.Restart(ctx, rebuild, overrides, step)
			}))
		},
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "run the build command first")
	cmd.Flags().StringArrayVar(&assignments, "env", nil, "override an environment variable, `KEY=VALUE`; may be repeated")
	cmd.Flags().BoolVar(&clearEnv, "clear-env", false, "clear the environment overrides")
	return cmd
}

// parseEnv returns the overrides, or nil if none are given.
func parseEnv(assignments []string) (map[string]string, error) {
	if len(assignments) == 0 {
		return nil, nil //nolint:nilnil // nil keeps the overrides there are
	}
	overrides := make(map[string]string, len(assignments))
	for _, assignment := range assignments {
		name, value, ok := strings.Cut(assignment, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("--env %q: want KEY=VALUE", assignment)
		}
		overrides[name] = value
	}
	return overrides, nil
}

// operation is a method of Client that passes on its steps.
type operation func(c *client.Client, ctx context.Context, step func(*client.Step)) error

// follow has the daemon do something, tells its steps on stderr, and what it has
// come to on stdout. It closes c.
func follow(cmd *cobra.Command, c *client.Client, do operation) error {
	defer func() { _ = c.Close() }()
	tell := teller{out: cmd.ErrOrStderr(), began: time.Now(), keepsEnd: true}
	ctx, cancel := context.WithCancelCause(cmd.Context())
	var reassuring sync.WaitGroup
	reassuring.Go(func() { tell.reassure(ctx, c, reassureAfter) })
	err := do(c, ctx, tell.step)
	cancel(nil)
	reassuring.Wait()
	if err != nil {
		tell.release("")
		if tell.toldFault(err) {
			return cli.Told(cli.ExitFailed)
		}
		return err
	}
	status, err := c.Status(cmd.Context(), false)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	end := describe(status.GetBackend())
	tell.release(end)
	if terminalWidth(out) > 0 {
		end += ", after " + short(time.Since(tell.began))
	}
	if _, err := fmt.Fprintln(out, end); err != nil {
		return err
	}
	for _, w := range status.GetBackend().GetWarnings() {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s; %s\n", cli.PrintableLine(w.GetText()), cli.PrintableLine(w.GetAdvice()))
	}
	return nil
}

// teller tells what happens, each state once.
type teller struct {
	out    io.Writer
	prefix string // of each line that is not a build's
	began  time.Time
	// keepsEnd has it keep a state that may be the last back until another one
	// follows, for it is told elsewhere; see release.
	keepsEnd bool

	mu    sync.Mutex
	last  string
	kept  string // a line
	spoke time.Time
	fault string // of a build, as it was told
}

func (t *teller) step(step *client.Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spoke = time.Now()
	b := step.GetBackend()
	if b != nil && describe(b) == t.last {
		return
	}
	_, _ = fmt.Fprint(t.out, t.kept)
	t.kept = ""
	switch {
	case b != nil:
		t.last = describe(b)
		line := fmt.Sprintf("%s%s %s\n", t.prefix, since(t.began), t.last)
		if state := client.StateName(b.GetState()); t.keepsEnd && (state == "running" || state == "idle") {
			t.kept = line
			return
		}
		_, _ = fmt.Fprint(t.out, line)
	case step.GetBuild() != nil:
		tellBuild(t.out, step.GetBuild())
		t.fault = step.GetBuild().GetMessage()
	default:
		_, _ = fmt.Fprintf(t.out, "  %s\n", cli.PrintableLine(step.GetBuildOutput()))
	}
}

// release tells what was kept back, unless that is the end, which is told
// elsewhere.
func (t *teller) release(end string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != end {
		_, _ = fmt.Fprint(t.out, t.kept)
	}
	t.kept = ""
}

// toldFault reports whether an error is that of a build which was told already, with
// all that it has printed.
func (t *teller) toldFault(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, outcome := errors.AsType[*client.OutcomeError](err)
	return outcome && t.fault != "" && strings.HasPrefix(err.Error(), t.fault)
}

// reassureAfter is how long a person who waits hears nothing.
const reassureAfter = 5 * time.Second

// reassure says what is waited for when nothing else is said for so long, until
// ctx ends.
func (t *teller) reassure(ctx context.Context, c *client.Client, silence time.Duration) {
	ticker := time.NewTicker(silence / 5)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if t.silentFor() < silence {
			continue
		}
		status, err := c.Status(ctx, false)
		if err != nil {
			continue // who asked hears of it
		}
		b := printable(status).GetBackend()
		line := "still " + client.StateName(b.GetState())
		if status.GetBuild().GetRunning() {
			line = "still building"
		}
		if first, _, _ := strings.Cut(b.GetMessage(), "\n"); first != "" {
			line += ": " + first
		}
		t.say(line)
	}
}

func (t *teller) silentFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	latest := t.spoke
	if latest.IsZero() {
		latest = t.began
	}
	return time.Since(latest)
}

func (t *teller) say(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spoke = time.Now()
	_, _ = fmt.Fprintf(t.out, "%s%s%s %s\n", t.kept, t.prefix, since(t.began), line)
	t.kept = ""
}

// describe is a backend in one line.
func describe(b *client.Backend) string {
	text := client.StateName(b.GetState())
	if b.GetPid() != 0 {
		text += fmt.Sprintf(", generation %d, pid %d", b.GetGeneration(), b.GetPid())
	}
	if b.GetPort() != 0 {
		text += fmt.Sprintf(", port %d", b.GetPort())
	}
	return text
}

func tellBuild(stderr io.Writer, b *client.BuildRun) {
	outcome := "the build succeeded"
	if !b.GetOk() {
		outcome = cli.Printable(b.GetMessage())
	}
	_, _ = fmt.Fprintf(stderr, "%s, after %s\n", outcome, short(b.GetDuration().AsDuration()))
}

func since(began time.Time) string {
	return fmt.Sprintf("[%5.1fs]", time.Since(began).Seconds())
}
