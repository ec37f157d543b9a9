package daemon

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/debugmcp/devproxy/daemon/relay"
)

// toStatus is the border between our errors and gRPC's.
func toStatus(err error) error {
	switch {
	case err == nil, errors.Is(err, relay.ErrEnded):
		return nil
	case errors.Is(err, relay.ErrShutdown), errors.Is(err, relay.ErrRestart):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, relay.ErrSlowConsumer), errors.Is(err, relay.ErrTooManySessions):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}
