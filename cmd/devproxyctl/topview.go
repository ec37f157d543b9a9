package main

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

// topPane is what the screen shows.
type topPane uint8

const (
	paneMain topPane = iota
	paneHelp
	paneLog
)

// noticeTime is how long the footer tells of what is done.
const noticeTime = 5 * time.Second

// topModel is the live view.
type topModel struct {
	now func() time.Time
	do  func(action)

	width, height int
	pane          topPane
	status        *client.Status // nil before the first
	waiting       bool           // no daemon serves
	load          *load
	calls         calls
	noTraffic     error
	log           []string
	top           int // the first call that is shown, counted from the newest
	logUp         int // how many lines the log is scrolled up
	acting        string
	notice        string
	noticeIsBad   bool
	noticeUntil   time.Time // zero: until the next key
}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	case tickMsg:
		if m.pane == paneLog {
			m.act(actLog)
		}
		return m, tick()
	case doerMsg:
		m.do = msg.do
	default:
		m.take(msg)
	}
	return m, nil
}

// take takes what the feed sends.
func (m *topModel) take(msg tea.Msg) {
	switch msg := msg.(type) {
	case statusMsg:
		m.status, m.waiting = printable(msg.status), false
		m.calls.sessions(msg.status.GetSessions(), m.now())
	case goneMsg:
		m.waiting, m.load = true, nil
		m.calls.gone(m.now())
	case backMsg:
		m.status, m.waiting = printable(msg.status), false
		m.tell(fmt.Sprintf("another daemon, pid %d, serves now", msg.status.GetDaemon().GetPid()))
	case loadMsg:
		m.load = msg.load
		// A status comes only when it is another one, but the calls grow older.
		if m.status != nil && !m.waiting {
			m.calls.sessions(m.status.GetSessions(), m.now())
		}
	case noTrafficMsg:
		m.noTraffic = msg.err
	case trafficMsg:
		before := m.calls.began
		m.calls.take(msg.entry, msg.body)
		if m.top > 0 {
			m.top += int(m.calls.began - before) // what one looks at stays
		}
	case progressMsg:
		m.acting = msg.text
	case doneMsg:
		m.acting = ""
		if msg.err != nil {
			m.complain(msg.err)
		} else {
			m.tell(msg.text)
		}
	case logMsg:
		if msg.err != nil {
			m.log = []string{cli.PrintableLine(msg.err.Error())}
			return
		}
		m.log = m.log[:0]
		for _, e := range msg.entries {
			m.log = append(m.log, logLine(e))
		}
	}
}

func (m *topModel) tell(text string) {
	m.notice, m.noticeIsBad, m.noticeUntil = text, false, m.now().Add(noticeTime)
}

func (m *topModel) complain(err error) {
	first, _, _ := strings.Cut(err.Error(), "\n")
	m.notice, m.noticeIsBad, m.noticeUntil = cli.PrintableLine(first), true, time.Time{}
}

func (m *topModel) key(key string) tea.Cmd {
	if m.noticeUntil.IsZero() {
		m.notice = ""
	}
	switch key {
	case "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "q":
		if m.pane == paneMain {
			return tea.Quit
		}
		m.pane = paneMain
	case "esc":
		m.pane = paneMain
	case "?", "h":
		m.pane = toggled(m.pane, paneHelp)
	case "l":
		m.pane, m.logUp = toggled(m.pane, paneLog), 0
		if m.pane == paneLog {
			m.act(actLog)
		}
	case "r":
		m.start(actRestart, "restarting")
	case "b":
		m.start(actRebuild, "rebuilding")
	default:
		m.scroll(key)
	}
	return nil
}

func (m *topModel) scroll(key string) {
	switch m.pane {
	case paneMain:
		room := m.height - 2 - len(m.state())
		m.top = scrolled(m.top, key, len(m.calls.all), max(1, room))
	case paneLog:
		// It is read from its end.
		room := m.height - 1
		top := max(0, len(m.log)-room)
		m.logUp = top - scrolled(max(0, top-m.logUp), key, len(m.log), room)
	case paneHelp:
	}
}

func toggled(pane, other topPane) topPane {
	if pane == other {
		return paneMain
	}
	return other
}

func (m *topModel) act(a action) {
	if m.do != nil {
		m.do(a)
	}
}

