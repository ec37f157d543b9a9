package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

func newLogs(target *cli.Target) *cobra.Command {
	var options client.LogOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the output of the backend, the build and the daemon",
		Long: `Show the last lines that the backend, the build and the daemon wrote: stderr of
the backend, and what it writes to stdout that is no message of the protocol.
Text that looks secret is masked.`,
		Example: `  devproxyctl logs -f
  devproxyctl logs -n 20 --source backend
  devproxyctl logs --json | jq -r .text`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range options.Sources {
				if !client.IsLogSource(name) {
					return cli.Usage(fmt.Errorf("--source %q: want backend, build or daemon", name))
				}
			}
			c, _, err := target.Dial(cmd)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			out := cmd.OutOrStdout()
			write := printLine
			if asJSON {
				write = printJSON
			}
			return c.Logs(cmd.Context(), options, func(e *client.LogEntry) error { return write(out, e) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&options.Follow, "follow", "f", false, "go on with new lines until Ctrl-C")
	flags.Uint32VarP(&options.Tail, "lines", "n", 200, "how many of the last lines; 0 means all that are kept")
	flags.StringSliceVar(&options.Sources, "source", nil, "whose output: backend, build or daemon; may be repeated (default: all)")
	flags.BoolVar(&options.ShowSecrets, "show-secrets", false, "do not mask what looks secret")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func printLine(out io.Writer, e *client.LogEntry) error {
	source := client.SourceName(e.GetSource())
	label := source
	if e.GetGeneration() != 0 {
		label = fmt.Sprintf("%s#%d", source, e.GetGeneration())
	}
	text := cli.PrintableLine(e.GetText())
	if e.GetStream() == "stdout-noise" {
		// Without devproxy such a line would have broken the client's connection.
		text = amber.Render("[no protocol, on stdout]") + " " + text
	}
	at := faint.Render(e.GetTime().AsTime().Local().Format("15:04:05.000"))
	return writef(out, "%s %s %s\n", at, sourceStyle(source).Render(fmt.Sprintf("%-10s", label)), text)
}

func printJSON(out io.Writer, e *client.LogEntry) error {
	return writeJSON(out, struct {
		Version    int    `json:"version"`
		Sequence   uint64 `json:"sequence"`
		Time       string `json:"time"`
		Source     string `json:"source"`
		Stream     string `json:"stream"`
		Generation uint64 `json:"generation,omitempty"`
		Text       string `json:"text"`
	}{jsonVersion, e.GetSequence(), e.GetTime().AsTime().Format(time.RFC3339Nano), client.SourceName(e.GetSource()), e.GetStream(), e.GetGeneration(), e.GetText()})
}
