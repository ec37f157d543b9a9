//go:build unix

package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// backend is the one server of a process.
type backend struct {
	journal        *journal
	era, transport string
	tools          []string
	stubborn       atomic.Bool
	// leave ends the process.
	leave func(why string, code int)

	mu       sync.Mutex
	sessions map[string]*session // all that can be told something
	names    int
}

// session is a conversation: the pipe of stdio, the stream of HTTP+SSE, a legacy
// HTTP session, or one modern listen over HTTP.
type session struct {
	backend *backend
	name    string
	// aside is for what belongs to no request.
	aside func(message)

	mu        sync.Mutex
	legacy    bool // initialized
	level     string
	subs      map[string]bool
	cancels   map[string]context.CancelFunc // of requests in work, by id
	listens   map[string]listen             // by id
	questions map[string]chan message       // nil once answered or taken back
	taken     map[string]bool               // questions that were taken back
	asked     int
}

// listen is an open subscriptions/listen.
type listen struct {
	id     json.RawMessage
	filter filter
	stream *stream
}

func (b *backend) open(name string, aside func(message)) *session {
	s := &session{
		backend: b, name: name, aside: aside,
		subs: map[string]bool{}, cancels: map[string]context.CancelFunc{}, listens: map[string]listen{},
		questions: map[string]chan message{}, taken: map[string]bool{},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[name] = s
	return s
}

func (b *backend) close(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s.name)
}

func (b *backend) all() []*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*session, 0, len(b.sessions))
	for _, s := range b.sessions {
		all = append(all, s)
	}
	return all
}

// exchange is one request and the way to answer it.
type exchange struct {
	session *session
	stream  *stream
	id      json.RawMessage
	method  string
	params  params
	modern  bool
}

// begin takes a request. What decides about later messages is done at once, the
// rest beside them. done is closed when the request is dealt with.
func (s *session) begin(ctx context.Context, out *stream, m message) (done <-chan struct{}) {
	p := parse(m.Params)
	x := &exchange{
		session: s, stream: out, id: m.ID, method: m.Method, params: p,
		modern: p.Meta.Version >= modernVersion,
	}
	ctx, cancel := context.WithCancel(ctx)
	key := string(m.ID)
	s.mu.Lock()
	s.cancels[key] = cancel
	s.mu.Unlock()
	finished := make(chan struct{})
	work := func() {
		defer close(finished)
		defer func() {
			s.mu.Lock()
			delete(s.cancels, key)
			s.mu.Unlock()
			cancel()
		}()
		if answer, ok := x.serve(ctx); ok {
			out.send(answer)
		}
	}
	if x.method == "tools/call" || x.method == "subscriptions/listen" && s.backend.transport == "http" {
		go work()
	} else {
		work()
	}
	return finished
}

// serve returns the answer to a request, if it gets one.
func (x *exchange) serve(ctx context.Context) (message, bool) {
	if refusal, refused := x.refuse(); refused {
		return refusal, true
	}
	if x.method == "tools/call" {
		return x.call(ctx)
	}
	if x.method == "subscriptions/listen" {
		return x.listen(ctx)
	}
	value, known := x.answer()
	if !known {
		return failure(x.id, codeMethodNotFound, "Method not found", nil), true
	}
	return result(x.id, x.stamp(value)), true
}

// refuse answers what is of an era that this server does not speak.
func (x *exchange) refuse() (message, bool) {
	switch {
	case x.modern && x.session.backend.era == eraLegacy:
		return failure(x.id, codeMethodNotFound, "Method not found", nil), true
	case !x.modern && x.session.backend.era == eraModern:
		return unsupported(x.id), true
	}
	return message{}, false
}

func unsupported(id json.RawMessage) message {
	return failure(id, codeUnsupportedVersion, "Unsupported protocol version",
		object{"supported": []string{modernVersion}, "requested": "none"})
}

// stamp adds what every modern result has.
func (x *exchange) stamp(value object) object {
	if !x.modern {
		return value
	}
	if value["resultType"] == nil {
		value["resultType"] = "complete"
	}
	if strings.HasSuffix(x.method, "/list") || x.method == "resources/read" || x.method == "server/discover" {
		value["ttlMs"], value["cacheScope"] = 0, "private"
	}
	return value
}

