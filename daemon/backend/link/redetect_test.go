package link

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// exchangeable is a server that becomes another one behind its URL.
func exchangeable(first kind) (kind, func(kind)) {
	var now atomic.Pointer[kind]
	now.Store(&first)
	return func(w web, r request) { (*now.Load())(w, r) }, func(next kind) { now.Store(&next) }
}

// TestVersionRefusedInMidLife exchanges the server below an open link: the request comes back as one that was not
// processed, the link ends, and the next one is of the era that is offered now.
func TestVersionRefusedInMidLife(t *testing.T) {
	for _, tt := range []struct {
		name         string
		before, then kind
		was, is      era.Era
	}{
		{"modern to legacy", typescript2, goStateful(), era.Modern, era.Legacy},
		{"legacy to modern", typescript1(), typescript2Reject, era.Legacy, era.Modern},
		{"no change", typescript2, func(w web, r request) {
			if r.Method == "tools/call" {
				w.failure(400, unsupported)
				return
			}
			typescript2(w, r)
		}, era.Modern, era.Modern},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, become := exchangeable(tt.before)
			h := connect(t, serveFake(t, server).URL, Options{}, modernPeer)
			l, sink := openLink(t, h, modernPeer)
			if l.Facts().Era != tt.was {
				t.Fatalf("a %v link", l.Facts().Era)
			}
			become(tt.then)
			l.Request(1, "tools/call", inEra(tt.was, "tools/call", `{"name":"a"}`), modernPeer)
			err := sink.failure(t, 1)
			refused, ok := errors.AsType[*wire.Error](err)
			if !errors.Is(err, era.ErrSessionLost) || !ok || refused.Code != era.CodeUnsupportedVersion {
				t.Errorf("failed with %v, want the refusal as a loss", err)
			}
			if last := sink.next(t); !last.lost {
				t.Errorf("heard %v, want the end of the link", last)
			}
			again, sink := openLink(t, h, modernPeer)
			if again.Facts().Era != tt.is || h.isDoubted() {
				t.Errorf("a %v link, in doubt: %v", again.Facts().Era, h.isDoubted())
			}
			if _, stale := h.FactsOf(tt.was); stale && tt.was != tt.is {
				t.Errorf("the %v era is still on offer", tt.was)
			}
			again.Request(1, "tools/list", inEra(tt.is, "tools/list", ""), modernPeer)
			sink.result(t, 1)
		})
	}
}

// TestHandshakeVersionRefused exchanges the server between two links.
func TestHandshakeVersionRefused(t *testing.T) {
	server, become := exchangeable(typescript1())
	h := connect(t, serveFake(t, server).URL, Options{}, legacyPeer)
	become(typescript2Reject)
	// The control link is what the one session would be shared on; it must not be taken for that.
	if l, _ := openLink(t, h, legacyPeer); l.Facts().Era != era.Modern || l.Shared() {
		t.Errorf("a %v link, shared: %v", l.Facts().Era, l.Shared())
	}
}

// TestRedetectionFails keeps the verdict in doubt, and what was known of the server, until it answers again.
func TestRedetectionFails(t *testing.T) {
	server, become := exchangeable(typescript2)
	h := connect(t, serveFake(t, server).URL, Options{}, modernPeer)
	h.doubt()
	become(func(w web, _ request) { w.status(503, "not yet") })
	if _, err := h.Open(t.Context(), modernPeer, newRecorder()); err == nil || !h.isDoubted() {
		t.Errorf("opened with %v, in doubt: %v", err, h.isDoubted())
	}
	if _, known := h.FactsOf(era.Modern); !known {
		t.Error("the facts are forgotten")
	}
	become(goStateful())
	if l, _ := openLink(t, h, modernPeer); l.Facts().Era != era.Legacy {
		t.Errorf("a %v link", l.Facts().Era)
	}
}

// TestListenRefused leaves the refusal of what nobody repeats to whoever asked.
func TestListenRefused(t *testing.T) {
	h := connect(t, serveFake(t, func(w web, r request) {
		if r.Method == methodListen {
			w.failure(400, unsupported)
			return
		}
		typescript2(w, r)
	}).URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	l.Request(1, methodListen, inEra(era.Modern, methodListen, `{"notifications":{}}`), modernPeer)
	if got := sink.next(t); got.m.Kind != wire.Failure {
		t.Errorf("heard %v, want the backend's error", got)
	}
}

// TestAnswerWithoutType delivers what a legacy server answers to a modern request, and asks for the eras again before
// the next link.
func TestAnswerWithoutType(t *testing.T) {
	server, become := exchangeable(typescript2)
	h := connect(t, serveFake(t, server).URL, Options{}, modernPeer)
	l, sink := openLink(t, h, modernPeer)
	l.Request(1, "tools/list", inEra(era.Modern, "tools/list", ""), modernPeer)
	sink.result(t, 1)
	if h.isDoubted() {
		t.Error("in doubt after a modern answer")
	}
	become(func(w web, _ request) { w.result(`{"tools":[]}`) })
	l.Request(2, "tools/list", inEra(era.Modern, "tools/list", ""), modernPeer)
	if got := sink.result(t, 2); got != `{"tools":[]}` {
		t.Errorf("got %s", got)
	}
	become(typescript1())
	if next, _ := openLink(t, h, modernPeer); next.Facts().Era != era.Legacy {
		t.Errorf("then a %v link", next.Facts().Era)
	}
	sink.silent(t)
}
