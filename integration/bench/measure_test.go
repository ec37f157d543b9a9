//go:build linux

package bench

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// groups are what TestMeasure measures, in this order.
var groups = []struct {
	name    string
	measure func(t *testing.T) []line
}{
	{"floors", measureFloors},
	{"start", measureStart},
	{"connect", measureConnect},
	{"first-list", measureFirstList},
	{"stdio", measureStdio},
	{"http", measureHTTP},
	{"bare", measureBare},
	{"in-flight", measureInFlight},
	{"clients", measureClients},
	{"large", measureLarge},
	{"work", measureWork},
	{"noisy", measureNoisy},
	{"restart", measureRestart},
	{"memory", measureMemory},
	{"watch", measureWatch},
	{"log", measureLog},
	{"idle", measureIdle},
}

func TestMeasure(t *testing.T) {
	if !*measureFlag {
		t.Skip("takes minutes; make bench runs it")
	}
	rows, err := regexp.Compile(*rowsFlag)
	if err != nil {
		t.Fatal(err)
	}
	before, began := load(t), time.Now()
	var lines []line
	for _, group := range groups {
		if !rows.MatchString(group.name) || isInterrupted() {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			began := time.Now()
			got := group.measure(t)
			lines = append(lines, got...)
			t.Logf("after %v\n%s", time.Since(began).Round(time.Second), plainTable(got))
		})
	}
	about := fmt.Sprintf("Measured on %s, in %v, with %d rounds; the load average was %s before and %s at the end.",
		machine(t), time.Since(began).Round(time.Second), *roundsFlag, before, load(t))
	t.Logf("%s\n\n%s", about, plainTable(lines))
	if *pageFlag != "" && !t.Failed() && !isInterrupted() {
		replaceTable(t, *pageFlag, about+"\n\n"+pageTable(lines))
	}
}

const (
	tableBegins = "<!-- measured: make bench-docs writes what follows -->\n"
	tableEnds   = "<!-- measured: end -->"
)

// replaceTable puts text between the marks of a page.
func replaceTable(t *testing.T, page, text string) {
	t.Helper()
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(old), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has not the marks %q and %q", page, tableBegins, tableEnds)
	}
	if err := os.WriteFile(page, []byte(before+tableBegins+"\n"+text+"\n"+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// milliseconds since began, the unit of most rows.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// calls makes a way of n calls, one after the other.
func calls(n int, c caller, frame func(id int) []byte) way {
	id := 0
	return func(t testing.TB) []float64 {
		t.Helper()
		samples := make([]float64, 0, n)
		for range n {
			id++
			f := frame(id)
			began := time.Now()
			c.call(t, f)
			samples = append(samples, milliseconds(time.Since(began)))
		}
		return samples
	}
}

// warm makes sure that the calls of a way succeed and everything behind them has
// started.
func warm(t testing.TB, c caller, frame func(id int) []byte) {
	t.Helper()
	const times = 200 // a just-in-time compiler has to see some
	for id := range times {
		answer := c.call(t, frame(-1-id))
		if id == 0 {
			mustSucceed(t, answer)
		}
	}
}
