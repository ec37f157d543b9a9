//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// object is the arguments of an operation or the params of a request.
type object map[string]any

// driver performs the operations of testdata/node/clients/driver.mjs, in
// whatever SDK.
type driver interface {
	// do performs one operation; the end of ctx aborts it as an application
	// would, with a cancellation.
	do(ctx context.Context, op string, args object) (json.RawMessage, error)
	// close ends the client as an application does.
	close() error
}

// callError is the error of an operation, as the SDK reports it.
type callError struct {
	Name    string
	Code    any
	Message string
	Data    json.RawMessage
}

func (e *callError) Error() string {
	return fmt.Sprintf("%s %v: %s %s", e.Name, e.Code, e.Message, e.Data)
}

// event is something a client heard unasked.
type event struct {
	Event  string          `json:"event"`
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	// Of a changed list that the SDK read again by itself.
	Kind  string   `json:"kind,omitempty"`
	Names []string `json:"names,omitempty"`
	Error string   `json:"error,omitempty"`
	// Of the end of a listen.
	Listen int    `json:"listen,omitempty"`
	How    string `json:"how,omitempty"`
	// Of an error without an operation.
	Message string `json:"message,omitempty"`
}

func (e event) String() string {
	text, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// inbox holds what a client heard until a test asks for it.
type inbox struct {
	mu      sync.Mutex
	events  []event
	arrived chan struct{} // closed and replaced at every arrival
}

func newInbox() *inbox { return &inbox{arrived: make(chan struct{})} }

func (b *inbox) put(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
	close(b.arrived)
	b.arrived = make(chan struct{})
}

// take removes and returns the first event that matches.
func (b *inbox) take(match func(event) bool) (event, bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, e := range b.events {
		if match(e) {
			b.events = slices.Delete(b.events, i, i+1)
			return e, true, nil
		}
	}
	return event{}, false, b.arrived
}

func (b *inbox) pending() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// client is an MCP client under a test's control.
type client struct {
	driver
	name  string
	inbox *inbox
	// stderr of what the client starts.
	stderr fmt.Stringer
}

// hello is what a client learned when it connected.
type hello struct {
	Era          string
	Version      string
	Server       struct{ Name, Version string }
	Capabilities map[string]json.RawMessage
	Instructions string
	PID          int
	MS           float64
}

// call is an operation under way.
type call struct {
	op     string
	result json.RawMessage
	err    error
	done   chan struct{}
	abort  context.CancelFunc
}

// begin starts an operation.
func (c *client) begin(t testing.TB, op string, args object) *call {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	running := &call{op: op, done: make(chan struct{}), abort: cancel}
	go func() {
		defer close(running.done)
		defer cancel()
		running.result, running.err = c.do(ctx, op, args)
	}()
	return running
}

// wait waits for the operation's end.
func (r *call) wait(t testing.TB) (json.RawMessage, error) {
	t.Helper()
	select {
	case <-r.done:
		return r.result, r.err
	case <-time.After(patience):
		t.Fatalf("%s did not end within %v", r.op, patience)
		return nil, nil
	}
}

// try performs an operation that may fail.
func (c *client) try(t testing.TB, op string, args object) (json.RawMessage, error) {
	t.Helper()
	return c.begin(t, op, args).wait(t)
}

// must performs an operation that has to succeed and decodes its result.
func must[T any](t testing.TB, c *client, op string, args object) T {
	t.Helper()
	result, err := c.try(t, op, args)
	if err != nil {
		t.Fatalf("%s: %s %v: %v", c.name, op, args, err)
	}
	return decode[T](t, result)
}

func decode[T any](t testing.TB, raw json.RawMessage) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatalf("decoding %s: %v", raw, err)
	}
	return value
}

// wantError performs an operation that has to fail with a JSON-RPC error.
func (c *client) wantError(t testing.TB, code int, op string, args object) {
	t.Helper()
	result, err := c.try(t, op, args)
	failure, ok := errors.AsType[*callError](err)
	if !ok {
		t.Fatalf("%s: %s %v gave %s, %v; want error %d", c.name, op, args, result, err, code)
	}
	if fmt.Sprint(failure.Code) != fmt.Sprint(code) {
		t.Fatalf("%s: %s %v gave %v; want error %d", c.name, op, args, failure, code)
	}
}

func (c *client) connect(t testing.TB) hello {
	t.Helper()
	return must[hello](t, c, "connect", nil)
}

// tools lists the tools' names.
func (c *client) tools(t testing.TB) []string {
	t.Helper()
	list := must[struct{ Tools []struct{ Name string } }](t, c, "listTools", nil)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// toolResult is the result of a tool.
type toolResult struct {
	Content           []struct{ Type, Text string }
	StructuredContent json.RawMessage
	IsError           bool
}

// text returns the text of the result's text blocks.
func (r toolResult) text() string {
	var texts []string
	for _, block := range r.Content {
		if block.Type == "text" {
			texts = append(texts, block.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func toolCall(name string, arguments object) object {
	if arguments == nil {
		arguments = object{}
	}
	return object{"params": object{"name": name, "arguments": arguments}}
}

// tool calls a tool; the call has to give a result, if one with isError.
func (c *client) tool(t testing.TB, name string, arguments object) toolResult {
	t.Helper()
	return must[toolResult](t, c, "callTool", toolCall(name, arguments))
}

// wantText calls a tool that has to answer with text.
func (c *client) wantText(t testing.TB, want, name string, arguments object) {
	t.Helper()
	result := c.tool(t, name, arguments)
	if result.IsError || result.text() != want {
		t.Fatalf("%s: tool %s %v gave %+v, want %q", c.name, name, arguments, result, want)
	}
}

// await waits for an event and takes it out of the inbox.
func (c *client) await(t testing.TB, what string, match func(event) bool) event {
	t.Helper()
	deadline := time.After(patience)
	for {
		found, ok, arrived := c.inbox.take(match)
		if ok {
			return found
		}
		select {
		case <-arrived:
		case <-deadline:
			t.Fatalf("%s: waited %v for %s; unclaimed: %v", c.name, patience, what, c.inbox.pending())
		}
	}
}

// awaitNotification waits for a notification and takes it out of the inbox.
func (c *client) awaitNotification(t testing.TB, method string) event {
	t.Helper()
	return c.await(t, method, notification(method))
}

// forget empties the inbox.
func (c *client) forget() {
	for _, ok, _ := c.inbox.take(anything); ok; _, ok, _ = c.inbox.take(anything) {
	}
}

// heard returns how many unclaimed events match.
func (c *client) heard(match func(event) bool) int {
	count := 0
	for _, e := range c.inbox.pending() {
		if match(e) {
			count++
		}
	}
	return count
}

func anything(event) bool { return true }

func notification(method string) func(event) bool {
	return func(e event) bool { return e.Event == "notification" && e.Method == method }
}
