package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patienceLimit ends a test that waits for something that does not come.
const patienceLimit = 10 * time.Second

// heard is one call of a sink.
type heard struct {
	m        wire.Message
	via      int64
	failed   int64
	err      error
	writable bool
	lost     bool
}

func (h heard) String() string {
	switch {
	case h.lost:
		return fmt.Sprintf("lost: %v", h.err)
	case h.failed != 0:
		return fmt.Sprintf("failed %d: %v", h.failed, h.err)
	case h.writable:
		return "writable"
	default:
		return fmt.Sprintf("via %d: %s", h.via, h.m.Bytes())
	}
}

// recorder is a sink that keeps what it hears.
type recorder chan heard

func newRecorder() recorder { return make(recorder, 4096) }

func (r recorder) Message(m wire.Message, via int64) { r <- heard{m: m, via: via} }
func (r recorder) Failed(id int64, err error)        { r <- heard{failed: id, err: err} }
func (r recorder) Writable()                         { r <- heard{writable: true} }
func (r recorder) Lost(err error)                    { r <- heard{lost: true, err: err} }

func (r recorder) next(t *testing.T) heard {
	t.Helper()
	select {
	case h := <-r:
		return h
	case <-time.After(patienceLimit):
		t.Fatal("the sink hears nothing")
		return heard{}
	}
}

// result waits for the answer to a request and fails the test on anything else.
func (r recorder) result(t *testing.T, id int64) string {
	t.Helper()
	h := r.next(t)
	if h.m.Kind != wire.Response || h.m.ID != wire.IntID(id) {
		t.Fatalf("got %v, want the result of %d", h, id)
	}
	return string(h.m.Result)
}

func (r recorder) note(t *testing.T, method string) heard {
	t.Helper()
	h := r.next(t)
	if h.m.Method != method {
		t.Fatalf("got %v, want %s", h, method)
	}
	return h
}

func (r recorder) failure(t *testing.T, id int64) error {
	t.Helper()
	h := r.next(t)
	if h.failed != id {
		t.Fatalf("got %v, want the failure of %d", h, id)
	}
	return h.err
}

func (r recorder) silent(t *testing.T) {
	t.Helper()
	select {
	case h := <-r:
		t.Fatalf("heard %v", h)
	default:
	}
}

var (
	legacyPeer = era.Peer{Era: era.Legacy, Version: era.LegacyVersion,
		Info: []byte(`{"name":"t","version":"1"}`), Capabilities: []byte(`{"elicitation":{"form":{}}}`)}
	modernPeer = era.Peer{Era: era.Modern, Version: era.ModernVersion,
		Info: []byte(`{"name":"t","version":"1"}`), Capabilities: []byte(`{"elicitation":{"form":{}}}`)}
)

// inEra gives params the envelope that a backend of that era wants, as the router does.
func inEra(e era.Era, method, params string) []byte {
	var raw []byte
	if params != "" {
		raw = []byte(params)
	}
	if e == era.Legacy {
		return raw
	}
	return era.BackOf(era.Modern).Request(era.Request{
		Method: method, Params: raw, Source: era.Legacy, Peer: legacyPeer, Level: "debug",
		Token: era.TokenOf(raw),
	}, tokenOf(raw))
}

func tokenOf(params []byte) int64 {
	n, _ := wire.ID(era.TokenOf(params)).Int()
	return n
}

const (
	initializeResult = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	discoverResult   = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`
	legacyDiscover   = `{"supportedVersions":["2025-11-25","2025-06-18"],"capabilities":{},"resultType":"complete"}`
	unsupported      = `{"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28"],"requested":"x"}}`
	unsupportedOld   = `{"code":-32022,"message":"unsupported","data":{"supported":["2025-11-25"],"requested":"x"}}`
	notFound         = `{"code":-32601,"message":"Method not found"}`
)

func contains(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}

func ends(ctx context.Context, t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patienceLimit):
		t.Fatal("it does not end")
	case <-ctx.Done():
		t.Fatal(errors.Join(errors.New("it does not end"), context.Cause(ctx)))
	}
}
