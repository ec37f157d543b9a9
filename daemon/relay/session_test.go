package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// initialized attaches a client that has said hello and is ready; nobody reads
// for it but the test.
func initialized(t *testing.T, r *Router) *Session {
	t.Helper()
	s, err := r.Attach(Shim{})
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if err := s.Receive(t.Context(), []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	if frame := next(t, s); !strings.Contains(frame, `"protocolVersion"`) {
		t.Fatalf("got %s", frame)
	}
	return s
}

func next(t *testing.T, s *Session) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	frame, err := s.Next(ctx)
	if err != nil {
		t.Fatalf("waiting for a frame: %v", err)
	}
	return string(frame)
}

// flood has the backend send n log lines of a mebibyte each.
func flood(l *testLink, n int) { floodOf(l, noteMessage, n) }

// floodOf has the backend send n notifications of a mebibyte each.
func floodOf(l *testLink, method string, n int) {
	synctest.Wait() // until those who are to hear it are ready: what comes before is not for them
	line := wire.NewNotification(method, fmt.Appendf(nil, `{"level":"info","data":"%s"}`, strings.Repeat("x", 1<<20)))
	for range n {
		l.sink.Message(line, 0)
	}
}

func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.must(`up legacy shared {"logging":{}}`)
		synctest.Wait()
		slow, quick := initialized(t, w.router), w.attach("Q", Shim{})
		w.must("Q> ${INIT}")
		w.must("Q> ${READY}")
		// The whole outbox full is no reason to close anybody.
		flood(w.links[0], 31)
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := slow.Err(); err != nil {
			t.Fatalf("closed with a full outbox: %v", err)
		}
		// More than that for less than 30 s neither.
		slow.Accepted()
		flood(w.links[0], 2)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if err := slow.Err(); err != nil {
			t.Fatalf("closed too early: %v", err)
		}
		// It takes one part of a message: patience begins anew.
		slow.Accepted()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if err := slow.Err(); err != nil {
			t.Fatalf("closed though it reads: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := slow.Err(); !errors.Is(err, ErrSlowConsumer) {
			t.Fatalf("ended with %v", err)
		}
		if _, err := slow.Next(t.Context()); !errors.Is(err, ErrSlowConsumer) {
			t.Errorf("what was queued is still given: %v", err)
		}
		if quick.session.Err() != nil || len(quick.got) != 34 {
			t.Errorf("the other client got %d frames, %v", len(quick.got), quick.session.Err())
		}
		if got := len(w.router.Snapshot()); got != 1 {
			t.Errorf("%d sessions left", got)
		}
	})
}

// TestPausedClient: a client that is stopped for less than the patience and
// then reads has lost nothing.
func TestPausedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.must(`up legacy shared {"logging":{}}`)
		synctest.Wait()
		s := initialized(t, w.router)
		flood(w.links[0], 60)
		time.Sleep(slowAfter - time.Second)
		for range 60 {
			if !strings.Contains(next(t, s), "notifications/message") {
				t.Fatal("another frame came")
			}
		}
		time.Sleep(time.Minute)
		if err := s.Err(); err != nil {
			t.Errorf("closed all the same: %v", err)
		}
	})
}

func TestOutboxCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.must(`up legacy shared {"logging":{}}`)
		synctest.Wait()
		s := initialized(t, w.router)
		floodOf(w.links[0], noteTools, 130)
		synctest.Wait()
		if err := s.Err(); !errors.Is(err, ErrSlowConsumer) {
			t.Errorf("a client with %d MiB waiting ended with %v", 130, err)
		}
	})
}

