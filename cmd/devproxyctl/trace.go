package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// shownBody is how many bytes of a message are asked for when it is shown in
	// a line. Shorter ones are whole, and are shown without their envelope.
	shownBody = 64 << 10
	// plainBody is how many columns of it are shown where there is no terminal.
	plainBody = 160
)

var (
	// errEnough ends a trace that has what was asked for.
	errEnough = errors.New("that was all")
	// errSessionOver ends a trace of one session.
	errSessionOver = errors.New("the daemon has ended, and with it the numbers of its sessions")
)

func newTrace(target *cli.Target) *cobra.Command {
	var options client.TrafficOptions
	var asJSON, raw bool
	var count int
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show the JSON-RPC messages as they pass, on both sides of devproxy",
		Long: `Show the JSON-RPC messages that pass from now on, until Ctrl-C: what a client
sends and gets, and what the server gets and sends, which is another message where
the two speak different eras. A line has the time, the session and the client's
name, the way the message takes, its era, what it is, for a response the time since
its request, and the beginning of what it carries (without _meta) with its size.
Text that looks secret is masked.

  client→proxy  proxy→server  proxy←server  client←proxy

Messages from before the trace are not kept. A trace that cannot keep up, say
because the terminal is slow, loses messages and says how many; it delays nobody.

If the daemon ends it says so on stderr, waits for the next one, and goes on with
that one's messages; with --session it ends, as the next one has other numbers.`,
		Example: `  devproxyctl trace
  devproxyctl trace --session 3 --method 'tools/*'
  devproxyctl trace --raw --method tools/call -n 2
  devproxyctl trace --json | jq 'select(.latencyMs > 100) | {method, latencyMs}'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 0 {
				return cli.Usage(errors.New("--count is less than 0"))
			}
			c, p, err := target.Dial(cmd)
			if err != nil {
				return err
			}
			if err := hasSession(cmd.Context(), c, options.Session); err != nil {
				return errors.Join(err, c.Close())
			}
			out := cmd.OutOrStdout()
			if !raw && !asJSON {
				options.MaxBody = shownBody
			}
			t := tracer{out: out, asJSON: asJSON, raw: raw, width: terminalWidth(out), left: count}
			ready := func() {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "tracing %s; Ctrl-C ends it\n", cli.PrintableLine(p.Root))
			}
			look := func(ctx context.Context, c *client.Client) error {
				err := c.Traffic(ctx, options, ready, t.entry)
				if options.Session != 0 && ctx.Err() == nil && (err == nil || errors.Is(err, client.ErrNotServing)) {
					return errSessionOver
				}
				return err
			}
			err = tellingOn(cmd.ErrOrStderr(), target, cmd).on(cmd.Context(), c, look)
			switch {
			case errors.Is(err, errEnough):
				return nil
			case status.Code(err) == codes.Unimplemented:
				return errors.New("the running daemon is of a version that cannot trace; \"devproxyd restart\" replaces it by the installed one")
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&options.Session, "session", 0, "only this client, by its `NUMBER` in status")
	flags.StringVar(&options.Method, "method", "", "only these methods and their responses, a `PATTERN` in which * stands for any text")
	flags.IntVarP(&count, "count", "n", 0, "end after that many messages; 0 goes on until Ctrl-C")
	flags.BoolVar(&raw, "raw", false, "print each message whole, below its line")
	flags.BoolVar(&options.ShowSecrets, "show-secrets", false, "do not mask what looks secret")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object a line, with the whole message in it")
	return cmd
}

// hasSession reports a session that there is none of: numbers are given once, so
// that nothing would ever be seen of it.
func hasSession(ctx context.Context, c *client.Client, number uint64) error {
	if number == 0 {
		return nil
	}
	status, err := c.Status(ctx, false)
	if err != nil {
		return err
	}
	var there []string
	for _, s := range status.GetSessions() {
		if s.GetId() == number {
			return nil
		}
		there = append(there, strings.TrimSpace(fmt.Sprintf("#%d %s", s.GetId(), s.GetClientName())))
	}
	if len(there) == 0 {
		return fmt.Errorf("there is no session %d: no client is attached", number)
	}
	return fmt.Errorf("there is no session %d; there are %s", number, strings.Join(there, ", "))
}

// tracer prints the messages of a trace.
type tracer struct {
	out         io.Writer
	asJSON, raw bool
	width       int
	left        int // how many more; 0 means any number
}

func (t *tracer) entry(e *client.TrafficEntry, body []byte) error {
	write := t.line
	if t.asJSON {
		write = t.json
	}
	if err := write(e, body); err != nil {
		return err
	}
	if t.left > 0 {
		if t.left--; t.left == 0 {
			return errEnough
		}
	}
	return nil
}

// ways are how the four crossings look.
var ways = map[string]string{
	"from-client":  "client→proxy",
	"to-client":    "client←proxy",
	"to-backend":   "proxy→server",
	"from-backend": "proxy←server",
}

func (t *tracer) line(e *client.TrafficEntry, body []byte) error {
	if e.GetLost() > 0 {
		if err := write(t.out, amber.Render(lostWords(e.GetLost()))+"\n"); err != nil {
			return err
		}
	}
	who := "-"
	if e.GetSession() != 0 {
		who = strings.TrimSpace(fmt.Sprintf("#%d %s", e.GetSession(), e.GetClientName()))
	}
	way := blue
	if e.GetGeneration() != 0 {
		way = green
	}
	head := fmt.Sprintf("%s %s %s %s %s",
		faint.Render(e.GetTime().AsTime().Local().Format("15:04:05.000")),
		fmt.Sprintf("%-16s", shorten(cli.PrintableLine(who), 16)),
		way.Render(ways[client.DirectionName(e.GetDirection())]), faint.Render(fmt.Sprintf("%-6s", cli.PrintableLine(e.GetProtocolEra()))), what(e))
	size := faint.Render(size(int(e.GetSize())))
	if t.raw {
		return writef(t.out, "%s  %s\n%s\n", head, size, cli.Printable(string(body)))
	}
	room := plainBody
	if t.width > 0 {
		room = max(minText, t.width-lipgloss.Width(head)-lipgloss.Width(size)-2*len(gap))
	}
	return writef(t.out, "%s%s%s%s%s\n", head, gap, shorten(cli.PrintableLine(string(inside(body))), room), gap, size)
}

// inside is what a message carries: its params, result or error, less what the
// protocol itself says in them. What cannot be taken apart is whole.
func inside(body []byte) []byte {
	message, err := wire.ParseObject(body)
	if err != nil {
		return body
	}
	for _, part := range []string{"params", "result", "error"} {
		if message.Has(part) {
			carried, err := wire.ParseObject(message.Get(part))
			if err != nil {
				return message.Get(part)
			}
			carried.Delete("_meta")
			return carried.Bytes()
		}
	}
	return nil
}

func lostWords(n uint64) string {
	if n == 1 {
		return "(1 message is missing here: the trace did not keep up)"
	}
	return fmt.Sprintf("(%d messages are missing here: the trace did not keep up)", n)
}

// what tells what a message is: "request tools/call 3", "result tools/call 3
// 12ms".
func what(e *client.TrafficEntry) string {
	style := lipgloss.NewStyle()
	kind := client.KindName(e.GetKind())
	parts := []string{kind}
	if kind == "error" {
		style = red
		parts[0] += fmt.Sprintf(" %d", e.GetErrorCode())
	}
	for _, part := range []string{e.GetMethod(), e.GetId()} {
		if part != "" {
			parts = append(parts, cli.PrintableLine(part))
		}
	}
	if e.GetLatency() != nil {
		parts = append(parts, latency(e.GetLatency().AsDuration()))
	}
	return style.Render(strings.Join(parts, " "))
}

// latency is a duration in the precision that matters of one.
func latency(d time.Duration) string {
	if d < 10*time.Microsecond {
		return d.Round(time.Microsecond).String()
	}
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return short(d)
}

func (t *tracer) json(e *client.TrafficEntry, body []byte) error {
	line := struct {
		Version    int             `json:"version"`
		Time       string          `json:"time"`
		Direction  string          `json:"direction"`
		Session    uint64          `json:"session,omitempty"`
		Client     string          `json:"client,omitempty"`
		Generation uint64          `json:"generation,omitempty"`
		Era        string          `json:"era,omitempty"`
		Kind       string          `json:"kind"`
		Method     string          `json:"method,omitempty"`
		ID         json.RawMessage `json:"id,omitempty"`
		ErrorCode  int64           `json:"errorCode,omitempty"`
		LatencyMs  *float64        `json:"latencyMs,omitempty"`
		Size       uint64          `json:"size"`
		Lost       uint64          `json:"lost,omitempty"`
		Message    json.RawMessage `json:"message,omitempty"`
		Text       string          `json:"text,omitempty"`
	}{
		Version: jsonVersion, Time: e.GetTime().AsTime().Format(time.RFC3339Nano), Direction: client.DirectionName(e.GetDirection()),
		Session: e.GetSession(), Client: e.GetClientName(), Generation: e.GetGeneration(), Era: e.GetProtocolEra(),
		Kind: client.KindName(e.GetKind()), Method: e.GetMethod(), ErrorCode: e.GetErrorCode(), Size: e.GetSize(), Lost: e.GetLost(),
	}
	if json.Valid([]byte(e.GetId())) {
		line.ID = json.RawMessage(e.GetId())
	}
	if e.GetLatency() != nil {
		ms := float64(e.GetLatency().AsDuration().Microseconds()) / 1000
		line.LatencyMs = &ms
	}
	if json.Valid(body) {
		line.Message = body
	} else {
		line.Text = string(body)
	}
	return writeJSON(t.out, line)
}
