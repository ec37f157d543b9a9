package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// TestDialogue goes through what can happen to a parked call. A step is
// "event -> what comes of it".
func TestDialogue(t *testing.T) {
	tests := map[string]string{
		"asked, answered": `
			ask 0 -> due
			detach -> i1=0
			retry i1 -> 0:i1`,
		"several, answered in parts": `
			ask 0 -> due
			ask 1 -> due
			detach -> i1=0 i2=1
			retry i2 -> 1:i2 due
			detach -> i1=0
			retry i1 -> 0:i1`,
		"answers that nobody asked for": `
			ask 0 -> due
			detach -> i1=0
			retry i9 i1 i1 -> 0:i1`,
		"taken back before it was shown": `
			ask 0 -> due
			withdraw 0 ->
			ask 1 -> due
			detach -> i2=1`,
		"taken back between the legs": `
			ask 0 -> due
			ask 1 -> due
			detach -> i1=0 i2=1
			withdraw 0 ->
			withdraw 7 -> unknown
			retry i1 i2 -> 1:i2`,
		"asked between the legs": `
			ask 0 -> due
			detach -> i1=0
			ask 1 ->
			retry i1 -> 0:i1 due
			detach -> i2=1`,
		"abandoned": `
			ask 0 -> due
			ask 1 -> due
			abandon -> 0:cancel 1:error
			abandon ->`,
		"closed": `
			ask 0 -> due
			detach -> i1=0
			close ->
			retry i1 ->`,
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			d := dialogue{attached: true}
			for line := range strings.Lines(steps) {
				event, want, ok := strings.Cut(strings.TrimSpace(line), "->")
				if !ok {
					continue
				}
				if got := stepDialogue(&d, strings.Fields(event)); got != strings.TrimSpace(want) {
					t.Fatalf("%s\ngot  %q\nwant %q", event, got, strings.TrimSpace(want))
				}
			}
		})
	}
}

func stepDialogue(d *dialogue, words []string) string {
	var out []string
	replies := func(all []reply) {
		for _, a := range all {
			switch {
			case a.err != nil:
				out = append(out, string(a.server)+":error")
			case strings.Contains(string(a.result), "cancel"):
				out = append(out, string(a.server)+":cancel")
			default:
				out = append(out, string(a.server)+":"+string(a.result))
			}
		}
	}
	switch words[0] {
	case "ask":
		method := methodElicit
		if words[1] == "1" {
			method = methodRoots
		}
		d.ask(wire.ID(words[1]), era.Input{Method: method})
	case "withdraw":
		if !d.withdraw(wire.ID(words[1])) {
			out = append(out, "unknown")
		}
	case "detach":
		inputs := d.detach()
		for i, in := range inputs {
			out = append(out, in.Key+"="+string(d.open[i].server))
		}
	case "retry":
		var responses []era.KeyedResult
		for _, key := range words[1:] {
			responses = append(responses, era.KeyedResult{Key: key, Result: []byte(key)})
		}
		replies(d.retry(responses))
	case "abandon":
		replies(d.abandon())
	case "close":
		d.close()
	}
	if d.due() {
		out = append(out, "due")
	}
	return strings.Join(out, " ")
}

func TestDialogueBound(t *testing.T) {
	var d dialogue
	for n := range maxQuestions {
		if !d.ask(wire.IntID(int64(n)), era.Input{}) {
			t.Fatalf("question %d refused", n)
		}
	}
	if d.ask("x", era.Input{}) {
		t.Fatal("one question too many was taken")
	}
}

func TestRound(t *testing.T) {
	var r round
	inputs := []era.Input{{Key: "a"}, {Key: "b"}}
	if !r.begin(inputs, []byte(`"s"`)) {
		t.Fatal("the first round was refused")
	}
	if r.answer("b", []byte("2")) {
		t.Fatal("complete with one answer of two")
	}
	if !r.answer("a", []byte("1")) {
		t.Fatal("not complete with both")
	}
	if got := fmt.Sprintf("%s", r.responses()); got != "[{a 1} {b 2}]" {
		t.Errorf("responses %s", got)
	}
	// The next one starts empty.
	if !r.begin(nil, nil) || len(r.responses()) != 0 {
		t.Error("the second round has answers of the first")
	}
	for range maxRounds - 2 {
		if !r.begin(inputs, nil) {
			t.Fatal("refused too early")
		}
	}
	if r.begin(inputs, nil) {
		t.Error("one round too many was taken")
	}
}

