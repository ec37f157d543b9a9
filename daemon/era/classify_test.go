package era_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

func TestClassify(t *testing.T) {
	nothing := era.Session{}
	modern := era.Session{ModernSeen: true}
	legacy := era.Session{Initialized: true, Peer: legacyPeer(), Level: "warning"}
	both := era.Session{Initialized: true, ModernSeen: true, Peer: legacyPeer()}
	legacyFront, modernFront := era.Session{Front: era.LegacyOnly}, era.Session{Front: era.ModernOnly}

	const (
		meta      = `"_meta":{` + envelope + `}`
		needsMeta = "io.modelcontextprotocol/protocolVersion"
	)
	tests := map[string]struct {
		session era.Session
		method  string
		params  string // "" for none
		source  era.Era
		code    int64  // of the error, 0 for none
		data    string // of the error
	}{
		"modern request, first of all":     {nothing, "tools/list", `{` + meta + `}`, era.Modern, 0, ""},
		"modern request, after initialize": {legacy, "tools/list", `{` + meta + `}`, era.Modern, 0, ""},
		"unknown modern method":            {modern, "vendor/x", `{` + meta + `}`, era.Modern, 0, ""},
		"discover":                         {nothing, "server/discover", `{` + meta + `}`, era.Modern, 0, ""},
		"discover again":                   {modern, "server/discover", `{` + meta + `}`, era.Modern, 0, ""},
		"listen":                           {modern, "subscriptions/listen", `{` + meta + `}`, era.Modern, 0, ""},
		"future version": {
			nothing, "server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}}`,
			era.None, -32022, `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}`,
		},
		"legacy version in the envelope": {
			nothing, "server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientCapabilities":{}}}`,
			era.None, -32022, `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2025-11-25"}`,
		},
		"version a number": {
			nothing, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":20260728}}`, era.None, -32602,
			`{"envelope":{"key":"io.modelcontextprotocol/protocolVersion","problem":"not a string"}}`,
		},
		"no capabilities": {
			nothing, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`, era.None, -32602,
			`{"envelope":{"key":"io.modelcontextprotocol/clientCapabilities","problem":"missing"}}`,
		},
		"capabilities an array": {
			nothing, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}}`,
			era.None, -32602, `{"envelope":{"key":"io.modelcontextprotocol/clientCapabilities","problem":"not an object"}}`,
		},
		"unknown level": {
			nothing, "tools/list", `{"_meta":{` + envelope + `,"io.modelcontextprotocol/logLevel":"loud"}}`, era.None, -32602,
			`{"envelope":{"key":"io.modelcontextprotocol/logLevel","problem":"no known log level"}}`,
		},
		"modern initialize":  {nothing, "initialize", `{"protocolVersion":"2026-07-28",` + meta + `}`, era.None, -32601, ""},
		"modern ping":        {modern, "ping", `{` + meta + `}`, era.None, -32601, ""},
		"modern setLevel":    {modern, "logging/setLevel", `{"level":"info",` + meta + `}`, era.None, -32601, ""},
		"modern subscribe":   {modern, "resources/subscribe", `{"uri":"a:b",` + meta + `}`, era.None, -32601, ""},
		"modern unsubscribe": {modern, "resources/unsubscribe", `{"uri":"a:b",` + meta + `}`, era.None, -32601, ""},

		"initialize":                      {nothing, "initialize", `{"protocolVersion":"2025-06-18"}`, era.Legacy, 0, ""},
		"initialize after modern traffic": {modern, "initialize", `{"protocolVersion":"2025-06-18"}`, era.Legacy, 0, ""},
		"second initialize":               {legacy, "initialize", `{"protocolVersion":"2025-06-18"}`, era.None, -32600, ""},
		"initialize without a version":    {nothing, "initialize", `{}`, era.None, -32602, ""},
		"initialize without params":       {nothing, "initialize", ``, era.None, -32602, ""},

		"legacy request":               {legacy, "tools/list", ``, era.Legacy, 0, ""},
		"legacy request, both seen":    {both, "tools/call", `{"name":"x"}`, era.Legacy, 0, ""},
		"legacy request, array params": {legacy, "vendor/x", `[1]`, era.Legacy, 0, ""},
		"legacy setLevel":              {legacy, "logging/setLevel", `{"level":"info"}`, era.Legacy, 0, ""},
		"legacy tasks":                 {legacy, "tasks/list", ``, era.Legacy, 0, ""},
		"legacy discover":              {legacy, "server/discover", ``, era.None, -32601, ""},
		"legacy listen":                {legacy, "subscriptions/listen", `{"notifications":{}}`, era.None, -32601, ""},

		"ping, first of all":      {nothing, "ping", ``, era.Legacy, 0, ""},
		"ping, modern connection": {modern, "ping", `{}`, era.Legacy, 0, ""},
		"ping, legacy connection": {legacy, "ping", ``, era.Legacy, 0, ""},

		"nothing said yet":               {nothing, "tools/list", `{}`, era.None, -32600, ""},
		"nothing said yet, setLevel":     {nothing, "logging/setLevel", `{"level":"info"}`, era.None, -32600, ""},
		"bare discover":                  {nothing, "server/discover", `{}`, era.None, -32601, ""},
		"meta of another kind":           {nothing, "tools/list", `{"_meta":7}`, era.None, -32600, ""},
		"no envelope, modern connection": {modern, "tools/list", `{}`, era.None, -32602, `{"envelope":{"key":"` + needsMeta + `","problem":"missing"}}`},
		"bare discover, modern connection": {
			modern, "server/discover", `{}`, era.None, -32602, `{"envelope":{"key":"` + needsMeta + `","problem":"missing"}}`,
		},
		"bare setLevel, modern connection":  {modern, "logging/setLevel", `{"level":"info"}`, era.None, -32601, ""},
		"bare subscribe, modern connection": {modern, "resources/subscribe", `{"uri":"a:b"}`, era.None, -32601, ""},

		"legacy front: initialize": {legacyFront, "initialize", `{"protocolVersion":"2025-11-25"}`, era.Legacy, 0, ""},
		"legacy front: discover":   {legacyFront, "server/discover", `{` + meta + `}`, era.None, -32601, ""},
		"legacy front: modern request": {
			legacyFront, "tools/list", `{` + meta + `}`, era.None, -32022,
			`{"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2026-07-28"}`,
		},
		"modern front: discover": {modernFront, "server/discover", `{` + meta + `}`, era.Modern, 0, ""},
		"modern front: initialize": {
			modernFront, "initialize", `{"protocolVersion":"2025-11-25"}`, era.None, -32022,
			`{"supported":["2026-07-28"],"requested":"2025-11-25"}`,
		},
		"modern front: bare request": {modernFront, "tools/list", ``, era.None, -32602, `{"envelope":{"key":"` + needsMeta + `","problem":"missing"}}`},
		"modern front: bare ping":    {modernFront, "ping", ``, era.Legacy, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := wire.NewRequest("1", tt.method, nil)
			if tt.params != "" {
				m.Params = []byte(tt.params)
			}
			req, e := era.Classify(parse(t, string(m.Bytes())), tt.session)
			if tt.code != 0 {
				if e == nil || e.Code != tt.code || string(e.Data) != tt.data {
					t.Errorf("Classify = %+v, %v with data %s; want code %d with %s", req, e, e.Data, tt.code, tt.data)
				}
				if e != nil && e.Code == -32022 {
					mustSatisfy(t, era.ModernVersion, "UnsupportedProtocolVersionError", wire.NewFailure("1", e).Bytes())
				}
				return
			}
			if e != nil {
				t.Fatalf("Classify = %v", e)
			}
			if req.Source != tt.source || req.Method != tt.method || string(req.Params) != tt.params {
				t.Errorf("Classify = %+v, want era %s", req, tt.source)
			}
		})
	}
}