// start begins what takes a while, one at a time.
func (m *topModel) start(a action, doing string) {
	if m.acting != "" {
		return
	}
	if m.waiting || m.do == nil {
		m.complain(errNoDaemon)
		return
	}
	m.acting = doing
	m.act(a)
}

// View implements tea.Model.
func (m *topModel) View() tea.View {
	view := tea.NewView(m.screen())
	view.AltScreen = true
	return view
}

func (m *topModel) screen() string {
	if m.height == 0 {
		return ""
	}
	room := m.height - 1
	switch m.pane {
	case paneHelp:
		return styled(fit(topHelp[:min(len(topHelp), room)], room, m.width, faint.Render("? back  q back")))
	case paneLog:
		end := max(0, len(m.log)-m.logUp)
		return styled(fit(m.log[max(0, end-room):end], room, m.width, m.footer("↑↓ scroll  l back")))
	case paneMain:
	}
	lines := m.state()
	lines = append(lines, m.callLines(room-len(lines))...)
	return styled(fit(lines, room, m.width, m.footer("q quit  ↑↓ scroll  r restart  b rebuild  l log  ? help")))
}

var topHelp = []string{
	bold.Render("devproxyctl top"),
	"",
	"r              restart the backend",
	"b              rebuild and restart it; if the build fails it is left alone",
	"l              the last log lines",
	"↑ ↓ PgUp PgDn  scroll the calls; the newest are on top",
	"Home End       to the newest, to the oldest",
	"q Ctrl-C       quit",
	"",
	"What becomes of a call:",
	"ok             it has a result",
	"tool error     its result says isError",
	"error          with its code, or the reason that devproxy gives",
	"cancelled      by its client",
	"lost           with the backend, with its client or with the daemon",
	"answered       with something too long to be looked at",
	"not seen       what it was is among messages that were missed",
}

func (m *topModel) footer(keys string) string {
	switch {
	case m.waiting:
		return amber.Render(waitingForDaemon) + "  " + faint.Render(keys)
	case m.acting != "":
		return amber.Render(m.acting+" …") + "  " + faint.Render(keys)
	case m.notice != "" && m.noticeIsBad:
		return red.Render(m.notice)
	case m.notice != "" && m.now().Before(m.noticeUntil):
		return green.Render(m.notice) + "  " + faint.Render(keys)
	}
	return faint.Render(keys)
}

// state is everything above the calls, in as many lines as leave room for some.
func (m *topModel) state() []string {
	if m.status == nil {
		return nil
	}
	p := topPage{now: m.now(), width: m.width}
	// A low screen has the first of each only.
	exits, clients, words := 1, 3, 1
	switch {
	case m.height < 16:
		exits, clients, words = 0, 1, 0
	case m.height >= 36:
		exits, clients, words = 5, 10, 4
	case m.height >= 24:
		exits, clients, words = 2, 4, 2
	}
	p.head(m.status.GetDaemon(), m.waiting)
	if m.waiting {
		return append(p.lines, "")
	}
	p.backend(m.status.GetBackend(), m.load, words)
	p.exits(m.status.GetBackend(), exits)
	p.build(m.status.GetBuild(), words)
	p.builder(m.status.GetBuildWatch(), words)
	p.clients(m.status.GetSessions(), clients)
	// The calls are what one comes for.
	most := max(2, 2*m.height/3-1)
	return append(p.lines[:min(len(p.lines), most)], "")
}

// topPage gathers lines, each with its subject in the margin.
type topPage struct {
	now   time.Time
	width int
	lines []string
}

func (p *topPage) row(subject, format string, args ...any) {
	p.lines = append(p.lines, faint.Render(fmt.Sprintf("%-*s", margin, subject))+fmt.Sprintf(format, args...))
}

// text adds the first lines of a text.
func (p *topPage) text(style lipgloss.Style, text string, lines int) {
	for line := range strings.Lines(text) {
		if lines--; lines < 0 {
			return
		}
		p.row("", "%s", style.Render(strings.TrimRight(line, "\n")))
	}
}

func (p *topPage) since(t interface{ AsTime() time.Time }) string {
	return short(p.now.Sub(t.AsTime()))
}

