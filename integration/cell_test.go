//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// cell is one client in front of one backend, and what holds between them.
type cell struct {
	client *client
	kind   clientKind
	// era in which the client is served.
	era string
	// statelessLegacy: a legacy client of an HTTP server that keeps no
	// session for it, so that nothing but answers reaches the client.
	statelessLegacy bool
	// pushes: the backend can ask a client in the middle of a call.
	pushes bool
	// cannot names the tools and other things that do not work between these
	// two even without devproxy, and why.
	cannot map[string]string
}

// basics is what every client and backend do together, whatever their eras:
// requests, their answers and errors, progress, cancellation.
func (c cell) basics(t testing.TB) {
	t.Helper()
	c.lists(t)
	c.calls(t)
	c.reads(t)
	c.errors(t)
	c.progress(t)
	if c.era == "legacy" {
		must[object](t, c.client, "ping", nil)
	}
}

func (c cell) lists(t testing.TB) {
	t.Helper()
	tools := c.client.tools(t)
	for _, name := range []string{"echo", "add", "slow", "ask"} {
		if !slices.Contains(tools, name) {
			t.Errorf("%s: tools are %v, without %s", c.client.name, tools, name)
		}
	}
	type named struct{ Name string }
	resources := must[struct{ Resources []named }](t, c.client, "listResources", nil)
	templates := must[struct{ ResourceTemplates []named }](t, c.client, "listResourceTemplates", nil)
	prompts := must[struct{ Prompts []named }](t, c.client, "listPrompts", nil)
	for what, list := range map[string]struct {
		got  []named
		want string
	}{
		"resources": {resources.Resources, "a"},
		"templates": {templates.ResourceTemplates, "t"},
		"prompts":   {prompts.Prompts, "p"},
	} {
		if !slices.Equal(list.got, []named{{list.want}}) {
			t.Errorf("%s: %s are %v, want %s alone", c.client.name, what, list.got, list.want)
		}
	}
}

func (c cell) calls(t testing.TB) {
	t.Helper()
	c.client.wantText(t, "hi \u2028 <b> & é", "echo", object{"text": "hi \u2028 <b> & é"})
	sum := c.client.tool(t, "add", object{"a": 1, "b": 2})
	if got := decode[struct{ Sum int }](t, sum.StructuredContent); got.Sum != 3 || sum.text() != "3" {
		t.Errorf("%s: add gave %+v", c.client.name, sum)
	}
}

func (c cell) reads(t testing.TB) {
	t.Helper()
	for uri, want := range map[string]string{"test://a": "A", "test://t/7": "t 7"} {
		read := must[struct{ Contents []struct{ Text string } }](t, c.client, "readResource",
			object{"params": object{"uri": uri}})
		if len(read.Contents) != 1 || read.Contents[0].Text != want {
			t.Errorf("%s: reading %s gave %+v", c.client.name, uri, read)
		}
	}
	prompt := must[struct {
		Messages []struct{ Content struct{ Text string } }
	}](t, c.client, "getPrompt", object{"params": object{"name": "p", "arguments": object{"lang": "go"}}})
	if len(prompt.Messages) != 1 || prompt.Messages[0].Content.Text != "go" {
		t.Errorf("%s: prompt p gave %+v", c.client.name, prompt)
	}
	completed := must[struct{ Completion struct{ Values []string } }](t, c.client, "complete", object{"params": object{
		"ref": object{"type": "ref/prompt", "name": "p"}, "argument": object{"name": "lang", "value": "g"},
	}})
	if !slices.Equal(completed.Completion.Values, []string{"go"}) {
		t.Errorf("%s: completing g gave %+v", c.client.name, completed)
	}
}

func (c cell) errors(t testing.TB) {
	t.Helper()
	if failed := c.client.tool(t, "fail", nil); !failed.IsError || failed.text() != "failing as told" {
		t.Errorf("%s: fail gave %+v", c.client.name, failed)
	}
	c.client.wantError(t, -32602, "readResource", object{"params": object{"uri": "test://nope"}})
	if c.cannot["unknown method"] != "" {
		return
	}
	if _, err := c.client.try(t, "request", object{"method": "vendor/echo", "params": object{"a": 1}}); err == nil {
		t.Errorf("%s: an unknown method gave a result", c.client.name)
	}
}

func (c cell) progress(t testing.TB) {
	t.Helper()
	args := toolCall("slow", object{"ms": 60})
	args["progress"] = true
	if result := must[toolResult](t, c.client, "callTool", args); result.text() != "done" {
		t.Errorf("%s: slow gave %+v", c.client.name, result)
	}
	c.client.wantProgress(t, 3)
}

