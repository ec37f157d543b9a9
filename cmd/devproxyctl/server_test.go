package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
)

// connected is a server of the SDK as the commands see it, without devproxy in
// between.
func connected(t *testing.T, options *mcp.ServerOptions, offer func(*mcp.Server), hear func(string, []byte)) *server {
	t.Helper()
	theirs := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, options)
	offer(theirs)
	in, to := io.Pipe()
	from, out := io.Pipe()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- theirs.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out}) }()
	s := &server{conn: newConnection(to, from, hear), devTools: []string{"dev_logs"}}
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	var err error
	if s.session, err = c.Connect(ctx, s.conn, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.session.Close()
		cancel()
		<-done
	})
	return s
}

func offerTools(names ...string) func(*mcp.Server) {
	return func(s *mcp.Server) {
		for _, name := range names {
			s.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if name == "e" {
					return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{Message: "who?"}}}, nil
				}
				return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"n":12345678901234567890}`)}, nil
			})
		}
	}
}

// A list without any tool of the server's own is no proof that it lacks one.
func TestMissingToolsOfAServerThatIsDown(t *testing.T) {
	for name, test := range map[string]struct {
		status string
		more   []string
		want   string
	}{
		"down": {`{"state":"failed","message":"it exited"}`, nil, "the server's tools are not known: it exited"},
		"down after words": {
			`{"state":"failed","message":"it exited; fix it","generation":2,"lastExit":{"generation":2,"stderr":["one","two"]},"lastBuild":{"ok":true}}`,
			nil, "the server's tools are not known: it exited; fix it; its last lines:\none\ntwo",
		},
		"down for a port": {
			`{"state":"failed","message":"the port is in use","generation":2,"lastExit":{"generation":1,"stderr":["one"]}}`,
			nil, "the server's tools are not known: the port is in use",
		},
		"down for a build": {
			`{"state":"failed","message":"the build failed; see it","generation":2,"lastExit":{"generation":2,"stderr":["one"]},"lastBuild":{"message":"the build failed","tail":["error"]}}`,
			nil, "the server's tools are not known: the build failed; see it; its last lines:\nerror",
		},
		"running":          {`{"state":"running","message":"fine"}`, nil, `the server has no tool "x"; see "devproxyctl tools"`},
		"down by now":      {`{"state":"failed","message":"it exited"}`, []string{"own"}, `the server has no tool "x"; see "devproxyctl tools"`},
		"without a status": {`{}`, nil, `the server has no tool "x"; see "devproxyctl tools"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := connected(t, nil, func(theirs *mcp.Server) {
				offerTools(test.more...)(theirs)
				theirs.AddTool(&mcp.Tool{Meta: mcp.Meta{metaTool: "server_status"}, Name: "dev_logs", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{StructuredContent: json.RawMessage(test.status)}, nil
				})
			}, nil)
			if _, _, err := s.argumentsFor(t.Context(), "x", given{}); err == nil || err.Error() != test.want {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
		})
	}
}

// A tool of the server that has the name of one of devproxy's is the server's.
func TestMarkedTools(t *testing.T) {
	s := connected(t, nil, func(theirs *mcp.Server) {
		offerTools("dev_logs", "echo")(theirs)
		theirs.AddTool(&mcp.Tool{Meta: mcp.Meta{metaTool: "restart"}, Name: "my_restart", InputSchema: map[string]any{"type": "object"}}, nil)
	}, nil)
	if _, err := s.tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.mark("dev_logs") != "" || s.mark("echo") != "" || s.mark("my_restart") == "" {
		t.Errorf("devproxy's are said to be %q", s.devTools)
	}
}

