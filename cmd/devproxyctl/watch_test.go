//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/project"
)

// WatchStatus tells a start and a build, then waits until the daemon is told to
// end.
func (d *fakeDaemon) WatchStatus(_ *devproxyv1.WatchStatusRequest, stream grpc.ServerStreamingServer[devproxyv1.WatchStatusResponse]) error {
	for _, s := range d.states {
		if err := stream.Send(&devproxyv1.WatchStatusResponse{Status: s}); err != nil {
			return err
		}
	}
	if d.ends != nil {
		<-d.ends
		return nil
	}
	<-stream.Context().Done()
	return nil
}

func watched(p project.Project) []*client.Status {
	running := statuses()["running"]
	running.Daemon.ProjectRoot, running.Daemon.Version = p.Root, cli.Version("")
	building := proto.CloneOf(running)
	building.Build = &client.BuildRun{Command: "make", Running: true, Duration: durationpb.New(time.Second)}
	longer := proto.CloneOf(building)
	longer.Build.Duration = durationpb.New(2 * time.Second) // nothing new
	failed := proto.CloneOf(running)
	failed.Backend.State = devproxyv1.BackendState_BACKEND_STATE_FAILED
	return []*client.Status{running, building, longer, failed}
}

func TestStatusWatch(t *testing.T) {
	p := newProject(t)
	d := &fakeDaemon{states: watched(p)}
	d.status = d.states[0]
	d.serve(t, p)
	o := ctlUntil("backend  failed", "status", "--watch")
	if o.code != cli.ExitOK || o.stderr != "" || strings.Count(o.stdout, "project  ") != 3 || strings.Count(o.stdout, "\n\nproject  ") != 2 || !strings.Contains(o.stdout, "running for 1s: make") {
		t.Errorf("status --watch: %+v", o)
	}
	o = ctlUntil("STATE_FAILED", "status", "-w", "--json")
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	if o.code != cli.ExitOK || len(lines) != 3 {
		t.Fatalf("status -w --json: %+v", o)
	}
	for _, line := range lines {
		var document struct {
			Version int
			Status  struct{ Backend struct{ PID int } }
		}
		if err := json.Unmarshal([]byte(line), &document); err != nil || document.Version != jsonVersion || document.Status.Backend.PID != 4711 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Whoever looks on is told that the daemon ends, and sees the next one.
func TestStaysWithTheProject(t *testing.T) {
	for _, args := range []string{"status --watch", "status -w --json", "logs -f", "trace", "top --json"} {
		t.Run(args, func(t *testing.T) {
			p := newProject(t)
			first, second := &fakeDaemon{states: watched(p)[:1], ends: make(chan struct{})}, &fakeDaemon{states: watched(p)[:1]}
			first.status, second.status = first.states[0], proto.CloneOf(first.states[0])
			first.status.Daemon.Instance, second.status.Daemon.Instance = "first", "second"
			second.status.Daemon.Pid = 101
			second.states = []*client.Status{second.status}
			first.entries = []*client.LogEntry{{Sequence: 5, Text: "of the first"}}
			second.entries = []*client.LogEntry{{Sequence: 3, Text: "of the second, pid 101"}}
			passing := func(text string) []*devproxyv1.StreamTrafficResponse {
				return []*devproxyv1.StreamTrafficResponse{{Entry: &client.TrafficEntry{}, Body: []byte(text), Last: true}}
			}
			first.traffic, second.traffic = passing("of the first"), passing("pid 101")
			stop := first.start(t, p)
			replaced := make(chan struct{})
			replace := func() {
				go func() {
					defer close(replaced)
					close(first.ends)
					stop()
					second.serve(t, p)
				}()
			}
			texts := map[string][2]string{
				"status --watch": {"pid 100", "pid 101"}, "status -w --json": {`"pid":100,`, `"pid":101,`},
				"logs -f": {"of the first", "pid 101"}, "trace": {"of the first", "pid 101"}, "top --json": {`"pid":100,`, `"pid":101,`},
			}[args]
			o := ctlWhen(strings.Fields(args), when{texts[0], replace}, when{text: texts[1]})
			<-replaced
			if o.code != cli.ExitOK {
				t.Errorf("%+v", o)
			}
			tracing := fmt.Sprintf("tracing %s; Ctrl-C ends it\n", p.Root)
			if args != "top --json" && strings.ReplaceAll(o.stderr, tracing, "") != "devproxyctl: the daemon has ended; waiting for the next one, until Ctrl-C\ndevproxyctl: devproxyd "+cli.Version("")+", pid 101, serves now\n" {
				t.Errorf("it says %q", o.stderr)
			}
			if args == "logs -f" && !strings.Contains(o.stdout, "of the first") {
				t.Errorf("logs -f prints\n%s", o.stdout)
			}
		})
	}
}

func TestWatchPage(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	w := &watchPage{now: func() time.Time { return now }}
	w.Update(tea.WindowSizeMsg{Width: 60, Height: 12})
	w.Update(statusMsg{statuses()["running"]})
	golden(t, "watch-60x12", trimmed(w.screen()))
	w.Update(tea.KeyPressMsg{Code: tea.KeyEnd})
	golden(t, "watch-end", trimmed(w.screen()))
	w.Update(goneMsg{})
	golden(t, "watch-gone", trimmed(w.screen()))
	w.Update(tea.WindowSizeMsg{Width: 150, Height: 40})
	w.Update(backMsg{statuses()["running"]})
	if screen := w.screen(); !strings.HasPrefix(screen, "project") || strings.Contains(screen, "waiting") {
		t.Errorf("with room for all it shows\n%s", screen)
	}
}
