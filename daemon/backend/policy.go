package backend

import "time"

const (
	// crashLimit is how many crashes inside crashWindow end in Failed: enough
	// for a race at start to be won, few enough that a person still sees the
	// first one in the log.
	crashLimit = 5
	// crashWindow is how long a crash counts. The delays between five crashes
	// add up to some 8 s, so it must leave room for slow starts; it also ends
	// loops in which each life is shorter than stableAfter.
	crashWindow = 5 * time.Minute
	// stableAfter is how long a generation must serve until earlier crashes
	// are forgiven. With it, one crash an hour never adds up.
	stableAfter = time.Minute
	// firstBackoff is long enough for a socket or a lock to be let go, and
	// short enough for the client that waits.
	firstBackoff = 500 * time.Millisecond
	// maxBackoff keeps even the last try inside the 15 s that a request waits
	// by default.
	maxBackoff = 8 * time.Second
)

// backoffDelay returns how long to wait before the start that follows the nth
// crash in a row, n counting from 1. It has no jitter: there is one backend, so
// nobody to collide with, and a delay that a person can predict.
func backoffDelay(n int) time.Duration {
	delay := firstBackoff
	for range n - 1 {
		if delay >= maxBackoff {
			return maxBackoff
		}
		delay *= 2
	}
	return min(delay, maxBackoff)
}

// recentCrashes returns those of crashes, oldest first, that still count at now.
// It does not share memory with crashes.
func recentCrashes(crashes []time.Time, now time.Time) []time.Time {
	var recent []time.Time
	for _, at := range crashes {
		if now.Sub(at) < crashWindow {
			recent = append(recent, at)
		}
	}
	return recent
}