func TestAgenda(t *testing.T) {
	var a agenda
	start := time.Now()
	var rang []string
	note := func(s string) func() { return func() { rang = append(rang, s) } }
	a.at(start.Add(3*time.Second), note("c"))
	b := a.at(start.Add(2*time.Second), note("b"))
	a.at(start.Add(time.Second), note("a1"))
	a.at(start.Add(time.Second), note("a2"))
	d := a.at(start.Add(4*time.Second), note("d"))
	a.stop(d)
	a.stop(d)
	a.stop(nil)
	if at, ok := a.next(); !ok || !at.Equal(start.Add(time.Second)) {
		t.Errorf("next is %v, %v", at, ok)
	}
	a.ring(start.Add(2 * time.Second))
	a.stop(b) // has rung
	a.ring(start.Add(time.Hour))
	if want := []string{"a1", "a2", "b", "c"}; !slices.Equal(rang, want) {
		t.Errorf("rang %v, want %v", rang, want)
	}
	if _, ok := a.next(); ok {
		t.Error("something is left")
	}
}

func TestFailures(t *testing.T) {
	reasons, codes := map[string]bool{}, map[int64]bool{}
	for _, row := range Failures() {
		if row.Code >= -32768 && row.Code <= -32000 {
			t.Errorf("%s: code %d is reserved", row.Reason, row.Code)
		}
		if reasons[row.Reason] || codes[row.Code] {
			t.Errorf("%s (%d) stands twice", row.Reason, row.Code)
		}
		reasons[row.Reason], codes[row.Code] = true, true
		if row.Message == "" || strings.HasSuffix(row.Message, ".") {
			t.Errorf("%s: message %q", row.Reason, row.Message)
		}
	}
	tests := map[string]struct {
		failure    Failure
		text, wire string
	}{
		"of the table": {
			Failure{Reason: ReasonLost, Generation: 3, Exit: "exit status 1"},
			"the backend ended while it worked on this request — the request may have had effects; check before calling again",
			`{"code":-31915,"message":"the backend ended while it worked on this request","data":{"reason":"backend-lost","generation":3,"exit":"exit status 1","hint":"the request may have had effects; check before calling again"}}`,
		},
		"with words of its own": {
			Failure{Reason: "port-in-use", State: "failed", Message: "port 80 is in use by pid 4", Hint: "end it"},
			"port 80 is in use by pid 4 — end it",
			`{"code":-31908,"message":"port 80 is in use by pid 4","data":{"reason":"port-in-use","state":"failed","hint":"end it"}}`,
		},
		"of a reason that is not in the table": {
			Failure{Reason: "eclipse", Message: "too dark"},
			"too dark — see dev_server_status or `devproxyctl status`",
			`{"code":-31900,"message":"too dark","data":{"reason":"eclipse","hint":"see dev_server_status or ` + "`devproxyctl status`" + `"}}`,
		},
		"without a hint": {
			Failure{Reason: ReasonShuttingDown},
			"devproxy is shutting down",
			`{"code":-31923,"message":"devproxy is shutting down","data":{"reason":"shutting-down"}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.failure.Text(); got != test.text {
				t.Errorf("text %q, want %q", got, test.text)
			}
			if got := string(test.failure.Error().Bytes()); got != test.wire {
				t.Errorf("error %s\nwant  %s", got, test.wire)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	var o owners
	a, b := new(client), new(client)
	if o.owner("x") != nil {
		t.Error("somebody owns what was never noted")
	}
	o.note("x", a)
	o.note("x", b)
	if o.owner("x") != b {
		t.Error("the last one does not own it")
	}
	for n := range maxOwned {
		o.note(fmt.Sprint(n), a)
	}
	if o.owner("x") != nil || o.owner("0") != a || len(o.byName) != maxOwned || len(o.order) != maxOwned {
		t.Errorf("%d kept, in order %d", len(o.byName), len(o.order))
	}
}
