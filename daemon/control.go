package daemon

import (
	"context"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/daemon/traffic"
)

// statusInterval is how often a watched status is compared with the last one
// sent. Changes of the backend are sent at once; this is for what has no event
// of its own, such as the number of a client's open requests.
const statusInterval = 500 * time.Millisecond

// controlService is a person's handle. It only translates.
type controlService struct {
	devproxyv1.UnimplementedControlServiceServer

	*controller

	// tap is where the traffic can be seen.
	tap *traffic.Tap
	// pumps counts the goroutines that outlive a call by a moment.
	pumps *sync.WaitGroup
	// stop asks the daemon to end, with errQuit or errHandover; it returns at once.
	stop func(cause error)
	// quit is closed when the daemon ends, for calls that would last.
	quit <-chan struct{}
}

// GetStatus implements the service.
func (c *controlService) GetStatus(_ context.Context, request *devproxyv1.GetStatusRequest) (*devproxyv1.GetStatusResponse, error) {
	return &devproxyv1.GetStatusResponse{Status: c.look(request.GetShowSecrets()).toProto()}, nil
}

// ListSessions implements the service.
func (c *controlService) ListSessions(context.Context, *devproxyv1.ListSessionsRequest) (*devproxyv1.ListSessionsResponse, error) {
	return &devproxyv1.ListSessionsResponse{Sessions: sessionsToProto(c.look(false).sessions)}, nil
}

