package era_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// schemas compiles definitions of the official schema of a protocol version, each once.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	prefix   map[string]string // version -> where the definitions are
	compiled map[string]*jsonschema.Schema
}

var official = &schemas{
	compiler: jsonschema.NewCompiler(),
	prefix:   map[string]string{},
	compiled: map[string]*jsonschema.Schema{},
}

func (s *schemas) definition(t *testing.T, version, name string) *jsonschema.Schema {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefix[version] == "" {
		raw, err := os.ReadFile(filepath.Join("testdata", "schema", version+".json"))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.compiler.AddResource(version+".json", doc); err != nil {
			t.Fatal(err)
		}
		s.prefix[version] = version + ".json#/definitions/"
		if _, ok := doc.(map[string]any)["$defs"]; ok {
			s.prefix[version] = version + ".json#/$defs/"
		}
	}
	location := s.prefix[version] + name
	if s.compiled[location] == nil {
		schema, err := s.compiler.Compile(location)
		if err != nil {
			t.Fatal(err)
		}
		s.compiled[location] = schema
	}
	return s.compiled[location]
}

// mustSatisfy fails the test if raw is not what the official schema of version calls name.
func mustSatisfy(t *testing.T, version, name string, raw []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	if err := official.definition(t, version, name).Validate(value); err != nil {
		t.Errorf("%s is no %s of %s: %v", raw, name, version, err)
	}
}

// Names of the definitions in the official schemas.
var (
	requestDefinitions = map[string]string{
		"initialize": "InitializeRequest", "server/discover": "DiscoverRequest", "ping": "PingRequest",
		"tools/list": "ListToolsRequest", "tools/call": "CallToolRequest",
		"prompts/list": "ListPromptsRequest", "prompts/get": "GetPromptRequest",
		"resources/list": "ListResourcesRequest", "resources/templates/list": "ListResourceTemplatesRequest",
		"resources/read": "ReadResourceRequest", "resources/subscribe": "SubscribeRequest",
		"resources/unsubscribe": "UnsubscribeRequest", "subscriptions/listen": "SubscriptionsListenRequest",
		"completion/complete": "CompleteRequest", "logging/setLevel": "SetLevelRequest",
		"elicitation/create": "ElicitRequest", "sampling/createMessage": "CreateMessageRequest", "roots/list": "ListRootsRequest",
	}
	resultDefinitions = map[string]string{
		"initialize": "InitializeResult", "server/discover": "DiscoverResult", "ping": "EmptyResult",
		"tools/list": "ListToolsResult", "tools/call": "CallToolResult",
		"prompts/list": "ListPromptsResult", "prompts/get": "GetPromptResult",
		"resources/list": "ListResourcesResult", "resources/templates/list": "ListResourceTemplatesResult",
		"resources/read": "ReadResourceResult", "completion/complete": "CompleteResult",
		"logging/setLevel": "EmptyResult", "resources/subscribe": "EmptyResult", "resources/unsubscribe": "EmptyResult",
		"subscriptions/listen": "SubscriptionsListenResult",
	}
	notificationDefinitions = map[string]string{
		"notifications/cancelled": "CancelledNotification", "notifications/progress": "ProgressNotification",
		"notifications/initialized": "InitializedNotification", "notifications/message": "LoggingMessageNotification",
		"notifications/roots/list_changed":         "RootsListChangedNotification",
		"notifications/tools/list_changed":         "ToolListChangedNotification",
		"notifications/prompts/list_changed":       "PromptListChangedNotification",
		"notifications/resources/list_changed":     "ResourceListChangedNotification",
		"notifications/resources/updated":          "ResourceUpdatedNotification",
		"notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
	}
)

// newest is the version that a codec's output is checked against.
func newest(e era.Era) string {
	if e == era.Modern {
		return era.ModernVersion
	}
	return era.LegacyVersion
}

// mustBeRequest checks method and params as a request of an era; a method that no schema knows is only JSON.
func mustBeRequest(t *testing.T, e era.Era, method string, params []byte) {
	t.Helper()
	m := wire.NewRequest("1", method, params).Bytes()
	name, ok := requestDefinitions[method]
	if !ok {
		name = "JSONRPCRequest"
	}
	mustSatisfy(t, newest(e), name, m)
}