// A backend may write more log lines than its clients read, and for ever: they pile
// up so far for one of them, so far for all, and nothing else is left out.
func TestLogLinesBeyondTheOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.must(`up legacy shared {"logging":{}}`)
		synctest.Wait()
		s := initialized(t, w.router)
		flood(w.links[0], 100)
		floodOf(w.links[0], noteTools, 1)
		if err := s.Receive(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		lines, others, size := 0, 0, 0
		read := func() (frame string) {
			frame = next(t, s)
			size += len(frame)
			if strings.Contains(frame, noteMessage) {
				lines++
			} else {
				others++
			}
			return frame
		}
		for !strings.Contains(read(), `"id":1,`) {
		}
		if lines < 60 || size > chatterCap+3<<20 {
			t.Errorf("%d log lines and %d bytes in all waited for a client that does not read", lines, size)
		}
		if others < 2 {
			t.Errorf("something else was left out")
		}
		flood(w.links[0], 1)
		synctest.Wait()
		if frame := read(); !strings.Contains(frame, noteMessage) {
			t.Errorf("after it has read the client got %.100s, not a log line", frame)
		}

		for range 9 {
			initialized(t, w.router)
		}
		flood(w.links[0], 40)
		synctest.Wait()
		if all := w.router.outBytes.Load(); all < allOutCap || all > allOutCap+11<<20 {
			t.Errorf("%d bytes wait for 10 clients that do not read, want about %d", all, allOutCap)
		}
		if frame := next(t, s); !strings.Contains(frame, noteMessage) {
			t.Errorf("the client got %.100s, not a log line", frame)
		}
	})
}

func TestMaxMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxMessage: 400})
		w.vars["BIG"] = strings.Repeat("x", 400)
		w.run(`
			attach A
			A> ${INIT}
			A< $*
			A> ${READY}
			up legacy shared {"tools":{},"prompts":{},"logging":{}}
			A< $*
			A< $*
			A< $*
			A> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"${BIG}"}]}}
			A< {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the result has 474 bytes, and [proxy] max_message allows 400 — $*"}],"isError":true,$*
			A> {"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"t"}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":2,"result":{"description":"${BIG}"}}
			A< {"jsonrpc":"2.0","id":2,"error":{"code":-31922,"message":"the result has $* bytes, and [proxy] max_message allows 400",$*
			A> {"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"t"}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"${BIG}"}}
			A< {"jsonrpc":"2.0","id":3,"error":{"code":-31922,$*
			L1> {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"${BIG}"}}
			A> {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":"q","method":"made/up","params":{"x":"${BIG}"}}
			L1< {"jsonrpc":"2.0","id":"q","error":{"code":-32603,$*max_message$*
		`)
	})
}

// TestMaxMessageExact: the newline counts, and exactly the limit passes.
func TestMaxMessageExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frame := `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"1234"}}`
		w := newWorld(t, Config{MaxMessage: len(frame) + 1})
		w.must(`up legacy shared {"tools":{}}`)
		w.must("attach A")
		synctest.Wait()
		// The handshake itself is larger, so a modern client does without.
		w.run(`
			A> {"jsonrpc":"2.0","id":1,"method":"made/up","params":{${M}}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"1234"}}
			A< {"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"1234"}}
			A> {"jsonrpc":"2.0","id":1,"method":"made/up","params":{${M}}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"12345"}}
			A< {"jsonrpc":"2.0","id":1,"error":{"code":-31922,$*
		`)
	})
}

func TestTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		c := w.attach("A", Shim{})
		long := &wire.TooLongError{Size: 300 << 20, Limit: 200 << 20, Head: []byte(`{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"x":"`)}
		if err := c.session.ReceiveTooLong(t.Context(), long); err != nil {
			t.Fatal(err)
		}
		w.run(`A< {"jsonrpc":"2.0","id":"big","error":{"code":-32600,"message":$m}}`)
		if err := c.session.ReceiveTooLong(t.Context(), &wire.TooLongError{Head: []byte(`{"method":"x`)}); err != nil {
			t.Fatal(err)
		}
		w.run("quiet")
		for _, head := range []string{`{"result":{"x":"`, `{"method":"tools/call","params":{"x":"`} {
			long := &wire.TooLongError{Head: []byte(head), Tail: []byte(`xx"},"jsonrpc":"2.0","id":"last"}`)}
			if err := c.session.ReceiveTooLong(t.Context(), long); err != nil {
				t.Fatal(err)
			}
		}
		w.run(`A< {"jsonrpc":"2.0","id":"last","error":{"code":-32600,"message":$n}}
			quiet`)
	})
}

