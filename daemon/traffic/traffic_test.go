package traffic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/internal/wire"
)

func message(session uint64, frame string) relay.Traffic {
	return relay.Traffic{Direction: relay.FromClient, Session: session, Frame: []byte(frame)}
}

// Who does not keep up loses messages, hears how many, and holds no more than the
// bounds; the one beside him loses nothing.
func TestTap(t *testing.T) {
	var tap Tap
	tap.See(message(1, "nobody looks"))
	if tap.Watched() {
		t.Fatal("it is watched by nobody")
	}
	slow, err := tap.Open()
	if err != nil {
		t.Fatal(err)
	}
	quick, err := tap.Open()
	if err != nil || !tap.Watched() {
		t.Fatal(err, tap.Watched())
	}
	for n := range maxQueued + 7 {
		tap.See(message(uint64(n), "x"))
		if got, err := quick.Next(t.Context()); err != nil || got.Session != uint64(n) || got.Lost != 0 || got.Time.IsZero() {
			t.Fatalf("message %d is seen as %+v, %v", n, got, err)
		}
	}
	for n := range maxQueued {
		if got, _ := slow.Next(t.Context()); got.Session != uint64(n) || got.Lost != 0 {
			t.Fatalf("message %d is seen as %+v", n, got)
		}
	}
	half := strings.Repeat("x", maxQueuedBytes/2+1)
	for _, frame := range []string{half, half, "small"} {
		tap.See(message(99, frame))
	}
	// What did not fit is told with what came after it.
	if got, _ := slow.Next(t.Context()); len(got.Frame) != len(half) || got.Lost != 7 {
		t.Errorf("after 7 were lost: %d bytes, %d lost", len(got.Frame), got.Lost)
	}
	if got, _ := slow.Next(t.Context()); string(got.Frame) != "small" || got.Lost != 1 {
		t.Errorf("after a large one was lost: %q, %d lost", got.Frame, got.Lost)
	}
	if slow.bytes != 0 {
		t.Errorf("%d bytes are held of nothing", slow.bytes)
	}

	for range maxTracers - 2 {
		if _, err := tap.Open(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tap.Open(); !errors.Is(err, ErrTooMany) {
		t.Errorf("one tracer too many: %v", err)
	}
	quick.Close()
	if again, err := tap.Open(); err != nil {
		t.Errorf("after one has left: %v", err)
	} else {
		again.Close()
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tap Tap
		tracer, err := tap.Open()
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan Seen, 1)
		go func() {
			seen, _ := tracer.Next(t.Context())
			got <- seen
		}()
		synctest.Wait()
		tap.See(message(1, "x"))
		if seen := <-got; string(seen.Frame) != "x" {
			t.Errorf("seen is %+v", seen)
		}
		errEnd := errors.New("the end")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errEnd)
		if _, err := tracer.Next(ctx); !errors.Is(err, errEnd) {
			t.Errorf("at the end: %v", err)
		}
		tracer.Close()
		if tap.Watched() {
			t.Error("it is watched by one who has left")
		}
	})
}

func TestMatcher(t *testing.T) {
	var m Matcher
	start := time.Now()
	at := 0 * time.Millisecond
	for _, step := range []struct {
		direction           relay.Direction
		session, generation uint64
		frame, want         string
	}{
		{relay.FromClient, 1, 0, `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, "request tools/call 7"},
		{relay.FromClient, 2, 0, `{"jsonrpc":"2.0","id":7,"method":"ping"}`, "request ping 7"}, // another client's
		{relay.ToBackend, 1, 3, `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, "request tools/call 7"},
		{relay.FromBackend, 1, 3, `{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"no"}}`, "error tools/call 7 code -5 1ms"},
		{relay.ToClient, 1, 0, `{"jsonrpc":"2.0","id":7,"result":{}}`, "result tools/call 7 4ms"},
		{relay.ToClient, 1, 0, `{"jsonrpc":"2.0","id":7,"result":{}}`, "result  7"}, // the second for one
		{relay.ToClient, 2, 0, `{"jsonrpc":"2.0","id":7,"result":{}}`, "result ping 7 5ms"},
		// One of the backend, which belongs to nobody until it is answered.
		{relay.FromBackend, 0, 3, `{"jsonrpc":"2.0","id":"a","method":"roots/list"}`, "request roots/list \"a\""},
		{relay.ToBackend, 2, 3, `{"jsonrpc":"2.0","id":"a","result":{}}`, "result roots/list \"a\" 1ms"},
		{relay.ToClient, 1, 0, `{"jsonrpc":"2.0","method":"notifications/progress"}`, "notification notifications/progress "},
		{relay.FromClient, 1, 0, `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},5]`, "request a 1|notification b |invalid  "},
		{relay.ToClient, 1, 0, `[{"jsonrpc":"2.0","id":1,"result":{}}]`, "result a 1 1ms"},
		{relay.FromClient, 1, 0, `nonsense`, "invalid  "},
		{relay.FromClient, 1, 0, `[]`, "invalid  "},
	} {
		seen := Seen{Traffic: relay.Traffic{Direction: step.direction, Session: step.session, Generation: step.generation, Frame: []byte(step.frame)}, Time: start.Add(at), Lost: 5}
		at += time.Millisecond
		var got []string
		lost := uint64(0)
		for _, e := range m.Take(seen) {
			kind := map[wire.Kind]string{0: "invalid", wire.Request: "request", wire.Notification: "notification", wire.Response: "result", wire.Failure: "error"}[e.Kind]
			text := fmt.Sprintf("%s %s %s", kind, e.Method, e.ID)
			if e.Code != 0 {
				text += fmt.Sprintf(" code %d", e.Code)
			}
			if e.Answers {
				text += fmt.Sprintf(" %v", e.Latency)
			}
			got = append(got, text)
			lost += e.Lost
		}
		if all := strings.Join(got, "|"); all != step.want || lost != 5 {
			t.Errorf("%s is %q and tells of %d lost, want %q", step.frame, all, lost, step.want)
		}
	}
	if len(m.asked) != 0 {
		t.Errorf("remembered are %v", m.asked)
	}
}

func TestMatcherIsBounded(t *testing.T) {
	var m Matcher
	for n := range maxAsked + 100 {
		m.Take(Seen{Traffic: message(1, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x"}`, n))})
	}
	if len(m.asked) != maxAsked {
		t.Errorf("remembered are %d requests, want %d", len(m.asked), maxAsked)
	}
}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "x", true}, {"", "", true}, {"*", "", true}, {"tools/call", "tools/call", true}, {"tools/call", "tools/calls", false},
		{"tools/*", "tools/list", true}, {"tools/*", "prompts/list", false}, {"*list*", "notifications/tools/list_changed", true},
		{"*/list", "tools/list", true}, {"*/list", "tools/list_changed", false}, {"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false}, {"ab*ba", "aba", false},
	} {
		e := Entry{Method: test.name}
		e.Session = 3
		if got := (Filter{Method: test.pattern}).Wants(e); got != test.want {
			t.Errorf("%q wants %q: %v", test.pattern, test.name, got)
		}
		if got := (Filter{Method: test.pattern, Session: 4}).Wants(e); got {
			t.Errorf("session 4 is wanted, and one of 3 passes")
		}
	}
}
