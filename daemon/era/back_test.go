package era_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// TestBackRequest is C.1 and C.4: the params that a backend gets.
func TestBackRequest(t *testing.T) {
	// What a legacy peer declares once it speaks in the modern era: no listChanged of roots, no tasks.
	const injected = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"l","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}`
	tests := map[string]struct {
		client, backend era.Era
		method, params  string // params "" for none
		level           string
		token           int64
		want            string
	}{
		"LL untouched": {era.Legacy, era.Legacy, "tools/call", ` {"name" : "x"} `, "debug", 0, ` {"name" : "x"} `},
		"LL none":      {era.Legacy, era.Legacy, "tools/list", ``, "", 0, ``},
		"LL array":     {era.Legacy, era.Legacy, "vendor/x", `[1]`, "", 0, `[1]`},
		"LL token": {
			era.Legacy, era.Legacy, "tools/call", `{"_meta":{"a":1.0,"progressToken":"mine"},"name":"x","task":{"ttl":1}}`, "", 7,
			`{"_meta":{"a":1.0,"progressToken":7},"name":"x","task":{"ttl":1}}`,
		},
		"LL token without one of ours": {
			era.Legacy, era.Legacy, "tools/call", `{"_meta":{"progressToken":5},"name":"x"}`, "", 0, `{"name":"x"}`,
		},
		"MM untouched": {
			era.Modern, era.Modern, "tools/call", `{"name":"x","_meta":{` + envelope + `},"inputResponses":{},"requestState":"s"}`, "", 0,
			`{"name":"x","_meta":{` + envelope + `},"inputResponses":{},"requestState":"s"}`,
		},
		"MM token": {
			era.Modern, era.Modern, "tools/call", `{"_meta":{"progressToken":5,` + envelope + `},"name":"x"}`, "", 9,
			`{"_meta":{"progressToken":9,` + envelope + `},"name":"x"}`,
		},
		"LM none": {era.Legacy, era.Modern, "tools/list", ``, "", 0, `{"_meta":{` + injected + `}}`},
		"LM level and token": {
			era.Legacy, era.Modern, "tools/call", `{"name":"x","arguments":{` + strange + `},"_meta":{"progressToken":5,"traceparent":"00-1"},"task":{"ttl":1}}`,
			"notice", 3, `{"name":"x","arguments":{` + strange + `},"_meta":{"progressToken":3,"traceparent":"00-1",` + injected +
				`,"io.modelcontextprotocol/logLevel":"notice"}}`,
		},
		"LM level asked for in the words of another era": {
			era.Legacy, era.Modern, "tools/call", `{"name":"x","_meta":{"io.modelcontextprotocol/logLevel":"loud"}}`, "", 0,
			`{"name":"x","_meta":{` + injected + `}}`,
		},
		"LM unknown method": {era.Legacy, era.Modern, "vendor/x", `{"task":1,"a":1.0}`, "", 0, `{"task":1,"a":1.0,"_meta":{` + injected + `}}`},
		"ML emptied":        {era.Modern, era.Legacy, "tools/list", `{"_meta":{` + envelope + `}}`, "", 0, ``},
		"ML foreign meta": {
			era.Modern, era.Legacy, "tools/call",
			`{"name":"x","_meta":{"traceparent":"00-1",` + envelope + `,"io.modelcontextprotocol/logLevel":"debug","progressToken":"t"}}`, "debug", 4,
			`{"name":"x","_meta":{"traceparent":"00-1","progressToken":4}}`,
		},
		"ML retry": {
			era.Modern, era.Legacy, "prompts/get", `{"name":"x","inputResponses":{"a":{}},"requestState":"s","task":1,"_meta":{` + envelope + `}}`, "", 0,
			`{"name":"x","task":1}`,
		},
		"ML tool": {
			era.Modern, era.Legacy, "tools/call", `{"name":"x","inputResponses":{"a":{}},"task":{},"_meta":{` + envelope + `}}`, "", 0, `{"name":"x"}`,
		},
		"ML unknown method": {
			era.Modern, era.Legacy, "vendor/x", `{` + strange + `,"requestState":"s","_meta":{` + envelope + `}}`, "", 0, `{` + strange + `,"requestState":"s"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req := request(tt.client, tt.method, tt.params)
			req.Level = tt.level
			back := era.BackOf(tt.backend)
			if e := back.Refusal(req); e != nil {
				t.Fatalf("Refusal = %v", e)
			}
			got := back.Request(req, tt.token)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if (got == nil) != (tt.want == "") {
				t.Errorf("params are %#v", got)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	for name, tt := range map[string]struct {
		client, backend era.Era
		method, params  string
		code            int64
	}{
		"LL tasks":       {era.Legacy, era.Legacy, "tasks/list", ``, 0},
		"MM tasks":       {era.Modern, era.Modern, "tasks/get", `{}`, 0},
		"LM tasks":       {era.Legacy, era.Modern, "tasks/list", ``, -32601},
		"ML tasks":       {era.Modern, era.Legacy, "tasks/update", `{}`, -32601},
		"LM array":       {era.Legacy, era.Modern, "vendor/x", `[1]`, -32602},
		"LM meta":        {era.Legacy, era.Modern, "vendor/x", `{"_meta":7}`, -32602},
		"LM null meta":   {era.Legacy, era.Modern, "vendor/x", `{"_meta":null}`, -32602},
		"LL meta":        {era.Legacy, era.Legacy, "vendor/x", `{"_meta":7}`, 0},
		"LM as it ought": {era.Legacy, era.Modern, "vendor/x", `{"_meta":{}}`, 0},
	} {
		var code int64
		if e := era.BackOf(tt.backend).Refusal(request(tt.client, tt.method, tt.params)); e != nil {
			code = e.Code
		}
		if code != tt.code {
			t.Errorf("%s: code %d, want %d", name, code, tt.code)
		}
	}
}

func TestRetry(t *testing.T) {
	req := request(era.Legacy, "tools/call", `{"name":"x","requestState":"old","_meta":{"progressToken":1}}`)
	responses := []era.KeyedResult{{Key: "a", Result: []byte(`{"action":"accept","content":{"n":1.0}}`)}, {Key: "b", Result: []byte(`{"roots":[]}`)}}
	back := era.BackOf(era.Modern)
	got := back.Retry(req, 8, responses, []byte(`"st\u0041te"`))
	mustBeRequest(t, era.Modern, "tools/call", got)
	have := members(t, got)
	if have["inputResponses"] != `{"a":{"action":"accept","content":{"n":1.0}},"b":{"roots":[]}}` || have["requestState"] != `"st\u0041te"` {
		t.Errorf("Retry = %s", got)
	}
	if token := era.TokenOf(got); string(token) != "8" {
		t.Errorf("token %s of %s", token, got)
	}
	if got := members(t, back.Retry(req, 0, nil, nil)); got["inputResponses"] != "" || got["requestState"] != "" {
		t.Errorf("Retry with nothing = %v", got)
	}
	// C.7.9: a legacy backend gets the original call again.
	modern := request(era.Modern, "tools/call", `{"name":"x","inputResponses":{"a":{}},"requestState":"s","_meta":{`+envelope+`}}`)
	if got := era.BackOf(era.Legacy).Retry(modern, 0, responses, nil); string(got) != `{"name":"x"}` {
		t.Errorf("Retry to a legacy backend = %s", got)
	}
}

func TestBackResult(t *testing.T) {
	input := func(key, method, params string) era.Input {
		in := era.Input{Key: key, Method: method}
		if params != "" {
			in.Params = []byte(params)
		}
		return in
	}
	tests := map[string]struct {
		backend era.Era
		raw     string
		kind    era.ResultKind
		inputs  []era.Input
		state   string
		fails   bool
	}{
		"legacy":          {era.Legacy, `{"resultType":"input_required"}`, era.Complete, nil, "", false},
		"legacy task":     {era.Legacy, `{"task":{}}`, era.Complete, nil, "", false},
		"complete":        {era.Modern, `{"resultType":"complete"}`, era.Complete, nil, "", false},
		"no type":         {era.Modern, `{}`, era.Complete, nil, "", false},
		"type a number":   {era.Modern, `{"resultType":1}`, era.Complete, nil, "", false},
		"no object":       {era.Modern, `[]`, era.Complete, nil, "", false},
		"task":            {era.Modern, `{"resultType":"task"}`, era.Task, nil, "", false},
		"state only":      {era.Modern, `{"resultType":"input_required","requestState":"s"}`, era.InputRequired, nil, `"s"`, false},
		"empty, state":    {era.Modern, `{"resultType":"input_required","requestState":"s","inputRequests":{}}`, era.InputRequired, nil, `"s"`, false},
		"nothing":         {era.Modern, `{"resultType":"input_required"}`, era.InputRequired, nil, "", true},
		"empty, no state": {era.Modern, `{"resultType":"input_required","inputRequests":{},"requestState":null}`, era.InputRequired, nil, "", true},
		"an array":        {era.Modern, `{"resultType":"input_required","inputRequests":[]}`, era.InputRequired, nil, "", true},
		"no method":       {era.Modern, `{"resultType":"input_required","inputRequests":{"a":{}}}`, era.InputRequired, nil, "", true},
		"go-sdk": {
			era.Modern, `{"content":null,"requestState":"st-1","resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"n":1.0}},"r":{"method":"roots/list","params":null}}}`,
			era.InputRequired, []era.Input{input("who", "elicitation/create", `{"n":1.0}`), input("r", "roots/list", "")}, `"st-1"`, false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			res, err := era.BackOf(tt.backend).Result("tools/call", []byte(tt.raw))
			if (err != nil) != tt.fails {
				t.Fatalf("err = %v", err)
			}
			if res.Kind != tt.kind || string(res.State) != tt.state || string(res.Raw) != tt.raw || res.Source != tt.backend ||
				res.Untyped != (name == "no type") {
				t.Errorf("Result = %+v", res)
			}
			if diff := cmp.Diff(tt.inputs, res.Inputs); diff != "" {
				t.Errorf("inputs (-want +got):\n%s", diff)
			}
		})
	}
	if !era.HasResultType([]byte(`{"resultType":"complete"}`)) || era.HasResultType([]byte(`{"tools":[]}`)) ||
		era.HasResultType([]byte(`{"resultType":null}`)) {
		t.Error("HasResultType is wrong")
	}
}

