package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
)

// jsonVersion is the version of the JSON that this program prints. It grows
// when something in it changes its meaning or goes; additions leave it alone.
const jsonVersion = 1

func newStatus(target *cli.Target) *cobra.Command {
	var asJSON, showSecrets, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the backend, the attached clients, the build and what is watched",
		Long: `Show the state of the backend, the daemon, the attached clients, the last build
and what is watched. Values that look secret are masked. It starts nothing.

With --watch the page stays and is drawn again whenever something changes, until
Ctrl-C or q. If the daemon ends it says so and waits for the next one. Where there
is no terminal each change is a block of its own, and with --json a line.`,
		Example: `  devproxyctl status
  devproxyctl status --watch
  devproxyctl status --json | jq .status.backend.state`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return watchStatus(cmd, target, asJSON, showSecrets)
			}
			c, _, err := target.Dial(cmd)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			status, err := c.Status(cmd.Context(), showSecrets)
			if err != nil {
				return err
			}
			if asJSON {
				return printStatusJSON(cmd.OutOrStdout(), status)
			}
			out := cmd.OutOrStdout()
			return printStatus(out, status, time.Now(), terminalWidth(out))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with every change until Ctrl-C")
	cmd.Flags().BoolVar(&showSecrets, "show-secrets", false, "do not mask what looks secret")
	return cmd
}

func printStatusJSON(out io.Writer, status *client.Status) error {
	raw, err := client.StatusJSON(status)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "{\"version\":%d,\"status\":%s}\n", jsonVersion, cli.PrintableJSON(raw))
	return err
}

