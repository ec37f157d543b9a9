package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

func newLogs(target *cli.Target) *cobra.Command {
	var options client.LogOptions
	var since, generation string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the output of the backend, the build and the daemon",
		Long: `Show the last lines that the backend, the build and the daemon wrote: stderr of
the backend, and what it writes to stdout that is no message of the protocol.
Text that looks secret is masked.

--since, --grep, --generation and --source choose lines, and --lines says how many
of the last of those. --since is a duration back from now, such as 90s or 10m, or a
time: 15:04 or 15:04:05 of the last 24 hours, "2006-01-02 15:04:05", or one with
its zone, 2006-01-02T15:04:05Z. --grep is a regular expression
(https://golang.org/s/re2syntax; (?i) in front ignores case) for the text as it is
shown, so without what is masked. --generation is the number of a generation of the
backend, "last" for the current or last one, or -1 for the one before it, -2 for
the one before that; the lines of build and daemon belong to none.

--follow goes on until Ctrl-C. If the daemon ends it says so on stderr, waits for
the next one, and goes on with that one's lines; with --generation it ends.`,
		Example: `  devproxyctl logs -f
  devproxyctl logs -n 20 --source backend
  devproxyctl logs --since 10m --grep '(?i)error|warn'
  devproxyctl logs --generation -1
  devproxyctl logs --json | jq -r .text`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range options.Sources {
				if !client.IsLogSource(name) {
					return cli.Usage(fmt.Errorf("--source %q: want backend, build or daemon", name))
				}
			}
			if err := checkPattern(options.Pattern); err != nil {
				return cli.Usage(fmt.Errorf("--grep %w", err))
			}
			var err error
			if options.Since, err = parseSince(since, time.Now()); err != nil {
				return cli.Usage(fmt.Errorf("--since %w", err))
			}
			number, back, err := parseGeneration(generation)
			if err != nil {
				return cli.Usage(fmt.Errorf("--generation %w", err))
			}
			c, _, err := target.Dial(cmd)
			if err != nil {
				return err
			}
			if options.Generation = number; back >= 0 {
				if options.Generation, err = generationBack(cmd.Context(), c, back); err != nil {
					return errors.Join(err, c.Close())
				}
			}
			if err := noteFuture(cmd, c, options.Generation); err != nil {
				return errors.Join(err, c.Close())
			}
			out := cmd.OutOrStdout()
			write := printLine
			if asJSON {
				write = printJSON
			}
			if !options.Follow || options.Generation != 0 { // the next daemon has other generations
				defer func() { _ = c.Close() }()
				return whileRead(cmd.Context(), out, func(ctx context.Context) error {
					return c.Logs(ctx, options, func(e *client.LogEntry) error { return write(out, e) })
				})
			}
			f := follower{options: options, write: func(e *client.LogEntry) error { return write(out, e) }}
			return tellingOn(cmd.ErrOrStderr(), target, cmd).on(cmd.Context(), c, f.follow)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&options.Follow, "follow", "f", false, "go on with new lines until Ctrl-C")
	flags.Uint32VarP(&options.Tail, "lines", "n", 200, "how many of the last lines; 0 means all that are kept")
	flags.StringSliceVar(&options.Sources, "source", nil, "whose output: backend, build or daemon; may be repeated (default: all)")
	flags.StringVar(&since, "since", "", "only lines since this `TIME`, or for this long")
	flags.StringVar(&options.Pattern, "grep", "", "only lines that match this regular expression, `REGEXP`")
	flags.StringVar(&generation, "generation", "", "only lines of this generation of the backend: a `NUMBER`, last, or -1 for the one before")
	flags.BoolVar(&options.ShowSecrets, "show-secrets", false, "do not mask what looks secret")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func checkPattern(pattern string) error {
	_, err := regexp.Compile(pattern)
	if fault, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("%q is no regular expression: %s in %q", pattern, fault.Code, fault.Expr)
	}
	return err
}

// parseSince returns the time that a text means to a person at this moment; zero
// for none. A time of day is the last that was; no line is from a time to come.
func parseSince(text string, now time.Time) (time.Time, error) {
	since, err := parseTime(text, now)
	if err == nil && since.After(now) {
		return time.Time{}, fmt.Errorf("%q: that is yet to come", text)
	}
	return since, err
}

func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			today := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			if today.After(now) {
				today = today.AddDate(0, 0, -1)
			}
			return today, nil
		}
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly, "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want a duration such as 10m, or a time such as 15:04, \"2006-01-02 15:04:05\" or 2006-01-02T15:04:05Z", text)
}

// parseGeneration returns a number, or how many generations back from the last
// one; that is -1 if the text does not say.
func parseGeneration(text string) (number uint64, back int, err error) {
	if text == "" {
		return 0, -1, nil
	}
	if text == "last" {
		return 0, 0, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n != 0 {
		if n < 0 {
			return 0, -n, nil
		}
		return uint64(n), -1, nil
	}
	return 0, -1, fmt.Errorf("%q: want a number from 1, \"last\", or -1 for the one before the last", text)
}

// generationBack is the number of the generation that was so many before the
// last one.
func generationBack(ctx context.Context, c *client.Client, back int) (uint64, error) {
	status, err := c.Status(ctx, false)
	if err != nil {
		return 0, err
	}
	last := status.GetBackend().GetGeneration()
	switch {
	case last == 0:
		return 0, errors.New("there was no generation of the backend yet")
	case uint64(back) >= last:
		return 0, fmt.Errorf("there is no generation %d before the last one, which is number %d", back, last)
	}
	return last - uint64(back), nil
}

// noteFuture tells on stderr of a generation that there was none of yet.
func noteFuture(cmd *cobra.Command, c *client.Client, number uint64) error {
	if number == 0 {
		return nil
	}
	status, err := c.Status(cmd.Context(), false)
	if err != nil {
		return err
	}
	switch last := status.GetBackend().GetGeneration(); {
	case last == 0:
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "there is no generation %d: there was none of the backend yet\n", number)
	case number > last:
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "there is no generation %d; known: 1..%d\n", number, last)
	}
	return err
}

// follower writes the log of one daemon after the other.
type follower struct {
	options client.LogOptions
	write   func(*client.LogEntry) error

	daemon string // the last one
	last   uint64 // the last entry of it
}

func (f *follower) follow(ctx context.Context, c *client.Client) error {
	status, err := c.Status(ctx, false)
	if err != nil {
		return err
	}
	o := f.options
	if f.daemon != "" {
		o.Tail = 0 // nothing of the next one was seen yet
	}
	if instance := status.GetDaemon().GetInstance(); instance != f.daemon {
		f.daemon, f.last = instance, 0
	}
	return c.Logs(ctx, o, func(e *client.LogEntry) error {
		if e.GetSequence() <= f.last { // after a mere loss of the connection
			return nil
		}
		f.last = e.GetSequence()
		return f.write(e)
	})
}

func printLine(out io.Writer, e *client.LogEntry) error { return write(out, logLine(e)+"\n") }

// logLine is an entry as a person reads it, with its styles.
func logLine(e *client.LogEntry) string {
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
	if style, ok := levelStyles[e.GetStream()]; ok && source == "daemon" {
		text = style.Render(text)
	}
	at := faint.Render(e.GetTime().AsTime().Local().Format("15:04:05.000"))
	return fmt.Sprintf("%s %s %s", at, sourceStyle(source).Render(fmt.Sprintf("%-10s", label)), text)
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