// All pages are one list, what a server does not know is an empty one, and
// numbers are as they came.
func TestLists(t *testing.T) {
	s := connected(t, &mcp.ServerOptions{PageSize: 2}, offerTools("a", "b", "c", "d", "e"), nil)
	raw, err := s.tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range things(raw) {
		names = append(names, tool.Name)
	}
	if strings.Join(names, "") != "abcde" {
		t.Errorf("the tools are %v", names)
	}
	for what, list := range map[string]func(context.Context) ([]json.RawMessage, error){
		"resources": s.resources, "templates": s.templates, "prompts": s.prompts,
	} {
		if all, err := list(t.Context()); err != nil || all == nil || len(all) != 0 {
			t.Errorf("%s: %v, %v", what, all, err)
		}
	}
	_, err = s.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "a"})
	if result, err := s.conn.answer("tools/call", err); err != nil || !strings.Contains(string(result), `{"n":12345678901234567890}`) {
		t.Errorf("the result is %s, %v", result, err)
	}
	// A question that nobody answers is no result.
	_, err = s.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "e"})
	if result, err := s.conn.answer("tools/call", err); err == nil {
		t.Errorf("a question is taken for the result %s", result)
	}
	_, err = s.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "z"})
	if _, err = s.conn.answer("tools/call", err); err == nil || !strings.HasPrefix(err.Error(), "the server answered with error -32602: ") {
		t.Errorf("an error of the server is told as %v", err)
	}
}

// A server whose pages never end is not asked forever.
func TestPagesThatRepeat(t *testing.T) {
	asked := 0
	in, to := io.Pipe()
	s := &server{conn: newConnection(to, in, nil)}
	_, err := s.list(t.Context(), "tools/list", "tools", func(context.Context, string) error {
		asked++
		s.conn.answers["tools/list"] = []byte(`{"tools":[{}],"nextCursor":"again"}`)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), `"again"`) || asked != 2 {
		t.Errorf("after %d pages: %v", asked, err)
	}
}

const testSchema = `{
	"type": "object", "required": ["query", "kind"], "additionalProperties": false,
	"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}},
	"properties": {
		"query": {"type": "string", "description": "What to\n look for", "minLength": 1},
		"kind": {"enum": ["file", "folder"]},
		"limit": {"type": ["integer", "null"], "minimum": 1, "default": 10},
		"ratio": {"type": "number"},
		"deep": {"type": "boolean"},
		"tags": {"type": "array", "items": {"type": "string"}},
		"where": {"anyOf": [{"type": "object", "properties": {"path": {"type": "string"}}}, {"type": "null"}]},
		"tree": {"$ref": "#/$defs/node"},
		"free": {}
	}}`