func (p *topPage) head(d *client.Daemon, waiting bool) {
	daemon := fmt.Sprintf("devproxyd %s, pid %d, up %s", d.GetVersion(), d.GetPid(), p.since(d.GetStartTime()))
	if waiting {
		daemon = "no daemon"
	}
	root := d.GetProjectRoot()
	space := p.width - margin - lipgloss.Width(root) - lipgloss.Width(daemon)
	if space < len(gap) {
		p.row("project", "%s", bold.Render(root))
		p.row("daemon", "%s", daemon)
		return
	}
	p.row("project", "%s%s%s", bold.Render(root), strings.Repeat(" ", space), faint.Render(daemon))
}

func (p *topPage) backend(b *client.Backend, l *load, words int) {
	line := stateLine(b, p.now)
	if l != nil {
		line += ", " + l.String()
	}
	if b.GetRetryTime() != nil {
		line += ", next start in " + short(b.GetRetryTime().AsTime().Sub(p.now))
	}
	p.row("backend", "%s", line)
	if b.GetMessage() != "" {
		p.text(amber, b.GetMessage(), max(1, words))
	}
	if words == 0 {
		return
	}
	line = b.GetTransport()
	if b.GetServerName() != "" {
		line = strings.TrimSpace(b.GetServerName()+" "+b.GetServerVersion()) + ", " + line
	}
	if b.GetProtocolEra() != "" {
		line += fmt.Sprintf(", %s %s", b.GetProtocolEra(), b.GetProtocolVersion())
	}
	p.row("", "%s: %s", line, strings.Join(b.GetCommand(), " "))
}

// exits tells how the last generations ended, the last one first.
func (p *topPage) exits(b *client.Backend, most int) {
	subject := "ended"
	history := b.GetHistory()
	if exit := b.GetLastExit(); len(history) == 0 && exit != nil && most > 0 { // of an earlier daemon
		p.row(subject, "#%d %s ago: %s (%s)", exit.GetGeneration(), p.since(exit.GetTime()), exit.GetStatus(), exit.GetReason())
	}
	for i := len(history) - 1; i >= 0 && most > 0; i-- {
		g := history[i]
		exit := g.GetExit()
		if exit == nil {
			continue
		}
		lived := exit.GetTime().AsTime().Sub(g.GetStartTime().AsTime())
		line := fmt.Sprintf("#%d %s ago, after %s: %s (%s)", g.GetNumber(), p.since(exit.GetTime()), short(lived), exit.GetStatus(), exit.GetReason())
		if g.GetReadyTime() == nil {
			line += ", never ready"
		}
		p.row(subject, "%s", line)
		subject = ""
		most--
	}
}

func (p *topPage) build(b *client.BuildRun, words int) {
	if b == nil {
		return
	}
	duration := short(b.GetDuration().AsDuration())
	switch {
	case b.GetRunning():
		p.row("build", "%s for %s: %s", amber.Render("running"), short(p.now.Sub(b.GetStartTime().AsTime())), b.GetCommand())
		p.text(faint, lastLine(b.GetTail()), 1)
	case b.GetOk():
		p.row("build", "%s in %s, %s ago: %s", green.Render("ok"), duration, p.since(b.GetStartTime()), b.GetCommand())
	default:
		p.row("build", "%s after %s, %s ago: %s", red.Render("failed"), duration, p.since(b.GetStartTime()), b.GetCommand())
		p.text(red, strings.Join(append([]string{b.GetMessage()}, b.GetTail()...), "\n"), words)
	}
}

// builder tells of what builds continuously.
func (p *topPage) builder(w *client.BuildWatch, words int) {
	if w == nil {
		return
	}
	line := w.GetCommand()
	if w.GetPid() != 0 {
		line += fmt.Sprintf(", pid %d", w.GetPid())
	}
	if w.GetPid() != 0 && w.GetStartTime() != nil {
		line += ", up " + p.since(w.GetStartTime())
	}
	if w.GetRestarts() > 0 {
		line += fmt.Sprintf(", started again %d×", w.GetRestarts())
	}
	p.row("builder", "%s", line)
	if w.GetMessage() != "" {
		p.text(amber, w.GetMessage(), max(1, words))
	} else if said := lastLine(w.GetTail()); said != "" && words > 0 {
		p.text(faint, said, 1)
	}
}