// answer returns the result of a method that has nothing special about it.
func (x *exchange) answer() (object, bool) {
	switch x.method {
	case "initialize", "server/discover":
		return x.greet()
	case "ping":
		return object{}, !x.modern
	case "tools/list":
		return x.list("tools", x.session.backend.tools, func(name string) object {
			return object{"name": name, "inputSchema": object{"type": "object"}}
		})
	case "resources/list":
		return x.list("resources", uris, func(uri string) object { return object{"uri": uri, "name": uri} })
	case "resources/templates/list":
		return x.list("resourceTemplates", []string{"chaos://t/{id}"}, func(template string) object {
			return object{"uriTemplate": template, "name": template}
		})
	case "prompts/list":
		return x.list("prompts", []string{"p"}, func(name string) object { return object{"name": name} })
	case "prompts/get":
		return object{"messages": []object{{"role": "user", "content": object{"type": "text", "text": x.params.Name}}}}, true
	case "resources/read":
		return object{"contents": []object{{"uri": x.params.URI, "text": x.params.URI}}}, true
	case "completion/complete":
		return object{"completion": object{"values": []string{"a", "b"}}}, true
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return object{}, !x.modern && x.session.set(x.method, x.params)
	}
	return nil, false
}

// uris are the resources that can be subscribed to.
var uris = []string{"chaos://0", "chaos://1", "chaos://2", "chaos://3"}

func (x *exchange) list(key string, names []string, entry func(string) object) (object, bool) {
	entries := make([]object, len(names))
	for i, name := range names {
		entries[i] = entry(name)
	}
	return object{key: entries}, true
}

func (x *exchange) greet() (object, bool) {
	capabilities := object{
		"tools": object{"listChanged": true}, "prompts": object{"listChanged": true},
		"resources": object{"listChanged": true, "subscribe": true}, "logging": object{}, "completions": object{},
	}
	info := object{"name": "chaosbackend", "version": "1"}
	if x.method == "server/discover" {
		return object{
			"supportedVersions": []string{modernVersion}, "capabilities": capabilities,
			"_meta": object{"io.modelcontextprotocol/serverInfo": info},
		}, x.modern
	}
	x.session.mu.Lock()
	x.session.legacy = !x.modern
	x.session.mu.Unlock()
	version := legacyVersion
	if slices.Contains([]string{"2025-06-18", "2025-03-26", "2024-11-05"}, x.params.ProtocolVersion) {
		version = x.params.ProtocolVersion
	}
	return object{"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}, !x.modern
}

// set changes what a legacy session hears of.
func (s *session) set(method string, p params) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch method {
	case "logging/setLevel":
		s.level = p.Level
	case "resources/subscribe":
		s.subs[p.URI] = true
	case "resources/unsubscribe":
		delete(s.subs, p.URI)
	}
	return true
}

// listen acknowledges a subscription and keeps it: over stdio until it is
// cancelled, over HTTP as long as its stream.
func (x *exchange) listen(ctx context.Context) (message, bool) {
	if x.params.Notifications == nil {
		return failure(x.id, codeInvalidParams, "notifications is missing", nil), true
	}
	s, key := x.session, string(x.id)
	x.stream.send(notification("notifications/subscriptions/acknowledged", object{
		"notifications": x.params.Notifications, "_meta": object{metaSubscription: x.id},
	}))
	s.mu.Lock()
	s.listens[key] = listen{id: x.id, filter: *x.params.Notifications, stream: x.stream}
	s.mu.Unlock()
	if s.backend.transport == "http" {
		<-ctx.Done()
		s.mu.Lock()
		delete(s.listens, key)
		s.mu.Unlock()
	}
	return message{}, false
}

// notified takes a notification of the client.
func (s *session) notified(m message) {
	if m.Method != "notifications/cancelled" {
		return
	}
	key := string(parse(m.Params).RequestID)
	s.mu.Lock()
	cancel := s.cancels[key]
	delete(s.listens, key)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// answered takes the client's answer to a question.
func (s *session) answered(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(m.ID)
	waiter, known := s.questions[key]
	switch {
	case waiter != nil:
		s.questions[key] = nil
		waiter <- m
	case s.taken[key]:
		s.taken[key] = false // it crossed the notification that took the question back
	case known:
		s.backend.journal.write("twice", key)
	default:
		s.backend.journal.write("foreign", key)
	}
}
