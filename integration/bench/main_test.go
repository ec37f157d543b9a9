//go:build linux

package bench

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
	"github.com/debugmcp/devproxy/internal/process"
)

var (
	measureFlag = flag.Bool("measure", false, "run TestMeasure, which takes minutes and wants the machine for itself")
	rowsFlag    = flag.String("rows", "", "measure only the rows whose name matches this regexp")
	idleFlag    = flag.Duration("idle", time.Minute, "how long idle daemons are watched")
	roundsFlag  = flag.Int("rounds", 5, "how often the ways to measure a row take turns")
	pageFlag    = flag.String("page", "", "the page whose table to replace")
	binFlag     = flag.String("bin", "", "take the programs from this folder and build none, to compare two builds")
	updateFlag  = flag.Bool("update", false, "write testdata/budget.txt")
)

const (
	// moduleRoot is the folder of go.mod.
	moduleRoot = "../.."
	// patience bounds every wait for something that takes moments.
	patience = time.Minute
)

// binDir holds the programs that are measured.
var binDir string

func TestMain(m *testing.M) {
	process.Main() // the guard runs a daemon in this process, which starts its backend through it
	flag.Parse()
	os.Exit(run(m))
}

// interrupted ends a measurement between two rounds, so that it leaves no daemon
// behind. A second interrupt ends it at once.
var interrupted = make(chan struct{})

func heedInterrupt() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals)
		close(interrupted)
	}()
}

func isInterrupted() bool {
	select {
	case <-interrupted:
		return true
	default:
		return false
	}
}

func run(m *testing.M) int {
	heedInterrupt()
	if *binFlag != "" {
		binDir = *binFlag
		return m.Run()
	}
	dir, err := testbed.ShortTempDir("dpbbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	return m.Run()
}

var build = sync.OnceValue(func() error {
	if *binFlag != "" {
		return nil
	}
	return testbed.Build(moduleRoot, binDir, false,
		"./cmd/...", "./integration/bench/internal/...", "./integration/internal/goserver")
})

// program returns the path of a program, built without the race detector on
// first use.
func program(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts programs")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, name)
}