func mustBeNotification(t *testing.T, e era.Era, method string, params []byte) {
	t.Helper()
	name, ok := notificationDefinitions[method]
	if !ok {
		name = "JSONRPCNotification"
	}
	mustSatisfy(t, newest(e), name, wire.NewNotification(method, params).Bytes())
}

func mustBeResult(t *testing.T, e era.Era, method string, result []byte) {
	t.Helper()
	name, ok := resultDefinitions[method]
	if !ok {
		name = "Result"
	}
	mustSatisfy(t, newest(e), name, result)
}

// line is one message of a transcript.
type line struct {
	fromClient bool
	pid        int
	m          wire.Message
}

// transcript reads the messages of a capture of real traffic, see testdata/README.md.
func transcript(t testing.TB, name string) []line {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "wire", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var lines []line
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var entry struct {
			Dir string          `json:"dir"`
			PID int             `json:"pid"`
			Msg json.RawMessage `json:"msg"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Msg == nil {
			continue
		}
		m, err := wire.Parse(entry.Msg)
		if err != nil {
			t.Fatalf("%v: %s", err, entry.Msg)
		}
		lines = append(lines, line{fromClient: entry.Dir == "c2s", pid: entry.PID, m: m})
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// transcripts returns the names of all captures whose name begins with one of the prefixes.
func transcripts(t testing.TB, prefixes ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "wire", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
				break
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no transcript begins with %q", prefixes)
	}
	return names
}

// exchange is a request of the client with its answer.
type exchange struct {
	req    era.Request
	answer wire.Message // zero where the request was cancelled
}

// exchanges replays a transcript through Classify and pairs the requests with their answers. What Classify refuses
// must have been refused by the real server too, with the same code, and is left out.
func exchanges(t testing.TB, name string) []exchange {
	t.Helper()
	type call struct {
		pid int
		id  wire.ID
	}
	open := map[call]*exchange{}
	refused := map[call]*wire.Error{}
	sessions := map[int]era.Session{}
	var order []*exchange
	for _, l := range transcript(t, name) {
		session := sessions[l.pid]
		key := call{l.pid, l.m.ID}
		switch {
		case l.fromClient && l.m.Kind == wire.Request:
			req, e := era.Classify(l.m, session)
			if e != nil {
				refused[key] = e
				continue
			}
			x := &exchange{req: req}
			open[key] = x
			order = append(order, x)
			sessions[l.pid] = after(session, req)
		case !l.fromClient && (l.m.Kind == wire.Response || l.m.Kind == wire.Failure):
			if x := open[key]; x != nil {
				x.answer = l.m
				delete(open, key)
			}
			// The Go SDK's server takes a bare logging/setLevel on modern connections; the TypeScript one does not.
			if e := refused[key]; e != nil && name != "gocli-gosrv" {
				if real, err := wire.ParseError(l.m.Error); err != nil || real.Code != e.Code {
					t.Errorf("%s: refused with %v, the real server answered %s", name, e, l.m.Bytes())
				}
			}
			delete(refused, key)
		}
	}
	out := make([]exchange, 0, len(order))
	for _, x := range order {
		out = append(out, *x)
	}
	return out
}

// after is what a session knows once a request was answered.
func after(s era.Session, req era.Request) era.Session {
	switch {
	case req.Source == era.Modern:
		s.ModernSeen = true
	case req.Method == "initialize":
		s.Initialized, s.Peer = true, req.Peer
	case req.Method == "logging/setLevel":
		s.Level, _ = era.ParseSetLevel(req.Params)
	}
	return s
}

// modernPeer and legacyPeer can be asked for everything.
func modernPeer() era.Peer {
	return era.Peer{
		Era: era.Modern, Version: era.ModernVersion, Info: []byte(`{"name":"m","version":"1"}`),
		Capabilities: []byte(`{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}`),
	}
}

func legacyPeer() era.Peer {
	return era.Peer{
		Era: era.Legacy, Version: era.LegacyVersion, Info: []byte(`{"name":"l","version":"1"}`),
		Capabilities: []byte(`{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true},"tasks":{}}`),
	}
}

// envelope is the _meta of a modern request.
const envelope = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}}`

func parse(t *testing.T, frame string) wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(frame))
	if err != nil {
		t.Fatalf("%v: %s", err, frame)
	}
	return m
}

// members splits an object, for comparison by name.
func members(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	o, err := wire.ParseObject(raw)
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	out := map[string]string{}
	for _, m := range o.Members() {
		out[m.Key] = string(m.Value)
	}
	return out
}
