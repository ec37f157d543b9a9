//go:build linux

package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// none is a value that a line does not have.
var none = math.NaN()

// line is a row of the table.
type line struct {
	name, unit              string
	direct, devproxy, floor float64
	// ratio is devproxy's to direct, or to the floor where there is no direct
	// way; where devproxy has no part, the floor's to direct. low and high are the
	// least and the most of all rounds.
	ratio, low, high float64
	target           target
}

// target is what a line should keep. The zero value is none.
type target struct {
	text  string
	holds func(line) bool
}

func ratioAtMost(most float64) target {
	return target{fmt.Sprintf("≤ %g×", most), func(l line) bool { return l.ratio <= most }}
}

func ratioAtLeast(least float64) target {
	return target{fmt.Sprintf("≥ %g×", least), func(l line) bool { return l.ratio >= least }}
}

func atMost(most float64, unit string) target {
	return target{fmt.Sprintf("≤ %g %s", most, unit), func(l line) bool { return l.devproxy <= most }}
}

func (l line) met() string {
	switch {
	case l.target.holds == nil:
		return ""
	case l.target.holds(l):
		return "yes"
	default:
		return "no"
	}
}

func number(value float64) string {
	switch abs := math.Abs(value); {
	case math.IsNaN(value):
		return ""
	case abs >= 1000:
		return fmt.Sprintf("%.0f", value)
	case abs >= 100:
		return fmt.Sprintf("%.1f", value)
	default:
		return fmt.Sprintf("%.3g", value)
	}
}

func (l line) cells() []string {
	ratio, spread := "", ""
	if !math.IsNaN(l.ratio) {
		ratio = fmt.Sprintf("%.2f", l.ratio)
		spread = fmt.Sprintf("%.2f–%.2f", l.low, l.high)
	}
	return []string{l.name, l.unit, number(l.direct), number(l.devproxy), number(l.floor), ratio, spread, l.target.text, l.met()}
}

var header = []string{"row", "unit", "direct", "devproxy", "floor", "ratio", "least–most", "target", "met"}

// plainTable is the table for a terminal.
func plainTable(lines []line) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, l := range lines {
		fmt.Fprintln(w, strings.Join(l.cells(), "\t"))
	}
	w.Flush()
	return text.String()
}

// pageTable is the table for a page.
func pageTable(lines []line) string {
	var text strings.Builder
	fmt.Fprintf(&text, "| %s |\n|---|---|%s\n", strings.Join(header, " | "), strings.Repeat("---:|", 5)+"---|---|")
	for _, l := range lines {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(l.cells(), " | "))
	}
	return text.String()
}

// quantile of the samples, which it sorts.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return none
	}
	slices.Sort(samples)
	return samples[min(int(q*float64(len(samples))), len(samples)-1)]
}

func median(samples []float64) float64 { return quantile(slices.Clone(samples), 0.5) }

// way measures in one round.
type way func(t testing.TB) []float64

// statistic makes one number of a round's samples.
type statistic struct {
	suffix string
	q      float64
	target target
}

func p50(goal target) statistic { return statistic{"", 0.5, goal} }
func p99() statistic            { return statistic{", p99", 0.99, target{}} }

// contest lets the ways take turns and returns a line for each statistic. Some of
// the ways may be nil.
func contest(t *testing.T, name, unit string, rounds int, direct, devproxy, floor way, statistics ...statistic) []line {
	t.Helper()
	ways := []way{direct, devproxy, floor}
	all := make([][][]float64, len(ways)) // by way and round
	for range rounds {
		if isInterrupted() {
			t.Fatal("interrupted")
		}
		for i, measure := range ways {
			if measure != nil {
				all[i] = append(all[i], measure(t))
			}
		}
	}
	lines := make([]line, 0, len(statistics))
	for _, s := range statistics {
		var each [3][]float64
		for i := range ways {
			for _, samples := range all[i] {
				each[i] = append(each[i], quantile(slices.Clone(samples), s.q))
			}
		}
		l := line{name: name + s.suffix, unit: unit, direct: median(each[0]), devproxy: median(each[1]), floor: median(each[2]), target: s.target}
		switch {
		case direct == nil:
			l.ratio, l.low, l.high = ratios(each[1], each[2])
		case devproxy == nil:
			l.ratio, l.low, l.high = ratios(each[2], each[0])
		default:
			l.ratio, l.low, l.high = ratios(each[1], each[0])
		}
		lines = append(lines, l)
	}
	return lines
}

// ratios are the median, the least and the most of those of one round each.
func ratios(above, below []float64) (middle, low, high float64) {
	if len(above) != len(below) || len(above) == 0 {
		return none, none, none
	}
	each := make([]float64, len(above))
	for i := range above {
		each[i] = above[i] / below[i]
	}
	return median(each), slices.Min(each), slices.Max(each)
}
