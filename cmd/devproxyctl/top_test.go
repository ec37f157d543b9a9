package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// said is a message at the clients' border, so long before now.
func said(before time.Duration, session uint64, name, body string) trafficMsg {
	e := &client.TrafficEntry{Time: ago(before), Session: session, ClientName: name, Size: uint64(len(body)), Direction: devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_TO_CLIENT}
	var message struct {
		ID     json.RawMessage
		Method string
		Error  *struct{ Code int64 }
	}
	if err := json.Unmarshal([]byte(body), &message); err != nil {
		panic(err)
	}
	e.Id, e.Method, e.Kind = string(message.ID), message.Method, devproxyv1.TrafficKind_TRAFFIC_KIND_RESULT
	switch {
	case message.Method != "" && message.ID != nil:
		e.Kind = devproxyv1.TrafficKind_TRAFFIC_KIND_REQUEST
	case message.Method != "":
		e.Kind = devproxyv1.TrafficKind_TRAFFIC_KIND_NOTIFICATION
	case message.Error != nil:
		e.Kind, e.ErrorCode = devproxyv1.TrafficKind_TRAFFIC_KIND_ERROR, message.Error.Code
	}
	if message.Method != "" {
		e.Direction = devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_FROM_CLIENT
	}
	return trafficMsg{e, []byte(body)}
}

func toolCall(id int, tool string) string {
	name, _ := json.Marshal(tool)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%s}}`, id, name)
}

func answered(id int, member string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, member)
}

// someTraffic has a call of each outcome.
func someTraffic() []trafficMsg {
	const one, two = "claude-code", "编辑器"
	s := time.Second
	return []trafficMsg{
		said(90*s, 1, one, `{"jsonrpc":"2.0","id":0,"method":"tools/list"}`), said(89*s, 1, one, answered(0, `"result":{"tools":[]}`)),
		said(80*s, 7, two, `{"jsonrpc":"2.0","id":"a","method":"subscriptions/listen"}`),
		said(70*s, 1, one, toolCall(1, "echo")), said(70*s, 7, two, toolCall(1, "日本語のとても長い名前のツール、まだまだ続く")),
		said(69*s, 7, two, answered(1, `"result":{"isError":true}`)), said(68*s, 1, one, answered(1, `"result":{"content":[]}`)),
		said(60*s, 1, one, toolCall(2, "bad")), said(59900*time.Millisecond, 1, one, answered(2, `"error":{"code":-32602,"message":"no"}`)),
		said(50*s, 1, one, `{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"file:///a"}}`),
		said(49*s, 1, one, answered(3, `"error":{"code":-31901,"data":{"reason":"start-failed"}}`)),
		said(40*s, 1, one, toolCall(4, "crash")),
		said(39*s, 1, one, answered(4, `"result":{"isError":true,"_meta":{"com.github.debugmcp.devproxy/failure":{"reason":"backend-lost"},"other":1}}`)),
		said(30*s, 1, one, toolCall(5, "slow")), said(28*s, 1, one, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`),
		said(27*s, 1, one, answered(5, `"result":{}`)), // late
		said(1200*time.Millisecond, 1, one, toolCall(6, "evil\x1b[2J\ttool")),
	}
}

func topStatus() *client.Status {
	s := statuses()["running"]
	exit := func(generation uint64, before time.Duration, status, reason string) *client.Generation {
		return &client.Generation{
			Number: generation, StartTime: ago(before + time.Minute), ReadyTime: ago(before + 59*time.Second),
			Exit: &devproxyv1.Exit{Generation: generation, Time: ago(before), Status: status, Reason: reason},
		}
	}
	s.Backend.History = []*client.Generation{
		exit(1, 10*time.Minute, "exited with status 1", "crash"), exit(2, 62*time.Second, "exited with status 0", "restart"), {Number: 3, StartTime: ago(62 * time.Second)},
	}
	s.BuildWatch = &client.BuildWatch{Command: "tsc --watch", Pid: 4800, StartTime: ago(time.Hour), Restarts: 2, Tail: []string{"Found 0 errors. Watching for file changes.", ""}}
	return s
}

// topAt is the view of that moment on such a screen.
func topAt(width, height int, status *client.Status) *topModel {
	m := &topModel{now: func() time.Time { return now }}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(statusMsg{status})
	m.Update(loadMsg{&load{Processes: 2, CPUPercent: 12.4, MemoryBytes: 84 << 20}})
	for _, message := range someTraffic() {
		m.Update(message)
	}
	return m
}

func pressed(m *topModel, keys ...string) {
	codes := map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "end": tea.KeyEnd, "home": tea.KeyHome, "esc": tea.KeyEscape}
	for _, key := range keys {
		if code, special := codes[key]; special {
			m.Update(tea.KeyPressMsg{Code: code})
		} else {
			m.Update(tea.KeyPressMsg{Code: rune(key[0]), Text: key})
		}
	}
}

