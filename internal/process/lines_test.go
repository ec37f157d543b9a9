package process

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	const limit = 8
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\nbc\n", []string{"a", "bc"}},
		{"no newline at the end", "a\nbc", []string{"a", "bc"}},
		{"empty lines", "\n\na\n", []string{"", "", "a"}},
		{"CRLF", "a\r\nb\r\n\r\n", []string{"a", "b", ""}},
		{"progress bar", "10%\r20%\r30%\ndone\n", []string{"10%", "20%", "30%", "done"}},
		{"CR before every step", "\r10%\r20%", []string{"10%", "20%"}},
		{"CR at the end", "a\r", []string{"a"}},
		{"many CRs", "a\r\r\r\nb\n", []string{"a", "", "b"}},
		{"as long as allowed", "12345678\n", []string{"12345678"}},
		{"too long", "123456789\nnext\n", []string{"12345678… [line cut: 9 bytes]", "next"}},
		{"too long at the end", strings.Repeat("x", 1000), []string{"xxxxxxxx… [line cut: 1000 bytes]"}},
		{"cut inside a character", "1234567\u00e9!\n", []string{"1234567… [line cut: 10 bytes]"}},
		{"cut behind a character", "123456\u00e9!\n", []string{"123456\u00e9… [line cut: 9 bytes]"}},
		{"not UTF-8", "a\xff\xfeb\n\xc3\n", []string{"a\uFFFDb", "\uFFFD"}},
		{"cut binary", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\n", []string{"\uFFFD… [line cut: 9 bytes]"}},
		{"other controls stay", "a\x00\x1b[0m\n", []string{"a\x00\x1b[0m"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for kind, r := range map[string]io.Reader{
				"at once":      strings.NewReader(test.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(test.in)),
				"end with it":  iotest.DataErrReader(strings.NewReader(test.in)),
			} {
				var got []string
				if err := Lines(r, limit, func(line string) { got = append(got, line) }); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%s: %q, want %q", kind, got, test.want)
				}
			}
		})
	}
}

func TestLinesReportsABrokenReader(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	err := Lines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 10,
		func(line string) { got = append(got, line) })
	if !errors.Is(err, broken) || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q, %v, want both lines and %v", got, err, broken)
	}
}

// Memory must not follow the length of a line.
func TestLinesHoldsNoMoreThanItsLimit(t *testing.T) {
	s := splitter{limit: 100, fn: func(string) {}}
	chunk := []byte(strings.Repeat("x", 1<<16))
	for range 100 {
		s.write(chunk)
	}
	if cap(s.line) > 200 || s.size != 100<<16 {
		t.Errorf("holds %d bytes of a line of %d", cap(s.line), s.size)
	}
}

func BenchmarkLines(b *testing.B) {
	const lines = 10_000
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", lines)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := Lines(strings.NewReader(text), 1<<16, func(string) {}); err != nil {
			b.Fatal(err)
		}
	}
}
