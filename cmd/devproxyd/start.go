package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/process"
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
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return start(cmd, target) },
	}
}

func start(cmd *cobra.Command, target *cli.Target) error {
	p, err := target.Project()
	if err != nil {
		return err
	}
	if err := p.HasConfig(); err != nil {
		return cli.Usage(err)
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), startWithin, fmt.Errorf("no daemon after %s", startWithin))
	defer cancel()
	args := []string{"run", "--detached", "--project", p.Root}
	if target.SocketPath != "" {
		args = append(args, "--socket", target.SocketPath)
	}
	began := time.Now()
	c, err := client.EnsureRunning(ctx, client.Options{Project: p, Socket: target.SocketPath, Args: args})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	status, err := c.Status(ctx, false)
	if err != nil {
		return err
	}
	daemon := status.GetDaemon()
	verb := "started"
	if daemon.GetStartTime().AsTime().Before(began) {
		verb = "runs already"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "devproxyd %s for %s, pid %d, socket %s\n", verb, p.Root, daemon.GetPid(), daemon.GetSocket())
	return err
}

func newStop(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the backend and the daemon; return when both are gone",
		Args:  cli.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return stop(cmd, target) },
	}
}

func stop(cmd *cobra.Command, target *cli.Target) error {
	c, p, err := target.Dial(cmd.Context())
	if errors.Is(err, client.ErrNoDaemon) {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "no daemon runs for %s\n", p.Root)
		return err
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	pid, err := c.Shutdown(cmd.Context())
	if err != nil {
		return err
	}
	// The backend's stop ladder takes as long as the project allows it, so only
	// the person's patience bounds this.
	if err := awaitEnd(cmd.Context(), int(pid)); err != nil {
		return fmt.Errorf("waiting for the daemon, pid %d, to end: %w", pid, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "devproxyd for %s stopped\n", p.Root)
	return err
}

// awaitEnd waits until a process that is no child of ours is gone. There is no
// event for that which all systems have.
func awaitEnd(ctx context.Context, pid int) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for process.Alive(pid) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
