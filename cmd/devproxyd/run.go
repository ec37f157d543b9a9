package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/daemon"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
)

func newRun(target *cli.Target) *cobra.Command {
	var autostarted, detached bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground, its log on the terminal",
		Args:  cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := target.Project()
			if err != nil {
				return err
			}
			options := daemon.Options{
				Project: p, Socket: target.SocketPath, Autostarted: autostarted,
				Version: cli.Version(version), Environ: os.Environ(),
			}
			if !autostarted && !detached {
				options.Log = tint.NewTextHandler(cmd.ErrOrStderr(), &tint.Options{Level: slog.LevelInfo, NoColor: !colours()})
			}
			return runError(daemon.Run(cmd.Context(), options))
		},
	}
	cmd.Flags().BoolVar(&autostarted, "autostarted", false, "a client's shim starts it")
	cmd.Flags().BoolVar(&detached, "detached", false, "\"devproxyd start\" starts it")
	_ = cmd.Flags().MarkHidden("autostarted")
	_ = cmd.Flags().MarkHidden("detached")
	return cmd
}

// colours reports whether stderr is a terminal that wants colours.
func colours() bool {
	return term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("NO_COLOR") == ""
}

// runError gives the end of a daemon its exit code.
func runError(err error) error {
	_, faulty := errors.AsType[*config.Error](err)
	_, faults := errors.AsType[config.Errors](err)
	switch {
	case errors.Is(err, daemon.ErrRunning):
		// Who started us dials the other one then.
		return cli.WithCode(err, client.ExitRunning)
	case faulty, faults:
		return cli.Usage(err)
	}
	return err
}
