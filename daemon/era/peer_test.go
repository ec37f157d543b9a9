package era_test

import (
	"errors"
	"testing"

	"github.com/debugmcp/devproxy/daemon/era"
)

func TestCan(t *testing.T) {
	const (
		all    = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}`
		form   = `{"message":"m","requestedSchema":{}}`
		url    = `{"mode":"url","url":"https://x.example/"}`
		tools  = `{"messages":[],"tools":[]}`
		choice = `{"messages":[],"toolChoice":{}}`
	)
	tests := map[string]struct {
		e              era.Era
		version        string
		caps           string
		method, params string
		missing        string
		code           int64
	}{
		"form":                    {era.Modern, "", all, "elicitation/create", form, "", 0},
		"form, by name":           {era.Modern, "", all, "elicitation/create", `{"mode":"form"}`, "", 0},
		"form, bare capability":   {era.Modern, "", `{"elicitation":{}}`, "elicitation/create", form, "", 0},
		"form, only url declared": {era.Modern, "", `{"elicitation":{"url":{}}}`, "elicitation/create", form, "elicitation.form", -32602},
		"url":                     {era.Modern, "", all, "elicitation/create", url, "", 0},
		"url, bare capability":    {era.Modern, "", `{"elicitation":{}}`, "elicitation/create", url, "elicitation.url", -32602},
		"unknown mode":            {era.Modern, "", all, "elicitation/create", `{"mode":"voice"}`, "elicitation.voice", -32602},
		"no elicitation":          {era.Modern, "", `{}`, "elicitation/create", form, "elicitation", -32601},
		"sampling":                {era.Modern, "", all, "sampling/createMessage", `{}`, "", 0},
		"sampling, tools":         {era.Modern, "", all, "sampling/createMessage", tools, "", 0},
		"sampling, no tools":      {era.Modern, "", `{"sampling":{}}`, "sampling/createMessage", tools, "sampling.tools", -32602},
		"sampling, no choice":     {era.Modern, "", `{"sampling":{}}`, "sampling/createMessage", choice, "sampling.tools", -32602},
		"no sampling":             {era.Modern, "", `{"sampling":null}`, "sampling/createMessage", `{}`, "sampling", -32601},
		"roots":                   {era.Modern, "", all, "roots/list", ``, "", 0},
		"no roots":                {era.Modern, "", ``, "roots/list", ``, "roots", -32601},
		"task of another era":     {era.Modern, "", `{"sampling":{},"tasks":{"requests":{"sampling":{"createMessage":{}}}}}`, "sampling/createMessage", `{"task":{}}`, "tasks.requests.sampling.createMessage", -32602},
		"ping":                    {era.Modern, "", `{}`, "ping", ``, "", 0},
		"unknown":                 {era.Modern, "", all, "vendor/ask", ``, "vendor/ask", -32601},
		"legacy unknown":          {era.Legacy, "2025-11-25", `{}`, "vendor/ask", ``, "", 0},
		"legacy form":             {era.Legacy, "2025-06-18", all, "elicitation/create", form, "", 0},
		"legacy form, too old":    {era.Legacy, "2025-03-26", all, "elicitation/create", form, "elicitation", -32601},
		"legacy url":              {era.Legacy, "2025-11-25", all, "elicitation/create", url, "", 0},
		"legacy url, too old":     {era.Legacy, "2025-06-18", all, "elicitation/create", url, "elicitation.url", -32602},
		"legacy tools, too old":   {era.Legacy, "2025-06-18", all, "sampling/createMessage", tools, "sampling.tools", -32602},
		"legacy sampling, old":    {era.Legacy, "2024-11-05", all, "sampling/createMessage", `{}`, "", 0},
		"legacy task":             {era.Legacy, "2025-11-25", `{"elicitation":{},"tasks":{"requests":{"elicitation":{"create":{}}}}}`, "elicitation/create", `{"task":{}}`, "", 0},
		"legacy task, undeclared": {era.Legacy, "2025-11-25", all, "elicitation/create", `{"task":{}}`, "tasks.requests.elicitation.create", -32602},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := era.Peer{Era: tt.e, Version: tt.version}
			if tt.caps != "" {
				p.Capabilities = []byte(tt.caps)
			}
			err := p.Can(tt.method, []byte(tt.params))
			if tt.missing == "" {
				if err != nil {
					t.Errorf("Can = %v", err)
				}
				return
			}
			missing, ok := errors.AsType[*era.MissingError](err)
			if !ok || missing.Capability != tt.missing || missing.Code != tt.code {
				t.Fatalf("Can = %+v, want %s with %d", err, tt.missing, tt.code)
			}
			if e := missing.Wire(); e.Code != tt.code || e.Message != err.Error() {
				t.Errorf("Wire = %v", e)
			}
		})
	}
}

func TestUnion(t *testing.T) {
	legacy, modern := legacyPeer(), modernPeer()
	tests := map[string]struct {
		peers []era.Peer
		want  string
	}{
		"nobody": {nil, `{}`},
		"one":    {[]era.Peer{legacy}, string(legacy.Capabilities)},
		"a modern client cannot tell of its roots": {
			[]era.Peer{modern}, `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}`,
		},
		"one of them can": {
			[]era.Peer{
				{Era: era.Modern, Capabilities: []byte(`{"roots":{"listChanged":true},"extensions":{"a/b":{}}}`)},
				{Era: era.Legacy, Capabilities: []byte(`{"roots":{"listChanged":false},"x":{"n":1.0}}`)},
				{Era: era.Legacy, Capabilities: []byte(`{"roots":{"listChanged":true},"x":{"n":2},"elicitation":{}}`)},
			}, `{"roots":{"listChanged":true},"x":{"n":1.0},"elicitation":{}}`,
		},
		"nonsense": {[]era.Peer{{Capabilities: []byte(`[]`)}, {Capabilities: nil}}, `{}`},
	}
	for name, tt := range tests {
		if got := string(era.Union(tt.peers)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestFactsHas(t *testing.T) {
	f := era.Facts{Capabilities: []byte(`{"tools":{},"resources":{"subscribe":true,"listChanged":false},"logging":null,"prompts":false}`)}
	for capability, want := range map[string]bool{
		"tools": true, "resources": true, "resources.subscribe": true, "resources.listChanged": false, "logging": false,
		"prompts": false, "tools.listChanged": false, "completions": false, "resources.subscribe.x": false,
	} {
		if f.Has(capability) != want {
			t.Errorf("Has(%q) = %v", capability, !want)
		}
	}
	if (era.Facts{}).Has("tools") {
		t.Error("nothing has tools")
	}
}
