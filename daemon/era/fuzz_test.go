package era_test

import (
	"slices"
	"testing"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

func fuzzMethods() []string {
	return []string{"tools/list", "tools/call", "prompts/list", "prompts/get", "resources/read", "completion/complete", "tasks/get", "vendor/x"}
}

// seedMessages adds one of each kind of message of the transcripts.
func seedMessages(f *testing.F, kinds ...wire.Kind) []wire.Message {
	f.Helper()
	seen := map[string]bool{}
	var out []wire.Message
	for _, name := range transcripts(f, "ts2auto-gosrv", "ts2legacy-ts1srv", "gocli-ts2srv", "proxy-mrtr") {
		for _, l := range transcript(f, name) {
			key := l.m.Kind.String() + l.m.Method
			if l.m.Kind == wire.Response {
				key += string(l.m.Result)
			}
			if slices.Contains(kinds, l.m.Kind) && !seen[key] {
				seen[key] = true
				out = append(out, l.m)
			}
		}
	}
	return out
}

// FuzzClassify: whatever comes, there is a request or an error that can be sent, and never both.
func FuzzClassify(f *testing.F) {
	for _, m := range seedMessages(f, wire.Request, wire.Notification) {
		for state := range byte(4) {
			f.Add(m.Bytes(), state, byte(0))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, state, offer byte) {
		m, err := wire.Parse(frame)
		if err != nil || m.Kind != wire.Request && m.Kind != wire.Notification {
			return
		}
		s := era.Session{Initialized: state&1 != 0, ModernSeen: state&2 != 0, Front: era.Offer(offer % 3), Peer: legacyPeer()}
		req, e := era.Classify(m, s)
		if e != nil {
			if m.Kind == wire.Notification {
				t.Fatalf("a notification is an error: %v", e)
			}
			if _, err := wire.Parse(wire.NewFailure(m.ID, e).Bytes()); err != nil {
				t.Fatalf("the error cannot be sent: %v", err)
			}
			return
		}
		if req.Source != era.Legacy && req.Source != era.Modern || string(req.Params) != string(m.Params) {
			t.Fatalf("Classify(%s) = %+v", frame, req)
		}
		for _, b := range eras() {
			mustStayJSON(t, era.BackOf(b).Request(req, 7))
		}
	})
}

func mustStayJSON(t *testing.T, raw []byte) {
	t.Helper()
	if raw == nil {
		return
	}
	if err := wire.Valid(raw); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
}

// untouched fails the test if a member of the object before is missing, changed or out of order in the object
// after, unless it is one of those that may be.
func untouched(t *testing.T, before, after []byte, may ...string) {
	t.Helper()
	in, err := wire.ParseObject(before)
	if err != nil {
		if string(before) != string(after) {
			t.Fatalf("%s became %s", before, after)
		}
		return
	}
	out, err := wire.ParseObject(after)
	if err != nil {
		t.Fatalf("%v: %s", err, after)
	}
	rest := func(o *wire.Object) []string {
		var members []string
		for _, m := range o.Members() {
			if !slices.Contains(may, m.Key) {
				members = append(members, string(m.RawKey)+":"+string(m.Value))
			}
		}
		return members
	}
	if !slices.Equal(rest(in), rest(out)) {
		t.Fatalf("more changed than may: %s became %s", before, after)
	}
}

// FuzzResult: a result is translated without a byte lost beside what its era demands.
func FuzzResult(f *testing.F) {
	for i, m := range seedMessages(f, wire.Response) {
		f.Add(m.Result, byte(i))
	}
	f.Add([]byte(`{"tools":[{"name":"a","outputSchema":{"items":{"$ref":"#"}}},7],"ttlMs":-1,"nextCursor":null}`), byte(0))
	f.Add([]byte(`{"content":null,"structuredContent":[1.0],"resultType":"complete","_meta":7}`), byte(1))
	f.Fuzz(func(t *testing.T, raw []byte, which byte) {
		if wire.Valid(raw) != nil {
			return
		}
		method := fuzzMethods()[int(which)%len(fuzzMethods())]
		for _, source := range eras() {
			res, err := era.BackOf(source).Result(method, raw)
			if res.Source != source || err != nil && res.Kind != era.InputRequired {
				t.Fatalf("Result = %+v, %v", res, err)
			}
			res.ServerInfo = []byte(`{"name":"s","version":"1"}`)
			for _, client := range eras() {
				req := request(client, method, `{"name":"a"}`)
				got := era.FrontOf(client).Result(req, res, era.Shapes{"a": true})
				mustStayJSON(t, got)
				switch {
				case client == source && !res.Untyped:
					untouched(t, raw, got, "ttlMs")
				case client == era.Modern:
					untouched(t, raw, got, "resultType", "ttlMs", "cacheScope", "content", "nextCursor", "_meta")
				case res.Kind == era.Complete:
					untouched(t, raw, got, "resultType", "ttlMs", "cacheScope", "content", "structuredContent", "tools", "_meta")
				}
			}
		}
		_, _ = era.MergeTools(raw, nil)
		_ = era.ToolHeaders(raw)
		for _, e := range eras() {
			if facts, err := era.BackOf(e).ParseHandshake(raw); err == nil {
				for _, c := range eras() {
					mustStayJSON(t, era.FrontOf(c).Handshake(facts, "2025-11-25"))
				}
			}
		}
	})
}

// FuzzRequest: the same for what goes to backends, and for notifications in both directions.
func FuzzRequest(f *testing.F) {
	for i, m := range seedMessages(f, wire.Request, wire.Notification) {
		if m.Params != nil {
			f.Add(m.Params, byte(i), int64(i))
		}
	}
	f.Add([]byte(`{"_meta":{"progressToken":1e400,"progressToken":2},"task":7,"requestState":null}`), byte(1), int64(0))
	f.Fuzz(func(t *testing.T, params []byte, which byte, token int64) {
		if wire.Valid(params) != nil {
			return
		}
		method := fuzzMethods()[int(which)%len(fuzzMethods())]
		for _, client := range eras() {
			req := request(client, method, string(params))
			for _, backend := range eras() {
				back := era.BackOf(backend)
				if back.Refusal(req) != nil {
					continue
				}
				out := back.Request(req, token)
				mustStayJSON(t, out)
				if out != nil {
					untouched(t, params, out, "_meta", "inputResponses", "requestState", "task")
				}
				mustStayJSON(t, back.Retry(req, token, []era.KeyedResult{{Key: "\"", Result: []byte("{}")}}, []byte(`"s"`)))
				note, ok := back.Notification(client, "vendor/n", params)
				if !ok {
					t.Fatal("an unknown notification is dropped")
				}
				mustStayJSON(t, note)
				note, ok = era.FrontOf(client).Notification(backend, "vendor/n", params, `"listen:0"`)
				if !ok {
					t.Fatal("an unknown notification is dropped")
				}
				mustStayJSON(t, note)
				untouchedUnlessEmpty(t, params, note)
			}
		}
		in := era.Input{Key: "\\", Method: "elicitation/create", Params: params}
		mustStayJSON(t, era.FrontOf(era.Modern).InputRequired([]era.Input{in}, "s"))
		mustStayJSON(t, era.FrontOf(era.Legacy).Ask(in, "e"))
		mustStayJSON(t, era.Union([]era.Peer{{Capabilities: params}, modernPeer()}))
		_ = era.Peer{Era: era.Modern, Capabilities: params}.Can("elicitation/create", params)
		_ = era.Binding(method, params)
		if filter, e := era.ParseFilter(params); e == nil {
			mustStayJSON(t, filter.Bytes())
		}
		era.URLElicitations(&wire.Error{Code: era.CodeURLElicitation, Data: params})
	})
}

func untouchedUnlessEmpty(t *testing.T, before, after []byte) {
	t.Helper()
	if after != nil {
		untouched(t, before, after, "_meta")
	}
}
