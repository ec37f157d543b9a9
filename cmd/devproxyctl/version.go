package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/project"
)

func newVersion(target *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of devproxyctl, and of the daemon if one runs",
		Long: `Print the version of devproxyctl and, if a daemon runs for the project, that of
the daemon, which stays what it was until "devproxyd restart".`,
		Example: `  devproxyctl version`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			_, _ = fmt.Fprintf(out, "devproxyctl %s\n", cli.Version(version))
			c, _, err := target.Find(cmd.Context())
			if errors.Is(err, client.ErrNoDaemon) || errors.Is(err, project.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			status, err := c.Status(cmd.Context(), false)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(out, "devproxyd %s (pid %d)\n", status.GetDaemon().GetVersion(), status.GetDaemon().GetPid())
			return cli.CheckBuild(cmd, status)
		},
	}
}
