//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// patience bounds every wait of these tests for something that should take
// moments: long enough for a loaded machine with two cores under the race
// detector, short enough to see the failure.
const patience = 30 * time.Second

// moduleRoot is the folder of go.mod, where make and go build run.
const moduleRoot = ".."

// binDir holds the programs under test. TestMain owns it.
var binDir string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := testbed.ShortTempDir("dpbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	code := m.Run()
	if err := theNodeClients.end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

var (
	buildPrograms = sync.OnceValue(func() error { return build(testbed.Race, "./cmd/...") })
	// The detector would only make the fixtures slower: they are not what is
	// tested.
	buildFixtures = sync.OnceValue(func() error { return build(false, "./integration/internal/...") })
)

// build builds what the pattern matches into binDir.
func build(race bool, pattern string) error {
	return testbed.Build(moduleRoot, binDir, race, pattern)
}

// program returns the path of one of the three programs, built on first use.
func program(t testing.TB, name string) string {
	t.Helper()
	return built(t, buildPrograms, name)
}

// fixture returns the path of a program of internal/, built on first use.
func fixture(t testing.TB, name string) string {
	t.Helper()
	return built(t, buildFixtures, name)
}

func built(t testing.TB, build func() error, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts programs")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, name)
}

var installOnce = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("testdata", "node"))
	if err != nil {
		return "", err
	}
	command := exec.Command("make", "integration/testdata/node/node_modules/.package-lock.json")
	command.Dir = moduleRoot
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing the npm packages: %w\n%s", err, output)
	}
	return dir, nil
})

// nodeDir returns the absolute path of the Node side of the tests, with its
// packages installed.
func nodeDir(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts programs")
	}
	if _, err := exec.LookPath("node"); err != nil {
		if os.Getenv("CI") == "" {
			t.Skip("there is no node on PATH")
		}
		t.Fatal(err)
	}
	dir, err := installOnce()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// await calls check until it returns true, and fails the test after patience
// with what check says last. It is for facts that nobody announces, such as a
// file's content or a process's end.
func await(t testing.TB, what string, check func() (ok bool, state string)) {
	t.Helper()
	const pause = 20 * time.Millisecond
	deadline := time.After(patience)
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		ok, state := check()
		if ok {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("waited %v for %s; last seen: %s", patience, what, state)
		case <-ticker.C:
		}
	}
}
