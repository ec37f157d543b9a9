//go:build unix

package main

import (
	"strings"
	"testing"
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
