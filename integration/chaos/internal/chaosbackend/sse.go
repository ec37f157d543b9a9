//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
)

// serveSSE serves HTTP+SSE, the transport of 2024-11-05, until the process is
// ended: the stream /sse brings everything, and names where to post.
func (b *backend) serveSSE(port string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", b.getEvents)
	mux.HandleFunc("POST /message", b.postMessage)
	return b.serve(port, mux)
}

// events is the stream of a session of HTTP+SSE, and how long it lasts.
type events struct {
	stream *stream
	ctx    context.Context
}

// eventsOf are the streams by session.
var eventsOf sync.Map

func (b *backend) getEvents(w http.ResponseWriter, r *http.Request) {
	out := eventStream(w)
	s := b.open(rand.Text(), out.send)
	eventsOf.Store(s.name, events{out, r.Context()})
	out.write([]byte("event: endpoint\ndata: /message?session=" + s.name + "\n\n"))
	<-r.Context().Done()
	b.close(s)
	eventsOf.Delete(s.name)
	out.close()
}

// postMessage takes a message. It is accepted when it is taken, as by the servers
// of the TypeScript SDK, so that the order is kept; the answer may come sooner.
func (b *backend) postMessage(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, "Invalid message", http.StatusBadRequest)
		return
	}
	name := r.URL.Query().Get("session")
	b.mu.Lock()
	s := b.sessions[name]
	b.mu.Unlock()
	found, _ := eventsOf.Load(name)
	e, ok := found.(events)
	if s == nil || !ok {
		http.Error(w, "Session not found", http.StatusNotFound)
		return
	}
	s.take(e.ctx, e.stream, m)
	w.WriteHeader(http.StatusAccepted)
}
