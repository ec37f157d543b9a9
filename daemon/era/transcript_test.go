package era_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

func eras() []era.Era { return []era.Era{era.Legacy, era.Modern} }

// TestTranscriptRequests sends every request that a real client was seen to send to a backend of either era.
func TestTranscriptRequests(t *testing.T) {
	for _, name := range transcripts(t, "ts", "gocli", "proxy") {
		t.Run(name, func(t *testing.T) {
			for _, x := range exchanges(t, name) {
				switch x.req.Method {
				case "initialize", "server/discover", "ping", "logging/setLevel", "resources/subscribe",
					"resources/unsubscribe", "subscriptions/listen": // answered by devproxy
					continue
				}
				for _, e := range eras() {
					back := era.BackOf(e)
					if refusal := back.Refusal(x.req); refusal != nil {
						t.Errorf("%s to a %s backend: %v", x.req.Method, e, refusal)
						continue
					}
					mustBeRequest(t, e, x.req.Method, back.Request(x.req, 7))
					params := back.Request(x.req, 0)
					mustBeRequest(t, e, x.req.Method, params)
					if token := era.TokenOf(params); token != nil {
						t.Errorf("%s to a %s backend: a progress token without one of ours: %s", x.req.Method, e, params)
					}
					if e == x.req.Source && x.req.Token == nil && string(params) != string(x.req.Params) {
						t.Errorf("%s within the %s era became %s", x.req.Params, e, params)
					}
				}
			}
		})
	}
}

// TestTranscriptResults gives every result of a real server to a client of either era.
func TestTranscriptResults(t *testing.T) {
	for _, name := range transcripts(t, "ts", "gocli", "proxy") {
		t.Run(name, func(t *testing.T) {
			for _, x := range exchanges(t, name) {
				method := x.req.Method
				if x.answer.Kind != wire.Response || method == "initialize" || method == "server/discover" || method == "ping" {
					continue
				}
				// The era of the server is the one it was talked to in.
				res, err := era.BackOf(x.req.Source).Result(method, x.answer.Result)
				if err != nil {
					t.Fatalf("%v: %s", err, x.answer.Result)
				}
				if res.Kind == era.InputRequired {
					if len(res.Inputs) == 0 || res.Source != era.Modern {
						t.Errorf("asks for %v: %s", res.Inputs, x.answer.Result)
					}
					continue
				}
				for _, e := range eras() {
					got := era.FrontOf(e).Result(x.req, res, era.Shapes{})
					if e == x.req.Source && string(got) != string(x.answer.Result) {
						t.Errorf("%s within the %s era became %s", x.answer.Result, e, got)
					}
					if method == "subscriptions/listen" || x.req.Source == e && isEmptyAck(method) {
						continue // ended by devproxy itself
					}
					if _, known := resultDefinitions[method]; known {
						mustBeResult(t, e, method, got)
					}
				}
			}
		})
	}
}

func isEmptyAck(method string) bool {
	return method == "logging/setLevel" || method == "resources/subscribe" || method == "resources/unsubscribe"
}

// TestTranscriptNotifications gives every notification of a real server to a client of either era.
func TestTranscriptNotifications(t *testing.T) {
	for _, name := range transcripts(t, "ts", "gocli") {
		t.Run(name, func(t *testing.T) {
			var source era.Era
			for _, l := range transcript(t, name) {
				if l.fromClient {
					if req, e := era.Classify(l.m, era.Session{}); e == nil && l.m.Kind == wire.Request && req.Method != "ping" {
						source = req.Source
					}
				}
				if l.fromClient || l.m.Kind != wire.Notification {
					continue
				}
				for _, e := range eras() {
					out, ok := era.FrontOf(e).Notification(source, l.m.Method, l.m.Params, `"listen:9"`)
					if !ok {
						if l.m.Method != "notifications/subscriptions/acknowledged" {
							t.Errorf("%s is kept from %s clients", l.m.Method, e)
						}
						continue
					}
					mustBeNotification(t, e, l.m.Method, out)
					if e == era.Legacy && era.SubscriptionOf(out) != "" {
						t.Errorf("a legacy client is told of a listen: %s", out)
					}
					if e == era.Modern && era.IsChange(l.m.Method) && era.SubscriptionOf(out) != `"listen:9"` {
						t.Errorf("a modern client is told %s", out)
					}
				}
			}
		})
	}
}

// TestTranscriptHandshakes translates what real servers said of themselves, in all four combinations.
func TestTranscriptHandshakes(t *testing.T) {
	for _, name := range transcripts(t, "ts", "gocli") {
		t.Run(name, func(t *testing.T) {
			seen := 0
			for _, x := range exchanges(t, name) {
				if x.answer.Kind != wire.Response || x.req.Method != "initialize" && x.req.Method != "server/discover" {
					continue
				}
				f, err := era.BackOf(x.req.Source).ParseHandshake(x.answer.Result)
				if errors.Is(err, era.ErrVersion) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				seen++
				for method, e := range map[string]era.Era{"initialize": era.Legacy, "server/discover": era.Modern} {
					got := era.FrontOf(e).Handshake(f, x.req.Peer.Version)
					mustBeResult(t, e, method, got)
					want, have := members(t, f.Capabilities), members(t, capabilitiesIn(got))
					for key := range want {
						if have[key] == "" {
							t.Errorf("the %s handshake lost the capability %s: %s", e, key, got)
						}
					}
				}
			}
			if seen == 0 && name != "ts2auto-ts1srv" {
				t.Error("no handshake found")
			}
		})
	}
}

