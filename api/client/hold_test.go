package client

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

type holdStream = grpc.BidiStreamingServer[devproxyv1.HoldChangesRequest, devproxyv1.HoldChangesResponse]

type holdFunc struct {
	devproxyv1.UnimplementedControlServiceServer

	hold func(holdStream) error
}

func (f holdFunc) HoldChanges(s holdStream) error { return f.hold(s) }

func endOf(message string) *Step {
	return &Step{Event: &devproxyv1.Step_Outcome{Outcome: &devproxyv1.Outcome{Ok: message == "", Message: message}}}
}

// receive takes the next request, and answers with these steps; nil is no step.
func receive(s holdStream, steps ...*Step) (*devproxyv1.HoldChangesRequest, error) {
	request, err := s.Recv()
	for _, step := range steps {
		err = errors.Join(err, s.Send(&devproxyv1.HoldChangesResponse{Step: step}))
	}
	return request, err
}

func TestHold(t *testing.T) {
	up := &Step{Event: &devproxyv1.Step_Backend{Backend: &Backend{Generation: 2}}}
	for name, test := range map[string]struct {
		message, outcome string
		want             error
	}{
		"succeeded":       {},
		"failed":          {message: "exit status 2"},
		"came to nothing": {outcome: "it crashed", want: &OutcomeError{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := control(t, holdFunc{hold: func(s holdStream) error {
				first, err := receive(s, nil)
				last, lastErr := receive(s, up, endOf(test.outcome))
				if end := last.GetEnd(); first.GetCommand() != "make" || end.GetOk() != (test.message == "") || end.GetMessage() != test.message {
					t.Errorf("received %v and %v", first, last)
				}
				return errors.Join(err, lastErr)
			}})
			hold, err := c.HoldChanges(t.Context(), "make")
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
			cancelled, cancel := context.WithCancelCause(t.Context())
			cancel(nil)
			if hold.Lost(cancelled) {
				t.Error("the hold is lost")
			}
			steps := 0
			err = hold.End(t.Context(), test.message, func(*Step) { steps++ })
			if _, isOutcome := errors.AsType[*OutcomeError](err); steps != 1 || isOutcome != (test.want != nil) || (err != nil) != isOutcome {
				t.Errorf("%d steps, and %v", steps, err)
			}
		})
	}
}

func TestHoldIsLost(t *testing.T) {
	c := control(t, holdFunc{hold: func(s holdStream) error {
		if _, err := receive(s, nil); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the daemon ends")
	}})
	for range 2 { // to hear of it while building, or at the end
		hold, err := c.HoldChanges(t.Context(), "make")
		if err != nil {
			t.Fatal(err)
		}
		if !hold.Lost(t.Context()) {
			t.Error("the hold is not lost")
		}
		if err := hold.End(t.Context(), "", func(*Step) {}); !errors.Is(err, ErrNotServing) {
			t.Errorf("End = %v", err)
		}
		hold.Close()
		hold.Close()
	}
}

func TestHoldIsNotKnown(t *testing.T) {
	c := control(t, devproxyv1.UnimplementedControlServiceServer{})
	if _, err := c.HoldChanges(t.Context(), "make"); !errors.Is(err, ErrUnknownCall) {
		t.Errorf("of an old daemon: %v", err)
	}
	c = control(t, holdFunc{hold: func(holdStream) error { return nil }})
	if _, err := c.HoldChanges(t.Context(), "make"); !errors.Is(err, ErrNotServing) {
		t.Errorf("of one that hangs up: %v", err)
	}
}