func TestLimits(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			for _, name := range []string{"A", "B"} {
				c := w.attach(name, Shim{})
				for n := range maxHeld / 2 {
					call := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"made/up","params":{%s}}`, n, modernMeta(""))
					if err := c.session.Receive(t.Context(), call); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.run(`
				quiet
				attach C
				C> {"jsonrpc":"2.0","id":"x","method":"made/up","params":{${M}}}
				C< {"jsonrpc":"2.0","id":"x","error":{"code":-31920,$*4096$*"reason":"too-many-held"$*
				A> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}
				C> {"jsonrpc":"2.0","id":"x","method":"made/up","params":{${M}}}
				quiet`)
			for _, name := range []string{"A", "B", "C"} {
				w.clients[name].session.Close(errors.New("gone"))
			}
			synctest.Wait()
			w.run(`
				attach D
				D> {"jsonrpc":"2.0","id":"x","method":"made/up","params":{${M}}}
				quiet`)
		})
	})
	t.Run("held bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.run(`
				attach A
				A> {"jsonrpc":"2.0","id":1,"method":"made/up","params":{${M}}}
				quiet`)
			// As if it were larger, without the memory for it.
			held := &w.router.held
			size := held.bytes
			held.bytes += maxHeldBytes - 2*size + 1
			w.run(`
				A> {"jsonrpc":"2.0","id":2,"method":"made/up","params":{${M}}}
				A< {"jsonrpc":"2.0","id":2,"error":{"code":-31920,"message":"1 requests of $* bytes wait for the backend already, and no more than 4096 of 67108864 bytes may",$*
				A> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
				A> {"jsonrpc":"2.0","id":3,"method":"made/up","params":{${M}}}
				quiet
				A> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
			if got := held.bytes - (maxHeldBytes - 2*size + 1); got != 0 {
				t.Errorf("%d bytes count as held when nothing is", got)
			}
		})
	})
	t.Run("open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.must(`up legacy shared {}`)
			c := w.attach("A", Shim{})
			for n := range maxOpen {
				call := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"made/up","params":{%s}}`, n, modernMeta(""))
				if err := c.session.Receive(t.Context(), call); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			for _, ok := w.links[0].pop(); ok; _, ok = w.links[0].pop() {
			}
			w.run(`
				A> {"jsonrpc":"2.0","id":"x","method":"ping"}
				A< {"jsonrpc":"2.0","id":"x","error":{"code":-31921,"message":"4096 requests of this client are open, and no more may be",$*
				L1> {"jsonrpc":"2.0","id":7,"result":{}}
				A< $*
				A> {"jsonrpc":"2.0","id":"x","method":"ping"}
				A< {"jsonrpc":"2.0","id":"x","result":{}}`)
			w.clients["A"].session.Close(errors.New("gone"))
			synctest.Wait()
		})
	})
	t.Run("open bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.run(`
				up legacy shared {}
				attach A
				A> {"jsonrpc":"2.0","id":1,"method":"made/up","params":{${M}}}
				L1< $*
				attach B`)
			r := w.router
			a := r.order[0]
			size := a.openBytes
			if size == 0 || r.openBytes != size {
				t.Fatalf("%d bytes of the client and %d of all are counted", size, r.openBytes)
			}
			w.vars["CALL"] = `{"jsonrpc":"2.0","id":9,"method":"made/up","params":{` + w.vars["M"] + `}}`
			// As if there were more, without the memory for it.
			a.openBytes += maxOpenBytes - 2*size + 1
			w.run(`
				A> ${CALL}
				A< {"jsonrpc":"2.0","id":9,"error":{"code":-31921,"message":"requests of $* bytes of this client are open, and no more than 268435456 bytes may be",$*`)
			a.openBytes -= maxOpenBytes - 2*size + 1
			r.openBytes += maxAllOpenBytes - 2*size + 1
			w.run(`
				A> ${CALL}
				A< {"jsonrpc":"2.0","id":9,"error":{"code":-31921,"message":"requests of $* bytes of all clients are open, and no more than 536870912 bytes may be",$*
				A gone
				L1< cancel 1
				B> ${CALL}
				L1< $*
				B gone
				L1< cancel 2`)
			if r.openBytes != maxAllOpenBytes-2*size+1 {
				t.Errorf("%d bytes count as open when nobody is there", r.openBytes-(maxAllOpenBytes-2*size+1))
			}
		})
	})
	t.Run("batch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.vars["MANY"] = strings.Repeat(`{"jsonrpc":"2.0","method":"a"},`, maxOpen)
			w.run(`
				attach A
				A> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"o","version":"1"}}}
				A< $*
				A> [${MANY}{"jsonrpc":"2.0","method":"a"}]
				A< {"jsonrpc":"2.0","id":null,"error":{"code":-31921,"message":"a batch has 4097 messages, and no more than 4096 may be",$*
				quiet`)
			// Answers that are too much together do not wait for each other.
			r, c := w.router, w.router.order[0]
			b := &batch{open: 1}
			for range 3 {
				r.respondIn(b, c, "1", bytes.Repeat([]byte("1"), outboxLimit/3+1))
			}
			r.respondIn(b, c, "4", []byte("4"))
			r.settleBatch(c, b)
			synctest.Wait()
			if got := len(w.clients["A"].got); got != 4 || b.responses != nil {
				t.Errorf("the client got %d messages, and %d wait", got, len(b.responses))
			}
			w.clients["A"].got = nil
		})
	})
	t.Run("words of a client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.vars["NAME"] = strings.Repeat("ä", maxShown)
			w.vars["BIG"] = strings.Repeat("x", maxPeerBytes)
			w.run(`
				attach A
				A> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"${BIG}"}}}
				A< {"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Invalid params: clientInfo and capabilities have $* bytes, and no more than 1048576 may be"}}
				A> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"${NAME}","capabilities":{},"clientInfo":{"name":"${NAME}","version":"${NAME}"}}}
				A< {"jsonrpc":"2.0","id":0,"result":$*
				A> {"jsonrpc":"2.0","method":"${NAME}"}
				quiet`)
			s := w.router.Snapshot()[0]
			for _, text := range []string{s.ClientName, s.ClientVersion, s.LastMethod} {
				if len(text) > maxShown || !strings.HasSuffix(text, "ä…") || !utf8.ValidString(text) {
					t.Errorf("the status shows %d bytes, %q", len(text), text)
				}
			}
		})
	})
	t.Run("subscriptions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.vars["BIG"] = strings.Repeat("x", maxTopicBytes)
			w.run(`
				facts legacy ${ALL}
				attach A
				A> ${INIT}
				A< $*`)
			subscribe := func(n int) {
				frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"made://up/%d"}}`, n)
				if err := w.clients["A"].session.Receive(t.Context(), frame); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			for n := range maxTopics - 1 {
				w.router.order[0].subs[fmt.Sprintf("made://up/%d", n)] = struct{}{}
			}
			subscribe(maxTopics - 1)
			w.must(`A< {"jsonrpc":"2.0","id":1,"result":{}}`)
			subscribe(maxTopics)
			w.run(`A< {"jsonrpc":"2.0","id":1,"error":{"code":-31925,"message":"this client would subscribe to 4097 things, and no more than 4096 may be",$*`)
			subscribe(7) // it has that one already
			w.run(`
				A< {"jsonrpc":"2.0","id":1,"result":{}}
				A> {"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"made://up/7"}}
				A< {"jsonrpc":"2.0","id":1,"result":{}}
				A> {"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"${BIG}"}}
				A< {"jsonrpc":"2.0","id":1,"error":{"code":-31925,"message":"what this client subscribes to would have $* bytes, and no more than 4194304 may be",$*`)
			subscribe(maxTopics)
			w.must(`A< {"jsonrpc":"2.0","id":1,"result":{}}`)
		})
	})
	t.Run("listens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			uris := func(n int) string {
				var all []string
				for i := range n {
					all = append(all, fmt.Sprintf(`"made://up/%d"`, i))
				}
				return strings.Join(all, ",")
			}
			w.vars["HALF"], w.vars["MORE"] = uris(maxTopics/2), uris(maxTopics/2+1)
			w.vars["BIG"] = strings.Repeat("x", maxTopicBytes)
			w.run(`
				facts modern ${ALL}
				attach A
				A> {"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{${M},"notifications":{"resourceSubscriptions":[${HALF}]}}}
				A< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",$*
				A> {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{${M},"notifications":{"resourceSubscriptions":[${MORE}]}}}
				A< {"jsonrpc":"2.0","id":2,"error":{"code":-31925,"message":"this client would subscribe to 4097 things, and no more than 4096 may be",$*
				A> {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{${M},"notifications":{"taskIds":["${BIG}"]}}}
				A< {"jsonrpc":"2.0","id":2,"error":{"code":-31925,"message":"what this client subscribes to would have $*
				A> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
				A> {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{${M},"notifications":{"resourceSubscriptions":[${MORE}]}}}
				A< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",$*`)
		})
	})
	t.Run("before an acknowledgement", func(t *testing.T) {
		l := &listen{}
		notice := func(n int) lateNotice {
			return lateNotice{noteUpdated, fmt.Sprintf("%04d", n) + strings.Repeat("x", 4<<10)}
		}
		size := eventBytes + len(notice(0).params)
		for n := range 2 * maxLateBytes / size {
			if fits := (n+1)*size <= maxLateBytes; l.note(notice(n)) != fits {
				t.Fatalf("notice %d: %v", n, !fits)
			}
		}
		l.lateBytes = maxLateBytes
		if !l.note(notice(0)) || l.note(lateNotice{noteTools, "new"}) {
			t.Error("what is kept already is refused, or something new is not")
		}
	})
	t.Run("unfinished", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.must(`up legacy own {"tools":{}}`)
			w.must(`attach B`)
			synctest.Wait()
			answer := func(id int) {
				w.must(`B> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${M},"name":"a"}}`)
				synctest.Wait()
				w.must(`L1< $*`)
				w.links[0].sink.Message(wire.NewFailure(wire.IntID(int64(id)), &wire.Error{
					Code: era.CodeURLElicitation, Data: []byte(`{"elicitations":[{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}]}`),
				}), 0)
				synctest.Wait()
			}
			for id := range maxUnfinished {
				answer(id + 1)
				w.must(`B< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required",$*`)
			}
			answer(maxUnfinished + 1)
			w.run(`
				B< {"jsonrpc":"2.0","id":1,"result":{$*1024 requests of this client wait for input$*
				wait 10m`)
			answer(maxUnfinished + 2)
			w.must(`B< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required",$*`)
		})
	})
	t.Run("names of tasks and pages", func(t *testing.T) {
		o := owners{}
		for n := range 2 * maxOwned {
			o.note(fmt.Sprint(n), &client{})
		}
		o.note(strings.Repeat("x", maxOwnedName+1), &client{})
		if len(o.byName) != maxOwned || len(o.order) != maxOwned || o.owner(fmt.Sprint(2*maxOwned-1)) == nil || o.owner("0") != nil {
			t.Errorf("%d and %d names are kept", len(o.byName), len(o.order))
		}
	})
	t.Run("sessions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			var first *Session
			for n := range MaxSessions {
				s, err := w.router.Attach(Shim{})
				if err != nil {
					t.Fatalf("session %d: %v", n, err)
				}
				if first == nil {
					first = s
				}
			}
			if _, err := w.router.Attach(Shim{}); !errors.Is(err, ErrTooManySessions) || !strings.Contains(err.Error(), "4096") {
				t.Errorf("one session too many: %v", err)
			}
			first.Close(errors.New("gone"))
			synctest.Wait()
			if _, err := w.router.Attach(Shim{}); err != nil {
				t.Errorf("after one has left: %v", err)
			}
		})
	})
}

func TestSnapshotAndGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		if s := w.router.Snapshot(); len(s) != 0 {
			t.Errorf("sessions before the first: %v", s)
		}
		if p := w.router.Greeting(); p.Era != era.None {
			t.Errorf("greeting before the first: %v", p)
		}
		w.run(`
			attach A
			A> ${INIT}
			A< $*
			A> ${READY}
			attach B
			B> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"new","version":"2"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{}}},"name":"t"}}
			attach C`)
		all := w.router.Snapshot()
		if len(all) != 3 {
			t.Fatalf("%d sessions", len(all))
		}
		a, b, c := all[0], all[1], all[2]
		if a.ClientName != "old" || a.Era != "legacy" || a.Version != "2025-11-25" || a.InFlight != 0 || a.LastMethod != "notifications/initialized" || a.Shim.PID != 1 {
			t.Errorf("A is %+v", a)
		}
		if b.ClientName != "new" || b.ClientVersion != "2" || b.Era != "modern" || b.Version != "2026-07-28" || b.InFlight != 1 || b.LastMethod != "tools/call" {
			t.Errorf("B is %+v", b)
		}
		if c.ClientName != "" || c.Era != "" || c.LastMethod != "" {
			t.Errorf("C is %+v", c)
		}
		// B's request starts the backend, so it is B's handshake, for all.
		if p := w.router.Greeting(); p.Era != era.Modern || !bytes.Contains(p.Info, []byte("new")) || !bytes.Contains(p.Capabilities, []byte("sampling")) {
			t.Errorf("greeting %v %s %s", p.Era, p.Info, p.Capabilities)
		}
		w.run(`
			up legacy own {"tools":{}}
			A< $*
			A< $*
			A< $*
			L1< $*`)
		all = w.router.Snapshot()
		if a, b := all[0], all[1]; a.Link != "" || b.Link != "legacy 2025-11-25" || a.Stale == "" || b.Stale != "" {
			t.Errorf("A is %+v\nB is %+v", a, b)
		}
		w.run(`
			B gone
			L1< cancel 1
			A gone
			C gone`)
		if p := w.router.Greeting(); !bytes.Contains(p.Capabilities, []byte("sampling")) {
			t.Errorf("the last union is forgotten: %s", p.Capabilities)
		}
	})
}

