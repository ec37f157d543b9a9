package link

import (
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/wire"
)

func TestScanHead(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		name, text string
		want       head
	}{
		{"a Go answer", `{"jsonrpc":"2.0","id":7,"result":{"x":"` + long, head{id: "7", answer: true}},
		{"a TypeScript answer", `{"result":{"x":"` + long, head{answer: true}},
		{"an error", `{"jsonrpc":"2.0","id":"a","error":{"m`, head{id: `"a"`, answer: true}},
		{"a Go request", `{"jsonrpc":"2.0","id":1,"method":"m","params":{`, head{id: "1", method: "m"}},
		{"a TypeScript request", `{"method":"m","params":{"x":"`, head{method: "m"}},
		{"spaces", ` { "id" : 7 , "method" : "a\"b" , "params" : [`, head{id: "7", method: `a"b`}},
		{"cut in a key", `{"jsonrpc":"2.0","id":7,"meth`, head{id: "7"}},
		{"cut in a value", `{"jsonrpc":"2.0","id":71`, head{}},
		{"cut in an escape", `{"id":7,"method":"a\`, head{id: "7"}},
		{"nothing", ``, head{}},
		{"an array", `[{"id":7,`, head{}},
		{"no key", `{:`, head{}},
		{"text", long, head{}},
		{"an id inside", `{"params":{"id":9,"method":"n"`, head{}},
	} {
		if got := scanHead([]byte(tt.text)); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestWhoseFrame(t *testing.T) {
	for _, tt := range []struct {
		frame   string
		answers int64 // 0 for nobody's
		asks    wire.ID
	}{
		{`{"id":5,"result":{}}`, 5, ""},
		{`{"id":5,"error":"text"}`, 5, ""},
		{`{"id":"5","result":{}}`, 0, ""},
		{`{"id":5}`, 0, ""},
		{`{"jsonrpc":"2.0","id":5}`, 5, ""},
		{`{"id":5,"method":"GET"}`, 0, ""},
		{`{"jsonrpc":"1.0","id":5,"method":"m"}`, 0, "5"},
		{`{"jsonrpc":"2.0","id":"p","method":7}`, 0, `"p"`},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, 0, ""},
		{`{"jsonrpc":"2.0","method":"m","params":1}`, 0, ""},
		{`[1]`, 0, ""},
	} {
		id, ok := answered([]byte(tt.frame))
		if ok != (tt.answers != 0) || ok && id != tt.answers {
			t.Errorf("%s answers %d, %v", tt.frame, id, ok)
		}
		asks, ok := asked([]byte(tt.frame))
		if ok != (tt.asks != "") || ok && asks != tt.asks {
			t.Errorf("%s asks %s, %v", tt.frame, asks, ok)
		}
	}
}

func TestCut(t *testing.T) {
	for in, want := range map[string]string{"abc": "abc", "abcd": "abc…", "abü": "ab…"} {
		if got := cut([]byte(in), 3); got != want {
			t.Errorf("cut %q: %q, want %q", in, got, want)
		}
	}
}
