// Command devproxyctl is a person's handle on the devproxy daemon of a project.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
)

// version is set by the linker; empty means that the build information says it.
var version string

func main() { os.Exit(cli.Main(newRoot())) }

func newRoot() *cobra.Command {
	target := new(cli.Target)
	root := &cobra.Command{
		Use:   "devproxyctl",
		Short: "See and steer the MCP server that devproxy runs for a project",
		Long: `devproxyctl sees and steers the MCP server that devproxy runs for a project: the
one whose devproxy.toml is found upwards from the working directory.

Data goes to stdout, messages to stderr.

` + cli.ExitCodes + `
Commands that use the server as a client does: 4 it answered with a JSON-RPC error.`,
		Example: `  devproxyctl init
  devproxyctl register claude-code
  devproxyctl status
  devproxyctl logs -f
  devproxyctl restart --rebuild`,
		Version: cli.Version(version),
		Args:    cli.Group,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	target.AddFlags(root)
	addGroup(root, "Set up:", newInit(target), newRegister(target), newUnregister(target), newDoctor(target))
	addGroup(root, "See:", newStatus(target), newTop(target), newLogs(target), newTrace(target), newList())
	addGroup(root, "Steer:", newStart(target), newStop(target), newRestart(target), newBuild(target))
	addGroup(root, "Use the server, as a client does:", newTools(target), newCall(target), newResources(target), newPrompts(target))
	root.AddCommand(newVersion(target))
	addCompletions(root, target)
	return root
}

// addGroup adds commands that help shows together.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}