func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		var watched atomic.Bool
		w := newWorld(t, Config{Watched: watched.Load, Traffic: func(m Traffic) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%v %d %d %v %s", m.Direction, m.Session, m.Generation, m.Era, m.Frame))
		}})
		// While nobody looks nothing is shown.
		w.run(`
			up modern shared {"tools":{}}
			attach Z
			Z> ${INIT}
			Z< $*
			Z gone`)
		watched.Store(true)
		w.run(`
			attach A
			A> {"jsonrpc":"2.0","id":9,"method":"tools/call","params":{${BARE}}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}
			A< $*
			A> {"jsonrpc":"2.0","id":9,"method":"tools/call","params":{${BARE}}}
			L1< $*
			A gone
			L1< cancel 2`)
		call := `"method":"tools/call","params":{` + modernMeta("") + `}}`
		want := []string{
			`from client 2 0 none {"jsonrpc":"2.0","id":9,` + call,
			`to backend 2 1 modern {"jsonrpc":"2.0","id":1,` + call,
			`from backend 2 1 modern {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`,
			`to client 2 0 modern {"jsonrpc":"2.0","id":9,"result":{"resultType":"complete"}}`,
			`from client 2 0 modern {"jsonrpc":"2.0","id":9,` + call,
			`to backend 2 1 modern {"jsonrpc":"2.0","id":2,` + call,
			`to backend 2 1 modern {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
		}
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(seen, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("saw\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}

// TestEndOfRun: whatever is going on, the end of Run ends everything, with the
// cause it was given, and nothing is left behind. Before a successor the request
// that waits is left to it.
func TestEndOfRun(t *testing.T) {
	for cause, responses := range map[error]int{ErrShutdown: 2, ErrRestart: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.run(`
				open fails not now
				up legacy own {"tools":{}}
				attach A
				A> {"jsonrpc":"2.0","id":1,"method":"made/up","params":{${M}}}
				A> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{${M},"name":"dev_slow"}}
				quiet`)
			w.stop(cause)
			if err := w.clients["A"].err; !errors.Is(err, cause) {
				t.Errorf("the session ended with %v", err)
			}
			if got := len(w.clients["A"].got); got != responses {
				t.Errorf("%d responses to 2 requests, want %d", got, responses)
			}
			if _, err := w.router.Attach(Shim{}); !errors.Is(err, cause) {
				t.Errorf("attaching later: %v", err)
			}
			if err := w.clients["A"].session.Receive(t.Context(), nil); !errors.Is(err, cause) {
				t.Errorf("receiving later: %v", err)
			}
			w.router.Up(&testGeneration{w: w})
			w.clients["A"].session.EndOfInput()
			w.clients["A"].session.Close(errors.New("gone"))
			if got := w.router.Snapshot(); len(got) != 0 {
				t.Errorf("sessions left: %v", got)
			}
		})
	}
}

func TestMailboxBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox()
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.postMessage(messageEvent{}, mailboxLimit, nil)
			m.postMessage(messageEvent{}, 1, nil)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the reader of the backend was not made to wait")
		default:
		}
		if got := len(m.take()); got != 2 {
			t.Errorf("%d events", got)
		}
		// A message counts even if it says nothing.
		sink{&Router{mail: m}, &link{}}.Message(wire.NewNotification("x", nil), 0)
		if m.bytes <= eventBytes {
			t.Errorf("a message counts as %d bytes", m.bytes)
		}
		synctest.Wait()
		<-done
		// A link that is given up does not wait for the loop.
		abandoned := make(chan struct{})
		close(abandoned)
		m.postMessage(messageEvent{}, 2*mailboxLimit, abandoned)
		m.close()
		if m.post(messageEvent{}) {
			t.Error("posted into a closed mailbox")
		}
		m.postMessage(messageEvent{}, 2*mailboxLimit, nil)
	})
}

// TestFrontOffer: a project may offer one era only.
func TestFrontOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newWorld(t, Config{Offer: era.LegacyOnly, Logger: slog.New(slog.DiscardHandler)}).run(`
			attach A
			A> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{${M}}}
			A< {"jsonrpc":"2.0","id":1,"error":{"code":-32601,$*
			A> ${INIT}
			A< {"jsonrpc":"2.0","id":0,"result":$*`)
	})
	synctest.Test(t, func(t *testing.T) {
		newWorld(t, Config{Offer: era.ModernOnly}).run(`
			attach A
			A> ${INIT}
			A< {"jsonrpc":"2.0","id":0,"error":{"code":-32022,$*
			A> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{${M}}}
			A< {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],$*`)
	})
}

// TestQuestionLimits: a backend cannot ask without end.
func TestQuestionLimits(t *testing.T) {
	ask := func(w *world, l *testLink, n int) {
		l.sink.Message(wire.NewRequest(wire.IntID(int64(n)), methodElicit, []byte(`{"message":"m"}`)), 0)
		synctest.Wait()
	}
	t.Run("of one call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.run(`
				up legacy shared {"tools":{}}
				attach B
				B> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${M},"name":"a"}}
				L1< $*`)
			for n := range maxQuestions + 1 {
				ask(w, w.links[0], n)
			}
			w.run(`
				L1< {"jsonrpc":"2.0","id":64,"error":{"code":-32603,"message":"64 questions of this call are open, and no more may be"}}
				wait 20ms
				B< {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required",$*`)
		})
	})
	t.Run("at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			many := func(format string) string {
				var all []string
				for n := range maxQuestions + 1 {
					all = append(all, fmt.Sprintf(format, n))
				}
				return strings.Join(all, ",")
			}
			w.vars["INPUTS"] = many(`"k%d":{"method":"roots/list"}`)
			w.run(`
				attach A
				A> ${INIT}
				A< $*
				up modern shared {"tools":{}}
				A> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
				L1< $*
				L1> {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{${INPUTS}}}}
				A< {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the server asked for 65 inputs at once, and no more than 64 may be"}],"isError":true}}`)
		})
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.run(`
				up legacy own {"tools":{}}
				attach B
				B> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{${M},"name":"a"}}
				L1< $*`)
			pages := strings.Repeat(`{"mode":"url","elicitationId":"e","url":"http://x","message":"m"},`, maxQuestions)
			w.links[0].sink.Message(wire.NewFailure("1", &wire.Error{
				Code: era.CodeURLElicitation, Data: []byte(`{"elicitations":[` + pages + `{"mode":"url","elicitationId":"f","url":"http://x","message":"m"}]}`),
			}), 0)
			w.run(`B< {"jsonrpc":"2.0","id":1,"result":{$*the server asked for 65 inputs at once, and no more than 64 may be$*`)
		})
	})
	t.Run("of one backend", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.run(`
				attach A
				A> ${INIT}
				A< $*
				A> ${READY}
				up legacy shared {"tools":{}}
				A< $*
				A< $*
				A< $*`)
			for n := range maxAsks + 1 {
				ask(w, w.links[0], n)
			}
			for range maxAsks {
				w.must("A< $*")
			}
			w.run(`L1< {"jsonrpc":"2.0","id":1024,"error":{"code":-32603,"message":"1024 requests to clients are open, and no more may be"}}`)
		})
	})
	t.Run("bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.must("up legacy shared {}")
			synctest.Wait()
			// Nobody is there to be asked, so it is kept for a while.
			big := func(size int) {
				l := w.links[0]
				l.sink.Message(wire.NewRequest(wire.IntID(int64(size)), methodElicit, bytes.Repeat([]byte("1"), size)), 0)
				synctest.Wait()
			}
			w.run("attach A") // opens the link
			big(maxAskBytes - 1000)
			w.run("quiet")
			big(2000)
			w.run(`
				L1< {"jsonrpc":"2.0","id":2000,"error":{"code":-32603,"message":"requests to clients of more than 33554432 bytes would be open"}}
				wait 5s
				L1< {"jsonrpc":"2.0","id":$n,"error":$*`)
			big(3000)
			w.run(`quiet
				wait 5s
				L1< {"jsonrpc":"2.0","id":3000,"error":$*`)
		})
	})
}

