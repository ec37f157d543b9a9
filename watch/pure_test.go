package watch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestQuiet(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	second := func(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }
	steady := make([]float64, 0, 300)
	for at := 0.0; at < 70; at += 0.25 {
		steady = append(steady, at)
	}
	tests := []struct {
		name    string
		period  time.Duration
		touches []float64
		due     float64
		cut     bool
	}{
		{"one event", 300 * time.Millisecond, []float64{0}, 0.3, false},
		{"each event prolongs", 300 * time.Millisecond, []float64{0, 0.2, 0.4}, 0.7, false},
		{"no period", 0, []float64{1}, 1, false},
		{"never quiet", 300 * time.Millisecond, steady, 60, true},
		{"a period longer than the limit", 2 * time.Minute, []float64{0, 1}, 120, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q := quiet{period: test.period}
			if q.pending() {
				t.Fatal("pending before the first event")
			}
			for _, at := range test.touches {
				q.touch(second(at))
			}
			if !q.pending() || !q.due().Equal(second(test.due)) {
				t.Errorf("pending %v, due after %v, want %vs", q.pending(), q.due().Sub(start), test.due)
			}
			if cut := q.clear(); cut != test.cut || q.pending() {
				t.Errorf("cut %v, want %v; pending %v", cut, test.cut, q.pending())
			}
		})
	}
}

func TestFeedback(t *testing.T) {
	type step struct {
		start, change, calm float64 // seconds; 0 = not in this step
		paths               string
	}
	loop := func(n int, paths string) (steps []step) {
		for i := range n {
			at := float64(i*20 + 1)
			steps = append(steps, step{start: at}, step{change: at + 2, paths: paths})
		}
		return steps
	}
	tests := []struct {
		name     string
		steps    []step
		suspects string
	}{
		{"nothing", nil, ""},
		{"four times happens by hand", loop(4, "a"), ""},
		{"five times", loop(5, "a"), "a"},
		{"only what changed every time", append(loop(2, "a b c"), step{start: 50}, step{change: 51, paths: "b c x"},
			step{start: 60}, step{change: 61, paths: "b c"}, step{start: 70}, step{change: 71, paths: "b"}), "b"},
		{"always another file", append(loop(4, "a"), step{start: 100}, step{change: 101, paths: "b"}), ""},
		{"long after the start", append(loop(4, "a"), step{start: 100}, step{change: 111, paths: "a"}), ""},
		{"a start without a change", append(append(loop(4, "a"), step{start: 100}), loop(1, "a")...), ""},
		{"calm after a loop", append(loop(5, "a"), step{start: 100}, step{calm: 111}), ""},
		{"not yet calm", append(loop(5, "a"), step{start: 100}, step{calm: 109}), "a"},
		{"a second change after one start", append(loop(4, "a"), step{change: 90, paths: "a"}), ""},
	}
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return base.Add(time.Duration(seconds * float64(time.Second))) }
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var f feedback
			for _, step := range test.steps {
				switch {
				case step.start > 0:
					f.started(at(step.start))
				case step.change > 0:
					f.changed(at(step.change), strings.Fields(step.paths))
				case step.calm > 0:
					f.calm(at(step.calm))
				}
			}
			if f.looping() != (test.suspects != "") {
				t.Fatalf("looping %v with a streak of %d", f.looping(), f.streak)
			}
			problem := f.problem(func(path string) string { return "<" + path + ">" })
			if test.suspects == "" && problem != "" {
				t.Errorf("problem %q", problem)
			}
			if test.suspects != "" && !strings.HasPrefix(problem, "<"+test.suspects+"> changed right after each of the last") {
				t.Errorf("problem %q, want one that names %s", problem, test.suspects)
			}
		})
	}
}

func TestFeedbackNamesThree(t *testing.T) {
	var f feedback
	var paths []string
	for i := range 9 {
		paths = append(paths, fmt.Sprint(i))
	}
	for i := range feedbackStarts {
		f.started(time.Unix(int64(i*10), 0))
		f.changed(time.Unix(int64(i*10+1), 0), paths)
	}
	if got := f.problem(strings.ToUpper); !strings.HasPrefix(got, "0, 1, 2, 6 more changed") {
		t.Errorf("problem %q", got)
	}
}

func TestFilter(t *testing.T) {
	root := filepath.FromSlash("/project")
	tests := []struct {
		pattern, watched, path string
		want                   bool
	}{
		{"**/*.map", "dist", "dist/index.js.map", true},
		{"**/*.map", "dist", "dist/a/b/index.js.map", true},
		{"**/*.map", "dist", "dist/index.js", false},
		{"*.map", "dist", "dist/deep/index.js.map", true},
		{"dist/logs", "dist", "dist/logs", true},
		{"dist/logs/**", "dist", "dist/logs", true},
		{"logs/**", "dist", "dist/logs", true},
		{"./logs/", "dist", "dist/logs", true},
		{"logs", "dist", "dist/deep/logs", true},
		{"a/logs", "dist", "dist/deep/a/logs", false},
		{"**/{cache,tmp}/**", "packages/x/dist", "packages/x/dist/tmp", true},
		{"dist", "dist", "dist/distx", false},
		{"", "dist", "dist/x", false},
	}
	for _, test := range tests {
		var ignore []string
		if test.pattern != "" {
			ignore = []string{test.pattern}
		}
		f := newFilter(Config{Root: root, Ignore: ignore})
		in := func(path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
		if got := f.ignored(in(test.path), in(test.watched)); got != test.want {
			t.Errorf("%q ignores %s: %v, want %v", test.pattern, test.path, got, test.want)
		}
	}
}

func TestWithin(t *testing.T) {
	tests := []struct {
		base, path string
		want       bool
	}{
		{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/a/b", "/a", false}, {"/", "/a", true},
	}
	for _, test := range tests {
		if got := within(test.base, test.path); got != test.want {
			t.Errorf("within(%s, %s) = %v", test.base, test.path, got)
		}
	}
}