func TestSchemaInWords(t *testing.T) {
	s := parseSchema([]byte(testSchema))
	const line = "query: string, kind: string, limit?: integer or null, ratio?: number, deep?: boolean, tags?: array of string, where?: null or object, tree?: object, free?: any"
	if got := signature(s.properties()); got != line {
		t.Errorf("signature\n%s, want\n%s", got, line)
	}
	words := s.describe()
	for _, want := range []string{
		"query (string, required; at least 1 characters): What to look for",
		`kind (string, required; one of "file", "folder")`,
		"limit (integer or null; at least 1; default 10)",
		"tags (array of string)", "tree (object)", "  name (string)", "(and no others)",
	} {
		if !slices.Contains(words, want) {
			t.Errorf("nothing says %q:\n%s", want, strings.Join(words, "\n"))
		}
	}
	for raw, want := range map[string]string{
		``: "anything: the schema names no properties", `[1]`: "anything: the schema names no properties",
		`{"type":"object","additionalProperties":false}`: "nothing",
	} {
		if got := parseSchema([]byte(raw)).describe(); len(got) != 1 || got[0] != want {
			t.Errorf("%s is told as %q", raw, got)
		}
	}
	// A schema that contains itself many times over comes to an end.
	var members []string
	for i := range 20 {
		members = append(members, fmt.Sprintf(`"p%d":{"$ref":"#"}`, i))
	}
	ring := `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`
	wide := `{"properties":{` + strings.Join(members, ",") + `}}`
	for _, raw := range []string{strings.ReplaceAll(wide, `"#"`, `"#/properties/p0"`), ring, strings.ReplaceAll(wide, `{"$ref":"#"}`, `{"anyOf":[{"$ref":"#/properties/p1"},{"$ref":"#/properties/p2"}]}`)} {
		if lines := parseSchema([]byte(raw)).describe(); len(lines) > describedLines+1 {
			t.Errorf("a schema that contains itself has %d lines", len(lines))
		}
	}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"query=1", `{"query":"1"}`},
		{"query=a=b limit=12345678901234567890", `{"query":"a=b","limit":12345678901234567890}`},
		{"limit=null ratio=-1.50 deep=true", `{"limit":null,"ratio":-1.50,"deep":true}`},
		{`tags=["a","b"] where={"path":"x"}`, `{"tags":["a","b"],"where":{"path":"x"}}`},
		{"kind=file free=1 unknown=true", `{"kind":"file","free":"1","unknown":"true"}`},
		{`query:=1 unknown:={"a":[]} empty=`, `{"query":1,"unknown":{"a":[]},"empty":""}`},
		{"limit=1.5", "want integer or null"}, {"limit=x", "want integer or null"}, {"ratio=", "want number"},
		{"deep=yes", "want boolean"}, {"tags=a,b", "want array of string"}, {`where=[]`, "want null or object"},
		{"query:=a", "--arg query:=a"}, {"query=1 query=2", "given twice"},
	} {
		g := given{assignments: strings.Fields(test.args)}
		got, err := g.forTool(parseSchema([]byte(testSchema)))
		if err != nil {
			got = []byte(err.Error())
		}
		if fits := string(got) == test.want || err != nil && strings.Contains(err.Error(), test.want); !fits {
			t.Errorf("%s gives %s, want %s", test.args, got, test.want)
		}
	}
	cmd := &cobra.Command{}
	for text, fails := range map[string]bool{`{"a":1}`: false, " {} ": false, "": true, "[]": true, "x": true, `{"a":}`: true} {
		cmd.SetIn(strings.NewReader(text))
		g, err := (&request{}).object(cmd, []string{"-"})
		if (err != nil) != fails || err == nil && string(g.object) != text {
			t.Errorf("%q on stdin: %s, %v", text, g.object, err)
		}
	}
	if _, err := (&request{arguments: []string{"a=1"}}).object(cmd, []string{"{}"}); err == nil {
		t.Error("--arg and JSON went together")
	}
}

