//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goDriver is a client on the go-sdk in this process.
type goDriver struct {
	client    *mcp.Client
	transport mcp.Transport
	version   string
	inbox     *inbox
	// operations numbers them, as progress tokens and in progress events.
	operations atomic.Int64

	mu      sync.Mutex
	session *mcp.ClientSession
	// answers replaces what the client answers to a reverse request.
	answers map[string]json.RawMessage
}

// newGoClient makes a client on the go-sdk that will start server. version ""
// is the newest.
func newGoClient(t testing.TB, version string, env []string, server ...string) *client {
	t.Helper()
	command := exec.Command(server[0], server[1:]...)
	command.Dir, command.Env = "/", env
	stderr := &lockedBuffer{}
	command.Stderr = stderr
	transport := &mcp.CommandTransport{Command: command, TerminateDuration: 2 * time.Second}
	return newGoClientOver(t, version, transport, stderr)
}

// newGoClientOver is newGoClient over any transport.
func newGoClientOver(t testing.TB, version string, transport mcp.Transport, stderr *lockedBuffer) *client {
	t.Helper()
	d := &goDriver{
		transport: transport, version: version,
		inbox: newInbox(), answers: map[string]json.RawMessage{},
	}
	d.client = mcp.NewClient(&mcp.Implementation{Name: "go-client", Version: "1.8.0"}, &mcp.ClientOptions{
		CreateMessageHandler: d.createMessage,
		ElicitationHandler:   d.elicit,
		Capabilities: &mcp.ClientCapabilities{
			RootsV2: &mcp.RootCapabilities{ListChanged: true},
			Elicitation: &mcp.ElicitationCapabilities{
				Form: &mcp.FormElicitationCapabilities{},
				URL:  &mcp.URLElicitationCapabilities{},
			},
		},
		ToolListChangedHandler: func(_ context.Context, req *mcp.ToolListChangedRequest) {
			d.heard("notifications/tools/list_changed", req.Params)
		},
		PromptListChangedHandler: func(_ context.Context, req *mcp.PromptListChangedRequest) {
			d.heard("notifications/prompts/list_changed", req.Params)
		},
		ResourceListChangedHandler: func(_ context.Context, req *mcp.ResourceListChangedRequest) {
			d.heard("notifications/resources/list_changed", req.Params)
		},
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) {
			d.heard("notifications/resources/updated", req.Params)
		},
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) {
			d.heard("notifications/message", req.Params)
		},
		ProgressNotificationHandler: d.progress,
	})
	d.client.AddRoots(&mcp.Root{URI: "file:///fixture", Name: "fixture"})
	// Methods that the SDK does not know have to be named before.
	for _, method := range []string{"vendor/echo", "vendor/fail", "tasks/list"} {
		if err := mcp.AddSendingCustomMethod[*customParams, *customResult](d.client, method); err != nil {
			t.Fatal(err)
		}
	}
	name := "go"
	if version != "" {
		name += " " + version
	}
	c := &client{driver: d, name: name, inbox: d.inbox, stderr: stderr}
	t.Cleanup(func() { endClient(t, c) })
	return c
}

// customParams and customResult are those of a method that the SDK does not
// know.
type customParams struct {
	mcp.ParamsBase
	Value any `json:"value,omitempty"`
}

type customResult struct {
	mcp.ResultBase
	Params json.RawMessage `json:"params,omitempty"`
}

func (d *goDriver) heard(method string, params any) {
	text, err := json.Marshal(params)
	if err != nil {
		text = fmt.Appendf(nil, "%q", err)
	}
	d.inbox.put(event{Event: "notification", Method: method, Params: text})
}

func (d *goDriver) progress(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	params, err := json.Marshal(req.Params)
	if err != nil {
		params = fmt.Appendf(nil, "%q", err)
	}
	token, _ := req.Params.ProgressToken.(float64)
	d.inbox.put(event{Event: "progress", ID: int(token), Params: params})
}

// answer puts the question into the inbox and decodes what the test wants
// answered, if it said so.
func (d *goDriver) answer(method string, params, result any) (replaced bool, err error) {
	text, err := json.Marshal(params)
	if err != nil {
		return false, err
	}
	d.inbox.put(event{Event: "request", Method: method, Params: text})
	d.mu.Lock()
	answer := d.answers[method]
	d.mu.Unlock()
	if answer == nil {
		return false, nil
	}
	var failure struct{ Error *jsonrpc.Error }
	if err := json.Unmarshal(answer, &failure); err == nil && failure.Error != nil {
		return true, failure.Error
	}
	return true, json.Unmarshal(answer, result)
}

