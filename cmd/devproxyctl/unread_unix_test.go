//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/cli"
)

// What goes on ends when its reader has gone, also while nothing is printed.
func TestEndsWhenNobodyReads(t *testing.T) {
	for _, args := range []string{"status --watch", "status -w --json", "logs -f", "logs -f --generation 1", "trace", "top --json"} {
		t.Run(args, func(t *testing.T) {
			p := newProject(t)
			d := &fakeDaemon{states: watched(p)[:1], traffic: []*devproxyv1.StreamTrafficResponse{}}
			d.status = d.states[0]
			d.serve(t, p)
			reader, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = out.Close() }()
			if err := reader.Close(); err != nil {
				t.Fatal(err)
			}
			// A first look that prints is not what this is about.
			d.states, d.entries = nil, nil
			var stderr bytes.Buffer
			root := newRoot()
			root.SetArgs(strings.Fields(args))
			root.SetOut(out)
			root.SetErr(&stderr)
			const patience = 10 * time.Second
			late := time.AfterFunc(patience, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGINT) })
			defer late.Stop()
			// Of stdout itself the system makes the end of the program.
			if code := cli.Main(root); code != cli.ExitFailed || !strings.Contains(stderr.String(), "broken pipe") {
				t.Errorf("exit code %d: %s", code, stderr.String())
			}
		})
	}
}
