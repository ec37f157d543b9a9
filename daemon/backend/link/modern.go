package link

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// toolsLimit is how long a tools/call waits for the list that says which headers it needs. Only few tools need
	// any, so it then goes without.
	toolsLimit = 5 * time.Second
	// maxToolPages ends a list that has no end.
	maxToolPages = 100
)

const (
	methodToolsCall  = "tools/call"
	methodToolsList  = "tools/list"
	noteToolsChanged = "notifications/tools/list_changed"
)

// versionOf is the protocol version that a message's params claim, which the header must repeat.
func versionOf(params []byte, otherwise string) string {
	o, err := wire.ParseObject(params)
	if err != nil {
		return otherwise
	}
	meta, err := wire.ParseObject(o.Get("_meta"))
	if err != nil {
		return otherwise
	}
	if version, ok := wire.String(meta.Get(era.MetaVersion)); ok && era.RawHeader(version) {
		return version
	}
	return otherwise
}

// exchangeModern makes the POST, and repeats it when the server disagrees about its headers, which it checks before
// anything else: with a fresh list of the tools, whose schemas ask for some of them, and with the name as plain
// bytes, as the Go SDK 1.8.0 does not decode it.
func (l *httpLink) exchangeModern(ctx context.Context, c *call, it item) (reply, error) {
	h, frame := l.host, it.m.Bytes()
	rawNames := h.rawNames.Load()
	wanted, seen := h.tools.headers(ctx, h, it.m, 0)
	r, err := l.attempt(ctx, c, l.modernHeader(it, rawNames, wanted), frame, &position{})
	if err != nil || !isMismatch(r.m) {
		return r, err
	}
	if fresh, _ := h.tools.headers(ctx, h, it.m, seen); !maps.Equal(fresh, wanted) {
		finishMismatch(r)
		wanted = fresh
		r, err = l.attempt(ctx, c, l.modernHeader(it, rawNames, wanted), frame, &position{})
		if err != nil || !isMismatch(r.m) {
			return r, err
		}
	}
	if name, ok := era.NameHeader(it.m.Method, it.m.Params); !ok || !needsEncoding(name) || !era.RawHeader(name) {
		return r, nil
	}
	finishMismatch(r)
	r, err = l.attempt(ctx, c, l.modernHeader(it, !rawNames, wanted), frame, &position{})
	if err == nil && !isMismatch(r.m) {
		h.rawNames.Store(!rawNames)
	}
	return r, err
}

// finishMismatch lets go of a response that said -32020.
func finishMismatch(r reply) { _ = r.resp.Body.Close() }

func isMismatch(m wire.Message) bool {
	if m.Kind != wire.Failure {
		return false
	}
	e, err := wire.ParseError(m.Error)
	return err == nil && e.Code == era.CodeHeaderMismatch
}

func needsEncoding(name string) bool {
	_, encoded := era.EncodeHeader(name)
	return encoded
}

// modernHeader are the headers of a request. params are those that repeat arguments.
func (l *httpLink) modernHeader(it item, rawNames bool, params map[string]string) http.Header {
	header := l.headerFor(it)
	if name, ok := era.NameHeader(it.m.Method, it.m.Params); ok {
		if encoded, _ := era.EncodeHeader(name); !rawNames || !era.RawHeader(name) {
			name = encoded
		}
		header.Set(headerName, name)
	}
	for key, value := range params {
		header.Set(key, value)
	}
	return header
}

// toolCache knows which headers the tools of a backend want. It belongs to the host, as the tools are those of the
// server; a list that depends on who asks is made up for by the repetition after a -32020.
type toolCache struct {
	turn chan struct{} // holds a token while nobody loads

	mu     sync.Mutex
	tools  map[string][]era.ParamHeader
	loaded int // how often; 0 = not yet
	stale  bool
}

func newToolCache() *toolCache {
	t := &toolCache{turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	return t
}

// forget makes the next tools/call load the list again.
func (t *toolCache) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = true
}

// headers returns the headers that repeat arguments of a tools/call, from a list that is newer than the one numbered
// seen, and that list's number. It is nil for everything else, and if the list cannot be had.
func (t *toolCache) headers(ctx context.Context, h *Host, m wire.Message, seen int) (map[string]string, int) {
	if m.Method != methodToolsCall {
		return nil, seen
	}
	t.ensure(ctx, h, seen)
	name, _ := era.NameHeader(m.Method, m.Params)
	t.mu.Lock()
	wanted, number := t.tools[name], t.loaded
	t.mu.Unlock()
	var headers map[string]string
	for _, w := range wanted {
		value, ok := w.Value(m.Params)
		if !ok {
			continue
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[w.Name], _ = era.EncodeHeader(value)
	}
	return headers, number
}

func (t *toolCache) fresh(seen int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loaded > seen && !t.stale
}

// ensure loads the list unless it is fresh.
func (t *toolCache) ensure(ctx context.Context, h *Host, seen int) {
	if t.fresh(seen) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, toolsLimit, errSilence)
	defer cancel()
	select {
	case <-t.turn:
	case <-ctx.Done():
		return
	}
	defer func() { t.turn <- struct{}{} }()
	if t.fresh(seen) {
		return
	}
	t.mu.Lock()
	t.stale = false // from here on a change that is announced is news
	t.mu.Unlock()
	tools, err := h.listTools(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded++
	if err != nil {
		h.o.Logger.Debug("reading the backend's tools", "error", err)
		return
	}
	t.tools = tools
}

// listTools reads all pages of the backend's tools.
func (h *Host) listTools(ctx context.Context) (map[string][]era.ParamHeader, error) {
	h.mu.Lock()
	greeting := h.greeting
	h.mu.Unlock()
	tools := map[string][]era.ParamHeader{}
	var params []byte
	for range maxToolPages {
		full := era.BackOf(era.Modern).Request(era.Request{
			Method: methodToolsList, Params: params, Source: era.Legacy, Peer: greeting,
		}, 0)
		header := messageHeader()
		header.Set(headerVersion, versionOf(full, era.ModernVersion))
		header.Set(headerMethod, methodToolsList)
		m, _, err := h.ask(ctx, header, methodToolsList, full)
		if err != nil {
			return nil, err
		}
		if m.Kind != wire.Response {
			return nil, fmt.Errorf("%s: %s", methodToolsList, m.Error)
		}
		maps.Copy(tools, era.ToolHeaders(m.Result))
		if era.LastPage(m.Result) {
			break
		}
		if params, err = nextPage(m.Result, params); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

func nextPage(result, before []byte) ([]byte, error) {
	o, err := wire.ParseObject(result)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", methodToolsList, err)
	}
	var params wire.Object
	params.Set("cursor", o.Get("nextCursor"))
	if slices.Equal(params.Bytes(), before) {
		return nil, fmt.Errorf("%s: the next page is the same again", methodToolsList)
	}
	return params.Bytes(), nil
}
