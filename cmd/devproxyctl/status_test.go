package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

func testDaemon() *client.Daemon {
	return &client.Daemon{
		Version: "v1.2.3", Pid: 100, StartTime: ago(90 * time.Minute), ProjectRoot: "/home/me/work/my-server",
		Socket:  "/home/me/.local/state/devproxy/0123456789abcdef/daemon.sock",
		LogFile: "/home/me/.local/state/devproxy/0123456789abcdef/daemon.log", EnvironmentOrigin: "a terminal, pid 99, 2026-11-30 10:30:00",
	}
}

func statuses() map[string]*client.Status {
	watch := &client.Watch{Paths: []string{"dist"}, Mode: "events", Files: 12}
	idle := testDaemon()
	idle.EnvironmentOrigin = "the client that started the daemon first, pid 98, 2026-11-30 10:30:00"
	idle.IdleDeadline = timestamppb.New(now.Add(29 * time.Minute))
	return map[string]*client.Status{
		"idle": {
			Daemon: idle, Watch: watch,
			Backend: &client.Backend{
				State: devproxyv1.BackendState_BACKEND_STATE_IDLE, Transport: "stdio", Command: []string{"node", "dist/index.js"},
				Message: "starts on the first request that needs it",
			},
		},
		"running": {
			Daemon: testDaemon(),
			Backend: &client.Backend{
				State: devproxyv1.BackendState_BACKEND_STATE_RUNNING, Generation: 3, Pid: 4711, Port: 3001, ReadyTime: ago(61 * time.Second),
				Transport: "http", Command: []string{"node", "dist/index.js", "http", "--port", "{port}", "--api-key", "***"},
				ProtocolEra: "modern+legacy", ProtocolVersion: "2026-07-28", ServerName: "my-server", ServerVersion: "0.1.0",
				EnvironmentOverrides: map[string]string{"LOG_LEVEL": "debug", "API_TOKEN": "***"},
				LastExit: &devproxyv1.Exit{
					Generation: 2, Time: ago(62 * time.Second), Status: "exited with status 0", Reason: "restart",
					StderrTail: []string{"nobody reads this"},
				},
				History: []*client.Generation{
					{Number: 1, StartTime: ago(20 * time.Minute), Exit: &devproxyv1.Exit{Generation: 1, Time: ago(10 * time.Minute), Status: "exited with status 1", Reason: "crash"}},
					{Number: 2, StartTime: ago(9 * time.Minute), Exit: &devproxyv1.Exit{Generation: 2, Time: ago(62 * time.Second), Status: "exited with status 0", Reason: "restart"}},
					{Number: 3, StartTime: ago(62 * time.Second)},
				},
			},
			Build:      &client.BuildRun{Command: "npm run build", StartTime: ago(70 * time.Second), Duration: durationpb.New(7300 * time.Millisecond), Ok: true},
			BuildWatch: &client.BuildWatch{Command: "tsc --watch", Pid: 4800, StartTime: ago(time.Hour), Restarts: 2, Tail: []string{"Found 0 errors."}},
			Watch:      &client.Watch{Paths: []string{"dist", "assets"}, Mode: "poll", Files: 1, LastChanged: "dist/index.js", LastChangeTime: ago(63 * time.Second), Overflows: 2},
			Sessions: []*client.Session{
				{
					Id: 1, ClientName: "claude-code", ClientVersion: "2.0", ProtocolEra: "legacy", ProtocolVersion: "2025-11-25",
					ShimPid: 5000, AttachTime: ago(50 * time.Hour), InFlight: 2, LastMethod: "tools/call", LastTime: ago(400 * time.Millisecond),
					Stale: "was told of version 2025-06-18", ListedGeneration: 2,
				},
				{Id: 7, ShimPid: 5001, AttachTime: ago(time.Second), ListedGeneration: 3},
			},
		},
		"never-ran": {
			Daemon: testDaemon(), Watch: watch,
			Backend: &client.Backend{
				State: devproxyv1.BackendState_BACKEND_STATE_FAILED, Generation: 8, NeverRan: true, Transport: "stdio", Command: []string{"./broken"},
				Message:  "starting ./broken: exec format error",
				LastExit: &devproxyv1.Exit{Generation: 8, Time: ago(5 * time.Second), Status: "exited with status 0", Reason: "restart", StderrTail: []string{"all is well"}},
				Warnings: []*client.Warning{{Text: "the server has tools of its own that hide devproxy's: dev_logs", Advice: "set tool_prefix"}},
			},
		},
		"failed": {
			Daemon: testDaemon(),
			Backend: &client.Backend{
				State: devproxyv1.BackendState_BACKEND_STATE_FAILED, Generation: 1, Transport: "stdio", Command: []string{"node", "dist/index.js"},
				Message: "the backend exited with status 1 before it was ready; fix what its output says",
				LastExit: &devproxyv1.Exit{
					Generation: 1, Time: ago(5 * time.Second), Status: "exited with status 1", Reason: "start failed",
					StderrTail: []string{"Error: Cannot find module 'x'", "    at node:internal"},
				},
			},
			Build: &client.BuildRun{
				Command: "npm run build", StartTime: ago(25 * time.Hour), Duration: durationpb.New(12 * time.Millisecond),
				Message: "the build failed: exited with status 2", Tail: []string{"src/a.ts(1,1): error TS1005"},
			},
			Watch: &client.Watch{
				Paths: []string{"dist"}, Mode: "events", Entry: "dist/index.js", EntryMissing: true,
				Problem: "the limit of inotify watches is reached",
			},
		},
		"backoff": {
			Daemon: testDaemon(),
			Backend: &client.Backend{
				State: devproxyv1.BackendState_BACKEND_STATE_BACKOFF, Generation: 4, Transport: "sse", Command: []string{"./server"},
				Message: "it crashed\nthe last good configuration is used", RetryTime: timestamppb.New(now.Add(1500 * time.Millisecond)), Crashes: 2,
			},
		},
		"building": {
			Daemon: testDaemon(), Watch: watch,
			Backend: &client.Backend{State: devproxyv1.BackendState_BACKEND_STATE_BUILDING, Transport: "stdio", Command: []string{"./server"}},
			Build:   &client.BuildRun{Command: "make", Duration: durationpb.New(3 * time.Second), Running: true},
		},
	}
}

