package client

import (
	"context"
	"fmt"
	"time"

	"github.com/gofrs/flock"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// Replace starts another daemon with the options, which must make it wait for
// the end of the one behind old, has old's daemon hand over to it, and returns
// when the new one serves. Clients keep their connections meanwhile. old is of
// no use afterwards. The errors are those of EnsureRunning.
//
// The new process comes first, so that a program that cannot be started costs
// nobody a daemon that runs.
func Replace(ctx context.Context, o Options, old *Client) (*Client, error) {
	successor, err := o.start()
	if err != nil {
		return nil, err
	}
	if _, err := old.shutdown(ctx, &devproxyv1.ShutdownRequest{Handover: true}); err != nil {
		// One that goes on waiting would take over when somebody stops the other.
		_ = successor.kill()
		<-successor.exited //nolint:errcheck // it was killed
		return nil, fmt.Errorf("handing over: %w", err)
	}
	select {
	case <-old.Lost():
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the daemon to end: %w", context.Cause(ctx))
	}
	s := starter{options: o, began: time.Now(), lock: flock.New(o.Project.StartLock()), child: successor}
	defer s.unlock()
	return s.run(ctx)
}
