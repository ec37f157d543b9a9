package cli

import (
	"encoding/json"
	"testing"
)

func TestForPerson(t *testing.T) {
	for text, want := range map[string]string{
		"fix it; it starts again when the build output changes, or with dev_restart or `devproxyctl restart`": "fix it; it starts again when the build output changes, or with `devproxyctl restart`",
		"with my-rebuild_and_restart or `devproxyctl restart --rebuild`; see dev_logs or `devproxyctl logs`.": "with `devproxyctl restart --rebuild`; see `devproxyctl logs`.",
		"see dev_server_status": "see dev_server_status", "this or `devproxyctl stop`": "this or `devproxyctl stop`",
	} {
		if got := ForPerson(text); got != want {
			t.Errorf("%s\nis %s\nwant %s", text, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	tests := []struct{ in, text, line string }{
		{"plain ä 漢字 😀", "plain ä 漢字 😀", "plain ä 漢字 😀"},
		{"a\tb\nc\r\n", "a\tb\nc\\r\n", `a` + "\t" + `b\nc\r\n`},
		{"\x1b[1;31mred\x1b[0m \x1b[38:5:1mtoo\x1b[m", "red too", "red too"},
		{"\x1b]0;title\x07 \x1b[2J\x1b[31", `\x1b]0;title\x07 \x1b[2J\x1b[31`, `\x1b]0;title\x07 \x1b[2J\x1b[31`},
		// What is left of a sequence must not become one.
		{"\x1b\x1b[0m[2J", `\x1b[2J`, `\x1b[2J`},
		{"\u009b2J \x9b2J \x7f \u202eevil\u2066", "\\u009b2J \uFFFD2J \\x7f \\u202eevil\\u2066", "\\u009b2J \uFFFD2J \\x7f \\u202eevil\\u2066"},
	}
	for _, test := range tests {
		if got := Printable(test.in); got != test.text {
			t.Errorf("Printable(%q) = %q, want %q", test.in, got, test.text)
		}
		if got := PrintableLine(test.in); got != test.line {
			t.Errorf("PrintableLine(%q) = %q, want %q", test.in, got, test.line)
		}
		raw, err := json.Marshal(test.in)
		if err != nil {
			t.Fatal(err)
		}
		escaped := PrintableJSON(raw)
		var before, after string
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(escaped, &after); err != nil || before != after {
			t.Errorf("PrintableJSON(%s) = %s, which means %q, %v", raw, escaped, after, err)
		}
		if shown := Printable(string(escaped)); shown != string(escaped) {
			t.Errorf("PrintableJSON(%s) = %s, which acts", raw, escaped)
		}
	}
}
