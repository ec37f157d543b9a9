package era_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

func TestParseFilter(t *testing.T) {
	for name, params := range map[string]string{
		"no params":         ``,
		"no notifications":  `{}`,
		"null":              `{"notifications":null}`,
		"array":             `{"notifications":[]}`,
		"flag a string":     `{"notifications":{"toolsListChanged":"true"}}`,
		"flag null":         `{"notifications":{"promptsListChanged":null}}`,
		"uris a string":     `{"notifications":{"resourceSubscriptions":"a:b"}}`,
		"uris with numbers": `{"notifications":{"resourceSubscriptions":["a:b",1]}}`,
	} {
		if f, e := era.ParseFilter([]byte(params)); e == nil || e.Code != -32602 {
			t.Errorf("%s: ParseFilter = %+v, %v; want -32602", name, f, e)
		}
	}
	f, e := era.ParseFilter([]byte(`{"notifications":{}}`))
	if e != nil || !f.Empty() || string(f.Bytes()) != "{}" {
		t.Errorf("an empty filter = %+v, %v", f, e)
	}
}

func TestFilterHonoured(t *testing.T) {
	asked, e := era.ParseFilter([]byte(`{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,` +
		`"resourceSubscriptions":["a:b"],"taskIds":["t"]}}`))
	if e != nil {
		t.Fatal(e)
	}
	facts := func(e era.Era, caps string) era.Facts { return era.Facts{Era: e, Capabilities: []byte(caps)} }
	for name, tt := range map[string]struct {
		facts era.Facts
		want  string
	}{
		"superset":  {era.Superset(), `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:b"]}`},
		"nothing":   {facts(era.Legacy, `{}`), `{"toolsListChanged":true}`},
		"resources": {facts(era.Legacy, `{"resources":{}}`), `{"toolsListChanged":true,"resourcesListChanged":true}`},
		"modern":    {facts(era.Modern, `{"prompts":{}}`), `{"toolsListChanged":true,"promptsListChanged":true,"taskIds":["t"]}`},
	} {
		if got := string(asked.Honoured(tt.facts).Bytes()); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if !(era.Filter{}).Honoured(era.Superset()).Empty() {
		t.Error("more is honoured than was asked for")
	}
}

func TestFilterWants(t *testing.T) {
	f, e := era.ParseFilter([]byte(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["t"]}}`))
	if e != nil {
		t.Fatal(e)
	}
	for _, tt := range []struct {
		method, params string
		want           bool
	}{
		{"notifications/tools/list_changed", ``, true},
		{"notifications/prompts/list_changed", ``, false},
		{"notifications/resources/list_changed", ``, false},
		{"notifications/resources/updated", `{"uri":"file:///a"}`, true},
		{"notifications/resources/updated", `{"uri":"file:///a/b"}`, true},
		{"notifications/resources/updated", `{"uri":"file:///ab"}`, false},
		{"notifications/resources/updated", `{}`, false},
		{"notifications/tasks", `{"taskId":"t"}`, true},
		{"notifications/tasks", `{"taskId":"u"}`, false},
		{"notifications/message", `{}`, false},
	} {
		if got := f.Wants(tt.method, []byte(tt.params)); got != tt.want {
			t.Errorf("Wants(%s %s) = %v", tt.method, tt.params, got)
		}
	}
	if (era.Filter{}).Wants("notifications/tasks", []byte(`{"taskId":"t"}`)) {
		t.Error("an empty filter wants something")
	}
	for _, tt := range []struct {
		subscribed, uri string
		want            bool
	}{
		{"a:b", "a:b", true}, {"a:b", "a:b?x", true}, {"a:b", "a:b#x", true}, {"a:b/", "a:b/c", true}, {"a:b", "a:bc", false}, {"a:b/c", "a:b", false}, {"", "a:b", false},
	} {
		if got := era.Covers(tt.subscribed, tt.uri); got != tt.want {
			t.Errorf("Covers(%q, %q) = %v", tt.subscribed, tt.uri, got)
		}
	}
}

func TestMergeTools(t *testing.T) {
	extra := [][]byte{[]byte(`{"name":"dev_logs","n":1.0}`), []byte(`{"name":"echo"}`)}
	for name, tt := range map[string]struct {
		in, want string
		fails    bool
	}{
		"last page":       {`{"a":1.0, "tools":[{"name":"echo","x":1e400}],"ttlMs":0}`, `{"a":1.0,"tools":[{"name":"echo","x":1e400},{"name":"dev_logs","n":1.0}],"ttlMs":0}`, false},
		"another page":    {`{"tools":[], "nextCursor":"2"}`, `{"tools":[], "nextCursor":"2"}`, false},
		"null cursor":     {`{"tools":[],"nextCursor":null}`, `{"tools":[{"name":"dev_logs","n":1.0},{"name":"echo"}],"nextCursor":null}`, false},
		"empty cursor":    {`{"tools":[],"nextCursor":""}`, `{"tools":[{"name":"dev_logs","n":1.0},{"name":"echo"}],"nextCursor":""}`, false},
		"no tools":        {`{}`, `{"tools":[{"name":"dev_logs","n":1.0},{"name":"echo"}]}`, false},
		"nothing to add":  {`{"tools":[ {"name":"echo"}, {"name":"dev_logs"} ]}`, `{"tools":[ {"name":"echo"}, {"name":"dev_logs"} ]}`, false},
		"tools no array":  {`{"tools":{}}`, ``, true},
		"no object":       {`[]`, ``, true},
		"cursor a number": {`{"tools":[],"nextCursor":0}`, `{"tools":[],"nextCursor":0}`, false},
	} {
		got, err := era.MergeTools([]byte(tt.in), extra)
		if string(got) != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tt.want)
		}
	}
	names := era.ToolNames([]byte(`{"tools":[{"name":"a"},{"name":7},7,{"name":"\u0062"}]}`))
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Error(diff)
	}
	for _, e := range eras() {
		empty, _ := era.FrontOf(e).Empty("tools/list")
		merged, err := era.MergeTools(empty, [][]byte{[]byte(`{"name":"dev_logs","inputSchema":{"type":"object"}}`)})
		if err != nil {
			t.Fatal(err)
		}
		mustBeResult(t, e, "tools/list", merged)
	}
}

func TestLevels(t *testing.T) {
	for _, tt := range []struct {
		threshold, level string
		want             bool
	}{
		{"debug", "debug", true}, {"info", "debug", false}, {"warning", "emergency", true}, {"emergency", "alert", false},
		{"", "emergency", false}, {"debug", "loud", false}, {"loud", "error", false},
	} {
		if got := era.Admits(tt.threshold, tt.level); got != tt.want {
			t.Errorf("Admits(%q, %q) = %v", tt.threshold, tt.level, got)
		}
	}
	for _, tt := range []struct{ a, b, want string }{
		{"info", "error", "info"}, {"error", "info", "info"}, {"", "error", "error"}, {"error", "", "error"}, {"", "", ""}, {"loud", "", ""}, {"error", "error", "error"},
	} {
		if got := era.Lowest(tt.a, tt.b); got != tt.want {
			t.Errorf("Lowest(%q, %q) = %q", tt.a, tt.b, got)
		}
	}
	for _, level := range era.Levels() {
		if got, e := era.ParseSetLevel([]byte(`{"level":"` + level + `"}`)); e != nil || got != level {
			t.Errorf("ParseSetLevel(%s) = %q, %v", level, got, e)
		}
	}
	for _, params := range []string{``, `{}`, `{"level":7}`, `{"level":"loud"}`} {
		if got, e := era.ParseSetLevel([]byte(params)); e == nil || e.Code != -32602 {
			t.Errorf("ParseSetLevel(%s) = %q, %v", params, got, e)
		}
	}
}

func TestParamHelpers(t *testing.T) {
	progress := []byte(`{"progress":1.0,"progressToken":7,"x":1e400}`)
	if got := string(era.ProgressToken(progress)); got != "7" {
		t.Errorf("ProgressToken = %s", got)
	}
	if got := string(era.WithProgressToken(progress, []byte(`"mine"`))); got != `{"progress":1.0,"progressToken":"mine","x":1e400}` {
		t.Errorf("WithProgressToken = %s", got)
	}
	cancelled := []byte(`{"reason":"w\u0068y","requestId":9007199254740993}`)
	if got := era.CancelledID(cancelled); got != "9007199254740993" {
		t.Errorf("CancelledID = %s", got)
	}
	if got := string(era.WithRequestID(cancelled, `"p7"`)); got != `{"reason":"w\u0068y","requestId":"p7"}` {
		t.Errorf("WithRequestID = %s", got)
	}
	if got := string(era.CancelReason(cancelled)); got != `"w\u0068y"` {
		t.Errorf("CancelReason = %s", got)
	}
	if got := era.CancelledID([]byte(`{"requestId":null}`)) + era.CancelledID(nil) + era.CancelledID([]byte(`[]`)); got != "" {
		t.Errorf("CancelledID of nothing = %s", got)
	}
	if got := era.TokenOf([]byte(`{"_meta":{"progressToken":null}}`)); got != nil {
		t.Errorf("TokenOf null = %s", got)
	}
	if got := era.LevelOf([]byte(`{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}`)); got != "info" {
		t.Errorf("LevelOf = %s", got)
	}
	if got := era.MessageLevel([]byte(`{"level":"info","data":1}`)); got != "info" {
		t.Errorf("MessageLevel = %s", got)
	}
	if uri, ok := era.URIOf([]byte(`{"uri":"a:\u0062"}`)); !ok || uri != "a:b" {
		t.Errorf("URIOf = %s, %v", uri, ok)
	}
	if got := era.ElicitationID([]byte(`{"elicitationId":"e"}`)); got != "e" {
		t.Errorf("ElicitationID = %s", got)
	}

	retry := []byte(`{"name":"x","inputResponses":{"b":{"n":1.0},"a":{}},"requestState":"s"}`)
	responses, ok := era.InputResponses(retry)
	want := []era.KeyedResult{{Key: "b", Result: []byte(`{"n":1.0}`)}, {Key: "a", Result: []byte(`{}`)}}
	if diff := cmp.Diff(want, responses); diff != "" || !ok {
		t.Errorf("InputResponses, %v (-want +got):\n%s", ok, diff)
	}
	if era.RequestState(retry) != "s" || era.RequestState([]byte(`{"requestState":7}`)) != "" {
		t.Error("RequestState is wrong")
	}
	for _, params := range []string{``, `{}`, `{"inputResponses":[]}`, `{"inputResponses":{}}`} {
		if got, ok := era.InputResponses([]byte(params)); ok {
			t.Errorf("InputResponses(%s) = %v", params, got)
		}
	}
}

func TestBinding(t *testing.T) {
	binding := func(method, params string) [32]byte { return era.Binding(method, []byte(params)) }
	base := binding("tools/call", `{"name":"x","arguments":{"a":[1.0,{"c":"é","b":null}],"d":1}}`)
	for _, same := range []string{
		`{"arguments":{"d":1,"a":[1.0,{"b":null,"c":"\u00e9"}]},"name":"x"}`,
		` { "name" : "x", "arguments" : {"a":[ 1.0 ,{"c":"é","b":null}],"d":1} , "_meta":{"progressToken":1}, "inputResponses":{"i":{}}, "requestState":"s" } `,
	} {
		if binding("tools/call", same) != base {
			t.Errorf("another binding: %s", same)
		}
	}
	for _, other := range []string{
		`{"name":"y","arguments":{"a":[1.0,{"c":"é","b":null}],"d":1}}`,
		`{"name":"x","arguments":{"a":[1,{"c":"é","b":null}],"d":1}}`,
		`{"name":"x","arguments":{"a":[{"c":"é","b":null},1.0],"d":1}}`,
		`{"name":"x","arguments":{"a":[1.0,{"c":"é","b":"null"}],"d":1}}`,
		`{"name":"x"}`, ``,
	} {
		if binding("tools/call", other) == base {
			t.Errorf("the same binding: %s", other)
		}
	}
	if binding("prompts/get", `{}`) == binding("tools/call", `{}`) {
		t.Error("the method is not bound")
	}
	deep := strings.Repeat(`{"p":`, wire.MaxNesting-1) + `1` + strings.Repeat(`}`, wire.MaxNesting-1)
	if other := deep[len(`{"p":`) : len(deep)-1]; binding("tools/call", deep) == binding("tools/call", other) {
		t.Error("params are not bound where they are deep")
	}
}

func TestNameHeader(t *testing.T) {
	for _, tt := range []struct {
		method, params, want string
		ok                   bool
	}{
		{"tools/call", `{"name":"\u00fcn\u00ef"}`, "ünï", true},
		{"prompts/get", `{"name":"p"}`, "p", true},
		{"resources/read", `{"uri":"a:b"}`, "a:b", true},
		{"tasks/get", `{"taskId":"t"}`, "t", true},
		{"tasks/update", `{"taskId":"t"}`, "t", true},
		{"tasks/cancel", `{"taskId":"t"}`, "t", true},
		{"tools/call", `{}`, "", false},
		{"tools/list", `{"name":"x"}`, "", false},
	} {
		if got, ok := era.NameHeader(tt.method, []byte(tt.params)); got != tt.want || ok != tt.ok {
			t.Errorf("NameHeader(%s %s) = %q, %v", tt.method, tt.params, got, ok)
		}
	}
	for value, want := range map[string]string{
		"plain": "plain", "a b\tc": "a b\tc", "": "", " a": "=?base64?IGE=?=", "a\t": "=?base64?YQk=?=", "ünï": "=?base64?w7xuw68=?=",
		"a\r\nb": "=?base64?YQ0KYg==?=", "=?base64?YQ==?=": "=?base64?PT9iYXNlNjQ/WVE9PT89?=", "=?base64?": "=?base64?", "\x7f": "=?base64?fw==?=",
	} {
		got, changed := era.EncodeHeader(value)
		if got != want || changed != (want != value) {
			t.Errorf("EncodeHeader(%q) = %q, %v; want %q", value, got, changed, want)
		}
	}
	for value, want := range map[string]bool{"ünï": true, "a\rb": false, "a\nb": false, "a\x00": false} {
		if era.RawHeader(value) != want {
			t.Errorf("RawHeader(%q) = %v", value, !want)
		}
	}
}

func TestParamHeaders(t *testing.T) {
	list := `{"tools":[{"name":"plain","inputSchema":{"type":"object"}},{"name":"marked","inputSchema":{"type":"object","properties":{` +
		`"region":{"type":"string","x-mcp-header":"Region"},` +
		`"again":{"type":"string","x-mcp-header":"REGION"},` +
		`"limit":{"type":"integer","x-mcp-header":"Limit"},` +
		`"dry":{"type":"boolean","x-mcp-header":"Dry"},` +
		`"ratio":{"type":"number","x-mcp-header":"Ratio"},` +
		`"opts":{"type":"object","x-mcp-header":"Opts","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}},` +
		`"list":{"type":"array","items":{"properties":{"no":{"type":"string","x-mcp-header":"No"}}}},` +
		`"bad":{"type":"string","x-mcp-header":"a\r\nb"},"empty":{"type":"string","x-mcp-header":""},"num":{"type":"string","x-mcp-header":7}}}}]}`
	headers := era.ToolHeaders([]byte(list))
	want := map[string][]era.ParamHeader{
		"plain": nil,
		"marked": {
			{Name: "Mcp-Param-Region", Path: []string{"region"}},
			{Name: "Mcp-Param-Limit", Path: []string{"limit"}},
			{Name: "Mcp-Param-Dry", Path: []string{"dry"}},
			{Name: "Mcp-Param-Ratio", Path: []string{"ratio"}},
			{Name: "Mcp-Param-Deep", Path: []string{"opts", "deep"}},
		},
	}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Fatalf("ToolHeaders (-want +got):\n%s", diff)
	}
	values := func(params string) map[string]string {
		got := map[string]string{}
		for _, h := range headers["marked"] {
			if v, ok := h.Value([]byte(params)); ok {
				got[h.Name] = v
			}
		}
		return got
	}
	got := values(`{"name":"marked","arguments":{"region":"\u00e9u","limit":42.0,"dry":false,"ratio":0.50,"opts":{"deep":""}}}`)
	wantValues := map[string]string{"Mcp-Param-Region": "éu", "Mcp-Param-Limit": "42", "Mcp-Param-Dry": "false", "Mcp-Param-Ratio": "0.50", "Mcp-Param-Deep": ""}
	if diff := cmp.Diff(wantValues, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	for _, params := range []string{`{}`, `{"arguments":[]}`, `{"arguments":{"region":null,"limit":[1],"dry":{},"opts":7}}`} {
		if got := values(params); len(got) != 0 {
			t.Errorf("values of %s = %v", params, got)
		}
	}
}

// TestParamHeadersDepth: a schema may nest as deep as JSON does, the search for headers may not.
func TestParamHeadersDepth(t *testing.T) {
	schema := `{"type":"string","x-mcp-header":"Deep"}`
	for range 100 {
		schema = `{"properties":{"p":` + schema + `}}`
	}
	if got := era.ParamHeaders([]byte(schema)); got != nil {
		t.Errorf("ParamHeaders = %v", got)
	}
}