// wantProgress takes the progress 1, 2, … of total out of the inbox.
//
// Both TypeScript SDKs forget a request when its result arrives before they
// hand on the progress in the same chunk, and call that progress's token
// unknown; on a loaded machine no server can keep two lines apart. It has
// reached the client, which is what counts here.
func (c *client) wantProgress(t testing.TB, total int) {
	t.Helper()
	for i := 1; i <= total; i++ {
		late := fmt.Sprintf(`"progress":%d,"total":%d`, i, total)
		heard := c.await(t, "progress", func(e event) bool {
			return e.Event == "progress" || e.Event == "error" && strings.Contains(e.Message, "unknown token") && strings.Contains(e.Message, late)
		})
		if heard.Event == "error" {
			continue
		}
		if params := decode[struct{ Progress, Total int }](t, heard.Params); params.Progress != i || params.Total != total {
			t.Errorf("%s: progress %d of %d was %s", c.name, i, total, heard.Params)
		}
	}
}

// cancels lets a client take back a call; stopped waits until the backend has
// said that it stopped.
func (c cell) cancels(t testing.TB, stopped func()) {
	t.Helper()
	args := toolCall("slow", object{"ms": 60_000, "steps": 1000})
	args["progress"] = true
	running := c.client.begin(t, "callTool", args)
	// With its first progress the call is known to be with the backend.
	c.client.await(t, "progress of the long call", func(e event) bool { return e.Event == "progress" })
	running.abort()
	if result, err := running.wait(t); err == nil {
		t.Errorf("%s: the cancelled call gave %s", c.client.name, result)
	}
	stopped()
	c.client.wantText(t, "still here", "echo", object{"text": "still here"})
	c.client.forget()
}

// changes lets the backend announce changes, with and without a subscription.
func (c cell) changes(t testing.TB) {
	t.Helper()
	if c.statelessLegacy {
		return
	}
	unsubscribe := c.subscribe(t)
	c.client.wantText(t, "touched", "touch", nil)
	c.client.awaitNotification(t, "notifications/tools/list_changed")
	updated := c.client.awaitNotification(t, "notifications/resources/updated")
	if got := decode[struct{ URI string }](t, updated.Params); got.URI != "test://a" {
		t.Errorf("%s: updated %s", c.client.name, updated.Params)
	}
	unsubscribe()
	c.client.forget()
}

// subscribe asks for changes of test://a and of the list of tools, and returns
// how to take that back.
func (c cell) subscribe(t testing.TB) (unsubscribe func()) {
	t.Helper()
	params := object{"params": object{"uri": "test://a"}}
	if c.era == "modern" && !c.kind.goSDK {
		listen := must[struct{ Listen int }](t, c.client, "listen", object{"filter": object{
			"toolsListChanged": true, "resourceSubscriptions": []string{"test://a"},
		}})
		return func() { must[object](t, c.client, "unlisten", object{"listen": listen.Listen}) }
	}
	// The go-sdk listens for changed lists by itself.
	must[object](t, c.client, "subscribe", params)
	return func() { must[object](t, c.client, "unsubscribe", params) }
}

// asks lets the backend ask the client.
func (c cell) asks(t testing.TB) {
	t.Helper()
	if c.statelessLegacy {
		return
	}
	for tool, want := range map[string]struct{ method, text string }{
		"ask":    {"elicitation/create", "accept Bob"},
		"sample": {"sampling/createMessage", "hello"},
		"roots":  {"roots/list", "file:///fixture"},
	} {
		if c.cannot[tool] != "" {
			continue
		}
		c.client.wantText(t, want.text, tool, nil)
		// The go-sdk answers roots/list from the list it was given.
		if tool != "roots" || !c.kind.goSDK {
			c.client.await(t, want.method, func(e event) bool { return e.Event == "request" && e.Method == want.method })
		}
	}
	if c.pushes {
		c.client.wantText(t, "accept Bob", "push", nil)
		c.client.forget()
	}
}

// logs lets the backend log, at a level that the client asks for.
func (c cell) logs(t testing.TB) {
	t.Helper()
	call := toolCall("slow", object{"ms": 30})
	if c.era == "modern" {
		call["params"].(object)["_meta"] = object{"io.modelcontextprotocol/logLevel": "info"}
	} else {
		must[object](t, c.client, "setLevel", object{"level": "info"})
	}
	must[toolResult](t, c.client, "callTool", call)
	for i := 1; i <= 3; i++ {
		heard := c.client.awaitNotification(t, "notifications/message")
		message := decode[struct {
			Logger string
			Data   json.RawMessage
		}](t, heard.Params)
		if message.Logger != "slow" || string(message.Data) != fmt.Sprintf(`{"i":%d}`, i) {
			t.Errorf("%s: log %d was %s", c.client.name, i, heard.Params)
		}
	}
	c.client.forget()
}
