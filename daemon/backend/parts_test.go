package backend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/process"
)

func TestEveryReasonSaysWhatToDo(t *testing.T) {
	seen := map[Reason]bool{}
	for _, reason := range Reasons() {
		if seen[reason] {
			t.Errorf("%s is there twice", reason)
		}
		seen[reason] = true
		if reason.Hint() == "" && reason != ShuttingDown {
			t.Errorf("%s has no hint", reason)
		}
	}
	// DESIGN: a request during shutdown gets no hint to retry.
	if ShuttingDown.Hint() != "" {
		t.Error("a shutdown hints at something to do")
	}
}

func TestFailureAsText(t *testing.T) {
	for want, f := range map[string]Failure{
		"it broke":         {Message: "it broke"},
		"it broke; fix it": {Message: "it broke", Hint: "fix it"},
		"it broke; its last lines:\n  a\n  b\nfix it": {Message: "it broke", Hint: "fix it", Tail: []string{"a", "b"}},
		"it broke; its last lines:\n  a":              {Message: "it broke", Tail: []string{"a"}},
	} {
		if got := f.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestStatesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for s := Idle; s <= Failed; s++ {
		if seen[s.String()] || s.String() == "unknown" {
			t.Errorf("state %d is called %q", s, s)
		}
		seen[s.String()] = true
	}
	if got := State(99).String(); got != "unknown" {
		t.Errorf("State(99) is called %q", got)
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4, 7, 100} {
		kept := tail{limit: 3}
		var all []string
		for i := range n {
			kept.add(fmt.Sprint(i))
			all = append(all, fmt.Sprint(i))
		}
		want := all[max(0, n-3):]
		if got := kept.lines(); !slices.Equal(got, want) {
			t.Errorf("after %d lines: %q, want %q", n, got, want)
		}
	}
}

func TestMailboxMergesWhatSaysNoMore(t *testing.T) {
	m := newMailbox()
	for range 1000 {
		m.put(item{event: event{kind: needed}})
	}
	m.put(item{event: event{kind: outputChanged}})
	m.put(item{event: event{kind: outputChanged}})
	m.put(item{event: event{kind: stopAsked}})
	m.put(item{event: event{kind: needed}})
	var kinds []eventKind
	for _, it := range m.take() {
		kinds = append(kinds, it.event.kind)
	}
	// The last one came after the stop: it must not be taken for an earlier one.
	if want := []eventKind{needed, outputChanged, stopAsked, needed}; !slices.Equal(kinds, want) {
		t.Errorf("kinds = %v, want %v", kinds, want)
	}
	m.put(item{event: event{kind: gone}})
	if left := m.close(); len(left) != 1 {
		t.Errorf("%d items left", len(left))
	}
	if m.put(item{event: event{kind: needed}}) {
		t.Error("a closed mailbox takes items")
	}
}

func TestExpand(t *testing.T) {
	p := plan{port: 4711, launch: Launch{
		Command: []string{"node", "server.js", "--port={port}", "{ports}"},
		Env:     []string{"A={port}/{port}", "{port}=name", "PWD=/a{port}", "PORT=1", "MCP_EXIT_ON_STDIN_CLOSE=0", "odd"},
		PortIn:  []string{"A", "{port}", "PORT"},
	}}
	command, env := p.expand()
	if diff := cmp.Diff([]string{"node", "server.js", "--port=4711", "{ports}"}, command); diff != "" {
		t.Errorf("command (-want +got)\n%s", diff)
	}
	want := []string{"A=4711/4711", "{port}=name", "PWD=/a{port}", "odd", "MCP_EXIT_ON_STDIN_CLOSE=1", "PORT=4711"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("env (-want +got)\n%s", diff)
	}
	if p.launch.Command[2] != "--port={port}" || p.launch.Env[0] != "A={port}/{port}" {
		t.Error("the launch itself was changed")
	}
	p.launch.Transport = Stdio
	if command, env = p.expand(); command[2] != "--port={port}" || slices.Contains(env, "PORT=4711") {
		t.Errorf("a stdio backend got a port: %q %q", command, env)
	}
}

func TestURL(t *testing.T) {
	for want, path := range map[string]string{
		"http://127.0.0.1:80/mcp": "/mcp", "http://127.0.0.1:80/health": "health", "http://127.0.0.1:80/": "",
	} {
		if got := urlOf(addressOf("127.0.0.1:80"), path); got != want {
			t.Errorf("urlOf(%q) = %q, want %q", path, got, want)
		}
	}
	if got := urlOf(addressOf("[::1]:80"), "/mcp"); got != "http://[::1]:80/mcp" {
		t.Errorf("IPv6: %q", got)
	}
}

var (
	oldLegacy = era.Facts{
		Era: era.Legacy, Version: "2025-06-18", Eras: []era.Era{era.Legacy}, Versions: []string{"2025-06-18"},
		Capabilities: []byte(`{"tools":{"listChanged":true},"x":9007199254740993}`),
		Info:         []byte(`{"name":"a<b>&c","version":"1"}`), Instructions: []byte(`"read \u00e4"`),
		Raw: []byte(`{"protocolVersion":"2025-06-18"}`),
	}
	modern = era.Facts{Era: era.Modern, Version: era.ModernVersion, Eras: []era.Era{era.Legacy, era.Modern}}
)

func TestSnapshotsOutliveTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot.json")
	command := []string{"node", "a.js"}
	s := loadSnapshots(path, command, discard())
	if _, ok := s.facts(era.Legacy); ok {
		t.Error("facts of nothing")
	}
	s.remember(command, []era.Facts{oldLegacy, modern}, era.Modern, []byte(`{"roots":{}}`))
	s.remember([]string{"node", "b.js"}, []era.Facts{{Era: era.Modern, Version: "b"}}, era.None, nil)

	again := loadSnapshots(path, command, discard())
	if got, ok := again.facts(era.Legacy); !ok || cmp.Diff(oldLegacy, got) != "" {
		t.Errorf("legacy facts:\n%s", cmp.Diff(oldLegacy, got))
	}
	if got, ok := again.facts(era.Modern); !ok || cmp.Diff(modern, got) != "" {
		t.Errorf("modern facts:\n%s", cmp.Diff(modern, got))
	}
	if got := again.lastEra(command); got != era.Modern {
		t.Errorf("last era = %v", got)
	}
	if got := again.spoils(command); got != era.Modern {
		t.Errorf("spoils = %v", got)
	}
	if got := string(again.union(command)); got != `{"roots":{}}` {
		t.Errorf("union = %s", got)
	}
	if got, ok := loadSnapshots(path, nil, discard()).facts(era.Modern); !ok || got.Version != "b" {
		t.Errorf("without a command the last one counts, got %+v", got)
	}
	if got, ok := loadSnapshots(path, []string{"other"}, discard()).facts(era.Modern); ok {
		t.Errorf("another command's facts: %+v", got)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	again.remember(command, []era.Facts{modern}, era.None, nil)
	if got := again.spoils(command); got != era.None {
		t.Errorf("a handshake of the era proves otherwise, but it still spoils %v", got)
	}
	if got, _ := again.facts(era.Legacy); got.Version != "2025-06-18" {
		t.Errorf("the other era is forgotten: %+v", got)
	}
}

func TestSnapshotsAreBounded(t *testing.T) {
	s := loadSnapshots(filepath.Join(t.TempDir(), "snapshot.json"), nil, discard())
	for i := range 3 * maxCommands {
		s.remember([]string{fmt.Sprint(i)}, []era.Facts{modern}, era.None, nil)
	}
	for i := range 3 * maxHandshakes {
		s.remember([]string{"x"}, []era.Facts{{Era: era.Legacy, Version: fmt.Sprint(i)}}, era.None, nil)
	}
	c := s.current.Load()
	if len(c.commands) != maxCommands || len(c.commands[0].Handshakes) != maxHandshakes {
		t.Errorf("%d commands, %d handshakes", len(c.commands), len(c.commands[0].Handshakes))
	}
	if got, _ := s.facts(era.Legacy); got.Version != fmt.Sprint(3*maxHandshakes-1) {
		t.Errorf("the newest handshake is not first: %+v", got)
	}

	// What is too large for the file is known to this daemon all the same.
	large := era.Facts{Era: era.Modern, Version: "large", Instructions: []byte(`"` + strings.Repeat("x", maxHandshakeBytes) + `"`)}
	s.remember([]string{"x"}, []era.Facts{large}, era.None, bytes.Repeat([]byte("1"), maxHandshakeBytes+1))
	if got, _ := s.facts(era.Modern); got.Version != "large" {
		t.Errorf("in memory is %+v", got)
	}
	again := loadSnapshots(s.path, []string{"x"}, discard())
	if got, known := again.facts(era.Modern); !known || got.Version == "large" || again.union([]string{"x"}) != nil {
		t.Errorf("on disk is %+v", got)
	}
	if err := os.Truncate(s.path, maxStateFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readSnapshots(s.path); err == nil || !strings.Contains(err.Error(), "is larger than 67108864 bytes") {
		t.Errorf("a file that is too large: %v", err)
	}
}

func TestASpoiltSnapshotCostsOnlyItself(t *testing.T) {
	for name, content := range map[string]string{
		"cut":          `{"format":1,"commands":[{"command":["a"],"hand`,
		"other format": `{"format":99,"commands":[]}`,
		"unknown era":  `{"format":1,"commands":[{"command":["a"],"handshakes":[{"era":"future","version":"1"}]}]}`,
		"no object":    `{"format":1,"commands":[{"command":["a"],"handshakes":[{"era":"legacy","version":"1","capabilities":[]}]}]}`,
		"no string":    `{"format":1,"commands":[{"command":["a"],"handshakes":[{"era":"legacy","version":"1","instructions":7}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := loadSnapshots(path, nil, discard())
			if f, ok := s.facts(era.Legacy); ok {
				t.Errorf("facts = %+v", f)
			}
			s.remember([]string{"a"}, []era.Facts{modern}, era.None, nil)
			if _, ok := loadSnapshots(path, nil, discard()).facts(era.Modern); !ok {
				t.Error("nothing can be remembered any more")
			}
		})
	}
}

func TestRecordRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backend.json")
	if _, found, err := readRecord(path); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	want := record{
		Process:    process.Identity{BootID: "b", PID: 7, StartTime: 1 << 60, Marker: "hash:3"},
		Generation: 3, Command: []string{"node", "x"}, StartedAt: time.Unix(1, 0).UTC(),
	}
	if err := writeRecord(path, want); err != nil {
		t.Fatal(err)
	}
	got, found, err := readRecord(path)
	if !found || err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v %v\n%s", found, err, cmp.Diff(want, got))
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("files left: %v, %v", entries, err)
	}
	for range 2 {
		if err := removeRecord(path); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileThatCannotBeWrittenKeepsTheOldOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	// A folder is in the place of the file: the rename fails, last of all steps.
	err := replaceFile(path, []byte("x"))
	if err == nil || !strings.Contains(err.Error(), "writing "+path) {
		t.Errorf("error = %v", err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Errorf("files left: %v", entries)
	}
	if err := replaceFile(filepath.Join(dir, "missing", "f"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
}

func TestGreetingOfAStart(t *testing.T) {
	command := []string{"x"}
	attached := era.Peer{Era: era.Modern, Version: era.ModernVersion, Info: []byte(`{"name":"m"}`), Capabilities: []byte(`{"sampling":{}}`)}
	starter := era.Peer{Era: era.Legacy, Version: "2025-06-18", Info: []byte(`{"name":"l"}`), Capabilities: []byte(`{}`)}
	r := newProcesses(Config{}, loadSnapshots("", nil, discard()), discard())
	p := plan{launch: Launch{Command: command}}

	if got := r.greeting(p); got.Era != era.None {
		t.Errorf("nobody's greeting = %+v", got)
	}
	r.snapshots.remember(command, []era.Facts{oldLegacy}, era.None, []byte(`{"roots":{}}`))
	if got := r.greeting(p); got.Era != era.Legacy || string(got.Capabilities) != `{"roots":{}}` {
		t.Errorf("greeting after an earlier start = %+v", got)
	}
	r.config.Greeting = func() era.Peer { return attached }
	if got := r.greeting(p); cmp.Diff(attached, got) != "" {
		t.Errorf("greeting of those attached = %+v", got)
	}
	p.starter = starter
	want := era.Peer{Era: era.Legacy, Version: "2025-06-18", Info: starter.Info, Capabilities: attached.Capabilities}
	if got := r.greeting(p); cmp.Diff(want, got) != "" {
		t.Errorf("greeting for the starter: %s", cmp.Diff(want, got))
	}
}

func TestHandshakeOrder(t *testing.T) {
	command := []string{"x"}
	for _, test := range []struct {
		first, spoils, greeting era.Era
		want                    []era.Era
	}{
		{greeting: era.Legacy, want: []era.Era{era.Legacy, era.Modern}},
		{greeting: era.Modern, want: []era.Era{era.Modern, era.Legacy}},
		{greeting: era.None, want: []era.Era{era.Modern, era.Legacy}},
		{greeting: era.Modern, spoils: era.Modern, want: []era.Era{era.Legacy, era.Modern}},
		{greeting: era.Legacy, spoils: era.Modern, want: []era.Era{era.Legacy, era.Modern}},
		{greeting: era.Legacy, first: era.Modern, want: []era.Era{era.Modern}},
	} {
		r := newProcesses(Config{}, loadSnapshots("", nil, discard()), discard())
		r.snapshots.remember(command, nil, test.spoils, nil)
		p := plan{order: order{first: test.first}, launch: Launch{Command: command}}
		if got := r.handshakeOrder(p, era.Peer{Era: test.greeting}); !slices.Equal(got, test.want) {
			t.Errorf("%+v: order %v", test, got)
		}
	}
}

func TestLaunchFailures(t *testing.T) {
	_, notFound := process.LookPath("no-such-program", "/nowhere", "/")
	for want, err := range map[Reason]error{
		CommandNotFound: fmt.Errorf("resolving the command: %w", notFound),
		ConfigInvalid:   errors.New("devproxy.toml:3: unknown key"),
		BuildFailed:     fmt.Errorf("launching: %w", fail(BuildFailed, "x")),
	} {
		if got := launchFailure(err); got.Reason != want || got.Hint == "" || got.Message == "" {
			t.Errorf("%v: %+v", err, got)
		}
	}
	file := filepath.Join(t.TempDir(), "server.js")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := process.LookPath(file, "", "/")
	if got := launchFailure(err); got.Reason != CommandNotFound || strings.Contains(got.Hint, "PATH") || !strings.Contains(got.Hint, file) {
		t.Errorf("a file that is no program: %+v", got)
	}
}

func TestStepsAreBounded(t *testing.T) {
	q := newSteps()
	line := "x"
	for range 2 * maxSteps {
		q.add(Step{Output: &line})
	}
	q.add(Step{Build: &Build{}})
	steps := q.take()
	if len(steps) != maxSteps+2 || *steps[maxSteps].Output != fmt.Sprintf("… %d lines left out", maxSteps) {
		t.Errorf("%d steps", len(steps))
	}
}

// A snapshot is written where others look for it; its format is for them too.
func TestSnapshotFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot.json")
	s := loadSnapshots(path, nil, discard())
	s.remember([]string{"a"}, []era.Facts{{Era: era.Legacy, Version: "v", Info: []byte(`{"name":"<&>"}`)}}, era.None, nil)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format":1,"commands":[{"command":["a"],"handshakes":[{"era":"legacy","version":"v","info":{"name":"<&>"}}]}]}` + "\n"
	if string(content) != want || !json.Valid(content) {
		t.Errorf("got  %swant %s", content, want)
	}
}
