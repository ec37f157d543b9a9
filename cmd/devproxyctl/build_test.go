//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/debugmcp/devproxy/api/client"
)

// A daemon from before builds of a person's own is told of, and the command runs.
func TestBuildBesideAnOldDaemon(t *testing.T) {
	p := newProject(t)
	d := &fakeDaemon{status: statuses()["running"]}
	d.serve(t, p)
	for command, want := range map[string]outcome{
		"true":   {0, "", ""},
		"exit 4": {4, "", "devproxyctl: the build failed: exited with status 4\n"},
	} {
		got := ctl("build", "--", "sh", "-c", command)
		const old = "the daemon is too old to hold changes back, \"devproxyd restart\" replaces it; the command runs all the same"
		if got.code != want.code || !strings.Contains(got.stderr, old) || !strings.HasSuffix(got.stderr, want.stderr) {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

func TestBuildWatchOnThePage(t *testing.T) {
	status := statuses()["running"]
	page := func() string {
		var out strings.Builder
		if err := printStatus(&out, status, now, 0); err != nil {
			t.Error(err)
		}
		return out.String()
	}
	for want, w := range map[string]*client.BuildWatch{
		"builder  tsc -w, pid 7, up 3s\n         Found 2 errors.\n": {
			Command: "tsc -w", Pid: 7, StartTime: timestamppb.New(now.Add(-3 * time.Second)), Tail: []string{"of no interest", "Found 2 errors.", " ", ""},
		},
		"builder  tsc -w, started again 2 times\n         exited with status 1; it starts again in 2s\n           error\\x07\n": {
			Command: "tsc -w", Restarts: 2, Message: "exited with status 1; it starts again in 2s", Tail: []string{"error\a"},
		},
	} {
		status.BuildWatch = w
		if page := page(); !strings.Contains(page, want) || strings.Contains(page, "of no interest") {
			t.Errorf("the page lacks\n%s\n%s", want, page)
		}
	}
	status.BuildWatch = nil
	if page := page(); strings.Contains(page, "builder") {
		t.Errorf("without one the page is\n%s", page)
	}
}
