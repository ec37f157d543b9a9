//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/project"
)

// sibling is another project in the same home.
func sibling(t *testing.T, p project.Project, name string) project.Project {
	t.Helper()
	root := filepath.Join(filepath.Dir(p.Root), name)
	if err := errors.Join(os.Mkdir(root, 0o700), os.WriteFile(filepath.Join(root, project.ConfigName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	other, err := project.At(root)
	if err == nil {
		err = other.EnsureDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func TestListCommand(t *testing.T) {
	p := newProject(t)
	if o := ctl("list"); o.code != cli.ExitOK || o.stdout != "" || o.stderr != "no daemon is running\n" {
		t.Errorf("without any state: %+v", o)
	}
	sibling(t, p, "ended") // a daemon that ended as it should leaves nothing to see

	status := statuses()["running"]
	(&fakeDaemon{status: status}).serve(t, p)
	killed := sibling(t, p, "killed")
	if err := os.WriteFile(killed.PIDFile(), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	// The working directory does not matter.
	t.Chdir(t.TempDir())
	o := ctl("list")
	if o.code != cli.ExitOK || o.stderr != "" || strings.Contains(o.stdout, "/ended") {
		t.Errorf("list: %+v", o)
	}
	lines := strings.Split(o.stdout, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], killed.Root+" ") || !strings.Contains(lines[1], "stale") || !strings.Contains(lines[1], "left "+killed.PIDFile()) ||
		!strings.HasPrefix(lines[2], p.Root+" ") || !strings.Contains(lines[2], "running #3") || !strings.Contains(lines[2], "v1.2.3") {
		t.Errorf("list prints\n%s", o.stdout)
	}

	// One that listens and says nothing delays nobody for long, and fails the command.
	mute := sibling(t, p, "mute")
	socket, _ := mute.Socket("")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	began := time.Now()
	o = ctl("list", "--json")
	if took := time.Since(began); took > listPatience+2*time.Second {
		t.Errorf("a daemon that does not answer delays the list by %v", took)
	}
	var document struct {
		Version int
		Daemons []daemon
	}
	if err := json.Unmarshal([]byte(o.stdout), &document); err != nil || document.Version != jsonVersion {
		t.Fatalf("list --json: %+v: %v", o, err)
	}
	if o.code != cli.ExitFailed || !strings.Contains(o.stderr, "the daemon of "+mute.Root+" does not answer") {
		t.Errorf("with a daemon that does not answer: %+v", o)
	}
	states := map[string]string{}
	for _, d := range document.Daemons {
		states[filepath.Base(d.ProjectRoot)] = d.State
	}
	if len(states) != 3 || states["killed"] != daemonStale || states["mute"] != daemonUnreachable || states["project"] != daemonRuns {
		t.Errorf("list --json has %v", states)
	}
	at := slices.IndexFunc(document.Daemons, func(d daemon) bool { return d.State == daemonRuns })
	if d := document.Daemons[at]; d.PID != 100 || d.Clients == nil || *d.Clients != 2 || d.BackendState != "running" || d.StartTime == nil || d.Socket == "" {
		t.Errorf("list --json tells %+v", d)
	}
}

func TestTable(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "")
	print := func(width int) string {
		tab := table{heading: []string{"NAME", "TEXT"}}
		tab.add("a", "one\ntwo\x1b[2J")
		tab.add("wörld", strings.Repeat("日本", 20))
		var out bytes.Buffer
		if err := tab.print(&out, width); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got, want := print(0), "NAME   TEXT\na      one two\\x1b[2J\nwörld  "+strings.Repeat("日本", 20)+"\n"; got != want {
		t.Errorf("the table is\n%s, want\n%s", got, want)
	}
	// On a terminal nothing is cut and nothing is longer than a line of it.
	for _, width := range []int{40, 30} {
		text := print(width)
		for line := range strings.Lines(text) {
			if columns := lipgloss.Width(strings.TrimSuffix(line, "\n")); columns > width {
				t.Errorf("%d columns in %q", columns, line)
			}
		}
		if n := strings.Count(text, "日本"); n != 20 {
			t.Errorf("of 20 words %d are left:\n%s", n, text)
		}
	}
	beside, below := "wörld  "+strings.Repeat("日本", 8)+"\n       日本", "\nwörld\n  "+strings.Repeat("日本", 7)+"\n  日本"
	if text := print(40); !strings.Contains(text, beside) {
		t.Errorf("the text is not beside its name:\n%s", text)
	}
	if text := print(30); !strings.Contains(text, below) {
		t.Errorf("the text is not below its name:\n%s", text)
	}
}
