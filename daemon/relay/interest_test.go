package relay

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/wire"
)

// TestInterest gives the interest events and looks at what it wants sent and what
// it says. A step is "event -> operations; outcomes".
//
//	want a | gap a       one more wants a; who may have missed something
//	drop a               one less
//	lists                list changes are wanted
//	ok 1 | err 1 -32002  answer to request 1, or the end of a listen
//	ack 1 | nack 1       acknowledgement of a listen, covering it or not
//	late 1               request 1 has taken too long
//	revive a | revive    of a topic, of the lists
func TestInterest(t *testing.T) {
	tests := map[string]struct {
		modern, isolated bool
		steps            string
	}{
		"legacy: subscribe and unsubscribe": {steps: `
			want a -> subscribe 1 a
			ok 1 -> ; expressed a
			want a ->
			drop a ->
			drop a -> unsubscribe 2 a
			ok 2 -> ; settled a`},
		"legacy: one request at a time, in order": {steps: `
			want a -> subscribe 1 a
			want b ->
			want c ->
			ok 1 -> subscribe 2 b; expressed a
			ok 2 -> subscribe 3 c; expressed b
			ok 3 -> ; expressed c`},
		"legacy: subscribe then unsubscribe ends unsubscribed": {steps: `
			want a -> subscribe 1 a
			drop a ->
			ok 1 -> unsubscribe 2 a; settled a
			ok 2 -> ; settled a`},
		"legacy: unsubscribe then subscribe ends subscribed": {steps: `
			want a -> subscribe 1 a
			ok 1 -> ; expressed a
			drop a -> unsubscribe 2 a
			want a ->
			ok 2 -> subscribe 3 a
			ok 3 -> ; expressed a`},
		"legacy: dropped before its turn is never asked for": {steps: `
			want a -> subscribe 1 a
			want b ->
			drop b -> ; settled b
			ok 1 -> ; expressed a`},
		"legacy: refused": {steps: `
			want a -> subscribe 1 a
			err 1 -32002 -> ; refused a
			drop a -> ; settled a
			want a -> subscribe 2 a`},
		"legacy: failed, revived": {steps: `
			want a -> subscribe 1 a
			err 1 0 -> ; failed a
			want b -> subscribe 2 b
			ok 2 -> ; expressed b
			revive a -> subscribe 3 a
			ok 3 -> ; expressed a
			revive a ->`},
		"legacy: refused after nobody wants it": {steps: `
			want a -> subscribe 1 a
			drop a ->
			err 1 -32002 -> ; settled a
			want a -> subscribe 2 a`},
		"legacy: a gap is told once": {steps: `
			gap a -> subscribe 1 a
			want a ->
			ok 1 -> ; expressed a, missed a
			drop a ->
			drop a -> unsubscribe 2 a
			ok 2 -> ; settled a
			want a -> subscribe 3 a
			ok 3 -> ; expressed a`},
		"legacy: too late, and perhaps through all the same": {steps: `
			want a -> subscribe 1 a
			want b ->
			late 1 -> subscribe 2 b; failed a
			drop a ->
			ok 2 -> unsubscribe 3 a; expressed b
			late 3 -> ; settled a
			ok 1 ->`},
		"legacy: lists come unasked": {steps: `
			lists ->
			want a -> subscribe 1 a`},
		"modern: lists first, once": {modern: true, steps: `
			want a -> listen 1 a
			lists ->
			ack 1 -> listen 2 lists; expressed a
			lists ->
			ack 2 ->
			lists ->`},
		"modern: the last one gone, the flags are asked for anew": {modern: true, steps: `
			lists -> listen 1 lists
			want a ->
			ack 1 -> listen 2 a
			want a ->
			ack 2 -> ; expressed a
			drop a ->
			drop a -> cancel 2, cancel 1
			want b ->
			ok 1 ->
			late 2 -> listen 3 lists
			ack 3 -> listen 4 b; missed lists
			ack 4 -> ; expressed b
			ok 2 ->`},
		"modern: without flags nothing is asked for anew": {modern: true, steps: `
			want a -> listen 1 a
			ack 1 -> ; expressed a
			drop a -> cancel 1
			want a ->
			ok 1 -> listen 2 a
			ack 2 -> ; expressed a`},
		"modern: streams of their own need no care": {modern: true, isolated: true, steps: `
			lists -> listen 1 lists
			ack 1 ->
			want a -> listen 2 a
			ack 2 -> ; expressed a
			drop a -> cancel 2
			want a -> listen 3 a
			ack 3 -> ; expressed a`},
		"modern: dropped while unacknowledged": {modern: true, steps: `
			want a -> listen 1 a
			drop a ->
			ack 1 -> cancel 1; settled a
			ok 1 ->
			want a -> listen 2 a`},
		"modern: left out of the acknowledgement": {modern: true, steps: `
			want a -> listen 1 a
			nack 1 -> cancel 1; refused a
			ok 1 ->
			drop a -> ; settled a`},
		"modern: refused, ended before its acknowledgement": {modern: true, steps: `
			want a -> listen 1 a
			err 1 -32602 -> ; refused a
			want b -> listen 2 b
			ok 2 -> ; failed b
			lists -> listen 3 lists
			err 3 -32601 -> ; ended lists
			revive -> listen 4 lists
			ack 4 ->`},
		"modern: the backend ends a listen": {modern: true, steps: `
			lists -> listen 1 lists
			ack 1 ->
			want a -> listen 2 a
			ack 2 -> ; expressed a
			ok 2 -> ; ended a
			revive a -> listen 3 a
			ack 3 -> ; expressed a, missed a
			ok 1 -> ; ended lists
			revive -> listen 4 lists
			ack 4 -> ; missed lists`},
		"modern: no acknowledgement in time": {modern: true, steps: `
			want a -> listen 1 a
			late 1 -> cancel 1; failed a
			ack 1 ->
			revive a -> listen 2 a`},
		"strangers change nothing": {modern: true, steps: `
			want a -> listen 1 a
			ack 7 ->
			ok 7 ->
			late 7 ->
			drop b ->
			revive b ->
			ack 1 -> ; expressed a`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ids := int64(0)
			i := newInterest(test.modern, test.isolated, func() int64 { ids++; return ids })
			for line := range strings.Lines(test.steps) {
				line = strings.TrimSpace(line)
				if line == "" {
					continue
				}
				event, want, _ := strings.Cut(line, "->")
				got := feed(t, i, strings.Fields(event))
				if got != strings.TrimSpace(want) {
					t.Fatalf("%s\ngot  %q\nwant %q", event, got, strings.TrimSpace(want))
				}
			}
		})
	}
}