func TestTopScreens(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	building := topStatus()
	building.Build = &client.BuildRun{Command: "npm run build", Running: true, StartTime: ago(3 * time.Second), Duration: durationpb.New(0), Tail: []string{"compiling"}}
	failed := statuses()["failed"]
	failed.Backend.History = []*client.Generation{{Number: 1, StartTime: ago(6 * time.Second), Exit: failed.GetBackend().GetLastExit()}}
	failed.BuildWatch = &client.BuildWatch{Command: "tsc -w", Message: "it ended by itself; the next start is in 2s"}
	for name, m := range map[string]*topModel{
		"80x24": topAt(80, 24, topStatus()), "140x40": topAt(140, 40, topStatus()), "40x15": topAt(40, 15, topStatus()),
		"20x6": topAt(20, 6, topStatus()), "building": topAt(80, 24, building), "failed": topAt(80, 24, failed),
	} {
		t.Run(name, func(t *testing.T) {
			screen := m.screen()
			lines := strings.Split(screen, "\n")
			if len(lines) != m.height {
				t.Errorf("%d lines", len(lines))
			}
			for _, line := range lines {
				if columns := lipgloss.Width(line); columns > m.width {
					t.Errorf("%d columns in %q", columns, line)
				}
			}
			golden(t, "top-"+name, trimmed(screen))
		})
	}
	m := topAt(80, 24, topStatus())
	pressed(m, "?")
	golden(t, "top-help", trimmed(m.screen()))
	pressed(m, "esc")
	m.Update(goneMsg{})
	golden(t, "top-gone", trimmed(m.screen()))
	m.Update(noTrafficMsg{errors.New("too many traces")})
	m.Update(backMsg{topStatus()})
	golden(t, "top-back", trimmed(m.screen()))
}

// However small a screen is, it is filled and not overrun.
func TestTopFitsAnyScreen(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	for width := 1; width < 130; width += 3 {
		for height := 1; height < 45; height += 4 {
			m := topAt(width, height, topStatus())
			for _, key := range []string{"", "pgdown", "?", "l", "l"} {
				if key != "" {
					pressed(m, key)
				}
				lines := strings.Split(m.screen(), "\n")
				if len(lines) != height {
					t.Errorf("%dx%d, after %q: %d lines", width, height, key, len(lines))
				}
				for _, line := range lines {
					if columns := lipgloss.Width(line); columns > width {
						t.Errorf("%dx%d, after %q: %d columns in %q", width, height, key, columns, line)
					}
				}
			}
		}
	}
}