func (d *goDriver) createMessage(_ context.Context, req *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	result := &mcp.CreateMessageResult{Role: "assistant", Model: "fixture", Content: &mcp.TextContent{Text: "hello"}}
	_, err := d.answer("sampling/createMessage", req.Params, result)
	return result, err
}

func (d *goDriver) elicit(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	result := &mcp.ElicitResult{}
	replaced, err := d.answer("elicitation/create", req.Params, result)
	if !replaced {
		result.Action = "accept"
		if req.Params.Mode != "url" {
			result.Content = map[string]any{"name": "Bob"}
		}
	}
	return result, err
}

func (d *goDriver) do(ctx context.Context, op string, args object) (json.RawMessage, error) {
	result, err := d.perform(ctx, op, args)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, &callError{Name: "jsonrpc.Error", Code: wire.Code, Message: wire.Message, Data: wire.Data}
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

func (d *goDriver) perform(ctx context.Context, op string, args object) (any, error) {
	if op == "connect" {
		return d.connect(ctx)
	}
	d.mu.Lock()
	session := d.session
	d.mu.Unlock()
	if session == nil {
		return nil, errors.New("not connected")
	}
	switch op {
	case "listTools":
		return perform(ctx, session.ListTools, args["params"])
	case "listResources":
		return perform(ctx, session.ListResources, args["params"])
	case "listResourceTemplates":
		return perform(ctx, session.ListResourceTemplates, args["params"])
	case "listPrompts":
		return perform(ctx, session.ListPrompts, args["params"])
	case "readResource":
		return perform(ctx, session.ReadResource, args["params"])
	case "getPrompt":
		return perform(ctx, session.GetPrompt, args["params"])
	case "complete":
		return perform(ctx, session.Complete, args["params"])
	case "callTool":
		return d.callTool(ctx, session, args)
	case "ping":
		return object{}, session.Ping(ctx, nil)
	case "setLevel":
		return object{}, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: mcp.LoggingLevel(args["level"].(string))})
	case "subscribe":
		return object{}, session.Subscribe(ctx, &mcp.SubscribeParams{URI: args["params"].(object)["uri"].(string)})
	case "unsubscribe":
		return object{}, session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: args["params"].(object)["uri"].(string)})
	case "request":
		return mcp.CallCustomMethod[*customParams, *customResult](ctx, session, args["method"].(string), &customParams{Value: args["params"]})
	case "answer":
		answer, err := json.Marshal(args["result"])
		d.mu.Lock()
		defer d.mu.Unlock()
		d.answers[args["method"].(string)] = answer
		return object{}, err
	}
	return nil, fmt.Errorf("the go-sdk client has no operation %s", op)
}

// perform converts params to what the method takes.
func perform[P, R any](ctx context.Context, method func(context.Context, *P) (R, error), params any) (R, error) {
	var (
		typed P
		none  R
	)
	text, err := json.Marshal(params)
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(text, &typed); err != nil {
		return none, err
	}
	return method(ctx, &typed)
}

func (d *goDriver) connect(ctx context.Context) (any, error) {
	began := time.Now()
	// The session outlives the operation: its context ends the connection.
	session, err := d.client.Connect(context.WithoutCancel(ctx), d.transport,
		&mcp.ClientSessionOptions{ProtocolVersion: d.version})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.session = session
	d.mu.Unlock()
	learned := session.InitializeResult()
	era := "legacy"
	if learned.ProtocolVersion >= "2026-07-28" {
		era = "modern"
	}
	return object{
		"era": era, "version": learned.ProtocolVersion, "server": learned.ServerInfo,
		"capabilities": learned.Capabilities, "instructions": learned.Instructions,
		"ms": float64(time.Since(began)) / float64(time.Millisecond),
	}, nil
}

func (d *goDriver) callTool(ctx context.Context, session *mcp.ClientSession, args object) (any, error) {
	params := args["params"].(object)
	call := &mcp.CallToolParams{Name: params["name"].(string), Arguments: params["arguments"]}
	if meta, ok := params["_meta"].(object); ok {
		call.Meta = mcp.Meta(meta)
	}
	if args["progress"] == true {
		call.SetProgressToken(int(d.operations.Add(1)))
	}
	return session.CallTool(ctx, call)
}

func (d *goDriver) close() error {
	d.mu.Lock()
	session := d.session
	d.session = nil
	d.mu.Unlock()
	if session == nil {
		return nil
	}
	err := session.Close()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return fmt.Errorf("the server that the client started: %w", err)
	}
	return err
}
