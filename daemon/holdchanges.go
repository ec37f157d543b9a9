package daemon

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/watch"
)

var errStopped = errors.New("the daemon was stopped before this was done")

// HoldChanges implements the service.
func (c *controlService) HoldChanges(stream grpc.BidiStreamingServer[devproxyv1.HoldChangesRequest, devproxyv1.HoldChangesResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx, end := c.untilQuit(stream.Context())
	defer end()
	b := c.buildings.beginCaller(valid(first.GetCommand(), maxText))
	ended := make(chan *devproxyv1.BuildEnd, 1) // nil: the caller has gone
	if err := stream.Send(&devproxyv1.HoldChangesResponse{}); err != nil {
		c.buildings.endCaller(ctx, b, "", false)
		return err
	}
	c.pumps.Go(func() {
		// The end of this call ends the wait.
		last, err := stream.Recv()
		if err != nil {
			last = nil
		}
		ended <- last.GetEnd()
	})
	var how *devproxyv1.BuildEnd
	select {
	case how = <-ended:
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), errQuit) {
		// There will be no change to hold back, and whoever builds goes to the next
		// daemon with it.
		return status.Error(codes.Unavailable, "the daemon ends")
	}
	if how == nil {
		c.buildings.endCaller(ctx, b, "", false)
		return nil
	}
	steps := c.newSteps(func(s *devproxyv1.Step) error { return stream.Send(&devproxyv1.HoldChangesResponse{Step: s}) })
	if !how.GetOk() {
		message := valid(how.GetMessage(), maxText)
		if message == "" {
			message = "nobody says why"
		}
		c.buildings.endCaller(ctx, b, message, true)
		return steps.end(nil)
	}
	c.buildings.endCaller(ctx, b, "", true)
	return steps.end(c.followBuild(ctx, steps.take))
}

// followBuild returns when the restart that comes of a successful build is over,
// if one does.
func (c *controller) followBuild(ctx context.Context, step func(backend.Step)) error {
	verdict, err := c.buildings.watcher.Settled(ctx)
	switch {
	case errors.Is(err, errQuit), errors.Is(err, watch.ErrStopped):
		if c.handingOver() {
			return errReplaced
		}
		return errStopped
	case err != nil:
		return err
	case verdict.MissingEntry != "":
		return fmt.Errorf("the build succeeded, but %s is missing or empty; nothing is started before it is there",
			c.look(false).relative(verdict.MissingEntry))
	case verdict.Change == 0:
		return nil
	}
	// Whoever has gone meanwhile does not take the change along.
	return c.outcome(c.supervisor.FollowChange(ctx, verdict.Change, step))
}