// TestLargeInputs: what a modern backend wants is held to max_message like
// everything else, and so is a batch of answers.
func TestLargeInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxMessage: 300})
		w.vars["BIG"] = strings.Repeat("x", 300)
		w.run(`
			attach A
			A> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{"sampling":{},"roots":{}},"clientInfo":{"name":"o","version":"1"}}}
			A< $*
			up modern shared {"tools":{}}
			A> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}
			L1< $*
			L1> {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"sampling/createMessage","params":{"x":"${BIG}"}}}}}
			A< {"jsonrpc":"2.0","id":$q,"method":"roots/list"}
			A< {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$q}}
			A< {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the server's request for input is larger than [proxy] max_message allows"}],"isError":true}}
			A> [{"jsonrpc":"2.0","id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","method":"ping"},{"jsonrpc":"2.0","id":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","method":"ping"}]
			A< {"jsonrpc":"2.0","id":"aaaa$*
			A< {"jsonrpc":"2.0","id":"bbbb$*
			A> [[]]
			A< [{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a batch inside a batch"}}]`)
	})
}

// A client's last request is answered even if its input ends right behind it.
func TestLastRequestBeforeTheEndIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		for range 200 {
			s := initialized(t, w.router)
			if err := s.Receive(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)); err != nil {
				t.Fatal(err)
			}
			s.EndOfInput()
			if frame := next(t, s); !strings.Contains(frame, `"id":1`) {
				t.Fatalf("got %s", frame)
			}
			if _, err := s.Next(t.Context()); !errors.Is(err, ErrEnded) {
				t.Fatalf("the end is %v", err)
			}
		}
	})
}