// WatchStatus implements the service.
func (c *controlService) WatchStatus(request *devproxyv1.WatchStatusRequest, stream grpc.ServerStreamingServer[devproxyv1.WatchStatusResponse]) error {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	var last *devproxyv1.Status
	for {
		_, changed := c.supervisor.Subscribe()
		now := c.look(request.GetShowSecrets()).toProto()
		if !proto.Equal(now, last) {
			if err := stream.Send(&devproxyv1.WatchStatusResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-c.quit:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Start implements the service.
func (c *controlService) Start(_ *devproxyv1.StartRequest, stream grpc.ServerStreamingServer[devproxyv1.StartResponse]) error {
	steps := c.newSteps(func(s *devproxyv1.Step) error { return stream.Send(&devproxyv1.StartResponse{Step: s}) })
	return steps.end(c.start(stream.Context(), steps.take))
}

// Stop implements the service.
func (c *controlService) Stop(_ *devproxyv1.StopRequest, stream grpc.ServerStreamingServer[devproxyv1.StopResponse]) error {
	steps := c.newSteps(func(s *devproxyv1.Step) error { return stream.Send(&devproxyv1.StopResponse{Step: s}) })
	return steps.end(c.supervisor.Stop(stream.Context(), steps.take))
}

// Restart implements the service.
func (c *controlService) Restart(request *devproxyv1.RestartRequest, stream grpc.ServerStreamingServer[devproxyv1.RestartResponse]) error {
	steps := c.newSteps(func(s *devproxyv1.Step) error { return stream.Send(&devproxyv1.RestartResponse{Step: s}) })
	var overrides map[string]string
	if change := request.GetEnvironment(); change != nil {
		overrides = change.GetOverrides()
		if overrides == nil {
			overrides = map[string]string{}
		}
	}
	return steps.end(c.restart(stream.Context(), request.GetRebuild(), overrides, steps.take))
}

// steps sends what happens to a caller. A caller who has gone is noticed through
// the stream's context, not here.
type steps struct {
	*controller

	send func(*devproxyv1.Step) error
}

func (c *controlService) newSteps(send func(*devproxyv1.Step) error) *steps {
	return &steps{controller: c.controller, send: send}
}

func (s *steps) take(step backend.Step) {
	moment := s.look(false)
	switch {
	case step.Status != nil:
		moment.backend = *step.Status
		_ = s.send(&devproxyv1.Step{Event: &devproxyv1.Step_Backend{Backend: moment.backendToProto()}})
	case step.Output != nil:
		_ = s.send(&devproxyv1.Step{Event: &devproxyv1.Step_BuildOutput{BuildOutput: moment.mask.text(*step.Output)}})
	case step.Build != nil:
		moment.backend.LastBuild, moment.callerBuild = step.Build, nil
		_ = s.send(&devproxyv1.Step{Event: &devproxyv1.Step_Build{Build: moment.buildToProto()}})
	}
}

func (s *steps) end(err error) error {
	outcome := &devproxyv1.Outcome{Ok: err == nil}
	if err != nil {
		outcome.Message = s.words(err)
	}
	return s.send(&devproxyv1.Step{Event: &devproxyv1.Step_Outcome{Outcome: outcome}})
}

// StreamLogs implements the service.
func (c *controlService) StreamLogs(request *devproxyv1.StreamLogsRequest, stream grpc.ServerStreamingServer[devproxyv1.StreamLogsResponse]) error {
	mask := func() masking { return masking{masker: c.launcher.mask(), show: request.GetShowSecrets()} }
	filter, err := fromLogsRequest(request, mask)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	send := func(e logs.Entry) error {
		return stream.Send(&devproxyv1.StreamLogsResponse{Entry: toEntry(e, mask())})
	}
	if !request.GetFollow() {
		for _, e := range c.buffer.Tail(int(request.GetTail()), filter) {
			if err := send(e); err != nil {
				return err
			}
		}
		return nil
	}
	ctx, end := c.untilQuit(stream.Context())
	defer end()
	err = c.buffer.Follow(ctx, int(request.GetTail()), filter, send)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// untilQuit is ctx until the daemon ends. end has to be called.
func (c *controlService) untilQuit(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var quitting sync.WaitGroup
	quitting.Go(func() {
		select {
		case <-c.quit:
			cancel(errQuit)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		quitting.Wait()
	}
}

// StreamTraffic implements the service. A caller who does not keep up loses
// messages.
func (c *controlService) StreamTraffic(request *devproxyv1.StreamTrafficRequest, stream grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error {
	tracer, err := c.tap.Open()
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	defer tracer.Close()
	if err := stream.Send(&devproxyv1.StreamTrafficResponse{}); err != nil {
		return err
	}
	ctx, end := c.untilQuit(stream.Context())
	defer end()
	filter := traffic.Filter{Session: request.GetSession(), Method: request.GetMethod()}
	names := clientNames{look: c.look}
	var matcher traffic.Matcher
	lost := uint64(0)
	for {
		seen, err := tracer.Next(ctx)
		if err != nil {
			return nil //nolint:nilerr // the caller or the daemon has ended it
		}
		for _, e := range matcher.Take(seen) {
			lost += e.Lost
			if !filter.Wants(e) {
				continue
			}
			entry := toTrafficEntry(e, names.of(e.Session))
			entry.Lost, lost = lost, 0
			mask := masking{masker: c.launcher.mask(), show: request.GetShowSecrets()}
			if err := sendTraffic(stream, entry, mask.frame(e.Frame, int(request.GetMaxBody()))); err != nil {
				return err
			}
		}
	}
}

// sendTraffic sends an entry with its body, in as many pieces as that needs.
func sendTraffic(stream grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse], entry *devproxyv1.TrafficEntry, body []byte) error {
	for {
		piece := body[:min(len(body), client.ChunkSize)]
		body = body[len(piece):]
		response := &devproxyv1.StreamTrafficResponse{Entry: entry, Body: piece, Last: len(body) == 0}
		if err := stream.Send(response); err != nil || response.GetLast() {
			return err
		}
		entry = nil
	}
}

// clientNames remembers what clients call themselves, for messages that are read
// after they have left.
type clientNames struct {
	look  func(show bool) view
	known map[uint64]string
}

func (n *clientNames) of(session uint64) string {
	if session == 0 || n.known[session] != "" {
		return n.known[session]
	}
	if n.known == nil || len(n.known) > relay.MaxSessions {
		n.known = map[uint64]string{}
	}
	for _, s := range n.look(false).sessions {
		n.known[s.ID] = s.ClientName
	}
	return n.known[session]
}

// Shutdown implements the service.
func (c *controlService) Shutdown(_ context.Context, request *devproxyv1.ShutdownRequest) (*devproxyv1.ShutdownResponse, error) {
	cause := errQuit
	if request.GetHandover() {
		cause = errHandover
	}
	c.stop(cause)
	return &devproxyv1.ShutdownResponse{Pid: int64(os.Getpid())}, nil
}