// terminalWidth is how many columns a line has on the terminal that out is, 0
// if it is none.
func terminalWidth(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// printStatus writes the status as a person reads it: one block a subject, its
// name in the margin. Lines are wrapped at width, unless that is 0.
func printStatus(out io.Writer, status *client.Status, now time.Time, width int) error {
	return write(out, statusPage(status, now, width))
}

// statusPage is what printStatus writes, with its styles.
func statusPage(status *client.Status, now time.Time, width int) string {
	root := status.GetDaemon().GetProjectRoot()
	status = printable(status)
	p := page{now: now, width: width}
	p.daemon(status.GetDaemon())
	p.config(root)
	p.backend(status.GetBackend())
	p.build(status.GetBuild())
	p.buildWatch(status.GetBuildWatch())
	p.watch(status.GetWatch())
	p.sessions(status.GetSessions(), status.GetBackend().GetGeneration())
	return p.text.String()
}

// goneStatusPage is the page while the daemon of that status is gone: nothing of
// what it said holds any longer but where the project is.
func goneStatusPage(status *client.Status, width int) string {
	p := page{width: width}
	p.row("project", "%s", bold.Render(cli.PrintableLine(status.GetDaemon().GetProjectRoot())))
	p.row("daemon", noDaemon)
	return p.text.String()
}

// noDaemon is shown in the place of the daemon when there is none.
const noDaemon = "no daemon"

// printable is a copy of the status in which what servers, clients and builds
// say of themselves can do nothing to a terminal.
func printable(status *client.Status) *client.Status {
	clean := proto.CloneOf(status)
	client.MapStrings(clean.ProtoReflect(), func(field protoreflect.FieldDescriptor, text string) string {
		if field.Name() == "message" { // the one that may have several lines
			return cli.Printable(cli.ForPerson(text))
		}
		return cli.PrintableLine(text)
	})
	return clean
}

type page struct {
	text  strings.Builder
	now   time.Time
	width int
}

const (
	// margin is the width of a subject and the space behind it.
	margin = 9
	// minText is the width below which wrapping would be worse than what the
	// terminal does.
	minText = 20
)

// row writes a line under a subject; the subject is given with its first line.
func (p *page) row(subject, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if width := p.width - margin; width >= minText {
		line = lipgloss.Wrap(line, width, " ")
	}
	for part := range strings.Lines(line) {
		fmt.Fprintf(&p.text, "%s %s\n", faint.Render(fmt.Sprintf("%-*s", margin-1, subject)), strings.TrimRight(part, "\n"))
		subject = ""
	}
}

// rows writes several lines, indented to stand out from those around them.
func (p *page) rows(lines []string) {
	for _, line := range lines {
		p.row("", "  %s", line)
	}
}

func (p *page) daemon(d *client.Daemon) {
	p.row("project", "%s", bold.Render(d.GetProjectRoot()))
	p.row("daemon", "devproxyd %s, pid %d, up %s", d.GetVersion(), d.GetPid(), p.since(d.GetStartTime()))
	p.row("", "socket %s", d.GetSocket())
	p.row("", "log %s", d.GetLogFile())
	p.row("", "environment from %s", d.GetEnvironmentOrigin())
	if deadline := d.GetIdleDeadline(); deadline != nil {
		p.row("", "ends in %s unless a client attaches", short(deadline.AsTime().Sub(p.now)))
	}
}

// config tells of a fault in devproxy.toml: what runs goes by an earlier one, and a
// person who has changed the file wonders why nothing comes of it.
func (p *page) config(root string) {
	_, err := config.Load(root)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	for i, line := range strings.Split(cli.Printable(err.Error()), "\n") {
		subject := ""
		if i == 0 {
			subject = "config"
		}
		p.row(subject, "%s", amber.Render(strings.TrimSpace(line)))
	}
	p.row("", "nothing of the file applies before that is mended")
}

// stateLine is what a backend does and since when, with its style.
func stateLine(b *client.Backend, now time.Time) string {
	name := client.StateName(b.GetState())
	line := stateStyle(name).Render(name)
	switch {
	case b.GetNeverRan():
		return line + ", it came to no process and printed nothing"
	case b.GetGeneration() != 0:
		line += fmt.Sprintf(", generation %d", b.GetGeneration())
	}
	if b.GetPid() != 0 {
		line += fmt.Sprintf(", pid %d", b.GetPid())
	}
	if b.GetPort() != 0 {
		line += fmt.Sprintf(", port %d", b.GetPort())
	}
	if b.GetReadyTime() != nil {
		line += ", up " + short(now.Sub(b.GetReadyTime().AsTime()))
	}
	return line
}

func (p *page) backend(b *client.Backend) {
	p.row("backend", "%s", stateLine(b, p.now))
	if b.GetMessage() != "" {
		p.row("", "%s", b.GetMessage())
	}
	line := b.GetTransport()
	if b.GetProtocolEra() != "" {
		line += fmt.Sprintf(", speaks %s, %s", b.GetProtocolEra(), b.GetProtocolVersion())
	}
	if b.GetServerName() != "" {
		line += fmt.Sprintf(", %s %s", b.GetServerName(), b.GetServerVersion())
	}
	p.row("", "%s: %s", line, strings.Join(b.GetCommand(), " "))
	for _, name := range slices.Sorted(maps.Keys(b.GetEnvironmentOverrides())) {
		p.row("", "override %s=%s", name, b.GetEnvironmentOverrides()[name])
	}
	if b.GetRetryTime() != nil {
		p.row("", "next start in %s", short(b.GetRetryTime().AsTime().Sub(p.now)))
	}
	for _, w := range b.GetWarnings() {
		p.row("", "%s %s; %s", amber.Render("warning:"), w.GetText(), w.GetAdvice())
	}
	p.exit(b)
}

// shownExits is how many generations before the last one the page tells.
const shownExits = 3

func (p *page) exit(b *client.Backend) {
	exit := b.GetLastExit()
	if exit == nil {
		return
	}
	p.row("", "generation %d ended %s ago: %s (%s)", exit.GetGeneration(), p.since(exit.GetTime()), exit.GetStatus(), exit.GetReason())
	var earlier []string
	for _, g := range slices.Backward(b.GetHistory()) {
		if g.GetExit() != nil && g.GetNumber() < exit.GetGeneration() && len(earlier) < shownExits {
			earlier = append(earlier, fmt.Sprintf("#%d %s ago (%s)", g.GetNumber(), p.since(g.GetExit().GetTime()), g.GetExit().GetReason()))
		}
	}
	if len(earlier) > 0 {
		p.row("", "before it: %s", strings.Join(earlier, ", "))
	}
	// What an orderly stop printed is of no interest.
	if name := client.StateName(b.GetState()); name != "failed" && name != "backoff" || b.GetNeverRan() {
		return
	}
	p.rows(exit.GetStderrTail())
}

func (p *page) build(b *client.BuildRun) {
	if b == nil {
		return
	}
	duration := short(b.GetDuration().AsDuration())
	switch {
	case b.GetRunning():
		p.row("build", "running for %s: %s", duration, b.GetCommand())
	case b.GetOk():
		p.row("build", "%s in %s, %s ago: %s", stateStyle("running").Render("ok"), duration, p.since(b.GetStartTime()), b.GetCommand())
	default:
		p.row("build", "%s after %s, %s ago: %s", stateStyle("failed").Render("failed"), duration, p.since(b.GetStartTime()), b.GetCommand())
		p.row("", "%s", b.GetMessage())
		p.rows(b.GetTail())
	}
}

// buildWatch shows the process of [build] watch.
func (p *page) buildWatch(w *client.BuildWatch) {
	if w == nil {
		return
	}
	line := w.GetCommand()
	if w.GetPid() != 0 {
		line += fmt.Sprintf(", pid %d, up %s", w.GetPid(), p.since(w.GetStartTime()))
	}
	switch n := w.GetRestarts(); n {
	case 0:
	case 1:
		line += ", started again once"
	default:
		line += fmt.Sprintf(", started again %d times", n)
	}
	p.row("builder", "%s", line)
	if w.GetMessage() != "" {
		p.row("", "%s", w.GetMessage())
		p.rows(w.GetTail()[max(0, len(w.GetTail())-lastWords):])
	} else if said := lastLine(w.GetTail()); said != "" {
		// It goes on after a failed build as after a good one; this tells which.
		p.row("", "%s", faint.Render(said))
	}
}

// lastLine is the last of some lines that says something; "" if none does.
func lastLine(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// lastWords is how many lines say why a build watcher has ended.
const lastWords = 10

func (p *page) watch(w *client.Watch) {
	if len(w.GetPaths()) == 0 {
		return
	}
	files := "files"
	if w.GetFiles() == 1 {
		files = "file"
	}
	p.row("watch", "%s: %d %s, by %s", strings.Join(w.GetPaths(), ", "), w.GetFiles(), files, w.GetMode())
	if w.GetLastChanged() != "" {
		p.row("", "last change %s ago: %s", p.since(w.GetLastChangeTime()), w.GetLastChanged())
	}
	if w.GetEntryMissing() {
		p.row("", "%s is missing or empty: nothing is started before it is there", w.GetEntry())
	}
	if w.GetOverflows() > 0 {
		p.row("", "file events were lost %d times; everything was looked at again each time", w.GetOverflows())
	}
	if w.GetProblem() != "" {
		p.row("", "%s", w.GetProblem())
	}
}

// sessions shows the clients; generation is the backend's.
func (p *page) sessions(sessions []*client.Session, generation uint64) {
	if len(sessions) == 0 {
		p.row("clients", "none")
		return
	}
	for i, s := range sessions {
		subject := ""
		if i == 0 {
			subject = "clients"
		}
		name := strings.TrimSpace(s.GetClientName() + " " + s.GetClientVersion())
		if name == "" {
			name = "(has not said its name)"
		}
		line := fmt.Sprintf("#%d %s", s.GetId(), name)
		if s.GetProtocolVersion() != "" {
			line += fmt.Sprintf(", %s %s", s.GetProtocolEra(), s.GetProtocolVersion())
		}
		line += fmt.Sprintf(", shim pid %d, attached %s ago, %d in flight", s.GetShimPid(), p.since(s.GetAttachTime()), s.GetInFlight())
		if s.GetLastMethod() != "" {
			line += fmt.Sprintf(", last %s %s ago", s.GetLastMethod(), p.since(s.GetLastTime()))
		}
		p.row(subject, "%s", line)
		if s.GetStale() != "" {
			p.row("", "   %s", s.GetStale())
		}
		if listed := s.GetListedGeneration(); listed != 0 && listed != generation {
			p.row("", "   has the tools of generation %d, and has not asked again", listed)
		}
	}
}

func (p *page) since(t interface{ AsTime() time.Time }) string { return short(p.now.Sub(t.AsTime())) }

// short rounds a duration to what a person wants to know.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}
