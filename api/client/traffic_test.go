package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

type trafficFunc struct {
	devproxyv1.UnimplementedControlServiceServer

	stream func(*devproxyv1.StreamTrafficRequest, grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error
}

func (f trafficFunc) StreamTraffic(r *devproxyv1.StreamTrafficRequest, s grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error {
	return f.stream(r, s)
}

func TestTraffic(t *testing.T) {
	entry := &TrafficEntry{Method: "ping", Size: 6}
	send := func(s grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error {
		for _, response := range []*devproxyv1.StreamTrafficResponse{
			{}, {Entry: entry, Body: []byte("abc")}, {Body: []byte("def"), Last: true}, {Entry: entry, Last: true},
		} {
			if err := s.Send(response); err != nil {
				return err
			}
		}
		return nil
	}
	errStop := errors.New("that was enough")
	for name, test := range map[string]struct {
		answer error // after all of them
		stop   bool
		want   string
		code   codes.Code
	}{
		"to the end":          {want: "ready ping:abcdef ping:"},
		"until told to stop":  {stop: true, want: "ready ping:abcdef"},
		"until it is refused": {answer: status.Error(codes.ResourceExhausted, "too many"), want: "ready ping:abcdef ping:", code: codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			c := control(t, trafficFunc{stream: func(r *devproxyv1.StreamTrafficRequest, s grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error {
				if r.GetSession() != 3 || r.GetMethod() != "p*" || r.GetMaxBody() != 9 || !r.GetShowSecrets() {
					t.Errorf("asked for %v", r)
				}
				if err := send(s); err != nil {
					return err
				}
				return test.answer
			}})
			var got []string
			err := c.Traffic(t.Context(), TrafficOptions{Session: 3, Method: "p*", MaxBody: 9, ShowSecrets: true}, func() { got = append(got, "ready") },
				func(e *TrafficEntry, body []byte) error {
					got = append(got, e.GetMethod()+":"+string(body))
					if test.stop {
						return errStop
					}
					return nil
				})
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.stop != errors.Is(err, errStop) || test.code != codes.OK && status.Code(err) != test.code || test.code == codes.OK && !test.stop && err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
	// Its own end is no error.
	ctx, cancel := context.WithCancelCause(t.Context())
	c := control(t, trafficFunc{stream: func(_ *devproxyv1.StreamTrafficRequest, s grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error {
		err := s.Send(&devproxyv1.StreamTrafficResponse{})
		<-s.Context().Done()
		return err
	}})
	if err := c.Traffic(ctx, TrafficOptions{}, func() { cancel(errStop) }, nil); err != nil {
		t.Errorf("a trace that was ended: %v", err)
	}
}
