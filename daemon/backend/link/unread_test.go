package link

import (
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/wire"
)

func TestWhoseFrame(t *testing.T) {
	for _, tt := range []struct {
		frame   string
		answers int64 // 0 for nobody's
		asks    wire.ID
	}{
		{`{"id":5,"result":{}}`, 5, ""},
		{`{"id":5,"error":"text"}`, 5, ""},
		{`{"id":"5","result":{}}`, 0, ""},
		{`{"jsonrpc":"2.0","id":"5"}`, 5, ""},
		{`{"jsonrpc":"2.0","id":"five"}`, 0, ""},
		{`{"id":5}`, 0, ""},
		{`{"jsonrpc":"2.0","id":5}`, 5, ""},
		{`{"id":5,"method":"GET"}`, 0, ""},
		{`{"jsonrpc":"1.0","id":5,"method":"m"}`, 0, "5"},
		{`{"jsonrpc":"2.0","id":"p","method":7}`, 0, `"p"`},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, 0, ""},
		{`{"jsonrpc":"2.0","method":"m","params":1}`, 0, ""},
		{`[1]`, 0, ""},
		{"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"x\":\"\xff\"}}", 5, ""},
		{"{\"result\":{\"x\":\"\xff\"},\"jsonrpc\":\"2.0\",\"id\":5}", 5, ""},
		{`{"jsonrpc":"2.0","id":5,"result":{"x":{"jsonrpc":"2.0","id":6,"result":{}}`, 5, ""},
		{`{"jsonrpc":"2.0","id":5,"result":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, 5, ""},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":5,\"params\":\"\xff\"}", 0, ""},
		{`{"level":"info","id":5,"result":tru`, 0, ""},
		{`{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"cut o`, 0, ""},
		{`starting "jsonrpc" {"id":5}`, 0, ""},
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
