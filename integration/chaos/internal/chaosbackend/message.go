//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

const (
	eraLegacy = "legacy"
	eraModern = "modern"
	eraBoth   = "both"

	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"

	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Error codes of JSON-RPC and MCP.
const (
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

type object = map[string]any

// message is a JSON-RPC message in either direction.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (m message) isRequest() bool      { return m.Method != "" && m.ID != nil }
func (m message) isNotification() bool { return m.Method != "" && m.ID == nil }

// params are the members that this server looks at, of whatever method.
type params struct {
	Meta struct {
		Version string          `json:"io.modelcontextprotocol/protocolVersion"`
		Level   string          `json:"io.modelcontextprotocol/logLevel"`
		Token   json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
	Name            string
	Arguments       arguments
	URI             string `json:"uri"`
	Level           string
	RequestID       json.RawMessage `json:"requestId"`
	ProtocolVersion string          `json:"protocolVersion"`
	RequestState    string          `json:"requestState"`
	InputResponses  object          `json:"inputResponses"`
	Notifications   *filter         `json:"notifications"`
}

// filter is what a subscriptions/listen asks for.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

func parse(raw json.RawMessage) params {
	var p params
	if raw != nil {
		_ = json.Unmarshal(raw, &p) // what does not fit stays empty
	}
	return p
}

func encode(value any) json.RawMessage {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // only values made here are encoded
	}
	return encoded
}

func result(id json.RawMessage, value any) message {
	return message{ID: id, Result: encode(value)}
}

func failure(id json.RawMessage, code int, text string, data any) message {
	return message{ID: id, Error: &rpcError{Code: code, Message: text, Data: data}}
}

func notification(method string, value any) message {
	m := message{Method: method}
	if value != nil {
		m.Params = encode(value)
	}
	return m
}

// stream is a way to the client: stdout, or the response to one HTTP request as
// an event stream.
type stream struct {
	mu     sync.Mutex
	out    io.Writer
	events bool
}

// send writes a message as one frame. Nobody may be there to read it.
func (s *stream) send(m message) { s.write(s.frame(m)) }

// tear writes the first half of a message's frame.
func (s *stream) tear(m message) {
	frame := s.frame(m)
	s.write(frame[:len(frame)/2])
}

func (s *stream) frame(m message) []byte {
	m.JSONRPC = "2.0"
	encoded := encode(m)
	if !s.events {
		return append(encoded, '\n')
	}
	return append(append([]byte("event: message\ndata: "), encoded...), "\n\n"...)
}

func (s *stream) write(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(frame)
	if flusher, ok := s.out.(http.Flusher); ok {
		flusher.Flush()
	}
}
