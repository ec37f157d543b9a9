package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// startWithin bounds a start: a daemon serves within tens of milliseconds, and
// one that does not within this time has something to say in its log.
const startWithin = 30 * time.Second

func newStart(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "start",
		Short: "Start the daemon in the background; return when it serves",
		Long: `Start the daemon in the background and return when it serves. If it runs
already, say so and succeed. The backend gets the environment of this terminal,
and starts on the first request that needs it (or at once with start = "eager"
in devproxy.toml).`,
		Example: `  devproxyd start
  devproxyd start --project ~/work/my-server`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return start(cmd, target) },
	}
}

func start(cmd *cobra.Command, target *cli.Target) error {
	p, err := configured(target)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), startWithin, fmt.Errorf("no daemon after %s", startWithin))
	defer cancel()
	defer cli.Waiting(cmd, "the daemon")()
	began := time.Now()
	status, err := cli.Ensure(ctx, target.FromTerminal(p))
	if err != nil {
		return err
	}
	if err := errors.Join(cli.CheckServes(status, p), cli.CheckBuild(cmd, status)); err != nil {
		return err
	}
	daemon := status.GetDaemon()
	verb := "started"
	if daemon.GetStartTime().AsTime().Before(began) {
		verb = "runs already"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "devproxyd %s for %s, pid %d, socket %s\n", verb, cli.PrintableLine(p.Root), daemon.GetPid(), daemon.GetSocket())
	return err
}

func newRestart(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "restart",
		Short: "Replace the daemon by a new one; clients keep their connections",
		Long: `Replace the daemon by a new one, for instance after an update of devproxy or a
change of [watch] or [proxy] in devproxy.toml. Clients keep their connections
and hear that lists may have changed; requests in flight are answered with an
error or, where that is safe, sent again. The backend is stopped and starts on
the next request, with the environment of this terminal; its own state is lost.

To restart the backend alone use "devproxyctl restart".`,
		Example: `  devproxyd restart`,
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return restart(cmd, target) },
	}
}

func restart(cmd *cobra.Command, target *cli.Target) error {
	p, err := configured(target)
	if err != nil {
		return err
	}
	old, _, err := target.Find(cmd.Context())
	if errors.Is(err, client.ErrNoDaemon) {
		return start(cmd, target)
	}
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }()
	status, err := old.Status(cmd.Context(), false)
	if errors.Is(err, client.ErrNotServing) {
		return start(cmd, target) // it ends just now, as somebody else restarts it
	}
	if err != nil {
		return err
	}
	if running := client.RunningBuild(status); running.Contract > client.Contract {
		// An older program takes nothing over from a newer one.
		return cli.CheckBuild(cmd, status)
	}
	defer cli.Waiting(cmd, "the next daemon to take over")()
	predecessor := status.GetDaemon().GetPid()
	c, err := client.Replace(cmd.Context(), target.FromTerminal(p, "--succeeds", strconv.FormatInt(predecessor, 10)), old)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if status, err = c.Status(cmd.Context(), false); errors.Is(err, client.ErrNotServing) {
		status, err = cli.Ensure(cmd.Context(), target.FromTerminal(p)) // it is replaced once more
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "devproxyd restarted for %s, pid %d took over from pid %d\n", cli.PrintableLine(p.Root), status.GetDaemon().GetPid(), predecessor)
	return err
}

// configured returns the project that is meant, which must have a devproxy.toml
// without a fault: that is told sooner here than by a daemon, and must not cost
// one that runs.
func configured(target *cli.Target) (project.Project, error) {
	p, err := target.Project()
	if err != nil {
		return p, err
	}
	if err := p.HasConfig(); err != nil {
		return p, cli.Usage(err)
	}
	_, err = config.Load(p.Root)
	return p, cli.Usage(err)
}

func newStop(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the backend and the daemon; return when both are gone",
		Long: `Stop the backend and the daemon, and return when both are gone. Clients keep
their connection, and attach to the next daemon. The backend's environment and
the overrides of "devproxyctl restart --env", which are kept for daemons that
start by themselves, are forgotten. Where no daemon runs it says so, and succeeds.`,
		Example: `  devproxyd stop
  devproxyd stop --project ~/work/my-server`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return stop(cmd, target) },
	}
}

// stopPoll is how often the end of a daemon is looked for: no system has an
// event for that which all have, and a person does not notice the delay.
const stopPoll = 10 * time.Millisecond

func stop(cmd *cobra.Command, target *cli.Target) error {
	defer cli.Waiting(cmd, "the backend and the daemon to end")()
	ctx := cmd.Context()
	waited := false
	c, p, err := target.Find(ctx)
	// A daemon that ends serves nobody any more, but holds its lock to the last;
	// so does one that is about to serve.
	for errors.Is(err, client.ErrNoDaemon) && client.Held(p) {
		waited = true
		if err := pause(ctx); err != nil {
			return fmt.Errorf("waiting for the daemon of %s to end: %w", p.Root, err)
		}
		c, p, err = target.Find(ctx)
	}
	if errors.Is(err, client.ErrNoDaemon) {
		return stopped(cmd, p, waited)
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	pid, err := c.Shutdown(ctx)
	if err != nil {
		return err
	}
	// The backend's stop ladder takes as long as the project allows it, so only
	// the person's patience bounds this.
	for process.Alive(int(pid)) {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("waiting for the daemon, pid %d, to end: %w", pid, err)
		}
	}
	return stopped(cmd, p, true)
}

// stopped tells what became of a stop once no daemon is there.
func stopped(cmd *cobra.Command, p project.Project, was bool) error {
	if !was {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "no daemon runs for %s\n", cli.PrintableLine(p.Root))
		return err
	}
	// A backend that would not end leaves its record behind, unless it is that of
	// a daemon which was started meanwhile.
	if _, err := os.Stat(p.Record()); err == nil && !client.Held(p) {
		return fmt.Errorf("the daemon of %s ended, but processes or containers of its backend are left, or may be; see %s", p.Root, p.DaemonLog())
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "devproxyd for %s stopped\n", cli.PrintableLine(p.Root))
	return err
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(stopPoll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
