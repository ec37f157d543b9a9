//go:build unix

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var buildDocker = sync.OnceValue(func() error { return build(false, "./daemon/backend/testdata/docker") })

// A server in a container is one generation like any other: one at a time,
// across a restart, the end of its CLI and of its daemon with SIGKILL, and gone
// after a stop. No container engine is at hand, so the docker of this test is
// daemon/backend/testdata/docker, which behaves as the documentation of the CLI
// says of what is used here; see there.
func TestServerInAContainer(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			engine := filepath.Join(p.base, "engine")
			command := []string{
				built(t, buildDocker, "docker"), "run", "-i", "-e", "FIXTURE_STARTS=" + p.startsFile(), "--env=API_KEY=not-to-be-shown",
			}
			if transport == "http" {
				command = append(command, "-p", "127.0.0.1:{port}:8080", "-e", "PORT=8080")
			}
			command = append(command, "server", transport, filepath.Join(p.root, "dist/features.json"))
			for _, folder := range []string{"containers", "faults", "images"} {
				if err := os.MkdirAll(filepath.Join(engine, folder), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(fixture(t, "goserver"), filepath.Join(engine, "images", "server")); err != nil {
				t.Fatal(err)
			}
			p.rebuild(t)
			p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = %q\nstop_timeout = \"1s\"\nenv = { DOCKER_HOST = %q }\n",
				tomlStrings(command), transport, "unix://"+engine))

			c := p.client(t, "go")
			c.connect(t)
			c.wantText(t, "first", "echo", object{"text": "first"})
			first := p.status(t)
			shown := slices.Clone(command)
			shown[5] = "--env=API_KEY=***"
			if !slices.Equal(first.Backend.Command, shown) {
				t.Errorf("the status shows %q, want %q", first.Backend.Command, shown)
			}

			// The daemon first, or it would see to what its CLI leaves.
			for _, pid := range []number{first.Daemon.PID, first.Backend.PID} {
				if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if left := entries(t, filepath.Join(engine, "containers")); len(left) != 1 {
				t.Errorf("containers are %v, want that of the daemon that was killed", left)
			}
			await(t, "the daemon's end", func() (bool, string) { return !alive(t, int(first.Daemon.PID)), "alive" })
			p.startDaemon(t)
			p.awaitStatus(t, "the client", func(s status) bool { return len(s.Sessions) == 1 })
			c.wantText(t, "second", "echo", object{"text": "second"})
			p.ctl(t, "restart")
			c.wantText(t, "third", "echo", object{"text": "third"})
			p.wantStarts(t, 3)
			for _, pid := range p.startedPIDs(t)[:2] {
				if alive(t, pid) {
					t.Errorf("the server of an earlier container, pid %d, is alive", pid)
				}
			}
			p.mustRun(t, "devproxyd", "stop")
			if left := entries(t, filepath.Join(engine, "containers")); len(left) != 0 {
				t.Errorf("after a stop there are the containers %v", left)
			}
			calls, err := os.ReadFile(filepath.Join(engine, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(calls), "overlap") {
				t.Errorf("two containers were there at once:\n%s", calls)
			}
		})
	}
}

// entries returns the names in a folder.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range all {
		names = append(names, entry.Name())
	}
	return names
}