func TestClassifyFields(t *testing.T) {
	got, e := era.Classify(parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{`+envelope+
		`,"io.modelcontextprotocol/logLevel":"notice","progressToken":9007199254740993}}}`), era.Session{Level: "debug"})
	if e != nil {
		t.Fatal(e)
	}
	got.Params = nil
	want := era.Request{
		Method: "tools/call", Source: era.Modern, Level: "notice", Token: []byte("9007199254740993"),
		Peer: era.Peer{
			Era: era.Modern, Version: "2026-07-28",
			Info: []byte(`{"name":"m","version":"1"}`), Capabilities: []byte(`{"roots":{}}`),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modern (-want +got):\n%s", diff)
	}

	session := era.Session{Initialized: true, Peer: legacyPeer(), Level: "debug"}
	got, e = era.Classify(parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":null}}}`), session)
	if e != nil {
		t.Fatal(e)
	}
	got.Params = nil
	if diff := cmp.Diff(era.Request{Method: "tools/call", Source: era.Legacy, Level: "debug", Peer: legacyPeer()}, got); diff != "" {
		t.Errorf("legacy (-want +got):\n%s", diff)
	}

	got, e = era.Classify(parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28",`+
		`"capabilities":{"x":1},"clientInfo":[]}}`), era.Session{})
	if e != nil {
		t.Fatal(e)
	}
	wantPeer := era.Peer{Era: era.Legacy, Version: "2025-11-25", Capabilities: []byte(`{"x":1}`)}
	if diff := cmp.Diff(wantPeer, got.Peer); diff != "" {
		t.Errorf("initialize (-want +got):\n%s", diff)
	}
}

