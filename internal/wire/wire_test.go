package wire_test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/internal/wire"
)

// realMessages is one message of each shape that the official SDKs were seen to send.
//
//go:embed testdata/messages.jsonl
var realMessages string

func realLines() []string { return strings.Split(strings.TrimSpace(realMessages), "\n") }

func TestParse(t *testing.T) {
	tests := map[string]struct {
		frame string
		want  wire.Message
	}{
		"request": {
			`{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{"a":1}}`,
			wire.NewRequest("0", "tools/list", []byte(`{"a":1}`)),
		},
		"string id, members in another order": {
			`{"params":{},"method":"x","id":"1","jsonrpc":"2.0"}`,
			wire.NewRequest(`"1"`, "x", []byte(`{}`)),
		},
		"id beyond float64": {
			`{"jsonrpc":"2.0","id":9007199254740993,"method":"x"}`,
			wire.NewRequest("9007199254740993", "x", nil),
		},
		"fractional id": {
			`{"jsonrpc":"2.0","id":1.5,"method":"x"}`,
			wire.NewRequest("1.5", "x", nil),
		},
		"null params are no params": {
			`{"jsonrpc":"2.0","id":1,"method":"x","params":null}`,
			wire.NewRequest("1", "x", nil),
		},
		"array params": {
			`{"jsonrpc":"2.0","id":1,"method":"x","params":[1, 2]}`,
			wire.NewRequest("1", "x", []byte(`[1, 2]`)),
		},
		"notification": {
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			wire.NewNotification("notifications/initialized", nil),
		},
		"unknown top-level members go": {
			`{"jsonrpc":"2.0","_x":{"y":[1]},"id":1,"result":{"r":1.0},"z":2}`,
			wire.NewResponse("1", []byte(`{"r":1.0}`)),
		},
		"escaped member names and method": {
			`{"\u006asonrpc":"2.0","\u0069d":1,"m\u0065thod":"a\/b"}`,
			wire.NewRequest("1", "a/b", nil),
		},
		"the last of a duplicate member counts": {
			`{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}`,
			wire.NewRequest("2", "x", nil),
		},
		"white space around": {
			" \t{ \"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"result\" : { } } \r",
			wire.NewResponse("1", []byte(`{ }`)),
		},
		"null error beside a result": {
			`{"jsonrpc":"2.0","id":1,"error":null,"result":{}}`,
			wire.NewResponse("1", []byte(`{}`)),
		},
		"null result beside an error": {
			`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":""}}`,
			wire.Message{Kind: wire.Failure, ID: "1", Error: []byte(`{"code":1,"message":""}`)},
		},
		"null result": {
			`{"jsonrpc":"2.0","id":1,"result":null}`,
			wire.NewResponse("1", []byte(`null`)),
		},
		"failure for nobody": {
			`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`,
			wire.Message{Kind: wire.Failure, ID: "null", Error: []byte(`{"code":1,"message":""}`)},
		},
		"failure without id": {
			`{"jsonrpc":"2.0","error":{"code":1,"message":""}}`,
			wire.Message{Kind: wire.Failure, ID: "null", Error: []byte(`{"code":1,"message":""}`)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := wire.Parse([]byte(tt.frame))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseInvalid(t *testing.T) {
	tests := map[string]struct {
		frame string
		id    wire.ID // what the refusal can be addressed to
	}{
		"no version":            {`{"id":1,"method":"x"}`, "1"},
		"version as a number":   {`{"jsonrpc":2.0,"id":1,"method":"x"}`, "1"},
		"other version":         {`{"jsonrpc":"1.0","id":"a","method":"x"}`, `"a"`},
		"null id":               {`{"jsonrpc":"2.0","id":null,"method":"x"}`, ""},
		"object id":             {`{"jsonrpc":"2.0","id":{},"method":"x"}`, ""},
		"array id":              {`{"jsonrpc":"2.0","id":[1],"method":"x"}`, ""},
		"boolean id":            {`{"jsonrpc":"2.0","id":true,"method":"x"}`, ""},
		"method not a string":   {`{"jsonrpc":"2.0","id":1,"method":7}`, "1"},
		"params a string":       {`{"jsonrpc":"2.0","id":1,"method":"x","params":"p"}`, "1"},
		"params a number":       {`{"jsonrpc":"2.0","id":1,"method":"x","params":1}`, "1"},
		"request and result":    {`{"jsonrpc":"2.0","id":1,"method":"x","result":{}}`, "1"},
		"result and error":      {`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, ""},
		"error a string":        {`{"jsonrpc":"2.0","id":1,"error":"no"}`, ""},
		"nothing":               {`{}`, ""},
		"only version and id":   {`{"jsonrpc":"2.0","id":1}`, ""},
		"result without id":     {`{"jsonrpc":"2.0","result":{}}`, ""},
		"result for nobody":     {`{"jsonrpc":"2.0","id":null,"result":{}}`, ""},
		"a string":              {`"x"`, ""},
		"a number":              {` 12 `, ""},
		"answer of no version":  {`{"id":1,"result":{}}`, ""},
		"only null error there": {`{"jsonrpc":"2.0","id":1,"error":null}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := wire.Parse([]byte(tt.frame))
			var invalid *wire.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("Parse = %+v, %v; want an InvalidError", m, err)
			}
			if invalid.ID != tt.id {
				t.Errorf("id = %q, want %q", invalid.ID, tt.id)
			}
		})
	}
}

// badJSON is text that RFC 8259 does not allow, with the offset of the first wrong byte.
var badJSON = map[string]struct {
	text   string
	offset int
}{
	"empty":                       {``, 0},
	"blank":                       {"  ", 2},
	"word":                        {`hello`, 0},
	"cut word":                    {`tru`, 0},
	"other case":                  {`Null`, 0},
	"cut object":                  {`{"a":1`, 6},
	"cut string":                  {`"abc`, 4},
	"cut array":                   {`[1,`, 3},
	"text behind":                 {`{} x`, 3},
	"two values":                  {`{}{}`, 2},
	"trailing comma in object":    {`{"a":1,}`, 7},
	"trailing comma in array":     {`[1,]`, 3},
	"no comma":                    {`[1 2]`, 3},
	"no colon":                    {`{"a" 1}`, 5},
	"no value":                    {`{"a":}`, 5},
	"name without quotes":         {`{a:1}`, 1},
	"single quotes":               {`{'a':1}`, 1},
	"leading zero":                {`01`, 0},
	"leading plus":                {`+1`, 0},
	"lone minus":                  {`-`, 1},
	"no digit before the point":   {`.5`, 0},
	"no digit behind the point":   {`1.`, 2},
	"no digit in the exponent":    {`1e+`, 3},
	"NaN":                         {`NaN`, 0},
	"tab in a string":             {"\"a\tb\"", 2},
	"newline in a string":         {"\"a\nb\"", 2},
	"NUL in a long string":        {"\"abcdefghijkl\x00mnop\"", 13},
	"unknown escape":              {`"\x41"`, 1},
	"cut escape":                  {`"\`, 1},
	"bad unicode escape":          {`"\u12g4"`, 1},
	"cut unicode escape":          {`"\u12`, 1},
	"invalid UTF-8":               {"\"a\xff\"", 2},
	"overlong UTF-8":              {"\"\xc0\xaf\"", 1},
	"surrogate in UTF-8":          {"\"\xed\xa0\x80\"", 1},
	"cut UTF-8":                   {"\"\xe2\x82\"", 1},
	"UTF-8 outside a string":      {"é", 0},
	"byte order mark":             {"\xef\xbb\xbf{}", 0},
	"comment":                     {`{/**/}`, 1},
	"closed by the wrong one":     {`[1}`, 2},
	"vertical tab as white space": {"\v1", 0},
}

func TestSyntaxErrors(t *testing.T) {
	for name, tt := range badJSON {
		t.Run(name, func(t *testing.T) {
			_, parsed := wire.Parse([]byte(tt.text))
			_, compacted := wire.Compact([]byte(tt.text))
			for by, err := range map[string]error{"Valid": wire.Valid([]byte(tt.text)), "Parse": parsed, "Compact": compacted} {
				var syntax *wire.SyntaxError
				if !errors.As(err, &syntax) {
					t.Fatalf("%s(%q) = %v, want a SyntaxError", by, tt.text, err)
				}
				if syntax.Offset != tt.offset {
					t.Errorf("%s(%q) offset = %d, want %d (%s)", by, tt.text, syntax.Offset, tt.offset, syntax.Reason)
				}
			}
			if json.Valid([]byte(tt.text)) && !strings.Contains(name, "UTF-8") {
				t.Errorf("encoding/json takes %q", tt.text)
			}
		})
	}
}

func TestValid(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `0`, `-0`, `1e400`, `1.0`, `-1.5E-7`, `12345678901234567890`, `true`, `false`, `null`,
		` [ 1 , { "a" : [ ] } ] `, `"\ud800"`, `"\u2028é😀\"\\\/\b\f\n\r\t"`, "\"\x7f\"", "\"12345678é12345678\"",
		strings.Repeat("[", wire.MaxNesting) + strings.Repeat("]", wire.MaxNesting),
	} {
		if err := wire.Valid([]byte(text)); err != nil {
			t.Errorf("Valid(%.40q) = %v", text, err)
		}
	}
}

func TestNesting(t *testing.T) {
	for name, text := range map[string]string{
		"arrays":  strings.Repeat("[", wire.MaxNesting+1),
		"objects": strings.Repeat(`{"a":`, wire.MaxNesting+1),
		"a bomb":  strings.Repeat("[", 16<<20),
	} {
		t.Run(name, func(t *testing.T) {
			if err := wire.Valid([]byte(text)); !errors.Is(err, wire.ErrNesting) {
				t.Errorf("Valid = %v, want ErrNesting", err)
			}
		})
	}
}

func TestParseBatch(t *testing.T) {
	frame := []byte(` [{"jsonrpc":"2.0","id":1,"method":"ping"} , 7]`)
	if _, err := wire.Parse(frame); !errors.Is(err, wire.ErrBatch) {
		t.Fatalf("Parse = %v, want ErrBatch", err)
	}
	elems, err := wire.ParseBatch(frame)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]byte{[]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), []byte(`7`)}
	if diff := cmp.Diff(want, elems); diff != "" {
		t.Errorf("ParseBatch (-want +got):\n%s", diff)
	}
	var invalid *wire.InvalidError
	if _, err := wire.ParseBatch([]byte(`{}`)); !errors.As(err, &invalid) {
		t.Errorf("ParseBatch of an object = %v, want an InvalidError", err)
	}
	var syntax *wire.SyntaxError
	if _, err := wire.Parse([]byte(`[1,`)); !errors.As(err, &syntax) {
		t.Errorf("Parse of a cut batch = %v, want a SyntaxError", err)
	}
}