func capabilitiesIn(handshake []byte) []byte {
	o, err := wire.ParseObject(handshake)
	if err != nil {
		return nil
	}
	return o.Get("capabilities")
}

// TestTranscriptsAcrossEras compares with the captures of a translator that real clients were content with: the
// result that the server gave directly, translated here, must be the one that the client got there.
func TestTranscriptsAcrossEras(t *testing.T) {
	for _, tt := range []struct{ direct, translated string }{
		{"ts2legacy-gosrv", "proxy-ts2auto-over-golegacy"},
		{"ts2legacy-gosrv", "proxy-gocli-over-golegacy"},
		{"ts2legacy-ts1srv", "proxy-ts2auto-over-ts1legacy"},
		{"ts2legacy-ts1srv", "proxy-gocli-over-ts1legacy"},
		{"ts2auto-gosrv", "proxy-ts1cli-over-gomodern"},
		{"ts2auto-gosrv", "proxy-ts2legacy-over-gomodern"},
		{"ts2auto-gosrv", "proxy-gocli2025-over-gomodern"},
		{"ts2auto-ts2srv", "proxy-ts1cli-over-ts2modern"},
		{"ts2auto-ts2srv", "proxy-ts2legacy-over-ts2modern"},
	} {
		t.Run(tt.translated, func(t *testing.T) {
			direct := map[[32]byte]exchange{}
			var facts era.Facts
			for _, x := range exchanges(t, tt.direct) {
				if x.req.Method == "initialize" || x.req.Method == "server/discover" {
					f, err := era.BackOf(x.req.Source).ParseHandshake(x.answer.Result)
					if err != nil {
						t.Fatal(err)
					}
					facts = f
				}
				direct[era.Binding(x.req.Method, x.req.Params)] = x
			}
			compared := 0
			for _, want := range exchanges(t, tt.translated) {
				have, ok := direct[era.Binding(want.req.Method, want.req.Params)]
				if !ok || have.answer.Kind == 0 || have.answer.Kind != want.answer.Kind || have.req.Source == want.req.Source {
					continue
				}
				if name, _ := era.ToolName(want.req.Params); name == "touch" {
					continue // counts its calls
				}
				switch want.req.Method {
				case "ping", "subscriptions/listen":
					continue
				}
				if compareAnswers(t, facts, have, want) {
					compared++
				}
			}
			if compared < 6 {
				t.Errorf("only %d answers compared", compared)
			}
		})
	}
}

func compareAnswers(t *testing.T, facts era.Facts, have, want exchange) bool {
	t.Helper()
	front := era.FrontOf(want.req.Source)
	if want.answer.Kind == wire.Failure {
		e, err := wire.ParseError(have.answer.Error)
		if err != nil {
			t.Fatal(err)
		}
		_, got := front.Failure(want.req, have.req.Source, e)
		sameJSON(t, want.req.Method, want.answer.Error, got.Bytes())
		return true
	}
	res, err := era.BackOf(have.req.Source).Result(have.req.Method, have.answer.Result)
	if err != nil {
		t.Fatal(err)
	}
	gave, err := era.BackOf(want.req.Source).Result(want.req.Method, want.answer.Result)
	if err != nil {
		t.Fatal(err)
	}
	if res.Kind != era.Complete || gave.Kind != era.Complete {
		return false // asked in another way
	}
	res.ServerInfo = facts.Info
	sameJSON(t, want.req.Method, want.answer.Result, front.Result(want.req, res, era.Shapes{}))
	return true
}

// sameJSON compares by value: the captures were written by a tap that orders members in its own way.
func sameJSON(t *testing.T, what string, want, got []byte) {
	t.Helper()
	var a, b any
	if err := errors.Join(json.Unmarshal(want, &a), json.Unmarshal(got, &b)); err != nil {
		t.Fatalf("%v: %s / %s", err, want, got)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("%s (-captured +ours):\n%s", what, diff)
	}
}

// TestTranscriptInputs takes the questions of a legacy server, as requests, to the inputs that a modern client was
// seen to answer, and back.
func TestTranscriptInputs(t *testing.T) {
	asked := 0
	for _, x := range exchanges(t, "proxy-mrtr-parallel-and-url") {
		if x.answer.Kind != wire.Response {
			continue
		}
		res, err := era.BackOf(era.Modern).Result(x.req.Method, x.answer.Result)
		if err != nil {
			t.Fatal(err)
		}
		if res.Kind != era.InputRequired {
			continue
		}
		asked++
		state, ok := wire.String(res.State)
		if !ok {
			t.Fatalf("state %s", res.State)
		}
		rebuilt := era.FrontOf(era.Modern).InputRequired(res.Inputs, state)
		mustSatisfy(t, era.ModernVersion, "InputRequiredResult", rebuilt)
		// What was recorded asked for roots without params, which the Go SDK's client does not take.
		captured := bytes.ReplaceAll(x.answer.Result, []byte(`"roots/list"}`), []byte(`"roots/list","params":{}}`))
		for key, want := range members(t, rebuilt) {
			sameJSON(t, key, []byte(members(t, captured)[key]), []byte(want))
		}
		for _, in := range res.Inputs {
			if err := x.req.Peer.Can(in.Method, in.Params); err != nil {
				t.Errorf("the client that answered %s is said not to be able to: %v", in.Method, err)
			}
			mustBeRequest(t, era.Legacy, in.Method, era.FrontOf(era.Legacy).Ask(in, "e-1"))
		}
	}
	if asked != 5 {
		t.Errorf("%d results ask for input, want 5", asked)
	}
}
