package daemon

import (
	"context"
	"time"
)

// idleCheck is how often the number of clients is looked at. It only has to be
// small beside any sensible idle_exit.
const idleCheck = time.Second

// awaitIdle returns when no client has been attached for the given time, or
// when ctx ends, whose cause it then returns. deadline hears when the time will
// be up, and zero while somebody is attached.
func awaitIdle(ctx context.Context, idle time.Duration, clients func() int, deadline func(time.Time)) error {
	ticker := time.NewTicker(min(idleCheck, idle))
	defer ticker.Stop()
	since := time.Now()
	for {
		if clients() > 0 {
			since = time.Time{}
			deadline(time.Time{})
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= idle {
				return nil
			}
			deadline(since.Add(idle))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