// TestAppend holds the exact bytes: both TypeScript clients refuse an envelope with anything else in it.
func TestAppend(t *testing.T) {
	tests := map[string]struct {
		m    wire.Message
		want string
	}{
		"request":      {wire.NewRequest("7", "a/b", []byte(`{"x":1.0}`)), `{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"x":1.0}}`},
		"no params":    {wire.NewRequest(wire.StringID("p7"), "a", nil), `{"jsonrpc":"2.0","id":"p7","method":"a"}`},
		"notification": {wire.NewNotification("<\"\n>", nil), `{"jsonrpc":"2.0","method":"<\"\n>"}`},
		"response":     {wire.NewResponse(wire.IntID(-1), []byte(`{}`)), `{"jsonrpc":"2.0","id":-1,"result":{}}`},
		"failure": {
			wire.NewFailure("1", &wire.Error{Code: -32042, Message: "é\x01", Data: []byte(`{"a":1e400}`)}),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"é\u0001","data":{"a":1e400}}}`,
		},
		"failure for nobody": {
			wire.NewFailure("", &wire.Error{Code: wire.CodeParse, Message: "no"}),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(tt.m.Bytes()); got != tt.want {
				t.Errorf("Bytes = %s, want %s", got, tt.want)
			}
			if got := string(tt.m.Append([]byte("> "))); got != "> "+tt.want {
				t.Errorf("Append = %s", got)
			}
		})
	}
}

func TestRealMessagesRoundTrip(t *testing.T) {
	for _, line := range realLines() {
		m, err := wire.Parse([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		var want, got map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal([]byte(line), &want), json.Unmarshal(m.Bytes(), &got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

func TestIDInt(t *testing.T) {
	tests := []struct {
		id   wire.ID
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-3", -3, true}, {"9223372036854775807", 9223372036854775807, true},
		{"7.0", 7, true}, {"7e0", 7, true}, {"1.5", 0, false}, {"9007199254740993.0", 0, false}, {"1e400", 0, false},
		{`"7"`, 0, false}, {"null", 0, false}, {"", 0, false},
	}
	for _, tt := range tests {
		if got, ok := tt.id.Int(); got != tt.want || ok != tt.ok {
			t.Errorf("ID(%s).Int() = %d, %v; want %d, %v", tt.id, got, ok, tt.want, tt.ok)
		}
	}
}

func TestIDEchoed(t *testing.T) {
	tests := []struct {
		id   wire.ID
		want int64
		ok   bool
	}{
		{"7", 7, true}, {"7.0", 7, true}, {`"7"`, 7, true}, {`"\u0037"`, 7, true}, {`"-3"`, -3, true},
		{`"9223372036854775807"`, 9223372036854775807, true},
		{`""`, 0, false}, {`"seven"`, 0, false}, {"null", 0, false}, {"", 0, false},
		// Somebody else's.
		{`"1.5"`, 0, false}, {`"7.0"`, 0, false}, {`"+7"`, 0, false}, {`"007"`, 0, false}, {`"12e3"`, 0, false}, {`"0x1p4"`, 0, false}, {`"-0"`, 0, false},
	}
	for _, tt := range tests {
		if got, ok := tt.id.Echoed(); ok != tt.ok || ok && got != tt.want {
			t.Errorf("ID(%s).Echoed() = %d, %v; want %d, %v", tt.id, got, ok, tt.want, tt.ok)
		}
	}
}

func TestParseError(t *testing.T) {
	got, err := wire.ParseError([]byte(`{"x":1,"data":{"b":1.0},"message":"m\u00e9","code":-32602}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &wire.Error{Code: -32602, Message: "mé", Data: []byte(`{"b":1.0}`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Error() != "mé (code -32602)" {
		t.Errorf("Error() = %q", got.Error())
	}
	for name, raw := range map[string]string{
		"fractional code": `{"code":1.5,"message":"m"}`,
		"no code":         `{"message":"m"}`,
		"no message":      `{"code":1}`,
		"array":           `[]`,
		"cut":             `{"code":1`,
	} {
		if e, err := wire.ParseError([]byte(raw)); err == nil {
			t.Errorf("%s: ParseError = %v, want an error", name, e)
		}
	}
}

func TestObjectEdits(t *testing.T) {
	const raw = ` {"b": 1.0, "\u0061":[1 ,2],"é":1e400, "dup":1,"dup":2} `
	tests := map[string]struct {
		edit func(*wire.Object)
		want string
	}{
		"nothing": {func(*wire.Object) {}, `{"b": 1.0, "\u0061":[1 ,2],"é":1e400, "dup":1,"dup":2}`},
		"replace": {
			func(o *wire.Object) { o.Set("a", []byte(`"x"`)) },
			`{"b":1.0,"\u0061":"x","é":1e400,"dup":1,"dup":2}`,
		},
		"append": {
			func(o *wire.Object) { o.Set("n\n", []byte(`{}`)) },
			`{"b":1.0,"\u0061":[1 ,2],"é":1e400,"dup":1,"dup":2,"n\n":{}}`,
		},
		"delete": {
			func(o *wire.Object) { o.Delete("é"); o.Delete("a") },
			`{"b":1.0,"dup":1,"dup":2}`,
		},
		"delete what is not there": {
			func(o *wire.Object) { o.Delete("x") },
			`{"b": 1.0, "\u0061":[1 ,2],"é":1e400, "dup":1,"dup":2}`,
		},
		"replace a duplicate": {
			func(o *wire.Object) { o.Set("dup", []byte(`3`)) },
			`{"b":1.0,"\u0061":[1 ,2],"é":1e400,"dup":3}`,
		},
		"delete a duplicate": {
			func(o *wire.Object) { o.Delete("dup") },
			`{"b":1.0,"\u0061":[1 ,2],"é":1e400}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := wire.ParseObject([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			tt.edit(o)
			if got := string(o.Bytes()); got != tt.want {
				t.Errorf("Bytes = %s, want %s", got, tt.want)
			}
			if changed := tt.want != strings.TrimSpace(raw); o.Changed() != changed {
				t.Errorf("Changed = %v, want %v", o.Changed(), changed)
			}
		})
	}
}

func TestObjectReads(t *testing.T) {
	o, err := wire.ParseObject([]byte(`{"a":null,"b":1,"b":2,"\n":3}`))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "null", "b": "2", "\n": "3", "c": ""} {
		if got := string(o.Get(key)); got != want {
			t.Errorf("Get(%q) = %q, want %q", key, got, want)
		}
		if o.Has(key) != (want != "") {
			t.Errorf("Has(%q) = %v", key, o.Has(key))
		}
	}
	if o.Len() != 4 || len(o.Members()) != 4 {
		t.Errorf("Len = %d, want 4", o.Len())
	}
}

func TestParseObjectOther(t *testing.T) {
	for _, absent := range [][]byte{nil, {}, []byte(" ")} {
		o, err := wire.ParseObject(absent)
		if err != nil || o.Len() != 0 || string(o.Bytes()) != "{}" {
			t.Errorf("ParseObject(%q) = %+v, %v; want an empty object", absent, o, err)
		}
	}
	for _, other := range []string{`[]`, `null`, `1`, `"{}"`} {
		if _, err := wire.ParseObject([]byte(other)); !errors.Is(err, wire.ErrNotObject) {
			t.Errorf("ParseObject(%s) = %v, want ErrNotObject", other, err)
		}
	}
	var syntax *wire.SyntaxError
	for _, bad := range []string{`{"a":}`, `{} x`, `x`} {
		if _, err := wire.ParseObject([]byte(bad)); !errors.As(err, &syntax) {
			t.Errorf("ParseObject(%s) = %v, want a SyntaxError", bad, err)
		}
	}
}

func TestElements(t *testing.T) {
	elems, err := wire.Elements([]byte(` [ 1.0,{"a": 1} ,"x",[ ] ] `))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(wire.JoinArray(elems)); got != `[1.0,{"a": 1},"x",[ ]]` {
		t.Errorf("JoinArray = %s", got)
	}
	if elems, err := wire.Elements([]byte(`[]`)); err != nil || elems == nil || len(elems) != 0 {
		t.Errorf("Elements of an empty array = %v, %v", elems, err)
	}
	if got := string(wire.JoinArray(nil)); got != "[]" {
		t.Errorf("JoinArray(nil) = %s", got)
	}
	for _, other := range []string{``, `{}`, `[1`, `[] 1`} {
		if elems, err := wire.Elements([]byte(other)); err == nil {
			t.Errorf("Elements(%q) = %q, want an error", other, elems)
		}
	}
}

func TestString(t *testing.T) {
	for raw, want := range map[string]string{
		`""`: "", ` "a" `: "a", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u00e9é"`: "éé", `"\ud83d\ude00!"`: "😀!",
		`"\ud83dx"`: "\ufffdx", `"\ud83d\u0041"`: "\ufffdA", `"\ude00"`: "\ufffd",
	} {
		if got, ok := wire.String([]byte(raw)); !ok || got != want {
			t.Errorf("String(%s) = %q, %v; want %q", raw, got, ok, want)
		}
	}
	for _, raw := range []string{``, `1`, `null`, `"a`, `"a" "b"`, "\"\n\""} {
		if got, ok := wire.String([]byte(raw)); ok {
			t.Errorf("String(%q) = %q, want none", raw, got)
		}
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"": `""`, "<a&b>\u2028": "\"<a&b>\u2028\"", "\"\\\n\r\t\x00\x1f": `"\"\\\n\r\t\u0000\u001f"`, "é😀": `"é😀"`, "a\xff": "\"a\ufffd\"",
	} {
		if got := string(wire.Quote(s)); got != want {
			t.Errorf("Quote(%q) = %s, want %s", s, got, want)
		}
	}
}

func TestCompact(t *testing.T) {
	for raw, want := range map[string]string{
		"{\n \"a b\\\" c\" : [ 1 ,\t2 ] ,\r\n\"d\": \" \" }\n": `{"a b\" c":[1,2],"d":" "}`,
		` 1.0 `:     `1.0`,
		`{"a":" "}`: `{"a":" "}`,
	} {
		got, err := wire.Compact([]byte(raw))
		if err != nil || string(got) != want {
			t.Errorf("Compact(%q) = %s, %v; want %s", raw, got, err, want)
		}
	}
	tight := []byte(`{"a":1}`)
	if got, _ := wire.Compact(tight); &got[0] != &tight[0] {
		t.Error("Compact copies what it does not change")
	}
}

func TestAllocations(t *testing.T) {
	frame := []byte(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2,3]}}}`)
	if n := testing.AllocsPerRun(100, func() { _, _ = wire.Parse(frame) }); n > 4 {
		t.Errorf("Parse allocates %v times", n)
	}
	object := []byte(`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`)
	if n := testing.AllocsPerRun(100, func() { _, _ = wire.ParseObject(object) }); n > 5 {
		t.Errorf("ParseObject allocates %v times", n)
	}
}

func TestKindString(t *testing.T) {
	got := []string{wire.Request.String(), wire.Notification.String(), wire.Response.String(), wire.Failure.String(), wire.Kind(0).String()}
	want := []string{"request", "notification", "response", "failure", "kind 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func largeResult(size int, text string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"`)
	for b.Len() < size {
		b.WriteString(text)
	}
	b.WriteString(`"}]}}`)
	return b.Bytes()
}

func BenchmarkParse(b *testing.B) {
	frames := map[string][]byte{
		"small":         []byte(realLines()[0]),
		"16MiB base64":  largeResult(16<<20, "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0"),
		"16MiB escaped": largeResult(16<<20, `{\"key\":\"value\",\"n\":1},\n`),
		"16MiB utf8":    largeResult(16<<20, `длинный текст 長い文章 `),
	}
	for name, frame := range frames {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Parse(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkObject(b *testing.B) {
	raw := []byte(`{"name":"x","arguments":{"a":1},"_meta":{"progressToken":7,"k":"v"}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		o, err := wire.ParseObject(raw)
		if err != nil {
			b.Fatal(err)
		}
		o.Set("_meta", []byte(`{}`))
		_ = o.Bytes()
	}
}

func BenchmarkAppend(b *testing.B) {
	m, err := wire.Parse(largeResult(16<<20, "abcdefgh"))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(m.Result)))
	for b.Loop() {
		_ = m.Bytes()
	}
}
