package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

// logKeeper is a daemon that keeps lines and, unless it is an earlier one,
// filters them.
type logKeeper struct {
	entries []*LogEntry
	earlier bool
	asked   []*devproxyv1.StreamLogsRequest
}

func (k *logKeeper) stream(r *devproxyv1.StreamLogsRequest, s grpc.ServerStreamingServer[devproxyv1.StreamLogsResponse]) error {
	k.asked = append(k.asked, r)
	if !k.earlier {
		if r.GetPattern() == "(" {
			return status.Error(codes.InvalidArgument, "no pattern")
		}
		return s.Send(&devproxyv1.StreamLogsResponse{Entry: &LogEntry{Text: "filtered"}})
	}
	kept := k.entries
	if tail := int(r.GetTail()); tail > 0 && tail < len(kept) {
		kept = kept[len(kept)-tail:]
	}
	if r.GetFollow() { // one more comes
		kept = append(slices.Clip(kept), &LogEntry{Sequence: 6, Time: timestamppb.New(time.Unix(6, 0)), Generation: 2, Text: "new error"},
			&LogEntry{Sequence: 7, Time: timestamppb.New(time.Unix(7, 0)), Generation: 2, Text: "new"})
	}
	for _, e := range kept {
		if err := s.Send(&devproxyv1.StreamLogsResponse{Entry: e}); err != nil {
			return err
		}
	}
	return nil
}

// A daemon from before the filters leaves them out without a word, and the tail
// with them: then this side does what was asked for.
func TestLogFilters(t *testing.T) {
	earlier := &logKeeper{earlier: true}
	for i, text := range []string{"old error", "fine", "error", "fine", "fine"} {
		at := time.Unix(int64(i)+1, 0)
		earlier.entries = append(earlier.entries, &LogEntry{Sequence: uint64(i) + 1, Time: timestamppb.New(at), Generation: uint64(i/2) + 1, Text: text})
	}
	c := control(t, controlFuncs{logs: earlier.stream})
	for _, test := range []struct {
		options LogOptions
		want    string
	}{
		{LogOptions{Pattern: "error", Tail: 2}, "1 3"},
		{LogOptions{Pattern: "error", Tail: 1}, "3"},
		{LogOptions{Pattern: "(?i)ERROR", Tail: 1, Follow: true}, "3 6"},
		{LogOptions{Generation: 2}, "3 4"},
		{LogOptions{Since: time.Unix(3, 0), Tail: 9}, "3 4 5"},
		{LogOptions{Since: time.Unix(99, 0), Follow: true}, ""},
	} {
		var got []string
		if err := c.Logs(t.Context(), test.options, func(e *LogEntry) error {
			got = append(got, fmt.Sprint(e.GetSequence()))
			return nil
		}); err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%+v gives %v, %v; want %s", test.options, got, err, test.want)
		}
	}

	today := &logKeeper{}
	c = control(t, controlFuncs{logs: today.stream})
	o := LogOptions{Pattern: "error", Tail: 2, Generation: 3, Since: time.Unix(3, 0), Follow: true}
	lines := 0
	if err := c.Logs(t.Context(), o, func(*LogEntry) error { lines++; return nil }); err != nil || lines != 1 {
		t.Errorf("%d lines, %v", lines, err)
	}
	want := &devproxyv1.StreamLogsRequest{Pattern: "error", Tail: 2, Generation: 3, Since: timestamppb.New(time.Unix(3, 0)), Follow: true}
	if len(today.asked) != 2 || !proto.Equal(today.asked[1], want) {
		t.Errorf("it is asked for %v", today.asked)
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

// It is protobuf's JSON but for integers, which are numbers whatever their size.
func TestStatusJSON(t *testing.T) {
	full := &Status{
		Daemon: &Daemon{Pid: 4711, Contract: proto.Uint32(1), StartTime: timestamppb.New(time.Unix(1, 500))},
		Backend: &Backend{
			State: devproxyv1.BackendState_BACKEND_STATE_IDLE, Generation: 3, Pid: -1, Port: 80, Command: []string{"<a>", "b\"\n"},
			EnvironmentOverrides: map[string]string{"pid": "12", "A": ""}, History: []*Generation{{Number: 2, Exit: &devproxyv1.Exit{}}, {}},
		},
		Build: &BuildRun{Duration: durationpb.New(1500 * time.Millisecond), Ok: true},
	}
	for _, s := range []*Status{full, {}, {Backend: &Backend{State: 99}, Sessions: []*Session{{Id: 7}}}} {
		raw, err := StatusJSON(s)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := errors.Join(json.Unmarshal(raw, &got), json.Unmarshal(mapped, &want)); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		numbers := func(path cmp.Path) bool {
			switch path.Last().String() {
			case `["pid"]`, `["generation"]`, `["number"]`, `["id"]`, `["shimPid"]`, `["listedGeneration"]`:
				return !strings.Contains(path.GoString(), "environmentOverrides")
			}
			return false
		}
		asNumber := cmp.FilterPath(numbers, cmp.Comparer(func(a, b any) bool {
			number, text := a, b
			if _, swapped := a.(string); swapped {
				number, text = b, a
			}
			n, ok := number.(float64)
			return ok && text == fmt.Sprint(n)
		}))
		if diff := cmp.Diff(want, got, asNumber); diff != "" {
			t.Errorf("(-protobuf's +ours):\n%s", diff)
		}
		if strings.Contains(string(raw), ": ") || strings.Contains(string(raw), "\n") {
			t.Errorf("it is not compact: %s", raw)
		}
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
