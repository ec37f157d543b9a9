package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/wire"
	"github.com/debugmcp/devproxy/shim"
)

// exitAnswer is the exit code when the server answered with a JSON-RPC error.
const exitAnswer = 4

// serverExitCodes documents the exit codes of commands that use the server.
const serverExitCodes = `Exit codes: 0 done; 1 it did not happen, stderr says why; 2 wrong usage or
configuration; 4 the server answered with a JSON-RPC error; 130 interrupted.`

// server is the project's MCP server as a client behind devproxy has it. The
// SDK's client makes the conversation; what is shown are the answers as they
// came, which its types would change.
type server struct {
	session *mcp.ClientSession
	conn    *connection
	// devTools are the names that the tools of devproxy have in this project.
	devTools []string
	// statusTool is the one that tells how the server does; empty until tools has
	// found it.
	statusTool string
	leave      func() error
}

// errDone ends the shim of a command that has done its work.
var errDone = errors.New("the command is done")

// openServer attaches to the project's daemon, which it starts if none runs, as
// a client does. hear, if not nil, is told of every notification, in order and
// before the answer that follows it.
func openServer(cmd *cobra.Command, target *cli.Target, options *mcp.ClientOptions, hear func(method string, params []byte)) (*server, error) {
	p, err := ensureDaemon(cmd, target)
	if err != nil {
		return nil, err
	}
	s, err := attach(cmd.Context(), cmd, p, shim.Config{Socket: target.SocketPath}, options, hear)
	if err != nil {
		return nil, err
	}
	leave, content := s.leave, wonder(cmd, target, p, s.conn.pending)
	s.leave = func() error {
		content()
		return leave()
	}
	return s, nil
}

// attach has a conversation with the server of p by way of a shim, of which
// config says what is not the same for all.
func attach(ctx context.Context, cmd *cobra.Command, p project.Project, config shim.Config, options *mcp.ClientOptions, hear func(method string, params []byte)) (*server, error) {
	// What ends the command has to reach the server through the shim first.
	shimContext, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stdin, toShim := io.Pipe()
	fromShim, stdout := io.Pipe()
	config.Stdin, config.Stdout, config.Stderr = stdin, stdout, &notes{out: cmd.ErrOrStderr(), name: cmd.Root().Name()}
	config.ProjectDir, config.Version = p.Root, cmd.Root().Version
	ended := make(chan error, 1)
	go func() {
		err := shim.Run(shimContext, config)
		_ = stdout.Close()
		ended <- err
	}()
	s := &server{
		conn:     newConnection(toShim, fromShim, hear),
		devTools: devTools(p),
	}
	s.leave = func() error {
		_ = toShim.Close() // the client's end of input: the shim lets it finish
		_, _ = io.Copy(io.Discard, fromShim)
		err := <-ended
		cancel(errDone)
		return err
	}
	name := cmd.Root().Name()
	c := mcp.NewClient(&mcp.Implementation{Name: name, Version: cmd.Root().Version}, options)
	var err error
	if s.session, err = c.Connect(ctx, s.conn, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the server: %w", err), s.leave())
	}
	return s, nil
}

// close ends the conversation.
func (s *server) close() {
	_ = s.session.Close()
	_ = s.leave()
}

// devTools are the names that devproxy's own tools have in the project.
func devTools(p project.Project) []string {
	prefix := "dev_"
	if c, err := config.Load(p.Root); err == nil { // else the daemon goes by an older one
		prefix = c.Proxy.ToolPrefix
	}
	return []string{prefix + "server_status", prefix + "restart", prefix + "rebuild_and_restart", prefix + "logs"}
}

// notes are what the shim says to a person, under the name of this program.
type notes struct {
	out  io.Writer
	name string
}

// Write implements io.Writer for whole lines, as the shim writes them.
func (n *notes) Write(line []byte) (int, error) {
	text := strings.TrimPrefix(string(line), "devproxy-shim: ")
	_, err := fmt.Fprintf(n.out, "%s: %s\n", n.name, cli.Printable(strings.TrimRight(text, "\n")))
	return len(line), err
}

// connection is the SDK's way to the shim. It keeps each method's last answer as
// it came.
type connection struct {
	to   *io.PipeWriter
	from *wire.Reader
	hear func(method string, params []byte)

	writing sync.Mutex

	mu      sync.Mutex // of what follows
	asked   map[jsonrpc.ID]question
	answers map[string][]byte
}

// question is a request that has no answer yet.
type question struct {
	method string
	since  time.Time
	// heard: something came in since, so that a person sees that it is worked on.
	heard bool
}

func newConnection(to *io.PipeWriter, from io.Reader, hear func(method string, params []byte)) *connection {
	return &connection{
		to: to, from: wire.NewReader(from, 0), hear: hear,
		asked: map[jsonrpc.ID]question{}, answers: map[string][]byte{},
	}
}

// Connect implements mcp.Transport.
func (c *connection) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// Read implements mcp.Connection. Close ends it, by way of the shim.
func (c *connection) Read(context.Context) (jsonrpc.Message, error) {
	frame, err := c.from.Next()
	if err != nil {
		return nil, err
	}
	message, err := jsonrpc.DecodeMessage(frame)
	if err != nil {
		return nil, err
	}
	switch m := message.(type) {
	case *jsonrpc.Request:
		c.heard()
		if !m.ID.IsValid() && c.hear != nil {
			c.hear(m.Method, m.Params)
		}
	case *jsonrpc.Response:
		c.answered(m)
	}
	return message, nil
}