// talkativeTools has one dev tool, which says more than a client wants to hear.
type talkativeTools struct{ testTools }

func (talkativeTools) Call(_ context.Context, _ string, _ []byte, progress func(string)) ToolAnswer {
	for range 1000 {
		progress("at once")
	}
	for range 10 {
		time.Sleep(progressPause / 2)
		progress("later")
	}
	return ToolAnswer{Text: "done"}
}

// TestProgressIsBounded: a dev tool that reports each line of a long build does not flood the client.
func TestProgressIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Tools: talkativeTools{}})
		c := w.attach("A", Shim{})
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + modernMeta(`"x":{}`) + `,"name":"dev_status"}}`
		call = strings.Replace(call, `"_meta":{`, `"_meta":{"progressToken":7,`, 1)
		if err := c.session.Receive(t.Context(), []byte(call)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		all := strings.Join(c.got, "\n")
		if got := strings.Count(all, "at once"); got != fullProgress {
			t.Errorf("the client hears of %d steps at once, want %d", got, fullProgress)
		}
		if got := strings.Count(all, "later"); got != 5 || !strings.Contains(all, `"progress":1010`) || !strings.Contains(all, "done") {
			t.Errorf("the client hears of %d steps later on:\n%s", got, all[max(0, len(all)-500):])
		}
		c.got = nil
	})
}

// TestFailuresAreMasked: what a link says of its failure may be the backend's words, with its secrets in them.
func TestFailuresAreMasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newWorld(t, Config{Mask: func(text string) string { return strings.ReplaceAll(text, "hush", "***") }}).run(`
			open fails it said hush
			up legacy own {"tools":{}}
			attach A
			A> {"jsonrpc":"2.0","id":1,"method":"made/up","params":{${M}}}
			wait 15s
			A< {"jsonrpc":"2.0","id":1,"error":{"code":-31918,"message":"no connection to the backend within 15s: $*it said ***",$*
			open refuses -1 no, hush
			A> {"jsonrpc":"2.0","id":2,"method":"made/up","params":{${M}}}
			wait 10s
			A< {"jsonrpc":"2.0","id":2,"error":{"code":-31918,"message":"the backend refused the handshake: no, ***",$*
			open works
			A> {"jsonrpc":"2.0","id":3,"method":"made/up","params":{${M}}}
			L1< $*
			L1 failed 1 reset by hush
			wait 1s
			A< {"jsonrpc":"2.0","id":3,"error":{"code":-31919,"message":"no answer from the backend: reset by ***",$*`)
	})
}
