package main

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

// watchStatus shows the status at once and after every change: in place on a
// terminal, else one after the other.
func watchStatus(cmd *cobra.Command, target *cli.Target, asJSON, showSecrets bool) error {
	c, _, err := target.Dial(cmd)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !asJSON && fullScreen(cmd.InOrStdin(), out) == nil {
		return watchOnTerminal(cmd, target, c, showSecrets)
	}
	changes := changes{show: func(s *client.Status) error {
		if asJSON {
			return printStatusJSON(out, s)
		}
		return printStatus(out, s, time.Now(), terminalWidth(out))
	}}
	if !asJSON {
		changes.between = func() error { return write(out, "\n") }
	}
	return tellingOn(cmd.ErrOrStderr(), target, cmd).on(cmd.Context(), c, func(ctx context.Context, c *client.Client) error {
		return c.WatchStatus(ctx, showSecrets, changes.take)
	})
}

// changes shows each status that says something new.
type changes struct {
	show    func(*client.Status) error
	between func() error
	last    *client.Status
}

func (c *changes) take(s *client.Status) error {
	lasting := proto.CloneOf(s)
	if lasting.GetBuild().GetRunning() {
		lasting.GetBuild().Duration = durationpb.New(0) // grows by itself
	}
	if proto.Equal(lasting, c.last) {
		return nil
	}
	if c.last != nil && c.between != nil {
		if err := c.between(); err != nil {
			return err
		}
	}
	c.last = lasting
	return c.show(s)
}

// A watchPage is the status on a whole terminal.
type watchPage struct {
	status        *client.Status
	gone          bool // its daemon, and no other one serves
	width, height int
	top           int // the first line of the page that is shown
	now           func() time.Time
}

type (
	// statusMsg is a fresh status.
	statusMsg struct{ status *client.Status }
	// goneMsg says that the daemon has ended, backMsg that another one serves.
	goneMsg struct{}
	backMsg struct{ status *client.Status }
	// tickMsg has the times on the screen go on.
	tickMsg struct{}
)

// redraw is how often what grows by itself is drawn again.
const redraw = time.Second

func tick() tea.Cmd { return tea.Tick(redraw, func(time.Time) tea.Msg { return tickMsg{} }) }

// Init implements tea.Model.
func (w *watchPage) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (w *watchPage) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		w.width, w.height = msg.Width, msg.Height
	case statusMsg:
		w.status, w.gone = msg.status, false
	case goneMsg:
		w.gone = true
	case backMsg:
		w.status, w.gone = msg.status, false
	case tickMsg:
		return w, tick()
	case tea.KeyPressMsg:
		switch key := msg.String(); key {
		case "q", "ctrl+c":
			return w, tea.Quit
		case "ctrl+z":
			return w, tea.Suspend
		default:
			w.top = scrolled(w.top, key, len(w.lines()), w.height-1)
		}
	}
	return w, nil
}

const waitingForDaemon = "the daemon has ended; waiting for the next one"

// lines are those of the whole page.
func (w *watchPage) lines() []string {
	if w.status == nil {
		return nil
	}
	text := statusPage(w.status, w.now(), w.width)
	if w.gone {
		text = goneStatusPage(w.status, w.width)
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// View implements tea.Model.
func (w *watchPage) View() tea.View {
	view := tea.NewView(w.screen())
	view.AltScreen = true
	return view
}

func (w *watchPage) screen() string {
	if w.height == 0 {
		return ""
	}
	lines := w.lines()
	room := w.height - 1
	top := min(w.top, max(0, len(lines)-room))
	shown := lines[top:min(len(lines), top+room)]
	footer := faint.Render("q quit")
	switch {
	case w.gone:
		footer = amber.Render(waitingForDaemon) + faint.Render("  q quit")
	case len(lines) > room:
		footer = faint.Render("↑↓ scroll  q quit")
	}
	return styled(fit(shown, room, w.width, footer))
}

// fit makes a screen of lines and a footer: as many lines as there is room for,
// none longer than the screen is wide.
func fit(lines []string, room, width int, footer string) string {
	screen := make([]string, 0, room+1)
	for _, line := range lines[:min(len(lines), room)] {
		screen = append(screen, cut(strings.ReplaceAll(line, "\t", " "), width))
	}
	for len(screen) < room {
		screen = append(screen, "")
	}
	return strings.Join(append(screen, cut(footer, width)), "\n")
}

// scrolled is the first line shown after a key was pressed.
func scrolled(top int, key string, lines, room int) int {
	last := max(0, lines-room)
	top = min(top, last)
	switch key {
	case "up", "k":
		top--
	case "down", "j":
		top++
	case "pgup":
		top -= max(1, room-1)
	case "pgdown", "space":
		top += max(1, room-1)
	case "home", "g":
		top = 0
	case "end", "G":
		top = last
	}
	return min(max(top, 0), last)
}

func watchOnTerminal(cmd *cobra.Command, target *cli.Target, c *client.Client, showSecrets bool) error {
	page := &watchPage{now: time.Now}
	return onScreen(cmd, page, func(ctx context.Context, send func(tea.Msg)) error {
		s := stay{
			target: target, cmd: cmd,
			gone: func() { send(goneMsg{}) },
			back: func(status *client.Status) { send(backMsg{status}) },
		}
		return s.on(ctx, c, func(ctx context.Context, c *client.Client) error {
			return c.WatchStatus(ctx, showSecrets, func(status *client.Status) error {
				send(statusMsg{status})
				return nil
			})
		})
	})
}

// onScreen shows a model on the whole terminal until it ends or feed fails, which
// sends it what it shows. The terminal is as it was then.
func onScreen(cmd *cobra.Command, model tea.Model, feed func(ctx context.Context, send func(tea.Msg)) error) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	program := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(cmd.InOrStdin()), tea.WithOutput(cmd.OutOrStdout()), tea.WithoutSignalHandler())
	fed := make(chan error, 1)
	go func() {
		err := feed(ctx, program.Send)
		cancel(err)
		fed <- err
	}()
	_, err := program.Run()
	over := ctx.Err() != nil // by a signal, or by feed
	cancel(nil)
	if failed := <-fed; failed != nil {
		return failed
	}
	if over {
		return nil
	}
	return err
}

// fullScreen says why in and out are no terminal that can show a whole screen.
func fullScreen(in io.Reader, out io.Writer) error {
	for _, end := range []any{in, out} {
		file, ok := end.(*os.File)
		if !ok || !term.IsTerminal(int(file.Fd())) {
			return errNoTerminal
		}
	}
	if os.Getenv("TERM") == "dumb" {
		return errDumb
	}
	return nil
}
