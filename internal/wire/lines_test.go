package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/internal/wire"
)

// frames reads everything and writes a too long line as "!size:head".
func frames(t *testing.T, r io.Reader, limit int) []string {
	t.Helper()
	got := []string{}
	reader := wire.NewReader(r, limit)
	for {
		frame, err := reader.Next()
		var tooLong *wire.TooLongError
		switch {
		case errors.As(err, &tooLong):
			if tooLong.Limit != limit {
				t.Errorf("limit in the error = %d, want %d", tooLong.Limit, limit)
			}
			got = append(got, "!"+string(wire.IntID(tooLong.Size))+":"+string(tooLong.Head))
		case errors.Is(err, io.EOF):
			return got
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, string(frame))
		}
	}
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	tests := map[string]struct {
		in    string
		limit int
		want  []string
	}{
		"nothing":              {"", 0, []string{}},
		"lines":                {"a\nbc\n", 0, []string{"a", "bc"}},
		"no end":               {"a\nbc", 0, []string{"a", "bc"}},
		"CRLF":                 {"a\r\nb\r\n", 0, []string{"a", "b"}},
		"only one CR goes":     {"a\r\r\n", 0, []string{"a\r"}},
		"CR inside":            {"a\rb\n", 0, []string{"a\rb"}},
		"blank lines":          {"\n \t\n\r\n\na\n\n", 0, []string{"a"}},
		"blank end":            {"a\n  ", 0, []string{"a"}},
		"trailing space stays": {"a \n", 0, []string{"a "}},
		"at the limit":         {"abcd\nabcd\r\nabcd", 4, []string{"abcd", "abcd", "abcd"}},
		"over the limit":       {"abcde\nab\nabcde\r\nabcdef", 4, []string{"!5:abcde", "ab", "!5:abcde", "!6:abcdef"}},
		"longer than a buffer": {long + "\n" + long, 0, []string{long, long}},
		"long, over the limit": {long + "\na\n" + long + "\r\nb", 100, []string{"!204800:" + long[:4096], "a", "!204800:" + long[:4096], "b"}},
		"long, over, no end":   {long, 100 << 10, []string{"!204800:" + long[:4096]}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for by, r := range map[string]io.Reader{
				"at once":           strings.NewReader(tt.in),
				"bytes":             iotest.OneByteReader(strings.NewReader(tt.in)),
				"halves":            iotest.HalfReader(strings.NewReader(tt.in)),
				"EOF with the data": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				if diff := cmp.Diff(tt.want, frames(t, r, tt.limit)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", by, diff)
				}
			}
		})
	}
}

// TestReaderLineEndAcrossBuffers puts the line end at every place around the end of the read buffer, where the
// "\r" and the "\n" come in different reads.
func TestReaderLineEndAcrossBuffers(t *testing.T) {
	for size := 64<<10 - 3; size <= 64<<10+1; size++ {
		line := strings.Repeat("x", size)
		for _, end := range []string{"\n", "\r\n"} {
			in := line + end + "next\n"
			if diff := cmp.Diff([]string{line, "next"}, frames(t, strings.NewReader(in), size)); diff != "" {
				t.Errorf("size %d, end %q (-want +got):\n%.200s", size, end, diff)
			}
			want := []string{"!" + string(wire.IntID(int64(size))) + ":" + line[:4096], "next"}
			for _, limit := range []int{size - 1, size - 2, 10} {
				if diff := cmp.Diff(want, frames(t, strings.NewReader(in), limit)); diff != "" {
					t.Errorf("size %d, end %q, limit %d (-want +got):\n%.200s", size, end, limit, diff)
				}
			}
		}
	}
}

func TestReaderOwnership(t *testing.T) {
	r := wire.NewReader(strings.NewReader("first\nsecond\n"), 0)
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if string(first) != "first" {
		t.Errorf("the first line became %q", first)
	}
}

func TestReaderStreamError(t *testing.T) {
	broken := errors.New("broken")
	r := wire.NewReader(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), 0)
	if frame, err := r.Next(); err != nil || string(frame) != "a" {
		t.Fatalf("Next = %q, %v", frame, err)
	}
	if frame, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("Next = %q, %v; want the stream's error and no half line", frame, err)
	}
}

// oneCall counts the calls and fails on request.
type oneCall struct {
	bytes.Buffer
	calls int
	err   error
}

func (w *oneCall) Write(p []byte) (int, error) {
	w.calls++
	if w.err != nil {
		return 0, w.err
	}
	return w.Buffer.Write(p)
}

func TestWriter(t *testing.T) {
	var out oneCall
	w := wire.NewWriter(&out)
	for _, frame := range []string{`{"a":1}`, "{\n  \"a\" : \"x y\"\n}", `{"b":1 }`, strings.Repeat("y", 2<<20), `{}`} {
		if err := w.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	want := "{\"a\":1}\n{\"a\":\"x y\"}\n{\"b\":1 }\n" + strings.Repeat("y", 2<<20) + "\n{}\n"
	if out.String() != want {
		t.Errorf("wrote %.100q", out.String())
	}
	if out.calls != 6 { // the large one has two
		t.Errorf("%d calls for 5 frames, one of them large", out.calls)
	}
	if err := w.Write([]byte("two\nlines")); err == nil {
		t.Error("a frame of two lines was written")
	}
	out.err = io.ErrClosedPipe
	if err := w.Write([]byte(`{}`)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write = %v, want the stream's error", err)
	}
}

func BenchmarkReader(b *testing.B) {
	line := append(largeResult(16<<20, "QUJDREVG"), '\n')
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.NewReader(bytes.NewReader(line), 0).Next(); err != nil {
			b.Fatal(err)
		}
	}
}
