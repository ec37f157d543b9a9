package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

var (
	errNoTerminal = errors.New("this needs a terminal for input and output; see \"devproxyctl top --json\" and \"devproxyctl status\"")
	errDumb       = errors.New("TERM is \"dumb\", and this needs a terminal that can move its cursor; see \"devproxyctl top --json\" and \"devproxyctl status\"")
	errNoDaemon   = errors.New("no daemon serves at the moment")
)

const (
	// topInterval is how often a line comes with --json, and a load is measured.
	topInterval = time.Second
	// topBody is how many bytes of a message are wanted: the whole of nearly all,
	// as whether a tool failed may stand at the end.
	topBody = 64 << 10
)

func newTop(target *cli.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live what runs, who is attached and the calls as they pass",
		Long: `Show the whole state on one screen, and keep it up to date until q or Ctrl-C: the
backend with the load of its processes (on Linux), how the last generations ended,
the build, the clients, and their latest calls with what became of each. If the
daemon ends it says so and waits for the next one.

  ↑ ↓ PgUp PgDn Home End   scroll the calls, the newest of which are on top
  r  restart the backend   b  rebuild and restart it
  l  the last log lines    ?  help    q  quit

A call is ok, an error (with its code, or devproxy's reason), a tool error (a
result that says isError), cancelled by its client, or lost: with the backend, its
client or the daemon. Calls from before are not known; subscriptions are none.

With --json it prints a line a second, on a terminal or not: {"version", "time",
"connected", "status" as in "status --json" or null while there is no daemon,
"load" of the backend's processes or null, "calls" that have ended since the line
before, "open" ones, and how many messages were "missed" since}.`,
		Example: `  devproxyctl top
  devproxyctl top --json | jq -c '.calls[] | {method, name, latencyMs, outcome}'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !asJSON {
				if err := fullScreen(cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
					return cli.Usage(err)
				}
			}
			c, _, err := target.Dial(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return topJSON(cmd, target, c)
			}
			f := &topFeed{target: target, cmd: cmd}
			err = onScreen(cmd, &topModel{now: time.Now}, func(ctx context.Context, send func(tea.Msg)) error {
				f.send = send
				// The model asks from its own goroutine, so it hears of it there.
				send(doerMsg{func(do action) { f.do(ctx, do) }})
				return f.run(ctx, c)
			})
			f.acting.Wait() // nobody asks for more once the screen is gone
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a second")
	return cmd
}

// topFeed sends what a live view shows: what watchPage gets, and the messages
// below.
type topFeed struct {
	target *cli.Target
	cmd    *cobra.Command
	send   func(tea.Msg)

	current atomic.Pointer[client.Client] // nil while no daemon serves
	acting  sync.WaitGroup
}

type (
	// trafficMsg is a message that has passed.
	trafficMsg struct {
		entry *client.TrafficEntry
		body  []byte
	}
	// noTrafficMsg says why no messages are seen.
	noTrafficMsg struct{ err error }
	// loadMsg is a measured load; nil if there is none.
	loadMsg struct{ load *load }
	// doerMsg is how to have something done.
	doerMsg struct{ do func(action) }
	// progressMsg is how far that is, doneMsg that it is done.
	progressMsg struct{ text string }
	doneMsg     struct {
		text string
		err  error
	}
	// logMsg are the last log entries.
	logMsg struct {
		entries []*client.LogEntry
		err     error
	}
)

func (f *topFeed) run(ctx context.Context, c *client.Client) error {
	s := stay{
		target: f.target, cmd: f.cmd,
		gone: func() { f.send(goneMsg{}) },
		back: func(status *client.Status) { f.send(backMsg{status}) },
	}
	return s.on(ctx, c, f.look)
}

// look sends what one daemon tells, until it ends.
func (f *topFeed) look(ctx context.Context, c *client.Client) error {
	f.current.Store(c)
	defer f.current.Store(nil)
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel(nil)
	beside.Go(func() {
		options := client.TrafficOptions{MaxBody: topBody}
		err := c.Traffic(ctx, options, func() { f.send(noTrafficMsg{}) }, func(e *client.TrafficEntry, body []byte) error {
			f.send(trafficMsg{e, body})
			return nil
		})
		if err != nil && !errors.Is(err, client.ErrNotServing) {
			f.send(noTrafficMsg{err})
		}
	})
	var group atomic.Int64
	beside.Go(func() {
		ticker := time.NewTicker(topInterval)
		defer ticker.Stop()
		var m meter
		for {
			select {
			case <-ticker.C:
				f.send(loadMsg{m.read(int(group.Load()))})
			case <-ctx.Done():
				return
			}
		}
	})
	return c.WatchStatus(ctx, false, func(s *client.Status) error {
		group.Store(s.GetBackend().GetPid())
		f.send(statusMsg{s})
		return nil
	})
}

// action is something that a person asks for.
type action uint8

const (
	actRestart action = iota
	actRebuild
	actLog
)

// do does an action; what comes of it is sent.
func (f *topFeed) do(ctx context.Context, do action) {
	f.acting.Go(func() {
		c := f.current.Load()
		if do == actLog {
			f.send(f.log(ctx, c))
			return
		}
		if c == nil {
			f.send(doneMsg{err: errNoDaemon})
			return
		}
		err := c.Restart(ctx, do == actRebuild, nil, func(s *client.Step) {
			switch {
			case s.GetBackend() != nil:
				f.send(progressMsg{describe(s.GetBackend())})
			case s.GetBuild() == nil:
				f.send(progressMsg{cli.PrintableLine(s.GetBuildOutput())})
			}
		})
		f.send(doneMsg{"restarted", err})
	})
}

// shownLog is how many log lines are looked at.
const shownLog = 200

func (f *topFeed) log(ctx context.Context, c *client.Client) logMsg {
	if c == nil {
		return logMsg{err: errNoDaemon}
	}
	var m logMsg
	m.err = c.Logs(ctx, client.LogOptions{Tail: shownLog}, func(e *client.LogEntry) error {
		m.entries = append(m.entries, e)
		return nil
	})
	return m
}

// topLine is a line of top --json.
type topLine struct {
	Version   int             `json:"version"`
	Time      time.Time       `json:"time"`
	Connected bool            `json:"connected"`
	Status    json.RawMessage `json:"status"`
	Load      *load           `json:"load"`
	Calls     []callJSON      `json:"calls"`
	Open      []callJSON      `json:"open"`
	Missed    uint64          `json:"missed"`
}

type callJSON struct {
	Session   uint64          `json:"session"`
	Client    string          `json:"client"`
	ID        json.RawMessage `json:"id"`
	Method    string          `json:"method"`
	Name      string          `json:"name,omitempty"`
	StartTime time.Time       `json:"startTime"`
	LatencyMs float64         `json:"latencyMs"` // so far, of an open one
	Outcome   string          `json:"outcome,omitempty"`
	Detail    string          `json:"detail,omitempty"`
}

func (c *call) json(now time.Time) callJSON {
	id := json.RawMessage("null")
	if json.Valid([]byte(c.id)) {
		id = json.RawMessage(c.id)
	}
	return callJSON{
		Session: c.session, Client: c.client, ID: id, Method: c.method, Name: c.name, StartTime: c.began,
		LatencyMs: float64(c.took(now).Microseconds()) / 1000, Outcome: c.outcome, Detail: c.detail,
	}
}

// topJSON prints the lines of top --json.
func topJSON(cmd *cobra.Command, target *cli.Target, c *client.Client) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	messages := make(chan tea.Msg)
	f := &topFeed{target: target, cmd: cmd, send: func(m tea.Msg) {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	}}
	fed := make(chan error, 1)
	go func() { fed <- f.run(ctx, c) }()
	p := newTopPrinter(cmd.OutOrStdout(), cmd.ErrOrStderr())
	ticker := time.NewTicker(topInterval)
	defer ticker.Stop()
	for {
		select {
		case m := <-messages:
			p.take(m, time.Now())
		case <-ticker.C:
			if err := p.print(time.Now()); err != nil {
				cancel(err)
				<-fed //nolint:errcheck // it was cancelled
				return err
			}
		case err := <-fed:
			return err
		}
	}
}

// topPrinter gathers what a line of top --json says.
type topPrinter struct {
	out, stderr io.Writer
	status      *client.Status // nil while no daemon serves
	load        *load
	calls       calls
	ended       []*call
	missed      uint64 // by the line before
}

func newTopPrinter(out, stderr io.Writer) *topPrinter {
	p := &topPrinter{out: out, stderr: stderr}
	p.calls.ended = func(c *call) { p.ended = append(p.ended, c) }
	return p
}

func (p *topPrinter) take(m tea.Msg, now time.Time) {
	switch m := m.(type) {
	case statusMsg:
		p.status = m.status
		p.calls.sessions(m.status.GetSessions(), now)
	case goneMsg:
		p.status, p.load = nil, nil
		p.calls.gone(now)
	case loadMsg:
		p.load = m.load
		// A status comes only when it is another one, but the calls grow older.
		if p.status != nil {
			p.calls.sessions(p.status.GetSessions(), now)
		}
	case trafficMsg:
		p.calls.take(m.entry, m.body)
	case noTrafficMsg:
		if m.err != nil {
			_, _ = fmt.Fprintln(p.stderr, cli.PrintableLine(noCalls(m.err)))
		}
	}
}

// noCalls says why no calls are seen.
func noCalls(err error) string {
	if status.Code(err) == codes.Unimplemented {
		return "the running daemon is of a version that does not show calls"
	}
	return "no calls are seen: " + err.Error()
}

func (p *topPrinter) print(now time.Time) error {
	line := topLine{
		Version: jsonVersion, Time: now, Connected: p.status != nil, Load: p.load,
		Calls: []callJSON{}, Open: []callJSON{}, Missed: p.calls.lost - p.missed,
	}
	if p.status != nil {
		raw, err := client.StatusJSON(p.status)
		if err != nil {
			return err
		}
		line.Status = raw
	}
	for _, c := range p.ended {
		line.Calls = append(line.Calls, c.json(now))
	}
	for _, c := range p.calls.all {
		if c.outcome == callOpen {
			line.Open = append(line.Open, c.json(now))
		}
	}
	p.ended, p.missed = nil, p.calls.lost
	return writeJSON(p.out, line)
}
