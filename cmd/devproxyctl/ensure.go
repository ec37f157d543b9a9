package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
)

// startWithin bounds the start of a daemon: it serves within tens of milliseconds,
// and one that does not within this time has something to say in its log.
const startWithin = 30 * time.Second

// ensureDaemon starts the project's daemon if none runs, as a client does, and
// makes sure that it is one that this program may talk to.
func ensureDaemon(cmd *cobra.Command, target *cli.Target) (project.Project, error) {
	return ensure(cmd, target, func(p project.Project) client.Options {
		return client.Options{Project: p, Socket: target.SocketPath}
	})
}

// dialStarting connects to the project's daemon. If none runs it starts one as
// "devproxyd start" does: it is a person who wants the server to run.
func dialStarting(cmd *cobra.Command, target *cli.Target) (*client.Client, error) {
	if _, err := ensure(cmd, target, func(p project.Project) client.Options { return target.FromTerminal(p) }); err != nil {
		return nil, err
	}
	c, _, err := target.Find(cmd.Context())
	return c, err
}

// ensure starts the project's daemon if none runs.
func ensure(cmd *cobra.Command, target *cli.Target, how func(project.Project) client.Options) (project.Project, error) {
	p, err := target.Project()
	if err == nil {
		err = cli.Usage(p.HasConfig())
	}
	if err == nil {
		err = startable(cmd, target, p)
	}
	if err != nil {
		return p, err
	}
	defer cli.Waiting(cmd, "the daemon")()
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), startWithin, fmt.Errorf("no daemon after %s", startWithin))
	defer cancel()
	status, err := cli.Ensure(ctx, how(p))
	if err == nil {
		err = errors.Join(cli.CheckServes(status, p), cli.CheckBuild(cmd, status))
	}
	return p, err
}

// startable tells what keeps a daemon from being started, or one that is there from
// answering, sooner and better than the attempt. A daemon that runs may go by an
// earlier devproxy.toml than one that has a fault by now.
func startable(cmd *cobra.Command, target *cli.Target, p project.Project) error {
	defer cli.Waiting(cmd, "the daemon to answer")()
	c, _, err := target.Find(cmd.Context())
	switch {
	case err == nil:
		return c.Close()
	case errors.Is(err, client.ErrNoDaemon):
		_, err := config.Load(p.Root)
		return cli.Usage(err)
	case errors.Is(err, client.ErrNotServing) && !errors.Is(err, client.ErrHungUp):
		return err
	}
	return nil // whoever ends in this moment is waited for
}

// faultOfFile makes a failure that comes of a faulty devproxy.toml one of usage.
func faultOfFile(target *cli.Target, err error) error {
	if _, failed := errors.AsType[*client.OutcomeError](err); !failed {
		return err
	}
	p, projectErr := target.Project()
	if projectErr != nil {
		return err
	}
	if _, fault := config.Load(p.Root); fault != nil && strings.Contains(err.Error(), fault.Error()) {
		return cli.Usage(err)
	}
	return err
}
