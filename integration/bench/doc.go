// Package bench measures what devproxy costs, and guards it.
//
// TestMeasure (make bench) runs the real programs, built without the race
// detector, beside the same work without them: in each round the direct way, the
// way through devproxy and the bare minimum take turns, so that whatever else the
// machine does meets all of them. What it prints is explained in
// docs/performance.md, where make bench-docs puts it.
//
// TestBudget is the guard: allocations, bytes, goroutines and system calls per
// message are counted, not timed, and compared with testdata/budget.txt.
package bench
