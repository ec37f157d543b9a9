package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
)

// controlFuncs is a ControlService of functions.
type controlFuncs struct {
	devproxyv1.UnimplementedControlServiceServer

	restart func(*devproxyv1.RestartRequest, grpc.ServerStreamingServer[devproxyv1.RestartResponse]) error
	logs    func(*devproxyv1.StreamLogsRequest, grpc.ServerStreamingServer[devproxyv1.StreamLogsResponse]) error
}

func (c controlFuncs) Restart(r *devproxyv1.RestartRequest, s grpc.ServerStreamingServer[devproxyv1.RestartResponse]) error {
	return c.restart(r, s)
}

func (c controlFuncs) StreamLogs(r *devproxyv1.StreamLogsRequest, s grpc.ServerStreamingServer[devproxyv1.StreamLogsResponse]) error {
	return c.logs(r, s)
}

func (c controlFuncs) GetStatus(context.Context, *devproxyv1.GetStatusRequest) (*devproxyv1.GetStatusResponse, error) {
	return nil, status.Error(codes.Unavailable, "it is busy")
}

func (c controlFuncs) Shutdown(context.Context, *devproxyv1.ShutdownRequest) (*devproxyv1.ShutdownResponse, error) {
	return &devproxyv1.ShutdownResponse{Pid: 42}, nil
}

// control returns a client of a daemon that serves these functions.
func control(t *testing.T, funcs devproxyv1.ControlServiceServer) *Client {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	devproxyv1.RegisterControlServiceServer(server, funcs)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func outcomeStep(ok bool, message string) *devproxyv1.RestartResponse {
	return &devproxyv1.RestartResponse{Step: &Step{Event: &devproxyv1.Step_Outcome{Outcome: &devproxyv1.Outcome{Ok: ok, Message: message}}}}
}

func TestRestart(t *testing.T) {
	output := &devproxyv1.RestartResponse{Step: &Step{Event: &devproxyv1.Step_BuildOutput{BuildOutput: "compiling"}}}
	for name, test := range map[string]struct {
		responses []*devproxyv1.RestartResponse
		end       error
		steps     int
		want      string // of the error
		outcome   bool   // whether it is an *OutcomeError
	}{
		"succeeds":             {[]*devproxyv1.RestartResponse{output, output, outcomeStep(true, "")}, nil, 2, "", false},
		"fails":                {[]*devproxyv1.RestartResponse{output, outcomeStep(false, "it broke")}, nil, 1, "it broke", true},
		"ends without outcome": {[]*devproxyv1.RestartResponse{output}, nil, 1, "restarting the backend: " + ErrNotServing.Error(), false},
		"breaks":               {nil, status.Error(codes.Unavailable, "it is busy"), 0, "restarting the backend: it is busy", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := control(t, controlFuncs{restart: func(_ *devproxyv1.RestartRequest, s grpc.ServerStreamingServer[devproxyv1.RestartResponse]) error {
				for _, r := range test.responses {
					if err := s.Send(r); err != nil {
						return err
					}
				}
				return test.end
			}})
			steps := 0
			err := c.Restart(t.Context(), false, nil, func(s *Step) {
				steps++
				if s.GetBuildOutput() != "compiling" {
					t.Errorf("step %v", s)
				}
			})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if _, ok := errors.AsType[*OutcomeError](err); text != test.want || ok != test.outcome || steps != test.steps {
				t.Errorf("after %d steps: %#v %v", steps, err, err)
			}
		})
	}
}

// nil keeps the overrides, an empty set clears them, and the wire tells the two
// apart.
func TestRestartOverrides(t *testing.T) {
	var got *devproxyv1.EnvironmentChange
	c := control(t, controlFuncs{restart: func(r *devproxyv1.RestartRequest, s grpc.ServerStreamingServer[devproxyv1.RestartResponse]) error {
		got = r.GetEnvironment()
		return s.Send(outcomeStep(true, ""))
	}})
	for _, overrides := range []map[string]string{nil, {}, {"A": "1"}} {
		if err := c.Restart(t.Context(), false, overrides, func(*Step) {}); err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (overrides == nil) || len(got.GetOverrides()) != len(overrides) || got.GetOverrides()["A"] != overrides["A"] {
			t.Errorf("%v became %v", overrides, got)
		}
	}
}

