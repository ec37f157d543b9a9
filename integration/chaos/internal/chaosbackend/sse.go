//go:build unix

package main

import (
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

// inbox is where the messages for a session of HTTP+SSE are brought.
type inbox struct {
	deliveries chan delivery
	gone       <-chan struct{} // closed when nobody takes them any more
}

type delivery struct {
	m     message
	taken chan struct{} // closed then
}

// inboxes are those of the sessions, by name.
var inboxes sync.Map

func (b *backend) getEvents(w http.ResponseWriter, r *http.Request) {
	out := eventStream(w)
	s := b.open(rand.Text(), out.send)
	deliveries := make(chan delivery)
	inboxes.Store(s.name, inbox{deliveries, r.Context().Done()})
	out.write([]byte("event: endpoint\ndata: /message?session=" + s.name + "\n\n"))
	for r.Context().Err() == nil {
		select {
		case d := <-deliveries:
			s.take(r.Context(), out, d.m)
			close(d.taken)
		case <-r.Context().Done():
		}
	}
	b.close(s)
	inboxes.Delete(s.name)
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
	d := delivery{m, make(chan struct{})}
	found, _ := inboxes.Load(r.URL.Query().Get("session"))
	if to, ok := found.(inbox); ok {
		select {
		case to.deliveries <- d:
			<-d.taken
			w.WriteHeader(http.StatusAccepted)
			return
		case <-to.gone:
		}
	}
	http.Error(w, "Session not found", http.StatusNotFound)
}
