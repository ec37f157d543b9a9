package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// ErrUnknownCall says that the daemon is from before what it is asked for.
var ErrUnknownCall = errors.New("the daemon is too old to know how")

// BuildingVariable is the environment variable that tells a devproxyctl within a
// person's build of which project that is. A daemon that is started from there is
// no part of it.
const BuildingVariable = "DEVPROXY_BUILDING"

// Hold is a build of the caller's, while which the daemon holds back changes.
type Hold struct {
	stream grpc.BidiStreamingClient[devproxyv1.HoldChangesRequest, devproxyv1.HoldChangesResponse]
	cancel context.CancelCauseFunc
	// steps are closed when none follows any more; err is why then.
	steps chan *Step
	err   error
}

// HoldChanges has the daemon hold back changes from its return on, until End or
// Close, or the end of the connection. command is for status and log. The error is
// ErrUnknownCall for a daemon that cannot do so.
func (c *Client) HoldChanges(ctx context.Context, command string) (*Hold, error) {
	const doing = "holding changes back"
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := c.Control().HoldChanges(ctx)
	if err == nil {
		err = stream.Send(&devproxyv1.HoldChangesRequest{Command: command})
	}
	// A stream that cannot be sent to says why when it is received from.
	if err == nil || errors.Is(err, io.EOF) {
		_, err = stream.Recv()
	}
	if err != nil {
		cancel(nil)
		if status.Code(err) == codes.Unimplemented {
			err = ErrUnknownCall
		}
		if errors.Is(err, io.EOF) {
			err = ErrNotServing
		}
		return nil, fmt.Errorf("%s: %w", doing, readable(err))
	}
	h := &Hold{stream: stream, cancel: cancel, steps: make(chan *Step)}
	go h.receive(ctx)
	return h, nil
}

// receive ends with the stream, which Close ends and waits for.
func (h *Hold) receive(ctx context.Context) {
	defer close(h.steps)
	for {
		response, err := h.stream.Recv()
		if err != nil {
			h.err = err
			return
		}
		select {
		case h.steps <- response.GetStep():
		case <-ctx.Done():
			h.err = context.Cause(ctx)
			return
		}
	}
}

// Lost returns when the daemon holds changes back no longer, and true, or when ctx
// ends, and false. It must not be called at the same time as End.
func (h *Hold) Lost(ctx context.Context) bool {
	for {
		select {
		case _, more := <-h.steps:
			if !more {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// End says how the build ended: message is empty if it succeeded. Then step, which
// must not be nil, hears of the restart that comes of it, if one does; the error
// is an *OutcomeError when that failed.
func (h *Hold) End(ctx context.Context, message string, step func(*Step)) error {
	const doing = "telling the daemon how the build ended"
	end := &devproxyv1.BuildEnd{Ok: message == "", Message: message}
	if err := h.stream.Send(&devproxyv1.HoldChangesRequest{End: end}); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", doing, readable(err))
	}
	for {
		select {
		case s, more := <-h.steps:
			if !more {
				err := h.err
				if errors.Is(err, io.EOF) {
					err = ErrNotServing
				}
				return fmt.Errorf("%s: %w", doing, readable(err))
			}
			if over, err := take(s, step); over {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the hold where End has not, and returns when nothing is left of it.
func (h *Hold) Close() {
	h.cancel(nil)
	for range h.steps { // what nobody waits for
	}
}

// take passes a step on; the last one is the outcome.
func take(s *Step, step func(*Step)) (over bool, err error) {
	outcome := s.GetOutcome()
	switch {
	case outcome == nil:
		step(s)
		return false, nil
	case outcome.GetOk():
		return true, nil
	}
	return true, &OutcomeError{Message: outcome.GetMessage()}
}
