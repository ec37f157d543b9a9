package client

import (
	"context"
	"errors"
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
// nobody a daemon that runs. If somebody else replaces the daemon at the same
// time one of the two new ones serves, and the other ends.
func Replace(ctx context.Context, o Options, old *Client) (*Client, error) {
	successor, err := o.start()
	if err != nil {
		return nil, err
	}
	if _, err := old.shutdown(ctx, &devproxyv1.ShutdownRequest{Handover: true}); err != nil && !ending(ctx, old, err) {
		successor.end()
		return nil, fmt.Errorf("handing over: %w", err)
	}
	select {
	case <-old.Lost():
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the daemon to end: %w", context.Cause(ctx))
	}
	s := starter{options: o, began: time.Now(), lock: flock.New(o.Project.StartLock()), child: successor}
	defer s.unlock()
	c, err := s.run(ctx)
	if err == nil && s.child != nil {
		if serving, err := c.Status(ctx, false); err == nil && serving.GetDaemon().GetPid() != s.child.pid {
			s.child.end()
		}
	}
	return c, err
}

// endingWithin is how long a daemon that ends may take to be gone from its
// connections, once it has stopped to answer on them.
const endingWithin = 3 * time.Second

// ending reports whether a daemon that was asked to end, with err, does so anyway.
func ending(ctx context.Context, old *Client, err error) bool {
	if !errors.Is(err, ErrNotServing) {
		return false
	}
	timer := time.NewTimer(endingWithin)
	defer timer.Stop()
	select {
	case <-old.Lost():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// end ends a daemon process that is not wanted. One that went on waiting for the
// lock would take over when somebody stops the one that has it.
func (c *child) end() {
	_ = c.kill()
	<-c.exited //nolint:errcheck // it was killed
}