// trimmed is a screen without the spaces that nobody sees.
func trimmed(screen string) string {
	var text strings.Builder
	for line := range strings.Lines(screen + "\n") {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return text.String()
}

// Who scrolls goes on to see the same calls while others come.
func TestTopScrolls(t *testing.T) {
	m := topAt(80, 24, topStatus())
	for i := range 40 {
		m.Update(said(time.Second, 1, "c", toolCall(100+i, fmt.Sprintf("tool%02d", i))))
	}
	first := func() string {
		lines := strings.Split(m.screen(), "\n")
		for i, line := range lines {
			if strings.Contains(line, "TOOK") {
				return strings.TrimSpace(lines[i+1])
			}
		}
		return ""
	}
	shows := func(want string) {
		t.Helper()
		if got := first(); !strings.Contains(got, want) {
			t.Errorf("the first call is %q, want %s", got, want)
		}
	}
	shows("tool39")
	pressed(m, "down", "down", "down", "up")
	shows("tool37")
	m.Update(said(0, 1, "c", toolCall(200, "newest")))
	shows("tool37")
	pressed(m, "home")
	shows("newest")
	pressed(m, "end", "end", "down")
	if got := m.screen(); !strings.Contains(got, "tools/list") {
		t.Errorf("the end is\n%s", got)
	}
	pressed(m, "home", "pgdown")
	if got := first(); strings.Contains(got, "newest") || got == "" {
		t.Errorf("a page further is %q", got)
	}
}

// Memory does not grow with the calls, nor with those that are never answered.
func TestCallsAreBounded(t *testing.T) {
	var c calls
	for i := range 3 * maxCalls {
		m := said(0, 1, "c", toolCall(i, "x"))
		c.take(m.entry, m.body)
	}
	if len(c.all) != maxCalls || len(c.open) != maxCalls || c.began != 3*maxCalls {
		t.Errorf("%d calls, %d open, of %d", len(c.all), len(c.open), c.began)
	}
}

func TestCallsOfThoseWhoLeft(t *testing.T) {
	var c calls
	for _, m := range []trafficMsg{said(9*time.Second, 1, "a", toolCall(1, "x")), said(9*time.Second, 2, "b", toolCall(1, "x")), said(time.Second, 3, "c", toolCall(1, "x"))} {
		c.take(m.entry, m.body)
	}
	present := []*client.Session{{Id: 2}}
	c.sessions(present, now)
	outcomes := func() (all []string) {
		for _, one := range c.all {
			all = append(all, one.outcome+"/"+one.detail)
		}
		return all
	}
	if got := fmt.Sprint(outcomes()); got != "[lost/client left / /]" {
		t.Errorf("a client has left: %s", got)
	}
	missing := said(0, 2, "b", `{"method":"x"}`)
	missing.entry.Lost = 4
	c.take(missing.entry, missing.body)
	c.sessions(present, now)
	if got := fmt.Sprint(outcomes()); got != "[lost/client left not seen/ /]" {
		t.Errorf("messages are missing: %s", got)
	}
	c.gone(now)
	if got := fmt.Sprint(outcomes()); got != "[lost/client left not seen/ lost/daemon ended]" {
		t.Errorf("the daemon has ended: %s", got)
	}
}

// Of what is cut nobody knows whether it is an error.
func TestCutResult(t *testing.T) {
	for body, want := range map[string]string{`{"result":{"con`: callAnswered, `{"result":{"isError":false}}`: callOK} {
		if got, _ := outcomeOf([]byte(body), strings.HasSuffix(body, "con")); got != want {
			t.Errorf("%s is %q, want %q", body, got, want)
		}
	}
}

// A line of top --json has the calls since the one before, and numbers as such.
func TestTopLines(t *testing.T) {
	var out, stderr strings.Builder
	p := newTopPrinter(&out, &stderr)
	print := func() string {
		t.Helper()
		out.Reset()
		if err := p.print(now); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(out.String(), "\n")
	}
	p.take(statusMsg{&client.Status{Backend: &client.Backend{Pid: 4711}}}, now)
	p.take(loadMsg{&load{Processes: 2, CPUPercent: 1.5, MemoryBytes: 4096}}, now)
	for _, m := range someTraffic()[:5] {
		p.take(m, now)
	}
	first := print()
	for _, want := range []string{
		`{"version":1,"time":"2026-11-30T12:00:00Z","connected":true,"status":{"daemon":null,"backend":{"state":"BACKEND_STATE_UNSPECIFIED","generation":0,"pid":4711,`,
		`"load":{"processes":2,"cpuPercent":1.5,"memoryBytes":4096},"calls":[{"session":1,"client":"claude-code","id":0,"method":"tools/list","startTime":"2026-11-30T11:58:30Z","latencyMs":1000,"outcome":"ok"}],`,
		`"open":[{"session":1,"client":"claude-code","id":1,"method":"tools/call","name":"echo","startTime":"2026-11-30T11:58:50Z","latencyMs":70000},`,
	} {
		if !strings.Contains(first, want) {
			t.Errorf("%s lacks %s", first, want)
		}
	}
	missing := said(0, 1, "c", `{"method":"x"}`)
	missing.entry.Lost = 4
	p.take(missing, now)
	p.take(noTrafficMsg{errors.New("too many traces")}, now)
	if got := print(); !strings.Contains(got, `"calls":[],"open":[{`) || !strings.HasSuffix(got, `"missed":4}`) {
		t.Errorf("then %s", got)
	}
	p.take(goneMsg{}, now)
	if got := print(); !strings.Contains(got, `"connected":false,"status":null,"load":null,"calls":[{`) || !strings.Contains(got, `"outcome":"lost","detail":"daemon ended"}`) || !strings.HasSuffix(got, `"open":[],"missed":0}`) {
		t.Errorf("without a daemon %s", got)
	}
	if stderr.String() != "no calls are seen: too many traces\n" {
		t.Errorf("stderr: %q", stderr.String())
	}
}

func TestTopActs(t *testing.T) {
	m := topAt(80, 24, topStatus())
	var asked []action
	m.Update(doerMsg{func(a action) { asked = append(asked, a) }})
	footer := func() string {
		lines := strings.Split(m.screen(), "\n")
		return lines[len(lines)-1]
	}
	pressed(m, "r", "b", "r")
	if len(asked) != 1 || asked[0] != actRestart || !strings.Contains(footer(), "restarting …") {
		t.Errorf("asked for %v, and says %q", asked, footer())
	}
	m.Update(progressMsg{"starting"})
	if !strings.Contains(footer(), "starting …") {
		t.Errorf("under way it says %q", footer())
	}
	m.Update(doneMsg{err: errors.New("it did not start\nlong story")})
	if !strings.Contains(footer(), "it did not start") || strings.Contains(footer(), "story") {
		t.Errorf("failed it says %q", footer())
	}
	pressed(m, "b")
	if len(asked) != 2 || asked[1] != actRebuild || strings.Contains(footer(), "did not start") {
		t.Errorf("asked for %v, and says %q", asked, footer())
	}
	m.Update(doneMsg{text: "restarted"})
	pressed(m, "l")
	m.Update(logMsg{entries: []*client.LogEntry{{Time: timestamppb.New(now), Text: "a line\x1b[2J", Source: devproxyv1.LogSource_LOG_SOURCE_BUILD}}})
	if asked[2] != actLog || !strings.Contains(m.screen(), `a line\x1b[2J`) {
		t.Errorf("asked for %v, and shows\n%s", asked, m.screen())
	}
	pressed(m, "l")
	m.Update(goneMsg{})
	pressed(m, "r")
	if len(asked) != 3 || !strings.Contains(m.screen(), waitingForDaemon) {
		t.Errorf("without a daemon it asked for %v", asked)
	}
	if _, quit := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not end it")
	}
}
