//go:build unix

package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "seed of the first world; 0 takes a random one")
	durationFlag = flag.Duration("duration", 0, "go on with the next seed until this is over; 0 is one short world")
	keepFlag     = flag.Bool("keep", false, "keep the folder of a world that failed")
	binFlag      = flag.String("bin", "", "take the programs, chaosbackend, and the other devproxyd below other/, from this folder and build none")
	timelineFlag = flag.Bool("timeline", false, "print the timeline of worlds that are through, too")
)

// moduleRoot is the folder of go.mod.
const moduleRoot = "../.."

// binDir holds the programs under test, and the backend.
var binDir string

// otherVersion is what a second build of devproxyd says that it is. It lies in
// the folder "other" of binDir.
const otherVersion = "v99.0.0"

func TestMain(m *testing.M) {
	flag.Parse()
	heedSignals()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *binFlag != "" {
		binDir = *binFlag
		return m.Run()
	}
	dir, err := testbed.ShortTempDir("dpcbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	return m.Run()
}

// heedSignals makes sure that the programs under test do. A shell that runs the
// test in the background ignores some signals for it, and they would inherit
// that.
func heedSignals() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// build builds what a world runs, readable by the user whom it runs as.
func build() error {
	if *binFlag != "" {
		return nil
	}
	if err := testbed.Build(moduleRoot, binDir, testbed.Race, "./cmd/..."); err != nil {
		return err
	}
	if err := testbed.Build(moduleRoot, other(), testbed.Race, "-ldflags=-s -w -X main.version="+otherVersion, "./cmd/devproxyd"); err != nil {
		return err
	}
	// The detector would only make the backend slower: it is not what is tested.
	if err := testbed.Build(moduleRoot, binDir, false, "./integration/chaos/internal/..."); err != nil {
		return err
	}
	return os.Chmod(binDir, 0o755)
}

func program(name string) string { return filepath.Join(binDir, name) }

func other() string { return filepath.Join(binDir, "other") }

// TestChaos runs worlds until the duration is over, or the first that fails.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("starts programs")
	}
	if runtime.GOOS != "linux" {
		t.Skip("finds processes, sockets and descriptors in /proc")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1_000_000) + 1
	}
	began := time.Now()
	for n := 0; n == 0 || time.Since(began) < *durationFlag; n++ {
		passed := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			newWorld(t, seed, *durationFlag == 0).run()
		})
		if !passed {
			t.Fatalf("seed %d failed; run it again with: make chaos SEED=%d DURATION=1s", seed, seed)
		}
		seed++
	}
}
