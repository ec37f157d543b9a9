//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/cli"
)

func TestTraceCommand(t *testing.T) {
	p := newProject(t)
	d := &fakeDaemon{ends: make(chan struct{}), status: &client.Status{Daemon: &client.Daemon{ProjectRoot: p.Root, Version: cli.Version("")}}}
	d.serve(t, p)
	if o := ctl("trace"); o.code != cli.ExitFailed || !strings.Contains(o.stderr, "cannot trace") || !strings.Contains(o.stderr, "devproxyd restart") {
		t.Errorf("a daemon that is older: %+v", o)
	}
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{"a":1},"name":"x"}}`
	at := timestamppb.New(now)
	d.traffic = []*devproxyv1.StreamTrafficResponse{
		// In two pieces, as a long one is.
		{
			Entry: &client.TrafficEntry{
				Time: at, Direction: devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_FROM_CLIENT, Session: 3, ClientName: "claude-code",
				ProtocolEra: "legacy", Kind: devproxyv1.TrafficKind_TRAFFIC_KIND_REQUEST, Method: "tools/call", Id: "7", Size: uint64(len(call)),
			},
			Body: []byte(call[:30]),
		},
		{Body: []byte(call[30:]), Last: true},
		{
			Entry: &client.TrafficEntry{
				Time: at, Direction: devproxyv1.TrafficDirection_TRAFFIC_DIRECTION_FROM_BACKEND, Generation: 2, ProtocolEra: "modern",
				Kind: devproxyv1.TrafficKind_TRAFFIC_KIND_ERROR, Method: "tools/call", Id: "1", ErrorCode: -32602, Size: 5000, Lost: 9,
				Latency: durationpb.New(1234 * time.Microsecond),
			},
			Body: []byte(`{"cut`), Last: true,
		},
	}
	clock := now.Local().Format("15:04:05.000")
	first := clock + " #3 claude-code   client→proxy legacy request tools/call 7  "
	const name = `{"name":"x"}`
	last := "(9 messages are missing here: the trace did not keep up)\n" + clock + " -                proxy←server modern error -32602 tools/call 1 1.23ms  "
	d.status.Sessions = []*client.Session{{Id: 3, ClientName: "claude-code"}, {Id: 5}}
	for args, want := range map[string]string{
		"trace -n 2 --session 3 --method tools/*": first + name + "  84 bytes\n" + last + "{\"cut  4.9 KiB\n",
		"trace --raw --show-secrets -n 1":         first + "84 bytes\n" + call + "\n",
		"trace -n 2 --json": `{"version":1,"time":"2026-11-30T12:00:00Z","direction":"from-client","session":3,"client":"claude-code","era":"legacy","kind":"request","method":"tools/call","id":7,"size":84,"message":` + call + "}\n" +
			`{"version":1,"time":"2026-11-30T12:00:00Z","direction":"from-backend","generation":2,"era":"modern","kind":"error","method":"tools/call","id":1,"errorCode":-32602,"latencyMs":1.234,"size":5000,"lost":9,"text":"{\"cut"}` + "\n",
	} {
		o := ctl(strings.Fields(args)...)
		if o.code != cli.ExitOK || o.stderr != "tracing "+p.Root+"; Ctrl-C ends it\n" {
			t.Errorf("%s: %+v", args, o)
		}
		if diff := cmp.Diff(want, o.stdout); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	if o := ctl("trace", "-n", "-1"); o.code != cli.ExitUsage {
		t.Errorf("less than no messages: %+v", o)
	}
	if o := ctl("trace", "--session", "99"); o.code != cli.ExitFailed || !strings.Contains(o.stderr, "there is no session 99; there are #3 claude-code, #5\n") {
		t.Errorf("a session that is not there: %+v", o)
	}
	// Only what is shown is asked for.
	asked := map[uint32]*devproxyv1.StreamTrafficRequest{}
	for _, r := range d.traces {
		if r.GetMaxBody() != 0 || r.GetShowSecrets() {
			asked[r.GetMaxBody()] = r
		}
	}
	want := map[uint32]*devproxyv1.StreamTrafficRequest{
		shownBody: {Session: 3, Method: "tools/*", MaxBody: shownBody}, 0: {ShowSecrets: true},
	}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	// The next daemon has other sessions.
	close(d.ends)
	if o := ctl("trace", "--session", "3"); o.code != cli.ExitFailed || !strings.HasSuffix(o.stderr, "devproxyctl: the daemon has ended, and with it the numbers of its sessions\n") {
		t.Errorf("a session's daemon ends: %+v", o)
	}
}

func TestLatency(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 3400 * time.Nanosecond: "3µs", 14 * time.Microsecond: "10µs", 1234 * time.Microsecond: "1.23ms", 12345 * time.Microsecond: "12ms", 1234 * time.Millisecond: "1.2s",
	} {
		if got := latency(d); got != want {
			t.Errorf("latency(%v) = %q, want %q", d, got, want)
		}
	}
}

// A line is no longer than the terminal is wide, unless there is no room at all.
func TestTraceFits(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "")
	for _, width := range []int{0, 100, 200} {
		var out strings.Builder
		e := &client.TrafficEntry{Time: timestamppb.New(now), Session: 1, ClientName: strings.Repeat("long", 9), Kind: devproxyv1.TrafficKind_TRAFFIC_KIND_REQUEST, Method: "ping", Size: 1}
		if err := (&tracer{out: &out, width: width}).entry(e, []byte(`{"params":{"x":"`+strings.Repeat("日", 1000)+`"}}`)); err != nil {
			t.Fatal(err)
		}
		columns := len([]rune(out.String())) // some are two columns wide
		if most := max(width, 2*plainBody); columns > most || !strings.Contains(out.String(), "…  1 byte\n") {
			t.Errorf("at %d columns: %d in %s", width, columns, out.String())
		}
	}
}