func TestClassifyNotifications(t *testing.T) {
	legacy := era.Session{Initialized: true, Peer: legacyPeer()}
	for name, tt := range map[string]struct {
		session era.Session
		params  string
		want    era.Era
	}{
		"nothing yet":                    {era.Session{}, `{}`, era.Legacy},
		"legacy":                         {legacy, `{}`, era.Legacy},
		"modern":                         {era.Session{ModernSeen: true}, `{}`, era.Modern},
		"envelope on a legacy session":   {legacy, `{"_meta":{` + envelope + `}}`, era.Modern},
		"broken envelope is no error":    {legacy, `{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}`, era.Modern},
		"both seen, without an envelope": {era.Session{Initialized: true, ModernSeen: true}, `{}`, era.Legacy},
	} {
		m := wire.NewNotification("notifications/cancelled", []byte(tt.params))
		if req, e := era.Classify(m, tt.session); e != nil || req.Source != tt.want {
			t.Errorf("%s: Classify = %s, %v; want %s", name, req.Source, e, tt.want)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]struct {
		e      era.Era
		spoken bool
	}{
		"2026-07-28": {era.Modern, true}, "2027-01-01": {era.Modern, false}, "2025-11-25": {era.Legacy, true},
		"2024-11-05": {era.Legacy, true}, "2024-10-07": {era.Legacy, false}, "2026-07-27": {era.Legacy, false},
		"": {era.None, false}, "DRAFT-2026-v1": {era.None, false}, "2026/07/28": {era.None, false}, "9": {era.None, false},
	} {
		if e, spoken := era.Of(version); e != want.e || spoken != want.spoken {
			t.Errorf("Of(%q) = %s, %v; want %s, %v", version, e, spoken, want.e, want.spoken)
		}
	}
	for asked, want := range map[string]string{
		"2025-11-25": "2025-11-25", "2024-11-05": "2024-11-05", "2026-07-28": "2025-11-25", "2099-01-01": "2025-11-25", "": "2025-11-25",
	} {
		if got := era.Negotiate(asked); got != want {
			t.Errorf("Negotiate(%q) = %q, want %q", asked, got, want)
		}
	}
	versions := []string{"2024-11-05", "2025-06-18", "2026-07-28", "2030-01-01", "x"}
	for e, want := range map[era.Era]string{era.Modern: "2026-07-28", era.Legacy: "2025-06-18"} {
		if got, ok := era.Mutual(versions, e); !ok || got != want {
			t.Errorf("Mutual(%s) = %q, %v; want %q", e, got, ok, want)
		}
	}
	if got, ok := era.Mutual([]string{"2030-01-01"}, era.Modern); ok {
		t.Errorf("Mutual of the future = %q", got)
	}
	for version, want := range map[string]bool{"2025-03-26": true, "2024-11-05": true, "2025-06-18": false, "2026-07-28": false, "": false} {
		if got := era.Batches(version); got != want {
			t.Errorf("Batches(%q) = %v", version, got)
		}
	}
	if era.Legacy.String() != "legacy" || era.Modern.String() != "modern" || era.None.String() != "none" {
		t.Error("the eras have other names")
	}
	if era.FrontOf(era.None) != nil || era.BackOf(era.None) != nil {
		t.Error("there is a codec for no era")
	}
	for _, e := range eras() {
		if era.FrontOf(e).Era() != e || era.BackOf(e).Era() != e {
			t.Errorf("the codecs of %s are of another era", e)
		}
	}
}

func TestSupportedVersions(t *testing.T) {
	e := &wire.Error{Code: -32022, Data: []byte(`{"supported":["2025-11-25",7,"2024-11-05"]}`)}
	if diff := cmp.Diff([]string{"2025-11-25", "2024-11-05"}, era.SupportedVersions(e)); diff != "" {
		t.Error(diff)
	}
	e.Code = -32000
	if got := append(era.SupportedVersions(e), era.SupportedVersions(nil)...); got != nil {
		t.Errorf("another error names %q", got)
	}
}
