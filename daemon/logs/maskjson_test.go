package logs

import (
	"encoding/json"
	"testing"
)

func TestMaskJSON(t *testing.T) {
	m := NewMasker(map[string]string{"API_KEY": "hush-hush", "QUOTED": "unused"})
	for raw, want := range map[string]string{
		`{"a":1.0,"b":12345678901234567890,"c":1e400,"d":[true,null],"e":"<\u00e9\/>"}`: `{"a":1.0,"b":12345678901234567890,"c":1e400,"d":[true,null],"e":"<\u00e9\/>"}`,
		` { "apiKey" : "abcd" , "note":"abcd" } `:                                       ` { "apiKey" : "***" , "note":"abcd" } `,
		`{"x":"key is hush-hush!","hush":{"password":"p4ss","deep":"p4ss"}}`:            `{"x":"key is ***!","hush":{"password":"***","deep":"p4ss"}}`,
		`{"apiKeys":["abcd",["efgh"],{"n":"ijkl"}],"z":"abcd"}`:                         `{"apiKeys":["***",["***"],{"n":"ijkl"}],"z":"abcd"}`,
		`{"text":"{\"token\":\"abcdef\"}"}`:                                             `{"text":"{\"token\":\"***\"}"}`,
		`{"_meta":{"progressToken":"tool-1"},"token":"true","tokens":5}`:                `{"_meta":{"progressToken":"tool-1"},"token":"true","tokens":5}`,
		`["sk-aaaaaaaaaaaaaaaaaaaa"]`:                                                   `["***"]`,
		`"hush-hush"`:                                                                   `"***"`,
		`{"secret":"a\"b,c","n":1}`:                                                     `{"secret":"***","n":1}`,
		``:                                                                              ``,
		// What is no JSON, or is cut off, is masked as text.
		`token=abcdef`:         `token=***`,
		`{"apiKey":"abcd","x`:  `{"apiKey":"***","x`,
		`{"a":"hush-hush"} x{`: `{"a":"***"} x{`,
	} {
		got := string(m.MaskJSON([]byte(raw)))
		if got != want {
			t.Errorf("%s becomes\n%s, want\n%s", raw, got, want)
		}
		if json.Valid([]byte(raw)) && !json.Valid([]byte(got)) {
			t.Errorf("%s is no JSON any more: %s", raw, got)
		}
	}
	if got := string((*Masker)(nil).MaskJSON([]byte(`{"password":"abcd"}`))); got != `{"password":"***"}` {
		t.Errorf("without values: %s", got)
	}
}
