package daemon

import (
	"context"
	"time"
)

// idleCheck is how often the number of clients is looked at. It only has to be
// small beside any sensible idle_exit.
const idleCheck = time.Second

// awaitIdle returns true when no client has been attached for the given time,
// and false when ctx ends. deadline hears when the time will be up, and zero
// while somebody is attached.
func awaitIdle(ctx context.Context, idle time.Duration, clients func() int, deadline func(time.Time)) bool {
	ticker := time.NewTicker(min(idleCheck, idle))
	defer ticker.Stop()
	since := time.Now()
	for {
		switch {
		case clients() > 0:
			since = time.Time{}
			deadline(time.Time{})
		case since.IsZero():
			since = time.Now()
			deadline(since.Add(idle))
		case time.Since(since) >= idle:
			return true
		default:
			deadline(since.Add(idle))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}