func (c *connection) answered(m *jsonrpc.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, known := c.asked[m.ID]
	if !known {
		return
	}
	delete(c.asked, m.ID)
	if m.Error == nil && !asksForInput(m.Result) {
		c.answers[q.method] = m.Result
	}
}

// asksForInput reports a result that is none yet: the client is to ask the user
// something and come again.
func asksForInput(result []byte) bool {
	object, err := wire.ParseObject(result)
	if err != nil {
		return false
	}
	kind, _ := wire.String(object.Get("resultType"))
	return kind == "input_required"
}

// Write implements mcp.Connection.
func (c *connection) Write(_ context.Context, message jsonrpc.Message) error {
	frame, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	if m, ok := message.(*jsonrpc.Request); ok && m.ID.IsValid() {
		c.mu.Lock()
		c.asked[m.ID] = question{method: m.Method, since: time.Now()}
		delete(c.answers, m.Method)
		c.mu.Unlock()
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.to.Write(append(frame, '\n'))
	return err
}

// Close implements mcp.Connection.
func (c *connection) Close() error { return c.to.Close() }

// heard notes that something came in.
func (c *connection) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, q := range c.asked {
		q.heard = true
		c.asked[id] = q
	}
}

// pending is the request that has waited longest without anything coming in; empty
// if there is none.
func (c *connection) pending() (method string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.asked {
		if !q.heard && (method == "" || q.since.Before(since)) {
			method, since = q.method, q.since
		}
	}
	return method, since
}

// SessionID implements mcp.Connection.
func (c *connection) SessionID() string { return "" }

// answer is the last result of a method as it came. err is what the SDK made of
// it: an answer that it could not read is one all the same.
func (c *connection) answer(method string, err error) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if raw, ok := c.answers[method]; ok {
		return raw, nil
	}
	if err == nil {
		err = fmt.Errorf("%s was not answered", method)
	}
	return nil, refused(err)
}

// refused gives the error of a server its exit code and its own words.
func refused(err error) error {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return err
	}
	text := fmt.Sprintf("the server answered with error %d: %s", answer.Code, answer.Message)
	if len(answer.Data) > 0 {
		text += "\n" + string(answer.Data)
	}
	return cli.WithCode(&answerError{text, answer}, exitAnswer)
}

// answerError is the error of a server in words.
type answerError struct {
	text   string
	answer *jsonrpc.Error
}

func (e *answerError) Error() string { return e.text }
func (e *answerError) Unwrap() error { return e.answer }

// askPage asks for one page of a list.
type askPage func(ctx context.Context, cursor string) error

// list gathers all pages of a list: the elements of field as they came. A server
// that knows no such list has none.
func (s *server) list(ctx context.Context, method, field string, ask askPage) ([]json.RawMessage, error) {
	all := []json.RawMessage{} // "[]" in JSON
	var seen []string
	for cursor := ""; ; {
		raw, err := s.conn.answer(method, ask(ctx, cursor))
		if answer, ok := errors.AsType[*jsonrpc.Error](err); ok && answer.Code == wire.CodeMethodNotFound {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var members map[string]json.RawMessage
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil {
			return nil, fmt.Errorf("reading the answer to %s: %w", method, err)
		}
		if err := json.Unmarshal(members[field], &elements); err != nil {
			return nil, fmt.Errorf("reading the %s in the answer to %s: %w", field, method, err)
		}
		all = append(all, elements...)
		cursor, _ = wire.String(members["nextCursor"])
		if cursor == "" {
			return all, nil
		}
		if slices.Contains(seen, cursor) {
			return nil, fmt.Errorf("the server gives the cursor %q for the next page of %s twice", cursor, method)
		}
		seen = append(seen, cursor)
	}
}

func (s *server) tools(ctx context.Context) ([]json.RawMessage, error) {
	raw, err := s.list(ctx, "tools/list", "tools", func(ctx context.Context, cursor string) error {
		_, err := s.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		return err
	})
	if err == nil {
		s.devTools, s.statusTool = marked(things(raw))
	}
	return raw, err
}

// metaTool is the key in _meta by which devproxy marks its own tools.
const metaTool = "com.github.debugmcp.devproxy/tool"

// marked are the tools of devproxy among those that a client gets: the server may have
// some of the same names, which come first.
func marked(tools []thing) (names []string, status string) {
	names = []string{}
	for _, t := range tools {
		var role string
		if json.Unmarshal(t.Meta[metaTool], &role) != nil || role == "" {
			continue
		}
		names = append(names, t.Name)
		if role == "server_status" {
			status = t.Name
		}
	}
	return names, status
}

func (s *server) resources(ctx context.Context) ([]json.RawMessage, error) {
	return s.list(ctx, "resources/list", "resources", func(ctx context.Context, cursor string) error {
		_, err := s.session.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
		return err
	})
}

func (s *server) templates(ctx context.Context) ([]json.RawMessage, error) {
	return s.list(ctx, "resources/templates/list", "resourceTemplates", func(ctx context.Context, cursor string) error {
		_, err := s.session.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
		return err
	})
}

func (s *server) prompts(ctx context.Context) ([]json.RawMessage, error) {
	return s.list(ctx, "prompts/list", "prompts", func(ctx context.Context, cursor string) error {
		_, err := s.session.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
		return err
	})
}