func TestLogs(t *testing.T) {
	following := make(chan struct{})
	c := control(t, controlFuncs{logs: func(r *devproxyv1.StreamLogsRequest, s grpc.ServerStreamingServer[devproxyv1.StreamLogsResponse]) error {
		if want := []devproxyv1.LogSource{devproxyv1.LogSource_LOG_SOURCE_BUILD}; len(r.GetSources()) != 1 || r.GetSources()[0] != want[0] {
			return status.Errorf(codes.InvalidArgument, "sources %v", r.GetSources())
		}
		if err := s.Send(&devproxyv1.StreamLogsResponse{Entry: &LogEntry{Text: "line"}}); err != nil {
			return err
		}
		if !r.GetFollow() {
			return nil
		}
		if r.GetTail() == 13 {
			return status.Error(codes.Unavailable, "gone")
		}
		close(following)
		<-s.Context().Done()
		return nil
	}})
	o := LogOptions{Sources: []string{"build"}, Tail: 3}
	lines := 0
	count := func(e *LogEntry) error { lines++; return nil }
	if err := c.Logs(t.Context(), o, count); err != nil || lines != 1 {
		t.Errorf("Logs gave %d lines, %v", lines, err)
	}
	enough := errors.New("enough")
	if err := c.Logs(t.Context(), o, func(*LogEntry) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("an entry that fails gives %v", err)
	}
	if err := c.Logs(t.Context(), LogOptions{Sources: []string{"mars"}}, count); err == nil {
		t.Error("a refusal is no error")
	}
	o.Follow, o.Tail = true, 13
	if err := c.Logs(t.Context(), o, count); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a daemon that breaks off gives %v", err)
	}
	o.Tail = 3
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-following
		cancel(nil)
	}()
	if err := c.Logs(ctx, o, count); err != nil {
		t.Errorf("following until the end gives %v", err)
	}
}

// A person reads the text, a program the code.
func TestErrorsOfCalls(t *testing.T) {
	c := control(t, controlFuncs{})
	_, err := c.Status(t.Context(), false)
	if err == nil || err.Error() != "asking for the status: it is busy" || status.Code(err) != codes.Unavailable {
		t.Errorf("Status: %v, code %v", err, status.Code(err))
	}
	if err := c.Start(t.Context(), func(*Step) {}); status.Code(err) != codes.Unimplemented || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("Start: %v", err)
	}
	if pid, err := c.Shutdown(t.Context()); pid != 42 || err != nil {
		t.Errorf("Shutdown = %d, %v", pid, err)
	}
}

func TestNames(t *testing.T) {
	for value := range devproxyv1.BackendState_name {
		if name := StateName(BackendState(value)); name == "" || name != strings.ToLower(name) || strings.Contains(name, "state") {
			t.Errorf("state %d is called %q", value, name)
		}
	}
	for _, name := range LogSources() {
		if !IsLogSource(name) || SourceName(sourceOf(name)) != name {
			t.Errorf("source %s becomes %s", name, SourceName(sourceOf(name)))
		}
	}
	if len(LogSources()) != len(devproxyv1.LogSource_name)-1 || IsLogSource("mars") || IsLogSource("unspecified") {
		t.Errorf("sources are %v", LogSources())
	}
}

func TestStatusJSON(t *testing.T) {
	raw, err := StatusJSON(&Status{Backend: &Backend{State: devproxyv1.BackendState_BACKEND_STATE_IDLE}})
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Backend map[string]any
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	if v, there := document.Backend["protocolVersion"]; !there || v != "" || document.Backend["state"] != "BACKEND_STATE_IDLE" {
		t.Errorf("%s", raw)
	}
	if strings.Contains(string(raw), ": ") || strings.Contains(string(raw), "\n") {
		t.Errorf("it is not compact: %s", raw)
	}
}

// A daemon that is started from inside a backend must not carry its mark.
func TestDaemonIsNotMarked(t *testing.T) {
	const mark = backendMark + "0123456789abcdef:7"
	given := []string{"A=1", mark, "DEVPROXY_BACKEND_URL=kept", "B=2"}
	got := strings.Join(Options{Environment: given}.environment(), " ")
	if got != "A=1 DEVPROXY_BACKEND_URL=kept B=2" || given[1] != mark {
		t.Errorf("%s, and what was given became %q", got, given)
	}
	t.Setenv("DEVPROXY_BACKEND", "0123456789abcdef:7")
	t.Setenv("CONTROL_TEST", "there")
	own := strings.Join(Options{}.environment(), "\n")
	if !strings.Contains(own, "CONTROL_TEST=there") || strings.Contains(own, backendMark) {
		t.Errorf("by default it is\n%s", own)
	}
}