func TestHandshakeRequest(t *testing.T) {
	old := legacyPeer()
	old.Version = "2025-03-26"
	control := era.Peer{}
	modern := modernPeer()
	modern.Capabilities = []byte(`{"roots":{"listChanged":true},"extensions":{"a/b":{}},"elicitation":{},"x":{"y":1.0}}`)
	tests := map[string]struct {
		backend era.Era
		peer    era.Peer
		want    string
	}{
		"legacy to legacy": {
			era.Legacy, old, `{"protocolVersion":"2025-03-26","capabilities":` + string(old.Capabilities) + `,"clientInfo":{"name":"l","version":"1"}}`,
		},
		"modern to legacy": {
			era.Legacy, modern, `{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"elicitation":{},"x":{"y":1.0}},"clientInfo":{"name":"m","version":"1"}}`,
		},
		"nobody to legacy": {
			era.Legacy, control, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"unknown","version":"0.0.0"}}`,
		},
		"modern to modern": {
			era.Modern, modern, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"},` +
				`"io.modelcontextprotocol/clientCapabilities":` + string(modern.Capabilities) + `}}`,
		},
		"legacy to modern": {
			era.Modern, old, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"l","version":"1"},` +
				`"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"roots":{}}}}`,
		},
		"nobody to modern": {
			era.Modern, control, `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			method, params := era.BackOf(tt.backend).HandshakeRequest(tt.peer)
			if string(params) != tt.want {
				t.Errorf("got  %s\nwant %s", params, tt.want)
			}
			mustBeRequest(t, tt.backend, method, params)
		})
	}
	ready, ok := era.BackOf(era.Legacy).Ready()
	if !ok || string(ready.Bytes()) != `{"jsonrpc":"2.0","method":"notifications/initialized"}` {
		t.Errorf("Ready = %s, %v", ready.Bytes(), ok)
	}
	if _, ok := era.BackOf(era.Modern).Ready(); ok {
		t.Error("the modern handshake has an end")
	}
}

func TestParseHandshake(t *testing.T) {
	raw := `{"protocolVersion":"2024-10-07","capabilities":{"tools":{"a":1.0}},"serverInfo":{"name":"s"},"instructions":"i"}`
	got, err := era.BackOf(era.Legacy).ParseHandshake([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := era.Facts{
		Era: era.Legacy, Version: "2024-10-07", Eras: []era.Era{era.Legacy}, Versions: []string{"2024-10-07"},
		Capabilities: []byte(`{"tools":{"a":1.0}}`), Info: []byte(`{"name":"s"}`), Instructions: []byte(`"i"`), Raw: []byte(raw),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("legacy (-want +got):\n%s", diff)
	}

	raw = `{"supportedVersions":["2030-01-01","2026-07-28",7,"2025-11-25"],"capabilities":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"instructions":7}`
	got, err = era.BackOf(era.Modern).ParseHandshake([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	want = era.Facts{
		Era: era.Modern, Version: "2026-07-28", Eras: []era.Era{era.Modern, era.Legacy},
		Versions: []string{"2030-01-01", "2026-07-28", "2025-11-25"}, Info: []byte(`{"name":"s"}`), Raw: []byte(raw),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modern (-want +got):\n%s", diff)
	}

	for name, tt := range map[string]struct {
		backend era.Era
		raw     string
		version bool // whether it is about the version
		eras    []era.Era
	}{
		"initialize, modern version":   {era.Legacy, `{"protocolVersion":"2026-07-28"}`, true, []era.Era{era.Legacy}},
		"initialize, no version":       {era.Legacy, `{}`, false, nil},
		"initialize, no object":        {era.Legacy, `[]`, false, nil},
		"discover, legacy only":        {era.Modern, `{"supportedVersions":["2025-11-25"]}`, true, []era.Era{era.Legacy}},
		"discover, no versions":        {era.Modern, `{}`, true, nil},
		"discover, versions no array":  {era.Modern, `{"supportedVersions":"2026-07-28"}`, true, nil},
		"discover, no object":          {era.Modern, `null`, false, nil},
		"discover, only in the future": {era.Modern, `{"supportedVersions":["2030-01-01"]}`, true, nil},
	} {
		f, err := era.BackOf(tt.backend).ParseHandshake([]byte(tt.raw))
		if err == nil || errors.Is(err, era.ErrVersion) != tt.version || !cmp.Equal(f.Eras, tt.eras) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

// TestBackNotification is the first table of C.2.
func TestBackNotification(t *testing.T) {
	const drop = "dropped"
	for _, tt := range []struct {
		client, backend era.Era
		method, params  string
		want            string
	}{
		{era.Legacy, era.Legacy, "notifications/roots/list_changed", ``, ``},
		{era.Legacy, era.Legacy, "notifications/progress", `{"progressToken":0}`, `{"progressToken":0}`},
		{era.Legacy, era.Legacy, "notifications/initialized", ``, drop},
		{era.Legacy, era.Legacy, "notifications/cancelled", `{"requestId":1}`, drop},
		{era.Legacy, era.Legacy, "vendor/n", ` [1, 2]`, ` [1, 2]`},
		{era.Legacy, era.Modern, "notifications/roots/list_changed", ``, drop},
		{era.Legacy, era.Modern, "notifications/progress", `{"progressToken":0}`, drop},
		{era.Legacy, era.Modern, "notifications/initialized", ``, drop},
		{era.Legacy, era.Modern, "vendor/n", `{"a":1.0}`, `{"a":1.0}`},
		{era.Modern, era.Legacy, "notifications/roots/list_changed", ``, drop},
		{era.Modern, era.Legacy, "notifications/progress", `{"progressToken":0}`, drop},
		{era.Modern, era.Legacy, "notifications/initialized", ``, drop},
		{era.Modern, era.Legacy, "vendor/n", `{"_meta":{` + envelope + `}}`, ``},
		{era.Modern, era.Legacy, "vendor/n", `{"a":1.0,"_meta":{"k":1,` + envelope + `}}`, `{"a":1.0,"_meta":{"k":1}}`},
		{era.Modern, era.Modern, "notifications/roots/list_changed", ``, drop},
		{era.Modern, era.Modern, "notifications/progress", `{}`, drop},
		{era.Modern, era.Modern, "notifications/cancelled", `{}`, drop},
		{era.Modern, era.Modern, "vendor/n", `{"_meta":{` + envelope + `}}`, `{"_meta":{` + envelope + `}}`},
	} {
		var params []byte
		if tt.params != "" {
			params = []byte(tt.params)
		}
		out, ok := era.BackOf(tt.backend).Notification(tt.client, tt.method, params)
		got := string(out)
		if !ok {
			got = drop
		}
		if got != tt.want {
			t.Errorf("%s to %s: %s %s became %s, want %s", tt.client, tt.backend, tt.method, tt.params, got, tt.want)
		}
	}
}

func TestCalls(t *testing.T) {
	legacy, modern := era.BackOf(era.Legacy), era.BackOf(era.Modern)
	p := modernPeer()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":` + string(p.Capabilities) + `}`
	unsubscribe, ok := legacy.Unsubscribe("a:<b>")
	setLevel, ok2 := legacy.SetLevel("info")
	listen, ok3 := modern.Listen(p, era.Filter{Tools: true, Resources: true})
	if !ok || !ok2 || !ok3 {
		t.Error("a call of the era is missing")
	}
	for name, tt := range map[string]struct {
		e    era.Era
		call era.Call
		want era.Call
	}{
		"legacy subscribe":   {era.Legacy, legacy.Subscribe(p, "a:<b>"), era.Call{Method: "resources/subscribe", Params: []byte(`{"uri":"a:<b>"}`)}},
		"legacy unsubscribe": {era.Legacy, unsubscribe, era.Call{Method: "resources/unsubscribe", Params: []byte(`{"uri":"a:<b>"}`)}},
		"legacy level":       {era.Legacy, setLevel, era.Call{Method: "logging/setLevel", Params: []byte(`{"level":"info"}`)}},
		"modern subscribe": {era.Modern, modern.Subscribe(p, "a:<b>"), era.Call{
			Method: "subscriptions/listen", Params: []byte(`{"notifications":{"resourceSubscriptions":["a:<b>"]},` + meta + `}`), Open: true,
		}},
		"modern listen": {era.Modern, listen, era.Call{
			Method: "subscriptions/listen", Params: []byte(`{"notifications":{"toolsListChanged":true,"resourcesListChanged":true},` + meta + `}`), Open: true,
		}},
	} {
		if diff := cmp.Diff(tt.want, tt.call); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		mustBeRequest(t, tt.e, tt.call.Method, tt.call.Params)
	}
	if _, ok := legacy.Listen(p, era.Filter{Tools: true}); ok {
		t.Error("list changes of a legacy backend would be asked for")
	}
	if _, ok := modern.Unsubscribe("a:b"); ok {
		t.Error("a listen would be ended by a request")
	}
	if _, ok := modern.SetLevel("info"); ok {
		t.Error("the level of a modern backend would be set")
	}
	for _, e := range eras() {
		m := era.BackOf(e).Cancel(7, []byte(`"w\u0068y"`))
		if string(m.Bytes()) != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"w\u0068y"}}` {
			t.Errorf("Cancel = %s", m.Bytes())
		}
		for _, reason := range [][]byte{nil, []byte(`7`)} {
			m := era.BackOf(e).Cancel(7, reason)
			if string(m.Params) != `{"requestId":7}` {
				t.Errorf("Cancel with the reason %s = %s", reason, m.Params)
			}
			mustBeNotification(t, e, m.Method, m.Params)
		}
	}
}

func TestURLElicitations(t *testing.T) {
	// As the TypeScript server 1.32.2 sent it.
	e := &wire.Error{Code: -32042, Message: "MCP error -32042: URL elicitation required", Data: []byte(
		`{"elicitations":[{"mode":"url","message":"auth","url":"https://x.example/","elicitationId":"e-1"},{"url":"https://y.example/","v":1.0}]}`)}
	got := era.URLElicitations(e)
	want := []era.URLElicitation{
		{ID: "e-1", Params: []byte(`{"mode":"url","message":"auth","url":"https://x.example/","elicitationId":"e-1"}`)},
		{Params: []byte(`{"url":"https://y.example/","v":1.0,"mode":"url","message":"MCP error -32042: URL elicitation required"}`)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	asked := era.FrontOf(era.Modern).InputRequired([]era.Input{got[0].Input("u1"), got[1].Input("u2")}, "s")
	mustSatisfy(t, era.ModernVersion, "InputRequiredResult", asked)
	for _, bad := range []*wire.Error{
		nil,
		{Code: -32000, Data: e.Data},
		{Code: -32042},
		{Code: -32042, Data: []byte(`{"elicitations":{}}`)},
		{Code: -32042, Data: []byte(`{"elicitations":[7]}`)},
		{Code: -32042, Data: []byte(`{"elicitations":[{"message":"m"}]}`)},
	} {
		if got := era.URLElicitations(bad); got != nil {
			t.Errorf("URLElicitations(%v) = %v", bad, got)
		}
	}
}
