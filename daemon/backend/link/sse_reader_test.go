package link

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readAll reads a stream to its end, and with whatever cuts the reads may have.
func readAll(t *testing.T, r io.Reader, limit int) (events []event, tooLarge int) {
	t.Helper()
	reader := newEventReader(r, limit)
	for {
		e, err := reader.next()
		if _, ok := errors.AsType[*TooLargeError](err); ok {
			tooLarge++
			continue
		}
		if errors.Is(err, io.EOF) {
			return events, tooLarge
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

func TestEventReader(t *testing.T) {
	ev := func(data string) event { return event{data: []byte(data)} }
	for _, tt := range []struct {
		name, in string
		want     []event
		tooLarge int
	}{
		{name: "nothing", in: ""},
		{name: "unnamed", in: "data: a\n\n", want: []event{ev("a")}},
		{name: "named", in: "event: message\ndata: a\n\n", want: []event{{name: "message", data: []byte("a")}}},
		{name: "crlf", in: "data: a\r\n\r\ndata: b\r\n\r\n", want: []event{ev("a"), ev("b")}},
		{name: "cr alone", in: "data: a\r\rdata: b\r\r", want: []event{ev("a"), ev("b")}},
		{name: "mixed ends", in: "data: a\r\ndata: b\n\r\ndata: c\r\n\n", want: []event{ev("a\nb"), ev("c")}},
		{name: "byte order mark", in: "\ufeffdata: a\n\n", want: []event{ev("a")}},
		{name: "no space", in: "data:a\n\n", want: []event{ev("a")}},
		{name: "one space only", in: "data:  a \n\n", want: []event{ev(" a ")}},
		{name: "several lines", in: "data: {\ndata: }\n\n", want: []event{ev("{\n}")}},
		{name: "empty first line", in: "data:\ndata: a\n\n", want: []event{ev("\na")}},
		{name: "field without colon", in: "data\ndata: a\n\n", want: []event{ev("\na")}},
		{name: "comments", in: ": ok\n\n:keepalive\ndata: a\n: in between\ndata: b\n\n", want: []event{ev("a\nb")}},
		{name: "unknown fields", in: "foo: bar\nbaz\ndata: a\n\n", want: []event{ev("a")}},
		{name: "only a name", in: "event: ping\n\ndata: a\n\n", want: []event{ev("a")}},
		{name: "no blank line at the end", in: "data: a\n\ndata: b", want: []event{ev("a"), ev("b")}},
		{name: "id stays", in: "id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\n", want: []event{
			{data: []byte("a"), id: "1"}, {data: []byte("b"), id: "1"}, {data: []byte("c"), id: "2"}}},
		{name: "id is taken back", in: "id: 1\ndata: a\n\nid\ndata: b\n\n", want: []event{
			{data: []byte("a"), id: "1"}, ev("b")}},
		{name: "id with NUL", in: "id: a\x00\ndata: a\n\n", want: []event{ev("a")}},
		{name: "prime", in: "event: prime\nid: s_0\ndata: \n\n", want: []event{{name: "prime", id: "s_0", data: []byte{}}}},
		{name: "close", in: "event: close\nretry: 10\ndata: \n\n", want: []event{
			{name: "close", retry: 10 * time.Millisecond, data: []byte{}}}},
		{name: "retry", in: "retry: 1500\n\nretry: 1x\ndata: a\n\nretry: 999999999\n\n", want: []event{
			{retry: 1500 * time.Millisecond}, ev("a"), {retry: maxRetry}}},
		{name: "as large as may be", in: "data: " + strings.Repeat("x", 94) + "\n\n", want: []event{ev(strings.Repeat("x", 94))}},
		{name: "too large", in: "data: " + strings.Repeat("x", 95) + "\n\ndata: a\n\n", want: []event{ev("a")}, tooLarge: 1},
		{name: "too large in lines", in: strings.Repeat("data: xxxx\n", 11) + "\ndata: a\n\n", want: []event{ev("a")}, tooLarge: 1},
		{name: "too large and cut off", in: "data: a\n\ndata: " + strings.Repeat("x", 200), want: []event{ev("a")}, tooLarge: 1},
		{name: "comments do not count", in: strings.Repeat(": keep\n", 50) + "data: a\n\n", want: []event{ev("a")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(tt.in),
				"bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
				"last":  iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, tooLarge := readAll(t, r, 100)
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(event{})); diff != "" || tooLarge != tt.tooLarge {
					t.Errorf("%s: %d too large, %s", how, tooLarge, diff)
				}
			}
		})
	}
}

func TestEventReaderPassesErrors(t *testing.T) {
	broken := errors.New("connection reset")
	r := newEventReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)), 100)
	if e, err := r.next(); err != nil || string(e.data) != "a" {
		t.Errorf("got %v, %v", e, err)
	}
	if e, err := r.next(); !errors.Is(err, broken) {
		t.Errorf("got %v, %v: half an event on a broken stream is none", e, err)
	}
}

func TestEventReaderTakesLargeEvents(t *testing.T) {
	const size = 20 << 20
	in := "event: message\ndata: " + strings.Repeat("x", size) + "\n\n"
	events, _ := readAll(t, strings.NewReader(in), DefaultMaxReply)
	if len(events) != 1 || len(events[0].data) != size {
		t.Errorf("got %d events", len(events))
	}
}

// FuzzEventReader: however a stream is cut into reads, the events are the same, and none is larger than the limit.
func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\n", "event: x\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\n", ": c\n\nretry: 5\n\n", "\ufeffdata\r\r\n\ndata: x",
		"data: " + strings.Repeat("x", 100) + "\n\ndata: y\n\n",
	} {
		f.Add(seed)
	}
	const limit = 64
	f.Fuzz(func(t *testing.T, in string) {
		whole, large := readAll(t, strings.NewReader(in), limit)
		bytes, large2 := readAll(t, iotest.OneByteReader(strings.NewReader(in)), limit)
		if diff := cmp.Diff(whole, bytes, cmp.AllowUnexported(event{})); diff != "" || large != large2 {
			t.Error(diff, large, large2)
		}
		for _, e := range whole {
			if len(e.data) > limit {
				t.Errorf("an event of %d bytes", len(e.data))
			}
		}
	})
}
