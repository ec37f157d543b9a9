package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/internal/wire"
)

func seed(f *testing.F) {
	f.Helper()
	for _, line := range realLines() {
		f.Add([]byte(line))
	}
	for _, bad := range badJSON {
		f.Add([]byte(bad.text))
	}
}

// FuzzParse: what is taken is JSON, and comes out of a round trip as the same message.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if valid := wire.Valid(frame) == nil; valid != (json.Valid(frame) && utf8.Valid(frame)) {
			// Their nesting limits differ; everything else must not.
			if !errors.Is(wire.Valid(frame), wire.ErrNesting) {
				t.Fatalf("Valid = %v, encoding/json says %v", wire.Valid(frame), json.Valid(frame))
			}
		}
		m, err := wire.Parse(frame)
		if err != nil {
			var syntax *wire.SyntaxError
			if errors.As(err, &syntax) != (wire.Valid(frame) != nil) {
				t.Fatalf("Parse = %v, Valid = %v", err, wire.Valid(frame))
			}
			return
		}
		again, err := wire.Parse(m.Bytes())
		if err != nil {
			t.Fatalf("parsing what Append made of %q: %v", frame, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("round trip of %q (-want +got):\n%s", frame, diff)
		}
		if m.Kind == wire.Failure {
			_, _ = wire.ParseError(m.Error)
		}
	})
}

// FuzzObject: an edit touches the member it names and no byte of the others.
func FuzzObject(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := wire.ParseObject(raw)
		if err != nil {
			return
		}
		before := o.Members()
		if len(bytes.TrimSpace(raw)) > 0 && !bytes.Equal(o.Bytes(), bytes.TrimSpace(raw)) {
			t.Fatalf("unedited: %q became %q", raw, o.Bytes())
		}
		before = append([]wire.Member{}, before...)
		o.Set("\x00 new", []byte(`{"n":1}`))
		edited, err := wire.ParseObject(o.Bytes())
		if err != nil {
			t.Fatalf("%q: %v", o.Bytes(), err)
		}
		edited.Delete("\x00 new")
		got, err := wire.ParseObject(edited.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		want := []wire.Member{}
		for _, m := range before {
			if m.Key != "\x00 new" {
				want = append(want, m)
			}
			if key, ok := wire.String(m.RawKey); !ok || key != m.Key {
				t.Fatalf("key %q of %s", m.Key, m.RawKey)
			}
			if !bytes.Contains(raw, m.Value) || wire.Valid(m.Value) != nil {
				t.Fatalf("value %q", m.Value)
			}
		}
		if diff := cmp.Diff(want, append([]wire.Member{}, got.Members()...)); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", raw, diff)
		}
		compact, err := wire.Compact(raw)
		if err != nil {
			return // absent text is an empty object, but no JSON
		}
		var std bytes.Buffer
		if err := json.Compact(&std, raw); err != nil || !bytes.Equal(std.Bytes(), compact) {
			t.Fatalf("Compact(%q) = %q, encoding/json says %q, %v", raw, compact, std.Bytes(), err)
		}
	})
}

// FuzzReader: no byte of a stream is lost or invented, whatever the limit.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a\r\n\nbcd\n e"), 2)
	f.Add([]byte(realLines()[0]+"\r\n"+realLines()[1]), 300)
	f.Add([]byte("\r\n\r"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, limit int) {
		if limit < 0 {
			limit = 0
		}
		var want []string
		for line := range bytes.SplitSeq(stream, []byte{'\n'}) {
			line = bytes.TrimSuffix(line, []byte{'\r'})
			switch {
			case limit > 0 && len(line) > limit:
				want = append(want, "!"+string(line[:min(len(line), 4096)]))
			case len(bytes.Trim(line, " \t\r")) > 0:
				want = append(want, string(line))
			}
		}
		var got []string
		r := wire.NewReader(bytes.NewReader(stream), limit)
		for {
			frame, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			var tooLong *wire.TooLongError
			switch {
			case errors.As(err, &tooLong):
				got = append(got, "!"+string(tooLong.Head))
			case err != nil:
				t.Fatal(err)
			default:
				got = append(got, string(frame))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