func (p *topPage) clients(sessions []*client.Session, most int) {
	if len(sessions) == 0 {
		p.row("clients", "none")
		return
	}
	shown := sessions
	if len(shown) > most {
		shown = shown[:most]
	}
	subject := "clients"
	names := 0
	for _, s := range shown {
		names = max(names, lipgloss.Width(sessionName(s)))
	}
	names = min(names, max(minText, p.width/3))
	for _, s := range shown {
		open := fmt.Sprintf("%d in flight", s.GetInFlight())
		if s.GetInFlight() > 0 {
			open = amber.Render(open)
		}
		cells := []string{pad(sessionName(s), names), open}
		if s.GetLastMethod() != "" {
			cells = append(cells, fmt.Sprintf("%s %s ago", s.GetLastMethod(), p.since(s.GetLastTime())))
		}
		if s.GetProtocolVersion() != "" {
			cells = append(cells, s.GetProtocolEra()+" "+s.GetProtocolVersion())
		}
		cells = append(cells, fmt.Sprintf("shim %d", s.GetShimPid()))
		p.row(subject, "%s", strings.Join(cells, gap))
		subject = ""
	}
	if more := len(sessions) - len(shown); more > 0 {
		p.row("", "%s", faint.Render(fmt.Sprintf("and %d more", more)))
	}
}

func sessionName(s *client.Session) string {
	name := strings.TrimSpace(s.GetClientName() + " " + s.GetClientVersion())
	if name == "" {
		name = "(no name yet)"
	}
	return fmt.Sprintf("#%d %s", s.GetId(), name)
}

// pad makes a text exactly so many columns wide.
func pad(text string, columns int) string {
	text = shorten(text, columns)
	return text + strings.Repeat(" ", max(0, columns-lipgloss.Width(text)))
}

// callLines are the calls, the newest first, under their heading.
func (m *topModel) callLines(room int) []string {
	if room <= 0 {
		return nil
	}
	const clock, took = 8, 8
	outcome, who := 18, 16
	switch {
	case m.width < 50:
		outcome, who = 10, 0
	case m.width < 76:
		outcome, who = 12, 12
	case m.width >= 110:
		outcome, who = 28, 26
	}
	what := m.width - clock - took - outcome - 3*len(gap)
	if who > 0 {
		what -= who + len(gap)
	}
	what = max(what, 8)
	row := func(cells ...string) string {
		line := cells[0] + gap
		if who > 0 {
			line += cells[1] + gap
		}
		return line + cells[2] + gap + cells[3] + gap + cells[4]
	}
	lines := []string{faint.Render(row(pad("TIME", clock), pad("CLIENT", who), pad("CALL", what), fmt.Sprintf("%*s", took, "TOOK"), m.heading()))}
	now := m.now()
	top := min(m.top, max(0, len(m.calls.all)-(room-1)))
	for i := len(m.calls.all) - 1 - top; i >= 0 && len(lines) < room; i-- {
		c := m.calls.all[i]
		state := c.outcome
		switch {
		case state == callOpen:
			state = "running"
		case c.detail != "":
			state += ": " + c.detail
		}
		lines = append(lines, row(
			faint.Render(c.began.Local().Format(time.TimeOnly)),
			pad(strings.TrimSpace(fmt.Sprintf("#%d %s", c.session, c.client)), who),
			pad(c.words(what), what),
			fmt.Sprintf("%*s", took, latency(c.took(now))),
			outcomeStyle(c.outcome).Render(shorten(state, outcome))))
	}
	switch {
	case m.noTraffic != nil:
		lines = append(lines[:1], amber.Render(noCalls(m.noTraffic)))
	case len(m.calls.all) == 0 && len(lines) < room:
		lines = append(lines, faint.Render("none since this began"))
	}
	return lines[:min(len(lines), room)]
}

// words say what a call is about, in so many columns if that can be.
func (c *call) words(columns int) string {
	full := strings.TrimSpace(c.method + " " + c.name)
	if c.name != "" && lipgloss.Width(full) > columns {
		return c.name
	}
	return full
}

// heading is that of the outcomes, with what is not in the list.
func (m *topModel) heading() string {
	switch {
	case m.calls.lost > 0:
		return fmt.Sprintf("OUTCOME (%d missed)", m.calls.lost)
	case m.top > 0:
		return fmt.Sprintf("OUTCOME (↑%d)", m.top)
	}
	return "OUTCOME"
}

func outcomeStyle(outcome string) lipgloss.Style {
	switch outcome {
	case callOK:
		return green
	case callError, callToolError, callLost:
		return red
	}
	return amber
}
