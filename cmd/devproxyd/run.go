package main

import (
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

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
	var succeeds int
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground, its log on the terminal",
		Long: `Run the daemon in the foreground, with its log on stderr, until Ctrl-C or
"devproxyd stop". The backend gets the environment of this terminal.`,
		Example: `  devproxyd run
  devproxyd run --project ~/work/my-server`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := configured(target)
			if err != nil {
				return err
			}
			options := daemon.Options{
				Project: p, Socket: target.SocketPath, Autostarted: autostarted, Succeeds: succeeds,
				Version: cli.Version(version), Environ: os.Environ(),
			}
			// Asked for, so that a write to a log's reader that is gone (the tee of
			// "devproxyd run 2>&1 | tee", after Ctrl-C) fails, and does not end the
			// process with the backend left behind. Ignoring the signal would do too,
			// but the backend would inherit that.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			if !autostarted && !detached {
				options.Log = tint.NewTextHandler(cmd.ErrOrStderr(), &tint.Options{
					Level: slog.LevelInfo, NoColor: !colours(), ReplaceAttr: printable,
				})
			}
			err = daemon.Run(cmd.Context(), options)
			if errors.Is(err, daemon.ErrRunning) && (autostarted || detached) {
				// Who started us dials the other one then.
				return cli.WithCode(err, client.ExitRunning)
			}
			return faultOfFile(err)
		},
	}
	cmd.Flags().BoolVar(&autostarted, "autostarted", false, "a client's shim starts it")
	cmd.Flags().BoolVar(&detached, "detached", false, "\"devproxyd start\" starts it")
	cmd.Flags().IntVar(&succeeds, "succeeds", 0, "pid of the daemon that \"devproxyd restart\" replaces")
	_ = cmd.Flags().MarkHidden("autostarted")
	_ = cmd.Flags().MarkHidden("succeeds")
	_ = cmd.Flags().MarkHidden("detached")
	return cmd
}

// printable keeps what a server or client says, and the log repeats, from doing
// something to the terminal: the handler lets escape sequences pass.
func printable(_ []string, a slog.Attr) slog.Attr {
	text := a.Value.String()
	if shown := cli.PrintableLine(text); shown != text {
		return slog.String(a.Key, shown)
	}
	return a
}

// colours reports whether stderr is a terminal that wants colours.
func colours() bool {
	return term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// faultOfFile makes a fault in devproxy.toml one of usage.
func faultOfFile(err error) error {
	_, fault := errors.AsType[*config.Error](err)
	_, faults := errors.AsType[config.Errors](err)
	if fault || faults {
		return cli.Usage(err)
	}
	return err
}
