//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// sessionHeader is that of the one session there is at a time.
const sessionHeader = "Mcp-Session-Id"

// listenAndServe serves until the input ends, as a server that was told to by
// MCP_EXIT_ON_STDIN_CLOSE.
func (s *server) listenAndServe(port string, handler http.Handler) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
		if _, stays := s.faults["EOF"]; !stays {
			os.Exit(0)
		}
	}()
	return http.Serve(listener, handler)
}

func (s *server) serveHTTP(port string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {
		fault, _, _ := strings.Cut(s.faults["health"], ":")
		s.do(fault, 0)
	})
	mux.HandleFunc("POST /mcp", s.post)
	mux.HandleFunc("DELETE /mcp", func(http.ResponseWriter, *http.Request) {})
	return s.listenAndServe(port, mux)
}

// post takes one message of Streamable HTTP.
func (s *server) post(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fault, n := s.fault(m)
	switch {
	case m.Method == "initialize":
		w.Header().Set(sessionHeader, s.newSession())
	case m.Method != "server/discover" && !s.knows(r.Header.Get(sessionHeader)):
		s.refuse(w)
		return
	}
	s.do(fault, n)
	switch {
	case m.Method == "notifications/cancelled":
		s.cancelled(m.Params.RequestID)
		w.WriteHeader(http.StatusAccepted)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case strings.HasPrefix(fault, "torn"):
		tear(w, m, fault, n)
	case fault == "late":
		late := make(chan string, 1)
		s.untilCancelled(m.ID, func(answer string) { late <- answer })
		writeJSON(w, <-late)
	case fault == "forget":
		s.forget(n)
		writeJSON(w, answer(m))
	default:
		writeJSON(w, answers(m, fault, n)...)
	}
	if fault == "large-exit" {
		// Sent it is, but not read.
		_ = http.NewResponseController(w).Flush()
		os.Exit(exitCode)
	}
}

// newSession forgets the session before it.
func (s *server) newSession() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	s.gone = 0
	return strconv.Itoa(s.sessions)
}

func (s *server) knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone == 0 && session != ""
}

// forget loses all sessions; the status is what those hear who come back.
func (s *server) forget(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = status
}

// refuse tells whoever comes with a session that is not known, in one of the
// ways that were seen.
func (s *server) refuse(w http.ResponseWriter) {
	s.mu.Lock()
	status := s.gone
	s.mu.Unlock()
	http.Error(w, "session not found", max(status, http.StatusBadRequest))
}

func writeJSON(w http.ResponseWriter, texts ...string) {
	w.Header().Set("Content-Type", "application/json")
	text := texts[0]
	if len(texts) > 1 {
		// What a pipe would hold is, in HTTP, several events.
		w.Header().Set("Content-Type", "text/event-stream")
		text = event(texts...)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = io.WriteString(w, text) // whoever should have read it is gone
}

func event(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "event: message\ndata: %s\n\n", text)
	}
	return b.String()
}

// tear sends half an answer and waits for its death: as JSON of a known length;
// "torn-event", as an event of a stream; "torn-close" and "torn-close-event", as a
// body that ends with its connection, like those of HTTP/1.0 servers.
func tear(w http.ResponseWriter, m message, fault string, n int) {
	half, whole := halfOf(m, n)
	said := fmt.Sprintf("torn after %d of %d bytes", len(half), whole)
	kind, prefix := "application/json", ""
	if strings.HasSuffix(fault, "event") {
		kind, prefix = "text/event-stream", "event: message\ndata: "
	}
	if strings.HasPrefix(fault, "torn-close") {
		conn, stream, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(stream, "HTTP/1.0 200 OK\r\nContent-Type: %s\r\n\r\n%s%s", kind, prefix, half)
		_ = stream.Flush()
		hang(said)
	}
	w.Header().Set("Content-Type", kind)
	if prefix == "" {
		w.Header().Set("Content-Length", strconv.Itoa(whole))
	}
	_, _ = io.WriteString(w, prefix+half)
	_ = http.NewResponseController(w).Flush()
	hang(said)
}

// serveSSE is HTTP+SSE with one stream.
func (s *server) serveSSE(port string) error {
	mux := http.NewServeMux()
	stream := make(chan string, 64)
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: endpoint\ndata: /message\n\n")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case text := <-stream:
				_, _ = io.WriteString(w, text)
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("POST /message", func(w http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fault, n := s.fault(m)
		s.do(fault, n)
		w.WriteHeader(http.StatusAccepted)
		switch {
		case m.Method == "notifications/cancelled":
			s.cancelled(m.Params.RequestID)
		case m.ID == nil:
		case fault == "torn":
			half, whole := halfOf(m, n)
			stream <- "event: message\ndata: " + half
			fmt.Fprintf(os.Stderr, "torn after %d of %d bytes\n", len(half), whole)
		case fault == "late":
			s.untilCancelled(m.ID, func(answer string) { stream <- event(answer) })
		default:
			stream <- event(answers(m, fault, n)...)
		}
	})
	return s.listenAndServe(port, mux)
}