// feed gives one event and returns what came of it.
func feed(t *testing.T, i *interest, words []string) string {
	t.Helper()
	var ops []operation
	var outs []outcome
	switch words[0] {
	case "want", "gap":
		i.want(topic{uri: words[1]}, words[0] == "gap")
	case "drop":
		outs = i.drop(topic{uri: words[1]})
	case "lists":
		i.openLists(false)
	case "ok":
		outs, _ = i.answered(number(t, words[1]), nil)
	case "err":
		outs, _ = i.answered(number(t, words[1]), &wire.Error{Code: number(t, words[2])})
	case "ack", "nack":
		ops, outs = i.acknowledged(number(t, words[1]), words[0] == "ack")
	case "late":
		ops, outs = i.expired(number(t, words[1]))
	case "revive":
		if len(words) == 1 {
			i.reviveLists()
		} else {
			i.revive(topic{uri: words[1]})
		}
	default:
		t.Fatalf("what is %q", words[0])
	}
	for {
		next := i.next()
		if len(next) == 0 {
			break
		}
		ops = append(ops, next...)
	}
	return describe(ops, outs)
}

func number(t *testing.T, word string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func describe(ops []operation, outs []outcome) string {
	var said, sent []string
	for _, op := range ops {
		switch op.kind {
		case opSubscribe:
			sent = append(sent, fmt.Sprintf("subscribe %d %s", op.id, op.topic.uri))
		case opUnsubscribe:
			sent = append(sent, fmt.Sprintf("unsubscribe %d %s", op.id, op.topic.uri))
		case opListen:
			sent = append(sent, fmt.Sprintf("listen %d %s", op.id, op.topic.uri))
		case opListenLists:
			sent = append(sent, fmt.Sprintf("listen %d lists", op.id))
		case opCancel:
			sent = append(sent, fmt.Sprintf("cancel %d", op.id))
		}
	}
	words := map[outcomeKind]string{
		expressed: "expressed ", refused: "refused ", failed: "failed ", missed: "missed ",
		missedLists: "missed lists", ended: "ended ", endedLists: "ended lists", settled: "settled ",
	}
	for _, o := range outs {
		said = append(said, words[o.kind]+o.topic.uri)
	}
	text := strings.Join(sent, ", ")
	if len(said) > 0 {
		text += "; " + strings.Join(said, ", ")
	}
	return text
}

// TestInterestConverges plays a backend that answers in its own time, and
// sometimes badly, and checks that in the end it is asked for exactly what is
// wanted, with never more than one request open.
func TestInterestConverges(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		modern, isolated := random.IntN(2) == 0, random.IntN(2) == 0
		ids := int64(0)
		i := newInterest(modern, isolated, func() int64 { ids++; return ids })
		has := map[string]int64{} // what the backend announces, by the listen
		open := map[int64]operation{}
		wanted := map[string]int{}
		perform := func(ops []operation) {
			for _, op := range ops {
				if op.kind == opCancel {
					for uri, id := range has {
						if id == op.id {
							delete(has, uri)
						}
					}
					if random.IntN(2) == 0 {
						i.answered(op.id, nil)
					} else {
						i.expired(op.id)
					}
					continue
				}
				if len(open) > 0 {
					t.Fatalf("seed %d: a second request while one is open", seed)
				}
				open[op.id] = op
			}
		}
		settle := func() {
			for ops := i.next(); len(ops) > 0; ops = i.next() {
				perform(ops)
			}
		}
		answer := func(well bool) {
			for id, op := range open {
				delete(open, id)
				var ops []operation
				switch {
				case !well && op.kind == opUnsubscribe:
					i.answered(id, &wire.Error{})
					delete(has, op.topic.uri)
				case !well:
					i.answered(id, &wire.Error{})
				case op.kind == opSubscribe:
					has[op.topic.uri] = id
					i.answered(id, nil)
				case op.kind == opUnsubscribe:
					delete(has, op.topic.uri)
					i.answered(id, nil)
				default:
					if op.kind == opListen {
						has[op.topic.uri] = id
					}
					ops, _ = i.acknowledged(id, true)
				}
				perform(ops)
			}
			settle()
		}
		for range 60 {
			uri := string(rune('a' + random.IntN(4)))
			switch random.IntN(5) {
			case 0, 1:
				wanted[uri]++
				i.want(topic{uri: uri}, false)
			case 2:
				if wanted[uri] > 0 {
					wanted[uri]--
					i.drop(topic{uri: uri})
				}
			case 3:
				i.openLists(false)
			case 4:
				answer(random.IntN(4) > 0)
			}
			settle()
		}
		for uri := range wanted {
			i.revive(topic{uri: uri})
		}
		i.reviveLists()
		for settle(); len(open) > 0; {
			answer(true)
			for uri := range wanted {
				i.revive(topic{uri: uri})
			}
			settle()
		}
		for uri, n := range wanted {
			if _, announced := has[uri]; announced != (n > 0) {
				t.Fatalf("seed %d (modern %v, isolated %v): %s wanted by %d, announced %v", seed, modern, isolated, uri, n, announced)
			}
		}
		if len(i.topics) > len(has) {
			t.Fatalf("seed %d: %d topics kept for %d subscriptions", seed, len(i.topics), len(has))
		}
	}
}
