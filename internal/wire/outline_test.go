package wire_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/debugmcp/devproxy/internal/wire"
)

func TestOutline(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		name, head, tail string
		want             wire.Outline
	}{
		{"a Go answer", `{"jsonrpc":"2.0","id":7,"result":{"x":"` + long, long + `"}}`, wire.Outline{ID: "7", Answer: true}},
		{"a TypeScript answer", `{"result":{"x":"` + long, long + `"},"jsonrpc":"2.0","id":7}`, wire.Outline{ID: "7", Answer: true}},
		{"an error", `{"jsonrpc":"2.0","id":"a","error":{"m`, ``, wire.Outline{ID: `"a"`, Answer: true}},
		{"a Go request", `{"jsonrpc":"2.0","id":1,"method":"m","params":{`, `}}`, wire.Outline{ID: "1", Method: "m"}},
		{"a TypeScript request", `{"method":"m","params":{"x":"`, `"},"jsonrpc":"2.0","id":"a\"b\\"}`, wire.Outline{ID: `"a\"b\\"`, Method: "m"}},
		{"a TypeScript notification", `{"method":"m","params":{"x":"`, `"},"jsonrpc":"2.0"}`, wire.Outline{Method: "m"}},
		{"all behind", `{"params":{"x":"`, `"},"method":"m","id":3}`, wire.Outline{ID: "3", Method: "m"}},
		{"spaces", ` { "id" : 7 , "method" : "a\"b" , "params" : [`, `] } `, wire.Outline{ID: "7", Method: `a"b`}},
		{"spaces behind", `{ "result" : [`, `] , "id" : -7 } `, wire.Outline{ID: "-7", Answer: true}},
		{"the first of two", `{"id":1,"result":{`, `},"id":2}`, wire.Outline{ID: "1", Answer: true}},
		{"no id", `{"result":{`, `},"id":null}`, wire.Outline{Answer: true}},
		{"small params in front", `{"params":{"id":9,"x":[{"id":8}]} , "id":7,"method":"m","x":[1,`, ``, wire.Outline{ID: "7", Method: "m"}},
		{"an answer with a small result", `{"result":{"id":9},"id":7,"x":[1,`, ``, wire.Outline{ID: "7", Answer: true}},
		{"cut in a key", `{"jsonrpc":"2.0","id":7,"meth`, ``, wire.Outline{ID: "7"}},
		{"cut in a value", `{"jsonrpc":"2.0","id":71`, ``, wire.Outline{}},
		{"cut in an escape", `{"id":7,"method":"a\`, ``, wire.Outline{ID: "7"}},
		{"cut in a key behind", `{"result":[`, `id":7}`, wire.Outline{Answer: true}},
		{"cut before a key", `{"result":[`, `"id":7}`, wire.Outline{Answer: true}},
		{"cut in a value behind", `{"result":[`, `7}`, wire.Outline{Answer: true}},
		{"cut in an escape behind", `{"result":[`, `"id\":7","x":1}`, wire.Outline{Answer: true}},
		{"a log line", `{"msg":"x","data":{"x":"`, `"},"id":7}`, wire.Outline{}},
		{"nothing", ``, ``, wire.Outline{}},
		{"an array", `[{"id":7,`, `,"id":7}]`, wire.Outline{}},
		{"no end", `{"result":{`, `},"jsonrpc":"2.0","id":7`, wire.Outline{Answer: true}},
		{"no key", `{:`, `:}`, wire.Outline{}},
		{"text", long, long, wire.Outline{}},
		{"an id inside", `{"params":{"id":9,"method":"n"`, `,"jsonrpc":"2.0","id":9}}`, wire.Outline{}},
		{"an id in a string", `{"params":"`, `\",\"id\":9,\"jsonrpc\":\"2.0\"}"}`, wire.Outline{}},
	} {
		e := &wire.TooLongError{Head: []byte(tt.head), Tail: []byte(tt.tail)}
		if got := e.Outline(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// A request that cannot be read is known by its ends all the same; what was no request has no id to answer.
func TestRequestID(t *testing.T) {
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	for frame, want := range map[string]wire.ID{
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"m","params":{"x":` + deep + `}}`: "9007199254740993",
		`{"method":"m","params":{"x":` + deep + `},"jsonrpc":"2.0","id":"a"}`:              `"a"`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"x\":\"\xff\"}}":      "1",
		`{"jsonrpc":"2.0","id":1,"meth`:                                                    "1",
		`{"jsonrpc":"2.0","id":1,"method":"m"} x`:                                          "1",
		`{"jsonrpc":"2.0","id":12`:                                                         "",
		`{"jsonrpc":"2.0","id":null,"method":"m"`:                                          "",
		`{"jsonrpc":"2.0","id":1,"result":{"x":` + deep + `}}`:                             "",
		`{"result":{"x":` + deep + `},"jsonrpc":"2.0","id":1}`:                             "",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m}`:                          "",
		`{"id":{"a":1},"b":`: "",
		`"id"`:               "",
		``:                   "",
		"\x00\xff":           "",
	} {
		if got := wire.OutlineOf([]byte(frame)).RequestID(); got != want {
			t.Errorf("%.80q: id %q, want %q", frame, got, want)
		}
	}
}

// TestReaderTail puts the end of a line that is too long at every place around the end of the read buffer.
func TestReaderTail(t *testing.T) {
	letters := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 3<<10)
	for size := 64<<10 - 3; size <= 64<<10+3; size++ {
		line := letters[:size]
		for _, end := range []string{"\n", "\r\n", ""} {
			for _, limit := range []int{size - 1, 10} {
				_, err := wire.NewReader(iotest.HalfReader(strings.NewReader(line+end)), limit).Next()
				tooLong, ok := errors.AsType[*wire.TooLongError](err)
				if !ok {
					t.Fatal(err)
				}
				if string(tooLong.Tail) != line[size-1<<10:] || cap(tooLong.Tail) > 2<<10 {
					t.Errorf("size %d, end %q, limit %d: %d bytes in %d, %.20q…", size, end, limit,
						len(tooLong.Tail), cap(tooLong.Tail), tooLong.Tail)
				}
			}
		}
	}
	_, err := wire.NewReader(strings.NewReader("abcde\r\n"), 4).Next()
	if tooLong, ok := errors.AsType[*wire.TooLongError](err); !ok || string(tooLong.Tail) != "abcde" {
		t.Errorf("got %v", err)
	}
}
