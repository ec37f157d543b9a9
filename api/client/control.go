package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// What a daemon tells, under names for programs that do not import the
// generated package.
type (
	// Status is the state of everything.
	Status = devproxyv1.Status
	// Daemon is the state of the daemon.
	Daemon = devproxyv1.Daemon
	// Backend is the state of the backend.
	Backend = devproxyv1.Backend
	// Warning is something that the backend does and nobody would want.
	Warning = devproxyv1.Warning
	// BackendState is where the backend is in its life.
	BackendState = devproxyv1.BackendState
	// Session is one attached client.
	Session = devproxyv1.Session
	// BuildRun is one run of the build command.
	BuildRun = devproxyv1.Build
	// BuildWatch is the process that builds continuously.
	BuildWatch = devproxyv1.BuildWatch
	// Generation is one life of the backend.
	Generation = devproxyv1.Generation
	// Watch is the state of the watcher.
	Watch = devproxyv1.Watch
	// LogEntry is one line of output.
	LogEntry = devproxyv1.LogEntry
	// Step is one thing that happened during a start, stop or restart.
	Step = devproxyv1.Step
)

// OutcomeError says that the daemon did what was asked and that it did not
// succeed; the message is meant for a person.
type OutcomeError struct{ Message string }

// Error is the daemon's message.
func (e *OutcomeError) Error() string { return e.Message }

// Status returns the state of everything.
func (c *Client) Status(ctx context.Context, showSecrets bool) (*Status, error) {
	response, err := c.Control().GetStatus(ctx, &devproxyv1.GetStatusRequest{ShowSecrets: showSecrets})
	if err != nil {
		return nil, fmt.Errorf("asking for the status: %w", readable(err))
	}
	return response.GetStatus(), nil
}

// WatchStatus passes the state of everything to each, at once and after every
// change. It goes on until the context ends or somebody stops the daemon, which
// are no errors, or until each fails or the connection breaks.
func (c *Client) WatchStatus(ctx context.Context, showSecrets bool, each func(*Status) error) error {
	stream, err := c.Control().WatchStatus(ctx, &devproxyv1.WatchStatusRequest{ShowSecrets: showSecrets})
	return receiveAll(ctx, stream, err, "watching the status", func(r *devproxyv1.WatchStatusResponse) error { return each(r.GetStatus()) })
}

// receiveAll passes what comes to each, until ctx or the daemon ends the stream,
// which are no errors, or until each fails or the connection breaks. err is what
// opening the stream has returned.
func receiveAll[R any](ctx context.Context, stream grpc.ServerStreamingClient[R], err error, doing string, each func(*R) error) error {
	for err == nil {
		var response *R
		if response, err = stream.Recv(); err != nil {
			break
		}
		if err := each(response); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, readable(err))
}

// Start starts the backend if it does not run. step, which must not be nil,
// hears what happens. The error is an *OutcomeError when the backend did not
// come up.
func (c *Client) Start(ctx context.Context, step func(*Step)) error {
	stream, err := c.Control().Start(ctx, &devproxyv1.StartRequest{})
	return follow(stream, err, "starting the backend", step)
}

// Stop stops the backend. Errors and step are as for Start.
func (c *Client) Stop(ctx context.Context, step func(*Step)) error {
	stream, err := c.Control().Stop(ctx, &devproxyv1.StopRequest{})
	return follow(stream, err, "stopping the backend", step)
}

// Restart restarts the backend, after a build if asked. A nil set of overrides
// keeps the one there is, an empty one clears it. Errors and step are as for
// Start.
func (c *Client) Restart(ctx context.Context, rebuild bool, overrides map[string]string, step func(*Step)) error {
	request := &devproxyv1.RestartRequest{Rebuild: rebuild}
	if overrides != nil {
		request.Environment = &devproxyv1.EnvironmentChange{Overrides: overrides}
	}
	stream, err := c.Control().Restart(ctx, request)
	return follow(stream, err, "restarting the backend", step)
}

// stepResponse is a response that carries a step.
type stepResponse interface{ GetStep() *Step }

func follow[R any, P interface {
	*R
	stepResponse
}](stream grpc.ServerStreamingClient[R], err error, doing string, step func(*Step)) error {
	for err == nil {
		var response *R
		if response, err = stream.Recv(); err != nil {
			break
		}
		if over, err := take(P(response).GetStep(), step); over {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		err = ErrNotServing
	}
	return fmt.Errorf("%s: %w", doing, readable(err))
}

// Shutdown asks the daemon to end and returns its process id, without waiting
// for that end. See Replace for a handover.
func (c *Client) Shutdown(ctx context.Context) (pid int64, err error) {
	return c.shutdown(ctx, &devproxyv1.ShutdownRequest{})
}

func (c *Client) shutdown(ctx context.Context, request *devproxyv1.ShutdownRequest) (pid int64, err error) {
	response, err := c.Control().Shutdown(ctx, request)
	if err != nil {
		return 0, fmt.Errorf("asking the daemon to end: %w", readable(err))
	}
	return response.GetPid(), nil
}

// readable takes gRPC's own words out of an error that a person reads; the code
// stays available to status.FromError.
func readable(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK && s.Code() != codes.Canceled {
		return &rpcError{status: s}
	}
	return err
}

type rpcError struct{ status *status.Status }

func (e *rpcError) Error() string              { return e.status.Message() }
func (e *rpcError) GRPCStatus() *status.Status { return e.status }

// Is reports that a daemon which is gone, or goes, does not answer.
func (e *rpcError) Is(target error) bool {
	return target == ErrNotServing && e.status.Code() == codes.Unavailable
}

// StateName is the state's name as people know it, such as "running".
func StateName(s BackendState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "BACKEND_STATE_"))
}
