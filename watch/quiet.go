package watch

import "time"

// quiet decides when a burst of events is over. It is pure: the caller brings
// the time.
type quiet struct {
	period time.Duration
	first  time.Time // of the burst; zero between bursts
	last   time.Time
}

// maxBurst ends the wait for quiet. Builds pause now and then; what writes for
// a minute without one is a program that logs into the watched folder, and must
// not hide every change for ever.
const maxBurst = time.Minute

func (q *quiet) touch(now time.Time) {
	if q.first.IsZero() {
		q.first = now
	}
	q.last = now
}

func (q *quiet) pending() bool { return !q.first.IsZero() }

// due is when the burst counts as over; only meaningful while pending.
func (q *quiet) due() time.Time {
	due := q.last.Add(q.period)
	if limit := q.first.Add(max(maxBurst, q.period)); due.After(limit) {
		return limit
	}
	return due
}

// clear ends the burst and reports whether it was cut off rather than over.
func (q *quiet) clear() (cut bool) {
	cut = q.due().Before(q.last.Add(q.period))
	q.first = time.Time{}
	return cut
}
