package devtools_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/debugmcp/devproxy/daemon/devtools"
)

type fakeController struct {
	status   devtools.Status
	restarts []devtools.RestartRequest
	restart  func(context.Context) error
	logs     []string
	asked    struct {
		n      int
		source string
	}
}

func (c *fakeController) Status() devtools.Status { return c.status }

func (c *fakeController) Restart(ctx context.Context, r devtools.RestartRequest, progress func(string)) error {
	c.restarts = append(c.restarts, r)
	progress("restarting")
	if c.restart != nil {
		return c.restart(ctx)
	}
	return nil
}

func (c *fakeController) Logs(n int, source string) []string {
	c.asked.n, c.asked.source = n, source
	return c.logs
}

func quiet(string) {}

func TestDefinitions(t *testing.T) {
	tools := devtools.New("dev_", &fakeController{})
	var names []string
	for _, raw := range tools.Definitions() {
		var d struct {
			Name, Description string
			InputSchema       struct{ Type string }
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatalf("definition %s: %v", raw, err)
		}
		if d.Description == "" || d.InputSchema.Type != "object" {
			t.Errorf("definition of %s lacks a description or an object schema", d.Name)
		}
		names = append(names, d.Name)
	}
	want := []string{"dev_server_status", "dev_restart", "dev_rebuild_and_restart", "dev_logs"}
	if !slices.Equal(names, want) {
		t.Errorf("names = %q, want %q", names, want)
	}
	for name, has := range map[string]bool{"dev_restart_debugger": true, "dev_logs": true, "dev_other": false, "restart": false} {
		if tools.Has(name) != has {
			t.Errorf("Has(%q) = %v, want %v", name, !has, has)
		}
	}
}

func TestStatusKeepsNullsWhileNotRunning(t *testing.T) {
	tools := devtools.New("dev_", &fakeController{status: devtools.Status{State: "idle", Message: "starts on the first request that needs it"}})
	answer := tools.Call(t.Context(), "dev_server_status", nil, quiet)
	if answer.IsError {
		t.Fatal(answer.Text)
	}
	var fields map[string]any
	if err := json.Unmarshal(answer.Structured, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"protocolEra", "protocolVersion"} {
		if v, ok := fields[name]; !ok || v != nil {
			t.Errorf("%s = %v (present %v), want null", name, v, ok)
		}
	}
	if !strings.Contains(answer.Text, "starts on the first request") {
		t.Errorf("text lacks the message: %s", answer.Text)
	}
}

func TestRestartArguments(t *testing.T) {
	for _, test := range []struct {
		tool, arguments string
		want            devtools.RestartRequest
		fails           string
	}{
		{tool: "dev_restart"},
		{tool: "dev_restart_debugger", arguments: `{}`},
		{tool: "dev_restart", arguments: `{"env":{}}`, want: devtools.RestartRequest{Overrides: map[string]string{}}},
		{tool: "dev_restart", arguments: `{"env":{"A":"1"},"rebuild":true}`, want: devtools.RestartRequest{Overrides: map[string]string{"A": "1"}, Rebuild: true}},
		{tool: "dev_rebuild_and_restart", want: devtools.RestartRequest{Rebuild: true}},
		{tool: "dev_restart", arguments: `{"environment":{}}`, fails: "environment"},
		{tool: "dev_restart", arguments: `{"env":{"A":1}}`, fails: "reading the arguments"},
		{tool: "dev_restart", arguments: `[]`, fails: "reading the arguments"},
	} {
		t.Run(test.tool+test.arguments, func(t *testing.T) {
			c := &fakeController{status: devtools.Status{State: "running", Generation: 3, PID: 77, Port: 3001}}
			answer := devtools.New("dev_", c).Call(t.Context(), test.tool, []byte(test.arguments), quiet)
			if test.fails != "" {
				if !answer.IsError || !strings.Contains(answer.Text, test.fails) || len(c.restarts) != 0 {
					t.Fatalf("answer = %+v after %d restarts, want an error about %q and none", answer, len(c.restarts), test.fails)
				}
				return
			}
			if answer.IsError || !strings.Contains(answer.Text, "generation 3 is running, pid 77, port 3001") {
				t.Errorf("answer = %+v", answer)
			}
			got := c.restarts[0]
			if got.Rebuild != test.want.Rebuild || !maps.Equal(got.Overrides, test.want.Overrides) || (got.Overrides == nil) != (test.want.Overrides == nil) {
				t.Errorf("request = %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestFailedRebuildShowsTheBuild(t *testing.T) {
	c := &fakeController{
		status: devtools.Status{State: "running", LastBuild: &devtools.Build{Tail: []string{"src/a.ts(1,1): error TS1005"}}},
		restart: func(context.Context) error {
			return errors.New("the build failed: exit status 2; generation 1 still runs")
		},
	}
	answer := devtools.New("dev_", c).Call(t.Context(), "dev_rebuild_and_restart", nil, quiet)
	if !answer.IsError || !strings.Contains(answer.Text, "still runs") || !strings.Contains(answer.Text, "TS1005") {
		t.Errorf("answer = %+v", answer)
	}
}

func TestLongBuildAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeController{restart: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		answer := devtools.New("dev_", c).Call(t.Context(), "dev_rebuild_and_restart", nil, quiet)
		if answer.IsError || answer.Text != "still building after 45s; see dev_server_status" {
			t.Errorf("answer = %+v", answer)
		}
	})
}

func TestLogs(t *testing.T) {
	c := &fakeController{logs: []string{"one", "two"}}
	tools := devtools.New("dev_", c)
	if a := tools.Call(t.Context(), "dev_logs", []byte(`{"lines":7,"source":"build"}`), quiet); a.Text != "one\ntwo" || c.asked.n != 7 || c.asked.source != "build" {
		t.Errorf("answer = %+v, asked %+v", a, c.asked)
	}
	for _, bad := range []string{`{"lines":0}`, `{"lines":501}`, `{"source":"kernel"}`, `{"lines":1.5}`} {
		if a := tools.Call(t.Context(), "dev_logs", []byte(bad), quiet); !a.IsError {
			t.Errorf("%s was accepted", bad)
		}
	}
	long := strings.Repeat("x", 100<<10)
	c.logs = []string{"one", long, long, "four"}
	if a := tools.Call(t.Context(), "dev_logs", nil, quiet); a.Text != strings.Join(c.logs, "\n") {
		t.Errorf("what fits is an answer of %d bytes", len(a.Text))
	}
	c.logs = []string{"one", long, long, long, "four"}
	want := "[2 lines before these are left out: an answer has 262144 bytes at most]\n" + strings.Join(c.logs[2:], "\n")
	if a := tools.Call(t.Context(), "dev_logs", nil, quiet); a.Text != want {
		t.Errorf("what does not is an answer of %d bytes that begins %.100q", len(a.Text), a.Text)
	}
	c.logs = nil
	if a := tools.Call(t.Context(), "dev_logs", nil, quiet); a.Text != "no output yet" || c.asked.n != 50 {
		t.Errorf("answer = %+v, asked %+v", a, c.asked)
	}
}
