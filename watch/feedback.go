package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// feedback finds out that the backend writes into what is watched, which
// restarts it, which makes it write again. It is pure: the caller brings the
// time. A person who saves often looks similar, so a suspicion only slows
// restarts down and is told; it stops nothing.
type feedback struct {
	lastStart time.Time
	awaiting  bool     // no change was seen since the last start
	streak    int      // starts in a row that were followed by a change
	suspects  []string // paths that changed after every start of the streak, sorted
}

const (
	// feedbackWindow is how soon after a start a change is held to be its
	// effect: the slow start of a large server included.
	feedbackWindow = 10 * time.Second
	// feedbackStarts is how many starts in a row make a loop of it. Four saves of
	// the same file, each just after a restart, still happen at a keyboard.
	feedbackStarts = 5
	// feedbackPeriod is how far apart restarts are while a loop is suspected:
	// enough to leave the machine usable, and not too much for a person who was
	// suspected wrongly.
	feedbackPeriod = 10 * time.Second
)

// started notes a start of the backend.
func (f *feedback) started(now time.Time) {
	if f.awaiting {
		f.streak = 0 // the last start brought no change
	}
	f.lastStart, f.awaiting = now, true
}

// changed notes a change of paths (sorted) whose first event came at the given time.
func (f *feedback) changed(first time.Time, paths []string) {
	soon := f.awaiting && first.Sub(f.lastStart) <= feedbackWindow
	f.awaiting = false
	if !soon {
		f.streak = 0
		return
	}
	common := slices.DeleteFunc(slices.Clone(f.suspects), func(path string) bool {
		_, found := slices.BinarySearch(paths, path)
		return !found
	})
	if f.streak == 0 || len(common) == 0 {
		f.streak, f.suspects = 1, slices.Clone(paths)
		return
	}
	f.streak++
	f.suspects = common
}

// explained ends the suspicion because somebody tells that he has built.
func (f *feedback) explained() { f.streak, f.awaiting = 0, false }

// calm ends the suspicion when a start has stayed without a change.
func (f *feedback) calm(now time.Time) {
	if f.awaiting && now.Sub(f.lastStart) > feedbackWindow {
		f.streak, f.awaiting = 0, false
	}
}

func (f *feedback) looping() bool { return f.streak >= feedbackStarts }

// pause is how long the next restart has to wait on account of a loop. It counts
// from the last start, not from the last change: a person who saves more often
// than that still sees a restart for each period.
func (f *feedback) pause(now time.Time) time.Duration {
	if !f.looping() {
		return 0
	}
	return max(0, feedbackPeriod-now.Sub(f.lastStart))
}

// problem names the loop, with paths as display shows them; "" if there is none.
func (f *feedback) problem(display func(string) string) string {
	if !f.looping() {
		return ""
	}
	var names []string
	for _, path := range f.suspects[:min(len(f.suspects), 3)] {
		names = append(names, display(path))
	}
	if more := len(f.suspects) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s changed right after each of the last %d starts: the backend seems to write into what is "+
		"watched, which restarts it; add the file to ignore in [watch], or let it be written elsewhere "+
		"(restarts are %v apart meanwhile)", strings.Join(names, ", "), f.streak, feedbackPeriod)
}
