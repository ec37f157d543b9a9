package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

// lookInterval is how often somebody who waits for a daemon looks for one. A
// look that finds none costs a file's status.
const lookInterval = 200 * time.Millisecond

// stay has a command look at a project's daemon for as long as the person wants,
// whichever daemon that is: one ends, another one follows.
type stay struct {
	target *cli.Target
	cmd    *cobra.Command
	// gone hears that the daemon has ended, back that another one serves.
	gone func()
	back func(*client.Status)
	// out is what the command prints to as things happen, and nil of a screen.
	out io.Writer
}

// on calls look with the daemon of c, which it closes, and then with each that
// follows, until ctx ends, which is no error, or look fails for another reason
// than the end of its daemon. It ends, too, when nobody reads out any longer.
func (s stay) on(ctx context.Context, c *client.Client, look func(context.Context, *client.Client) error) error {
	return whileRead(ctx, s.out, func(ctx context.Context) error { return s.onEach(ctx, c, look) })
}

func (s stay) onEach(ctx context.Context, c *client.Client, look func(context.Context, *client.Client) error) error {
	for {
		err := look(ctx, c)
		_ = c.Close()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the person has ended it
		case err != nil && !errors.Is(err, client.ErrNotServing):
			return err
		}
		s.gone()
		var status *client.Status
		if c, status, err = s.next(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // likewise
			}
			return err
		}
		s.back(status)
	}
}

// next waits for a daemon. One that this program cannot talk to is an error.
func (s stay) next(ctx context.Context) (*client.Client, *client.Status, error) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		c, _, err := s.target.Find(ctx)
		if err == nil {
			var status *client.Status
			if status, err = c.Status(ctx, false); err == nil {
				// A mere difference of versions is no fault, and a line about it would break
				// into a screen.
				if err := client.CheckContract(cli.OwnBuild(s.cmd), client.RunningBuild(status)); err != nil {
					return nil, nil, errors.Join(err, c.Close())
				}
				return c, status, nil
			}
			_ = c.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// tellingOn is a stay that tells in lines which daemon comes and goes.
func tellingOn(stderr io.Writer, target *cli.Target, cmd *cobra.Command) stay {
	tell := func(format string, args ...any) {
		_, _ = fmt.Fprintf(stderr, "%s: %s\n", cmd.Root().Name(), fmt.Sprintf(format, args...))
	}
	return stay{
		target: target, cmd: cmd, out: cmd.OutOrStdout(),
		gone: func() { tell("the daemon has ended; waiting for the next one, until Ctrl-C") },
		back: func(s *client.Status) {
			tell("devproxyd %s, pid %d, serves now", cli.PrintableLine(s.GetDaemon().GetVersion()), s.GetDaemon().GetPid())
		},
	}
}
