package era_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

func request(source era.Era, method, params string) era.Request {
	req := era.Request{Method: method, Source: source, Peer: legacyPeer()}
	if source == era.Modern {
		req.Peer = modernPeer()
	}
	if params != "" {
		req.Params = []byte(params)
		req.Token = era.TokenOf(req.Params)
	}
	return req
}

// strange is members that must survive anything, byte for byte.
const strange = `"big":12345678901234567890,"float":1.0,"huge":1e400,"esc":"\u0041\/<>&\ud800","dup":1,"dup":2,"x y":[ 1 ,null ]`

// TestResultToModern is A.5: what a modern client insists on, over a legacy backend.
func TestResultToModern(t *testing.T) {
	const server = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}`
	tests := map[string]struct{ method, in, want string }{
		"tool":         {"tools/call", `{"content":[{"type":"text","text":"a"}]}`, `{"content":[{"type":"text","text":"a"}],"resultType":"complete",` + server + `}`},
		"tool failed":  {"tools/call", `{"content":[],"isError":true}`, `{"content":[],"isError":true,"resultType":"complete",` + server + `}`},
		"no content":   {"tools/call", `{}`, `{"resultType":"complete","content":[],` + server + `}`},
		"null content": {"tools/call", `{"content":null,"a":1}`, `{"content":[],"a":1,"resultType":"complete",` + server + `}`},
		"result type of another era": {
			"tools/call", `{"resultType":"task","content":[]}`, `{"resultType":"complete","content":[],` + server + `}`,
		},
		"list": {"tools/list", `{"tools":[]}`, `{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private",` + server + `}`},
		"list that claims to last": {
			"prompts/list", `{"ttlMs":60000,"cacheScope":"public","prompts":[]}`,
			`{"ttlMs":0,"cacheScope":"public","prompts":[],"resultType":"complete",` + server + `}`,
		},
		"null cursor": {
			"resources/list", `{"nextCursor":null,"resources":[]}`,
			`{"resources":[],"resultType":"complete","ttlMs":0,"cacheScope":"private",` + server + `}`,
		},
		"empty cursor": {
			"resources/templates/list", `{"resourceTemplates":[],"nextCursor":""}`,
			`{"resourceTemplates":[],"nextCursor":"","resultType":"complete","ttlMs":0,"cacheScope":"private",` + server + `}`,
		},
		"read": {
			"resources/read", `{"contents":[],"ttlMs":60000}`,
			`{"contents":[],"ttlMs":60000,"resultType":"complete","cacheScope":"private",` + server + `}`,
		},
		"read, broken hints": {
			"resources/read", `{"contents":[],"ttlMs":1.5,"cacheScope":"mine"}`,
			`{"contents":[],"ttlMs":0,"cacheScope":"private","resultType":"complete",` + server + `}`,
		},
		"read, negative": {
			"resources/read", `{"contents":[],"ttlMs":-1,"cacheScope":7}`,
			`{"contents":[],"ttlMs":0,"cacheScope":"private","resultType":"complete",` + server + `}`,
		},
		"completion": {"completion/complete", `{"completion":{"values":[]}}`, `{"completion":{"values":[]},"resultType":"complete",` + server + `}`},
		"unknown method": {
			"vendor/x", `{` + strange + `,"ttlMs":-1}`, `{` + strange + `,"ttlMs":-1,"resultType":"complete",` + server + `}`,
		},
		"its own meta": {
			"vendor/x", `{"_meta":{"a":1.0,"io.modelcontextprotocol/serverInfo":7},"b":1}`,
			`{"_meta":{"a":1.0,"io.modelcontextprotocol/serverInfo":7},"b":1,"resultType":"complete"}`,
		},
		"no object": {"vendor/x", `[1, 2]`, `[1, 2]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			res, err := era.BackOf(era.Legacy).Result(tt.method, []byte(tt.in))
			if err != nil || res.Kind != era.Complete || res.Source != era.Legacy {
				t.Fatalf("Result = %+v, %v", res, err)
			}
			res.ServerInfo = []byte(`{"name":"s","version":"2"}`)
			got := era.FrontOf(era.Modern).Result(request(era.Modern, tt.method, `{}`), res, nil)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if tt.in[0] == '{' && name != "its own meta" {
				mustBeResult(t, era.Modern, tt.method, got)
			}
		})
	}
}

// TestResultToLegacy is A.6: what a legacy client insists on, over a modern backend.
func TestResultToLegacy(t *testing.T) {
	const modern = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}`
	tests := map[string]struct {
		method, params, in, want string
		shapes                   era.Shapes // before
		after                    era.Shapes
	}{
		"tool": {method: "tools/call", in: `{"content":[],` + modern + `}`, want: `{"content":[]}`},
		"its own meta": {
			method: "tools/call", in: `{"_meta":{"a":1.0,"io.modelcontextprotocol/serverInfo":{}},"content":[],"resultType":"complete"}`,
			want: `{"_meta":{"a":1.0},"content":[]}`,
		},
		"list": {
			method: "prompts/list", in: `{"ttlMs":5,"prompts":[],"cacheScope":"public",` + modern + `}`, want: `{"prompts":[]}`,
		},
		"unknown method": {
			method: "vendor/x", in: `{` + strange + `,"ttlMs":5,"cacheScope":1,` + modern + `}`, want: `{` + strange + `,"ttlMs":5,"cacheScope":1}`,
		},
		"no object": {method: "vendor/x", in: `"a"`, want: `"a"`},

		"schemas": {
			method: "tools/list",
			in: `{"tools":[{"name":"obj","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},` +
				`{"name":"arr","inputSchema":{"type":"object"},"outputSchema":{"type":"array","n":1.0},"z":1e400},` +
				`{"name":"none","inputSchema":{"type":"object"}}],` + modern + `}`,
			want: `{"tools":[{"name":"obj","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},` +
				`{"name":"arr","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"result":{"type":"array","n":1.0}},` +
				`"required":["result"]},"z":1e400},{"name":"none","inputSchema":{"type":"object"}}]}`,
			shapes: era.Shapes{"obj": true, "other": true},
			after:  era.Shapes{"arr": true, "other": true},
		},
		"structured object": {
			method: "tools/call", params: `{"name":"obj"}`, in: `{"content":[],"structuredContent":{"a":1.0},` + modern + `}`,
			want: `{"content":[],"structuredContent":{"a":1.0}}`, shapes: era.Shapes{}, after: era.Shapes{},
		},
		"structured object of a wrapped tool": {
			method: "tools/call", params: `{"name":"any"}`, in: `{"content":[],"structuredContent":{"a":1.0},` + modern + `}`,
			want: `{"content":[],"structuredContent":{"result":{"a":1.0}}}`, shapes: era.Shapes{"any": true}, after: era.Shapes{"any": true},
		},
		"structured array": {
			method: "tools/call", params: `{"name":"arr"}`, in: `{"content":[{"type":"image","data":"","mimeType":"a/b"}],"structuredContent":[1.0, "<"],` + modern + `}`,
			want: `{"content":[{"type":"image","data":"","mimeType":"a/b"},{"type":"text","text":"[1.0,\"<\"]"}],"structuredContent":{"result":[1.0, "<"]}}`,
		},
		"structured null, no content": {
			method: "tools/call", params: `{"name":"arr"}`, in: `{"structuredContent":null,` + modern + `}`,
			want: `{"structuredContent":{"result":null},"content":[{"type":"text","text":"null"}]}`,
		},
		"structured string, has text": {
			method: "tools/call", params: `{"name":"arr"}`, in: `{"content":[{"type":"text","text":"t"}],"structuredContent":"s",` + modern + `}`,
			want: `{"content":[{"type":"text","text":"t"}],"structuredContent":{"result":"s"}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			res, err := era.BackOf(era.Modern).Result(tt.method, []byte(tt.in))
			if err != nil || res.Kind != era.Complete || res.Source != era.Modern {
				t.Fatalf("Result = %+v, %v", res, err)
			}
			got := era.FrontOf(era.Legacy).Result(request(era.Legacy, tt.method, tt.params), res, tt.shapes)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.after, tt.shapes); diff != "" {
				t.Errorf("shapes (-want +got):\n%s", diff)
			}
			if tt.in[0] == '{' {
				mustBeResult(t, era.Legacy, tt.method, got)
			}
		})
	}
}

func TestResultWithinAnEra(t *testing.T) {
	odd := ` { "tools" : null , ` + strange + `, "resultType":7, "ttlMs": 0, "_meta":[] } `
	for _, e := range eras() {
		for _, method := range []string{"tools/call", "tools/list", "resources/read", "vendor/x"} {
			for _, raw := range []string{odd, `[1]`, `null`, `{}`} {
				res := era.Result{Raw: []byte(raw), Source: e, ServerInfo: []byte(`{"name":"s","version":"2"}`)}
				got := era.FrontOf(e).Result(request(e, method, ``), res, era.Shapes{})
				if want := compactAround(raw); string(got) != raw && string(got) != want {
					t.Errorf("%s %s: %q became %q", e, method, raw, got)
				}
			}
		}
	}
}

// compactAround trims the blanks around a value, which are no part of it.
func compactAround(raw string) string {
	o, err := wire.ParseObject([]byte(raw))
	if err != nil {
		return raw
	}
	return string(o.Bytes())
}

// TestUntypedToModern: what a modern backend forgot to say of its results, a modern client gets all the same (B.3).
func TestUntypedToModern(t *testing.T) {
	for method, tt := range map[string][2]string{
		"tools/list":     {`{"tools":[]}`, `{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		"tools/call":     {`{"structuredContent":1.0}`, `{"structuredContent":1.0,"resultType":"complete","content":[]}`},
		"resources/read": {`{"contents":[],"resultType":null}`, `{"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		"vendor/x":       {`{"a":1.0}`, `{"a":1.0,"resultType":"complete"}`},
	} {
		res, err := era.BackOf(era.Modern).Result(method, []byte(tt[0]))
		if err != nil {
			t.Fatal(err)
		}
		got := era.FrontOf(era.Modern).Result(request(era.Modern, method, ``), res, nil)
		if string(got) != tt[1] {
			t.Errorf("%s: got %s, want %s", method, got, tt[1])
		}
		mustBeResult(t, era.Modern, method, got)
	}
}

// TestListsAreNotCached: a modern backend's own ttlMs is the one thing that changes within an era (DESIGN 8).
func TestListsAreNotCached(t *testing.T) {
	for method, want := range map[string]string{
		"tools/list":     `{"tools":[],"ttlMs":0,"cacheScope":"public","resultType":"complete"}`,
		"resources/read": `{"tools":[],"ttlMs":60000,"cacheScope":"public","resultType":"complete"}`,
	} {
		raw := `{"tools":[],"ttlMs":60000,"cacheScope":"public","resultType":"complete"}`
		got := era.FrontOf(era.Modern).Result(request(era.Modern, method, ``), era.Result{Raw: []byte(raw), Source: era.Modern}, nil)
		if string(got) != want {
			t.Errorf("%s: %s", method, got)
		}
	}
}

// TestIncompleteToLegacy: what a legacy client cannot be given becomes words, or what is left of it.
func TestIncompleteToLegacy(t *testing.T) {
	for name, raw := range map[string]string{
		"task":     `{"resultType":"task","taskId":"t","status":"working"}`,
		"question": `{"resultType":"input_required","content":null,"requestState":"s","inputRequests":{"a":{"method":"roots/list"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			res, err := era.BackOf(era.Modern).Result("tools/call", []byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			got := era.FrontOf(era.Legacy).Result(request(era.Legacy, "tools/call", `{"name":"x"}`), res, nil)
			mustBeResult(t, era.Legacy, "tools/call", got)
			if members(t, got)["isError"] != "true" {
				t.Errorf("the model is not told: %s", got)
			}
			got = era.FrontOf(era.Legacy).Result(request(era.Legacy, "vendor/x", ``), res, nil)
			for _, key := range []string{"resultType", "requestState", "inputRequests"} {
				if members(t, got)[key] != "" {
					t.Errorf("%s is left in %s", key, got)
				}
			}
		})
	}
}

// TestFailure is C.10.
func TestFailure(t *testing.T) {
	const data = `{"a":1.0}`
	tests := map[string]struct {
		client, source era.Era
		method         string
		code           int64
		want           int64
		data           string
	}{
		"LL missing resource":     {era.Legacy, era.Legacy, "resources/read", -32002, -32002, data},
		"LL url":                  {era.Legacy, era.Legacy, "tools/call", -32042, -32042, data},
		"LL its own meaning":      {era.Legacy, era.Legacy, "tools/call", -32021, -32021, data},
		"LL its own meaning, too": {era.Legacy, era.Legacy, "vendor/x", -32022, -32022, data},
		"LM missing capability":   {era.Legacy, era.Modern, "tools/call", -32021, 0, ""},
		"LM missing, no tool":     {era.Legacy, era.Modern, "prompts/get", -32021, -32603, data},
		"LM version":              {era.Legacy, era.Modern, "tools/call", -32022, -32603, data},
		"LM headers":              {era.Legacy, era.Modern, "tools/call", -32020, -32603, data},
		"LM code 0":               {era.Legacy, era.Modern, "tools/call", 0, 0, data},
		"LM invalid params":       {era.Legacy, era.Modern, "resources/read", -32602, -32602, data},
		"ML missing resource":     {era.Modern, era.Legacy, "resources/read", -32002, -32602, data},
		"MM missing resource":     {era.Modern, era.Modern, "resources/read", -32002, -32602, data},
		"ML url":                  {era.Modern, era.Legacy, "tools/call", -32042, -32021, `{"requiredCapabilities":{"elicitation":{"url":{}}}}`},
		"MM missing capability":   {era.Modern, era.Modern, "tools/call", -32021, -32021, data},
		"MM version":              {era.Modern, era.Modern, "tools/list", -32022, -32603, data},
		"MM headers":              {era.Modern, era.Modern, "tools/call", -32020, -32603, data},
		"ML any other":            {era.Modern, era.Legacy, "tools/call", 4242, 4242, data},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := &wire.Error{Code: tt.code, Message: "no <b>", Data: []byte(data)}
			result, e := era.FrontOf(tt.client).Failure(request(tt.client, tt.method, ``), tt.source, in)
			if tt.data == "" { // a result for the model
				if e != nil || members(t, result)["isError"] != "true" {
					t.Fatalf("Failure = %s, %v; want a result", result, e)
				}
				mustBeResult(t, tt.client, tt.method, result)
				return
			}
			if result != nil || e == nil || e.Code != tt.want || e.Message != "no <b>" || string(e.Data) != tt.data {
				t.Errorf("Failure = %s, %v with %s; want code %d with %s", result, e, e.Data, tt.want, tt.data)
			}
		})
	}
	e := &wire.Error{Code: -32021, Message: "m", Data: []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`)}
	mustSatisfy(t, era.ModernVersion, "MissingRequiredClientCapabilityError", wire.NewFailure("1", e).Bytes())
}

func TestOwnFailure(t *testing.T) {
	in := &wire.Error{Code: 1001, Message: "the backend crashed", Data: []byte(`{"reason":"crashed"}`)}
	for _, e := range eras() {
		front := era.FrontOf(e)
		result, err := front.OwnFailure(request(e, "tools/call", ``), in)
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		mustBeResult(t, e, "tools/call", result)
		got := members(t, result)
		if got["content"] != `[{"type":"text","text":"the backend crashed"}]` || got["isError"] != "true" ||
			got["_meta"] != `{"com.github.debugmcp.devproxy/failure":{"reason":"crashed"}}` {
			t.Errorf("%s: %s", e, result)
		}
		if result, err := front.OwnFailure(request(e, "resources/read", ``), in); result != nil || err != in {
			t.Errorf("%s: OwnFailure = %s, %v; want the error as it is", e, result, err)
		}
	}
}

func TestOwnResults(t *testing.T) {
	for _, e := range eras() {
		front := era.FrontOf(e)
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			empty, ok := front.Empty(method)
			if !ok {
				t.Errorf("%s: no empty result of %s", e, method)
			}
			mustBeResult(t, e, method, empty)
		}
		if empty, ok := front.Empty("tools/call"); ok {
			t.Errorf("%s: an empty tools/call: %s", e, empty)
		}
		mustSatisfy(t, newest(e), "EmptyResult", front.Ack())
		mustBeResult(t, e, "tools/call", front.ToolResult("a\n<b>", false, []byte(`{"s":1}`)))
		failed := front.ToolResult("a", true, nil)
		mustBeResult(t, e, "tools/call", failed)
		if members(t, failed)["isError"] != "true" {
			t.Errorf("%s: %s", e, failed)
		}
	}
	if got := string(era.FrontOf(era.Legacy).Ack()); got != "{}" {
		t.Errorf("a legacy acknowledgement is %s", got)
	}
}

func TestHandshake(t *testing.T) {
	modernFacts := era.Facts{
		Era: era.Modern, Version: "2026-07-28", Info: []byte(`{"name":"s","version":"2","title":"S"}`),
		Capabilities: []byte(`{"prompts":{},"x":{"y":1.0},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}`),
		Instructions: []byte(`"use \u0041"`),
		Raw: []byte(`{"vendor":1.0,"supportedVersions":["2026-07-28"],"capabilities":{},"cacheScope":"public","ttlMs":9,` +
			`"resultType":"complete","_meta":{"v":1}}`),
	}
	legacyFacts := era.Facts{
		Era: era.Legacy, Version: "2025-06-18", Info: []byte(`{"name":"s","version":"2"}`),
		Capabilities: []byte(`{"resources":{"subscribe":true,"listChanged":false},"tasks":{"list":{}},"experimental":{"e":{}}}`),
		Raw:          []byte(`{"vendor":1.0,"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{}}`),
	}
	nothing := era.Facts{Era: era.Modern}
	tests := map[string]struct {
		front era.Front
		facts era.Facts
		asked string
		want  string
	}{
		"legacy over modern": {
			era.FrontOf(era.Legacy), modernFacts, "2025-06-18",
			`{"protocolVersion":"2025-06-18","capabilities":{"prompts":{"listChanged":true},"x":{"y":1.0},"extensions":{"a/b":{}},` +
				`"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"2","title":"S"},"instructions":"use \u0041"}`,
		},
		"legacy over legacy": {
			era.FrontOf(era.Legacy), legacyFacts, "2026-07-28",
			`{"vendor":1.0,"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true,"listChanged":true},` +
				`"tasks":{"list":{}},"experimental":{"e":{}},"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"2"}}`,
		},
		"legacy over nothing": {
			era.FrontOf(era.Legacy), nothing, "2024-11-05",
			`{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"unknown","version":"0.0.0"}}`,
		},
		"modern over legacy": {
			era.FrontOf(era.Modern), legacyFacts, "",
			`{"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],` +
				`"capabilities":{"resources":{"subscribe":true,"listChanged":true},"experimental":{"e":{}},"tools":{"listChanged":true}},` +
				`"ttlMs":0,"resultType":"complete","cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}}`,
		},
		"modern over modern": {
			era.ModernOnly.Front(era.Modern), modernFacts, "",
			`{"vendor":1.0,"supportedVersions":["2026-07-28"],"capabilities":{"prompts":{"listChanged":true},"x":{"y":1.0},` +
				`"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}},"tools":{"listChanged":true}},"cacheScope":"public","ttlMs":0,` +
				`"resultType":"complete","_meta":{"v":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2","title":"S"}},` +
				`"instructions":"use \u0041"}`,
		},
		"modern over nothing": {
			era.LegacyOnly.Front(era.Modern), nothing, "",
			`{"supportedVersions":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{"listChanged":true}},` +
				`"ttlMs":0,"resultType":"complete","cacheScope":"private"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.front.Handshake(tt.facts, tt.asked)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			method := map[era.Era]string{era.Legacy: "initialize", era.Modern: "server/discover"}[tt.front.Era()]
			mustBeResult(t, tt.front.Era(), method, got)
		})
	}
	for _, e := range eras() {
		got := era.FrontOf(e).Handshake(era.Superset(), "2025-11-25")
		for _, capability := range []string{"tools", "resources", "prompts", "completions", "logging"} {
			if members(t, capabilitiesIn(got))[capability] == "" {
				t.Errorf("%s: the superset lacks %s: %s", e, capability, got)
			}
		}
	}
	for _, version := range era.LegacyVersions() {
		mustSatisfy(t, version, "InitializeResult", era.FrontOf(era.Legacy).Handshake(era.Superset(), version))
	}
}

// TestNotification is the second table of C.2.
func TestNotification(t *testing.T) {
	const (
		sub    = wire.ID("0")
		theirs = `"_meta":{"io.modelcontextprotocol/subscriptionId":"ours"}`
		mine   = `"_meta":{"io.modelcontextprotocol/subscriptionId":0}`
		drop   = "dropped"
	)
	tests := []struct {
		client, source era.Era
		method         string
		params         string // "" for none
		sub            wire.ID
		want           string
	}{
		{era.Legacy, era.Legacy, "notifications/tools/list_changed", ``, "", ``},
		{era.Legacy, era.Legacy, "notifications/cancelled", `{"requestId":1.0}`, "", `{"requestId":1.0}`},
		{era.Legacy, era.Legacy, "notifications/elicitation/complete", `{"elicitationId":"e"}`, "", `{"elicitationId":"e"}`},
		{era.Legacy, era.Legacy, "notifications/tasks/status", `{"taskId":"t"}`, "", `{"taskId":"t"}`},
		{era.Legacy, era.Legacy, "vendor/n", ` [1, 2]`, "", ` [1, 2]`},
		{era.Legacy, era.Modern, "notifications/tools/list_changed", `{` + theirs + `}`, "", ``},
		{era.Legacy, era.Modern, "notifications/resources/updated", `{"uri":"a:b",` + theirs + `}`, sub, `{"uri":"a:b"}`},
		{era.Legacy, era.Modern, "notifications/progress", `{"progressToken":1,"progress":1.0}`, "", `{"progressToken":1,"progress":1.0}`},
		{era.Legacy, era.Modern, "notifications/message", `{"level":"info","data":1e400}`, "", `{"level":"info","data":1e400}`},
		{era.Legacy, era.Modern, "vendor/n", `{"a":1.0,"_meta":{"k":1,"io.modelcontextprotocol/subscriptionId":"ours"}}`, "", `{"a":1.0,"_meta":{"k":1}}`},
		{era.Legacy, era.Modern, "vendor/n", `[1]`, "", `[1]`},
		{era.Legacy, era.Modern, "notifications/subscriptions/acknowledged", `{}`, "", drop},
		{era.Legacy, era.Modern, "notifications/cancelled", `{"requestId":1}`, "", drop},
		{era.Legacy, era.Modern, "notifications/tasks", `{"taskId":"t"}`, "", drop},
		{era.Modern, era.Legacy, "notifications/tools/list_changed", ``, sub, `{` + mine + `}`},
		{era.Modern, era.Legacy, "notifications/tools/list_changed", ``, "", drop},
		{era.Modern, era.Legacy, "notifications/prompts/list_changed", `{}`, `"listen:0"`, `{"_meta":{"io.modelcontextprotocol/subscriptionId":"listen:0"}}`},
		{era.Modern, era.Legacy, "notifications/resources/updated", `{"uri":"a:b"}`, sub, `{"uri":"a:b",` + mine + `}`},
		{era.Modern, era.Legacy, "notifications/resources/updated", `{"uri":"a:b"}`, "", drop},
		{era.Modern, era.Legacy, "notifications/message", `{"level":"info","data":1}`, "", `{"level":"info","data":1}`},
		{era.Modern, era.Legacy, "notifications/cancelled", `{"requestId":1}`, "", drop},
		{era.Modern, era.Legacy, "notifications/elicitation/complete", `{"elicitationId":"e"}`, "", drop},
		{era.Modern, era.Legacy, "notifications/tasks/status", `{"taskId":"t"}`, sub, drop},
		{era.Modern, era.Legacy, "notifications/tasks", `{"taskId":"t"}`, sub, drop},
		{era.Modern, era.Legacy, "vendor/n", `{"a":1.0}`, "", `{"a":1.0}`},
		{era.Modern, era.Modern, "notifications/resources/list_changed", `{` + theirs + `}`, sub, `{` + mine + `}`},
		{era.Modern, era.Modern, "notifications/tasks", `{"taskId":"t",` + theirs + `}`, sub, `{"taskId":"t",` + mine + `}`},
		{era.Modern, era.Modern, "notifications/tasks", `{"taskId":"t",` + theirs + `}`, "", drop},
		{era.Modern, era.Modern, "notifications/subscriptions/acknowledged", `{}`, sub, drop},
		{era.Modern, era.Modern, "vendor/n", `{"a":1.0,` + theirs + `}`, "", `{"a":1.0}`},
	}
	for _, tt := range tests {
		t.Run(tt.source.String()+" to "+tt.client.String()+" "+tt.method+" "+tt.params, func(t *testing.T) {
			var params []byte
			if tt.params != "" {
				params = []byte(tt.params)
			}
			out, ok := era.FrontOf(tt.client).Notification(tt.source, tt.method, params, tt.sub)
			got := string(out)
			if !ok {
				got = drop
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestListen(t *testing.T) {
	front := era.FrontOf(era.Modern)
	f, e := era.ParseFilter([]byte(`{"notifications":{"taskIds":["t"],"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a:b","a:b","c:d"]}}`))
	if e != nil {
		t.Fatal(e)
	}
	ack := front.ListenAck(`"listen:0"`, f)
	want := `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b","c:d"],"taskIds":["t"]},` +
		`"_meta":{"io.modelcontextprotocol/subscriptionId":"listen:0"}}`
	if string(ack) != want {
		t.Errorf("ListenAck = %s\nwant %s", ack, want)
	}
	mustBeNotification(t, era.Modern, "notifications/subscriptions/acknowledged", ack)
	if sub, back := era.ParseAck(ack); sub != `"listen:0"` || !cmp.Equal(f, back) {
		t.Errorf("ParseAck = %s, %+v", sub, back)
	}
	mustBeNotification(t, era.Modern, "notifications/subscriptions/acknowledged", front.ListenAck("0", era.Filter{}))
	end := front.ListenEnd("0")
	if want := `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":0}}`; string(end) != want {
		t.Errorf("ListenEnd = %s", end)
	}
	mustBeResult(t, era.Modern, "subscriptions/listen", end)

	legacy := era.FrontOf(era.Legacy)
	if legacy.ListenAck("0", f) != nil || legacy.ListenEnd("0") != nil || legacy.InputRequired(nil, "s") != nil {
		t.Error("the legacy era has shapes of the modern one")
	}
}

func TestInputRequired(t *testing.T) {
	inputs := []era.Input{
		{Key: "i1", Method: "elicitation/create", Params: []byte(`{"_meta":{"progressToken":0},"message":"m","requestedSchema":{"type":"object","properties":{}},"n":1.0}`)},
		{Key: "i2", Method: "elicitation/create", Params: []byte(`{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"e"}`)},
		{Key: "i3", Method: "roots/list"},
		{Key: "i4", Method: "roots/list", Params: []byte(`{"_meta":{"a":1}}`)},
		{Key: "i\"5", Method: "sampling/createMessage", Params: []byte(`{"messages":[],"maxTokens":5,"elicitationId":"kept"}`)},
	}
	got := era.FrontOf(era.Modern).InputRequired(inputs, "s<1>")
	want := `{"resultType":"input_required","inputRequests":{` +
		`"i1":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}},"n":1.0}},` +
		`"i2":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example/"}},` +
		`"i3":{"method":"roots/list","params":{}},"i4":{"method":"roots/list","params":{}},` +
		`"i\"5":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"elicitationId":"kept"}}},"requestState":"s<1>"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	mustSatisfy(t, era.ModernVersion, "InputRequiredResult", got)
	if era.FrontOf(era.Modern).Ask(inputs[0], "e") != nil {
		t.Error("a modern client would be sent a request")
	}
}

func TestAsk(t *testing.T) {
	front := era.FrontOf(era.Legacy)
	for _, tt := range []struct {
		in   era.Input
		want string
	}{
		{era.Input{Method: "roots/list"}, ``},
		{era.Input{Method: "elicitation/create", Params: []byte(`{"message":"m", "requestedSchema":{"type":"object","properties":{}}}`)}, `{"message":"m", "requestedSchema":{"type":"object","properties":{}}}`},
		{era.Input{Method: "elicitation/create", Params: []byte(`{"mode":"url","message":"m","url":"https://x.example/"}`)}, `{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"e-1"}`},
		{era.Input{Method: "sampling/createMessage", Params: []byte(`{"messages":[],"maxTokens":5,"mode":"url"}`)}, `{"messages":[],"maxTokens":5,"mode":"url"}`},
	} {
		got := front.Ask(tt.in, "e-1")
		if string(got) != tt.want {
			t.Errorf("Ask(%s) = %s, want %s", tt.in.Params, got, tt.want)
		}
		mustBeRequest(t, era.Legacy, tt.in.Method, got)
	}
}
