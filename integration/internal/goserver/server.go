package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newServer offers what every fixture server offers, and a tool more for each
// name in extra.
func newServer(extra []string) *mcp.Server {
	server := mcp.NewServer(
		&mcp.Implementation{Name: "go-fixture", Version: "1.8.0"},
		&mcp.ServerOptions{
			Instructions:       "use me well",
			SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
			CompletionHandler:  complete,
		},
	)
	addTools(server)
	for _, name := range extra {
		addTool(server, name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(name), nil
		})
	}
	server.AddResource(&mcp.Resource{URI: "test://a", Name: "a", MIMEType: "text/plain"}, readA)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "test://t/{id}", Name: "t"}, readT)
	server.AddPrompt(&mcp.Prompt{
		Name:        "p",
		Description: "a prompt",
		Arguments:   []*mcp.PromptArgument{{Name: "lang", Required: true}},
	}, getPrompt)
	return server
}

// addTool takes the low-level handler: its arguments arrive as they were sent,
// and its result leaves as it was built.
func addTool(server *mcp.Server, name string, handler mcp.ToolHandler) {
	server.AddTool(&mcp.Tool{
		Name:        name,
		Description: name + " of the fixture",
		InputSchema: map[string]any{"type": "object"},
	}, handler)
}

func addTools(server *mcp.Server) {
	addTool(server, "echo", echo)
	addTool(server, "add", add)
	addTool(server, "slow", slow)
	addTool(server, "record", record)
	addTool(server, "crash", crash)
	addTool(server, "fail", fail)
	addTool(server, "big", big)
	addTool(server, "ask", ask)
	addTool(server, "visit", visit)
	addTool(server, "push", push)
	addTool(server, "sample", sample)
	addTool(server, "roots", roots)
	addTool(server, "pid", pid)
	addTool(server, "env", environment)
	addTool(server, "numbers", numbers)
	addTool(server, "mirror", mirror)
	addTool(server, "touch", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		// Adding a tool that is there already announces a changed list.
		addTool(server, "touched", echo)
		server.RemoveTools("touched")
		err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "test://a"})
		return text("touched"), err
	})
}

func text(value string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: value}}}
}

// arguments decodes what a call sent.
func arguments[T any](req *mcp.CallToolRequest) (T, error) {
	var args T
	if len(req.Params.Arguments) == 0 {
		return args, nil
	}
	err := json.Unmarshal(req.Params.Arguments, &args)
	return args, err
}

func echo(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments[struct{ Text string }](req)
	return text(args.Text), err
}

func add(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments[struct{ A, B float64 }](req)
	result := text(fmt.Sprint(args.A + args.B))
	result.StructuredContent = map[string]float64{"sum": args.A + args.B}
	return result, err
}

func slow(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments[struct{ MS, Steps int }](req)
	if err != nil {
		return nil, err
	}
	if args.Steps == 0 {
		args.Steps = 3
	}
	for i := 1; i <= args.Steps; i++ {
		if err := report(ctx, req, i, args.Steps); err != nil && ctx.Err() == nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, "fixture: slow was cancelled")
			return text("cancelled"), nil
		case <-time.After(time.Duration(args.MS) * time.Millisecond / time.Duration(args.Steps)):
		}
	}
	return text("done"), nil
}

// record has an effect: a line in a file. Its answer comes a while later.
func record(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments[struct {
		File, Text string
		MS         int
	}](req)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(args.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(file, args.Text)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(args.MS) * time.Millisecond):
	}
	return text(args.Text), nil
}

// report tells the client of a step of slow.
func report(ctx context.Context, req *mcp.CallToolRequest, step, steps int) error {
	if token := req.Params.GetProgressToken(); token != nil {
		if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: float64(step), Total: float64(steps),
		}); err != nil {
			return err
		}
	}
	return req.Session.Log(ctx, &mcp.LoggingMessageParams{
		Level: "info", Logger: "slow", Data: map[string]int{"i": step},
	})
}

func crash(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	fmt.Fprintln(os.Stderr, "fixture: crashing as told")
	os.Exit(7)
	return nil, nil
}

func fail(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	result := text("failing as told")
	result.IsError = true
	return result, nil
}

func big(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments[struct{ N int }](req)
	return text(strings.Repeat("x", args.N)), err
}

var question = mcp.ElicitParams{
	Mode:    "form",
	Message: "who?",
	RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`),
}

func elicited(answer *mcp.ElicitResult) *mcp.CallToolResult {
	name, _ := answer.Content["name"].(string)
	return text(strings.TrimSpace(answer.Action + " " + name))
}

// ask returns its question; the SDK puts it to legacy clients itself.
func ask(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, answered := req.Params.InputResponses["who"].(*mcp.ElicitResult)
	if !answered {
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{"who": &question},
			RequestState:  "asked",
		}, nil
	}
	return elicited(answer), nil
}

// visit sends the user to a page.
func visit(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, answered := req.Params.InputResponses["page"].(*mcp.ElicitResult)
	if !answered {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"page": &mcp.ElicitParams{
			Mode: "url", Message: "visit", URL: "http://localhost/visit", ElicitationID: "page",
		}}}, nil
	}
	return text(answer.Action), nil
}

// push asks in the middle of the call, which only a legacy client can answer.
func push(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, err := req.Session.Elicit(ctx, &question)
	if err != nil {
		return nil, err
	}
	return elicited(answer), nil
}

func sample(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, answered := req.Params.InputResponses["model"]
	if !answered {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"model": &mcp.CreateMessageParams{
			Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "say something"}}},
			MaxTokens: 10,
		}}}, nil
	}
	var content []mcp.Content
	switch answer := answer.(type) {
	case *mcp.CreateMessageResult:
		content = []mcp.Content{answer.Content}
	case *mcp.CreateMessageWithToolsResult:
		content = answer.Content
	}
	if len(content) == 1 {
		if said, ok := content[0].(*mcp.TextContent); ok {
			return text(said.Text), nil
		}
	}
	return nil, fmt.Errorf("unexpected answer %T", answer)
}

func roots(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, answered := req.Params.InputResponses["roots"].(*mcp.ListRootsResult)
	if !answered {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"roots": &mcp.ListRootsParams{}}}, nil
	}
	var uris []string
	for _, root := range answer.Roots {
		uris = append(uris, root.URI)
	}
	return text(strings.Join(uris, " ")), nil
}

func pid(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return text(fmt.Sprint(os.Getpid())), nil
}

func environment(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments[struct{ Name string }](req)
	return text(os.Getenv(args.Name)), err
}

func numbers(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	result := text("numbers")
	result.StructuredContent = json.RawMessage(rawNumbers)
	return result, nil
}

// mirror returns the arguments as they arrived, byte for byte.
func mirror(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return text(string(req.Params.Arguments)), nil
}

func readA(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test://a", Text: "A"}}}, nil
}

func readT(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id, ok := strings.CutPrefix(req.Params.URI, "test://t/")
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: "t " + id}}}, nil
}

func getPrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	lang, given := req.Params.Arguments["lang"]
	if !given {
		return nil, errors.New("the argument lang is missing")
	}
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: lang}},
	}}, nil
}

func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	for _, language := range []string{"go", "rust", "typescript"} {
		if strings.HasPrefix(language, req.Params.Argument.Value) {
			values = append(values, language)
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}
