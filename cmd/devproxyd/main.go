// Command devproxyd is the daemon of one project: it owns the backend, watches
// the build output and serves clients and devproxyctl.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/process"
)

// version is set by the linker; empty means that the build information says it.
var version string

func main() {
	// In a process that is about to become the backend nothing else may run.
	process.Main()
	os.Exit(cli.Main(newRoot()))
}

func newRoot() *cobra.Command {
	target := new(cli.Target)
	root := &cobra.Command{
		Use:   "devproxyd",
		Short: "Keep an MCP server under development running behind its clients",
		Long: `devproxyd keeps the MCP server of one project running behind its clients: it
starts the server on first need, restarts it when the build output changes, and
no client loses its session over it. The project is the one whose devproxy.toml
is found upwards from the working directory.

A client's configuration names devproxy-shim as the server; the shim starts the
daemon if none runs.

` + cli.ExitCodes,
		Example: `  devproxyd start    # in the background, with this terminal's environment
  devproxyctl status # what runs
  devproxyd stop`,
		Version: cli.Version(version),
		Args:    cli.Group,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	target.AddFlags(root)
	root.AddCommand(newStart(target), newRun(target), newRestart(target), newStop(target), newDemo(), newExampleBackend(), newVersion())
	cli.AddCompletion(root)
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of this program. That of the daemon which runs for a project
is what "devproxyctl version" and "devproxyctl status" print.`,
		Example: `  devproxyd version`,
		Args:    cli.Args(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "devproxyd %s\n", cli.Version(version))
		},
	}
}
