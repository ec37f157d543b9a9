//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
)

// maxWaiting bounds what a session keeps for a GET stream that is not there.
const maxWaiting = 1000

// serveHTTP serves /mcp until the process is ended.
func (b *backend) serveHTTP(port string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", b.post)
	mux.HandleFunc("GET /mcp", b.get)
	mux.HandleFunc("DELETE /mcp", b.delete)
	return b.serve(port, mux)
}

func (b *backend) serve(port string, handler http.Handler) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		b.journal.write("port-taken")
		return err
	}
	go func() {
		// Its end says that the daemon is gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		b.inputEnded()
	}()
	return http.Serve(listener, handler)
}

// push is the GET stream of a session, and what waits for it.
type push struct {
	mu      sync.Mutex
	stream  *stream
	waiting []message
}

func (p *push) send(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != nil {
		p.stream.send(m)
	} else if len(p.waiting) < maxWaiting {
		p.waiting = append(p.waiting, m)
	}
}

func (p *push) attach(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream = s
	for _, m := range p.waiting {
		s.send(m)
	}
	p.waiting = nil
}

func (p *push) detach(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream == s {
		p.stream = nil
	}
}

// pushes are the GET streams by session.
var pushes sync.Map

func (b *backend) session(r *http.Request) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[r.Header.Get("Mcp-Session-Id")]
}

func (b *backend) post(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		refuse(w, http.StatusBadRequest, failure(json.RawMessage("null"), -32700, "Parse error", nil))
		return
	}
	switch {
	case r.Header.Get("Mcp-Protocol-Version") >= modernVersion:
		b.postModern(w, r, m)
	case m.Method == "initialize":
		b.initialize(w, r, m)
	default:
		b.postLegacy(w, r, m)
	}
}

func refuse(w http.ResponseWriter, status int, m message) {
	m.JSONRPC = "2.0"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(m))
}

func (b *backend) initialize(w http.ResponseWriter, r *http.Request, m message) {
	if b.era == eraModern {
		refuse(w, http.StatusBadRequest, unsupported(m.ID))
		return
	}
	p := &push{}
	s := b.open(rand.Text(), p.send)
	pushes.Store(s.name, p)
	w.Header().Set("Mcp-Session-Id", s.name)
	<-s.begin(r.Context(), eventStream(w), m)
}

func eventStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	return &stream{out: w, events: true}
}

func (b *backend) postLegacy(w http.ResponseWriter, r *http.Request, m message) {
	if r.Header.Get("Mcp-Session-Id") == "" {
		refuse(w, http.StatusBadRequest, failure(json.RawMessage("null"), -32000, "Bad Request: Server not initialized", nil))
		return
	}
	s := b.session(r)
	if s == nil {
		refuse(w, http.StatusNotFound, failure(json.RawMessage("null"), -32001, "Session not found", nil))
		return
	}
	if !m.isRequest() {
		w.WriteHeader(http.StatusAccepted)
		s.take(r.Context(), nil, m)
		return
	}
	out := eventStream(w)
	// The end of the stream is no cancellation in this era; the handler has to
	// stay while somebody writes to it.
	<-s.begin(context.WithoutCancel(r.Context()), out, m)
	out.close()
}

// close makes the stream swallow what comes later.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = io.Discard
}

func (b *backend) postModern(w http.ResponseWriter, r *http.Request, m message) {
	switch {
	case b.era == eraLegacy:
		refuse(w, http.StatusBadRequest, failure(json.RawMessage("null"), -32000, "Bad Request: Server not initialized", nil))
		return
	case r.Header.Get("Mcp-Method") != m.Method:
		b.journal.write("headers", strconv.Quote(r.Header.Get("Mcp-Method")), m.Method)
		refuse(w, http.StatusBadRequest, failure(m.ID, codeHeaderMismatch, "Mcp-Method", nil))
		return
	case !m.isRequest():
		w.WriteHeader(http.StatusAccepted)
		return
	}
	b.mu.Lock()
	b.names++
	name := "m" + strconv.Itoa(b.names)
	b.mu.Unlock()
	s := b.open(name, nil)
	defer b.close(s)
	out := eventStream(w)
	<-s.begin(r.Context(), out, m)
	out.close()
}

func (b *backend) get(w http.ResponseWriter, r *http.Request) {
	s := b.session(r)
	if s == nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	found, _ := pushes.Load(s.name)
	p, ok := found.(*push)
	if !ok {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	out := eventStream(w)
	p.attach(out)
	<-r.Context().Done()
	p.detach(out)
	out.close()
}

func (b *backend) delete(w http.ResponseWriter, r *http.Request) {
	if s := b.session(r); s != nil {
		b.close(s)
		pushes.Delete(s.name)
	}
	w.WriteHeader(http.StatusOK)
}