// An argument that the schema does not name is told, and only where it names all.
func TestUnknownArguments(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"text":{},"count":{}}}`:         `"txet", which is sent all the same; did you mean text?|"foo", which is sent all the same; it has text, count`,
		`{"properties":{"text":{},"txet":{},"foo":{}}}`: "",
		`{}`: "",
		`{"properties":{},"additionalProperties":{}}`:               "",
		`{"properties":{"text":{}},"patternProperties":{}}`:         "",
		`{"properties":{"text":{}},"anyOf":[{"required":["foo"]}]}`: "",
	} {
		g := given{assignments: []string{"txet=1", "foo:=1"}}
		got := strings.ReplaceAll(strings.Join(g.unknownTo(parseSchema([]byte(schema))), "|"), "the tool names no argument ", "")
		if got != want {
			t.Errorf("%s: it says %s, want %s", schema, got, want)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	all := []thing{{Name: "read_file"}, {Name: "write_file"}, {Name: "list"}}
	for name, want := range map[string]string{
		"file": "did you mean read_file, write_file?", "readFile": "did you mean read_file?", "lst": "did you mean list?",
		"zzzzzz": `see "devproxyctl tools"`,
	} {
		if err := unknown("tool", name, all); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// pour runs contents through a sink and returns what was printed.
func pour(t *testing.T, output, raw string) (stdout, stderr string, err error) {
	t.Helper()
	var out, told bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetErr(&told)
	err = sink{cmd, output}.put(contents([]byte(raw)))
	return out.String(), told.String(), err
}

func TestContents(t *testing.T) {
	const image = `{"type":"image","mimeType":"image/png","data":"AQID"}`
	const all = `[{"type":"text","text":"one"},` + image + `,{"type":"audio","mimeType":"audio/mpeg","data":"AQ=="},` +
		`{"type":"resource","resource":{"uri":"x://../../y","mimeType":"text/plain","text":"two\n"}},` +
		`{"type":"resource","resource":{"uri":"x://z","blob":"!"}},{"type":"resource_link","uri":"x://l","name":"l"},{"type":"new"}]`
	const texts = "one\ntwo\n"
	stdout, stderr, err := pour(t, "", all)
	const want = "[image, image/png, 3 bytes; --output saves it]\n[audio, audio/mpeg, 1 byte; --output saves it]\n" +
		"[resource x://z, which is no base64]\n[link to x://l l]\n[new]\n"
	if err != nil || stdout != texts || stderr != want {
		t.Errorf("shown are\n%s\n%s (%v), want\n%s", stdout, stderr, err, want)
	}

	dir := t.TempDir()
	if stdout, _, err := pour(t, dir, all); err != nil || stdout != texts {
		t.Errorf("with a folder: %q, %v", stdout, err)
	}
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{"audio-3.mp3", "image-2.png"}, names); diff != "" {
		t.Errorf("saved (-want +got):\n%s", diff)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "image-2.png")); err != nil || string(data) != "\x01\x02\x03" {
		t.Errorf("the image is %q, %v", data, err)
	}

	file := filepath.Join(dir, "file")
	if _, _, err := pour(t, file, all); err == nil || !strings.Contains(err.Error(), "name a folder") {
		t.Errorf("two things into one file: %v", err)
	}
	for raw, want := range map[string]string{image: "\x01\x02\x03", `[{"uri":"x://y","text":"three"}]`: "three"} {
		if stdout, stderr, err := pour(t, file, raw); err != nil || stdout != "" || !strings.HasPrefix(stderr, "saved "+file) {
			t.Errorf("into a file: %q, %q, %v", stdout, stderr, err)
		}
		if data, _ := os.ReadFile(file); string(data) != want {
			t.Errorf("the file holds %q, want %q", data, want)
		}
	}
	if _, _, err := pour(t, filepath.Join(dir, "new")+"/", image); err != nil {
		t.Errorf("into a new folder: %v", err)
	}
}

func TestResults(t *testing.T) {
	for _, test := range []struct {
		asJSON                bool
		result, stdout, fails string
	}{
		{false, `{"content":[{"type":"text","text":"hi"}],"structuredContent":{"a":1}}`, "hi\n", ""},
		{false, `{"content":[],"structuredContent":{"a":1.0}}`, `{"a":1.0}` + "\n", ""},
		{false, `{"content":[{"type":"text","text":"no"},{"type":"text","text":"way"}],"isError":true}`, "", "the tool failed: no\nway"},
		{true, `{"content":[],"isError":true}`, `{"version":1,"result":{"content":[],"isError":true}}` + "\n", "the tool failed"},
		{true, `{"x":1e400}`, `{"version":1,"result":{"x":1e400}}` + "\n", ""},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		err := (&request{asJSON: test.asJSON}).show(cmd, []byte(test.result))
		if out.String() != test.stdout || fmt.Sprint(err) != test.fails && (err != nil || test.fails != "") {
			t.Errorf("%s: %q, %v", test.result, out.String(), err)
		}
	}
}

func TestHearing(t *testing.T) {
	var out bytes.Buffer
	for _, said := range [][2]string{
		{"notifications/progress", `{"progressToken":"x","progress":1,"total":3,"message":"half\u001b[2J"}`},
		{"notifications/progress", `{"progress":0.5}`},
		{"notifications/message", `{"level":"info","logger":"db","data":"open"}`},
		{"notifications/message", `{"level":"error","data":{"a":[1]}}`},
		{"notifications/other", `{}`},
		{"notifications/message", `[]`},
	} {
		hear(&out, said[0], []byte(said[1]))
	}
	const want = "progress 1/3 half\\x1b[2J\nprogress 0.5\ninfo db: open\nerror: {\"a\":[1]}\n"
	if out.String() != want {
		t.Errorf("heard\n%s, want\n%s", out.String(), want)
	}
}

func TestAsking(t *testing.T) {
	form := &mcp.ElicitParams{Message: "who\x1b[2J?", RequestedSchema: map[string]any{
		"type": "object", "required": []string{"name"},
		"properties": map[string]any{"name": map[string]any{"type": "string", "enum": []string{"ann", "bob"}}, "age": map[string]any{"type": "integer"}},
	}}
	age := &mcp.ElicitParams{Message: "age?", RequestedSchema: map[string]any{
		"properties": map[string]any{"age": map[string]any{"type": "integer", "default": 7}},
	}}
	page := &mcp.ElicitParams{Mode: "url", Message: "visit", URL: "http://x"}
	for name, test := range map[string]struct {
		params *mcp.ElicitParams
		typed  string
		action string
		want   map[string]any
	}{
		"no terminal":   {form, "-", "decline", nil},
		"asked again":   {form, "x\n\ncat\n\nbob\n", "accept", map[string]any{"name": "bob"}},
		"end of input":  {form, "ann", "decline", nil},
		"default":       {age, "\n", "accept", map[string]any{"age": 7.0}},
		"typed":         {age, "1.5\n8\n", "accept", map[string]any{"age": 8.0}},
		"page":          {page, "\n", "accept", nil},
		"page declined": {page, "", "decline", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &asker{out: &out}
			if test.typed != "-" {
				a.in = bufio.NewReader(strings.NewReader(test.typed))
			}
			result, err := a.elicit(t.Context(), &mcp.ElicitRequest{Params: test.params})
			if err != nil {
				t.Fatal(err)
			}
			if result.Action != test.action || !cmp.Equal(result.Content, test.want) {
				t.Errorf("typing %q gives %+v\n%s", test.typed, result, out.String())
			}
			if strings.Contains(out.String(), "\x1b") || !strings.HasPrefix(out.String(), "the server asks: ") {
				t.Errorf("shown is %q", out.String())
			}
		})
	}
	// The end of the command does not wait for a person.
	held, _ := io.Pipe()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDone)
	if _, err := (&asker{in: bufio.NewReader(held), out: io.Discard}).elicit(ctx, &mcp.ElicitRequest{Params: page}); !errors.Is(err, errDone) {
		t.Errorf("a question at the end: %v", err)
	}
	_ = held.Close()
}

func TestShowTool(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "")
	tool := things([]json.RawMessage{json.RawMessage(`{"name":"dev_logs","title":"Logs","description":"the\nlogs","inputSchema":` + testSchema +
		`,"outputSchema":{"properties":{"n":{"type":"integer"}}},"annotations":{"readOnlyHint":true,"idempotentHint":true}}`)})[0]
	var out bytes.Buffer
	if err := (&server{devTools: []string{"dev_logs"}}).printTool(&out, tool, 60); err != nil {
		t.Fatal(err)
	}
	golden(t, "tool", out.String())
	broken := things([]json.RawMessage{json.RawMessage(`{"name":"x","description":5}`)})[0]
	if broken.Name != "x" || !strings.Contains(broken.about(), "cannot be read") {
		t.Errorf("a tool that cannot be read: %+v", broken)
	}
}

func TestUsageOfServerCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range []string{"tools", "call x", "resources", "resources read x:y", "prompts", "prompts get x"} {
		var stderr bytes.Buffer
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		root.SetErr(&stderr)
		if code := cli.Main(root); code != cli.ExitUsage || !strings.Contains(stderr.String(), "--project DIR") {
			t.Errorf("%s outside of a project: %d, %s", args, code, stderr.String())
		}
	}
}