func TestStatusPage(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "")
	for name, status := range statuses() {
		t.Run(name, func(t *testing.T) {
			golden(t, name, printed(t, status, 0))
		})
	}
}

func printed(t *testing.T, status *client.Status, width int) string {
	t.Helper()
	var out bytes.Buffer
	if err := printStatus(&out, status, now, width); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// On a terminal no line is longer than it is wide, and no word is lost.
func TestStatusWraps(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "")
	for name, status := range statuses() {
		plain := printed(t, status, 0)
		for _, width := range []int{40, 80, 200} {
			wrapped := printed(t, status, width)
			for line := range strings.Lines(wrapped) {
				if columns := lipgloss.Width(strings.TrimSuffix(line, "\n")); columns > width {
					t.Errorf("%s at %d columns: %d in %q", name, width, columns, line)
				}
			}
			squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
			if squeeze(plain) != squeeze(wrapped) {
				t.Errorf("%s at %d columns says something else:\n%s", name, width, wrapped)
			}
		}
		// Too narrow to wrap is left to the terminal.
		if narrow := printed(t, status, 10); narrow != plain {
			t.Errorf("%s at 10 columns:\n%s", name, narrow)
		}
	}
}

// What is no terminal gets plain text, unless somebody insists.
func TestColours(t *testing.T) {
	status := statuses()["failed"]
	const red = "\x1b[31m"
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	for force, want := range map[string]bool{"": false, "1": true} {
		t.Setenv("CLICOLOR_FORCE", force)
		if got := strings.Contains(printed(t, status, 0), red); got != want {
			t.Errorf("with CLICOLOR_FORCE=%q red is there: %v", force, got)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1234 * time.Microsecond: "1ms", 12340 * time.Millisecond: "12.3s",
		61 * time.Second: "1m01s", 3*time.Hour + 5*time.Minute: "3h05m", 50 * time.Hour: "50h00m",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

// A person is told of commands, and not of tools for models.
func TestStatusNamesCommands(t *testing.T) {
	status := statuses()["failed"]
	status.Backend.Message = "it broke; mend it with dev_restart or `devproxyctl restart`"
	if page := statusPage(status, now, 0); !strings.Contains(page, "it broke; mend it with `devproxyctl restart`") {
		t.Errorf("the page is\n%s", page)
	}
}

// A fault in devproxy.toml shows while a server runs that goes by an earlier one.
func TestStatusOfAFaultyFile(t *testing.T) {
	status := statuses()["running"]
	status.Daemon.ProjectRoot = t.TempDir()
	file := filepath.Join(status.GetDaemon().GetProjectRoot(), project.ConfigName)
	for text, says := range map[string]bool{
		"[backend]\ncommand = [\"x\"]\ntransport = \"stdio\"\n": false,
		"[backend]\ncomand = [\"x\"]\n":                         true,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		page := statusPage(status, now, 0)
		if strings.Contains(page, "devproxy.toml:2: backend.comand: unknown key") != says || strings.Contains(page, "applies before that is mended") != says {
			t.Errorf("with\n%s the page is\n%s", text, page)
		}
	}
}
