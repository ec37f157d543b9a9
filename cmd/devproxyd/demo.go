package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/demo"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the main job on an example backend in a temporary project",
		Long: `Play the main job on an example backend in a temporary project, step by step: a
daemon, a probe, a client, a call, a rebuild, a crash, a clean stop. It needs
devproxyctl and devproxy-shim beside devproxyd, and leaves nothing behind. The
exit code says whether everything held.`,
		Example: `  devproxyd demo`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding the programs: %w", err)
			}
			ctl, err := beside(self, "devproxyctl")
			if err != nil {
				return err
			}
			shim, err := beside(self, "devproxy-shim")
			if err != nil {
				return err
			}
			return demo.Run(cmd.Context(), demo.Config{Devproxyd: self, Devproxyctl: ctl, Shim: shim, Out: cmd.OutOrStdout()})
		},
	}
}

// beside returns the path of a program in the folder of another.
func beside(self, program string) (string, error) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(self), program))
	if err != nil {
		return "", fmt.Errorf("the demo needs %s beside %s: %w", program, self, err)
	}
	return path, nil
}

// newExampleBackend is the demo's backend. It is hidden: nobody types it.
func newExampleBackend() *cobra.Command {
	var port string
	cmd := &cobra.Command{
		Use:    "example-backend TOOLS.json",
		Hidden: true,
		Args:   cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.ServeBackend(cmd.Context(), args[0], port, cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&port, "port", "0", "loopback port")
	return cmd
}
