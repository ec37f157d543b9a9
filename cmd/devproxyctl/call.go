package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/wire"
)

// request is what the commands that ask the server for one thing share.
type request struct {
	arguments []string
	asJSON    bool
	timeout   time.Duration
	output    string
}

func (r *request) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&r.asJSON, "json", false, "print JSON: the result as the client gets it, or the error")
	flags.DurationVar(&r.timeout, "timeout", 0, "give up after that time; 0 waits for as long as it takes")
	flags.StringVarP(&r.output, "output", "o", "", outputHelp)
}

func (r *request) addArguments(cmd *cobra.Command, help string) {
	cmd.Flags().StringArrayVarP(&r.arguments, "arg", "a", nil, help)
}

func newCall(target *cli.Target) *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "call TOOL [JSON | -]",
		Short: "Call a tool of the server, without a client",
		Long: `Call a tool and print the text of its result. The arguments are a JSON object,
"-" for one on stdin, or --arg NAME=VALUE for each: VALUE is read by the type that
the tool's schema gives it (number, boolean, JSON of an array or object, else the
string as it is), and NAME:=JSON says it outright.

While the tool works its progress and log messages are shown on stderr. Ctrl-C and
--timeout cancel it, and the server hears of it. What the server asks the user is
asked on the terminal, and declined where there is none. A result without text is
printed as its structured content. Of images, sounds and binary resources stderr
tells the type and size, and --output saves them.

When the tool reports a failure its text goes to stderr, and the exit code is 1.
It starts the daemon and the server if they do not run.

` + serverExitCodes,
		Example: `  devproxyctl call search --arg query="a b" --arg limit=5
  devproxyctl call search --arg filter:='{"kind":"file"}'
  devproxyctl call add '{"a": 1, "b": 2}'
  jq -n '{a: 1, b: 2}' | devproxyctl call add - --json
  devproxyctl call screenshot --output shot.png --timeout 30s`,
		Args: cli.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := r.object(cmd, args[1:])
			if err != nil {
				return err
			}
			return r.use(cmd, target, len(args) > 1 && args[1] == "-", func(ctx context.Context, s *server) error {
				return r.call(ctx, cmd, s, args[0], given)
			})
		},
	}
	r.addFlags(cmd)
	r.addArguments(cmd, "an argument, `NAME=VALUE` or NAME:=JSON; may be repeated")
	return cmd
}

// use opens the server and does something with it. A tool that asks is told no
// where stdin is taken.
func (r *request) use(cmd *cobra.Command, target *cli.Target, stdinTaken bool, do func(context.Context, *server) error) error {
	ctx := cmd.Context()
	if r.timeout < 0 {
		return cli.Usage(fmt.Errorf("--timeout %s is less than 0; 0 waits for as long as it takes", r.timeout))
	}
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no answer within %s", r.timeout))
		defer cancel()
	}
	ask := newAsker(cmd, stdinTaken)
	s, err := openServer(cmd, target, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{
			Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{},
		}},
		ElicitationHandler: ask.elicit,
	}, func(method string, params []byte) { hear(cmd.ErrOrStderr(), method, params) })
	if err != nil {
		return err
	}
	defer s.close()
	err = do(ctx, s)
	if answer, ok := errors.AsType[*answerError](err); ok && r.asJSON {
		printed := printVersioned(cmd.OutOrStdout(), "error", (&wire.Error{
			Code: answer.answer.Code, Message: answer.answer.Message, Data: answer.answer.Data,
		}).Bytes())
		return errors.Join(err, printed)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// given are the arguments of a call: an object, or assignments whose types the
// schema says.
type given struct {
	object      []byte
	assignments []string
}

// object reads what can be read before the tool is known.
func (r *request) object(cmd *cobra.Command, args []string) (given, error) {
	if len(args) == 0 {
		for _, argument := range r.arguments {
			if _, _, _, err := splitArgument(argument); err != nil {
				return given{}, err
			}
		}
		return given{assignments: r.arguments}, nil
	}
	if len(r.arguments) > 0 {
		return given{}, cli.Usage(errors.New("--arg and a JSON object exclude each other"))
	}
	text, where := []byte(args[0]), "the argument"
	if args[0] == "-" {
		var err error
		if text, err = io.ReadAll(cmd.InOrStdin()); err != nil {
			return given{}, fmt.Errorf("reading stdin: %w", err)
		}
		where = "stdin"
	}
	if object, err := wire.ParseObject(text); err != nil || object.Len() == 0 && strings.TrimSpace(string(text)) == "" {
		return given{}, cli.Usage(fmt.Errorf(`%s is no JSON object; want one such as '{"a": 1}', or --arg a=1`, where))
	}
	return given{object: text}, nil
}

// forTool gives the arguments the types of the tool's schema.
func (g given) forTool(input schema) (json.RawMessage, error) {
	if g.object != nil {
		return g.object, nil
	}
	types := map[string]schema{}
	for _, p := range input.properties() {
		types[p.name] = p.schema
	}
	arguments := &wire.Object{}
	for _, assignment := range g.assignments {
		name, value, forced, err := splitArgument(assignment)
		if err != nil {
			return nil, err
		}
		of, known := types[name]
		if !known {
			of = parseSchema(nil)
		}
		encoded := []byte(value)
		if forced {
			err = wire.Valid(encoded)
		} else {
			encoded, err = of.encode(value)
		}
		if err == nil && arguments.Has(name) {
			err = errors.New("it is given twice")
		}
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--arg %s: %w", assignment, err))
		}
		arguments.Set(name, encoded)
	}
	return arguments.Bytes(), nil
}

// unknownTo names the assignments that a schema has no property for, each with
// the one that was likely meant. A server may take them all the same, so they
// are sent. Of a schema that names none, or leaves some to patterns, nothing is
// known.
func (g given) unknownTo(input schema) []string {
	var names, lines []string
	for _, p := range input.properties() {
		names = append(names, p.name)
	}
	if len(names) == 0 || input.Has("patternProperties") || len(input.alternatives()) > 0 || input.Has("allOf") {
		return nil
	}
	for _, assignment := range g.assignments {
		name, _, _, err := splitArgument(assignment)
		if err != nil || slices.Contains(names, name) {
			continue
		}
		advice := "it has " + strings.Join(names, ", ")
		if near := config.Nearest(name, names); near != "" {
			advice = fmt.Sprintf("did you mean %s?", near)
		}
		lines = append(lines, fmt.Sprintf("the tool names no argument %q, which is sent all the same; %s", name, advice))
	}
	return lines
}

// encode makes JSON of a value that a person typed. A string is one as it is.
func (s schema) encode(value string) ([]byte, error) {
	types := s.types()
	if len(types) == 0 || slices.Contains(types, "string") {
		return wire.Quote(value), nil
	}
	raw := []byte(strings.TrimSpace(value))
	if len(raw) > 0 && wire.Valid(raw) == nil {
		is := typeOf(raw)
		isInteger := is == "number" && !strings.ContainsAny(string(raw), ".eE")
		if slices.Contains(types, is) || isInteger && slices.Contains(types, "integer") {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("want %s (NAME:=JSON sends any JSON)", s.word())
}

func (r *request) call(ctx context.Context, cmd *cobra.Command, s *server, name string, g given) error {
	arguments, unknown, err := s.argumentsFor(ctx, name, g)
	if err != nil {
		return err
	}
	for _, line := range unknown {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Root().Name(), cli.PrintableLine(line))
	}
	params := &mcp.CallToolParams{Name: name, Arguments: arguments, Meta: s.attention(ctx)}
	params.SetProgressToken(progressToken)
	_, err = s.session.CallTool(ctx, params)
	raw, err := s.conn.answer("tools/call", err)
	if err != nil {
		return err
	}
	return r.show(cmd, raw)
}

// argumentsFor looks the tool up, unless it is one of devproxy's that needs
// nothing: those answer also while the server, whose list it is, does not. It also
// says which arguments the tool does not name.
func (s *server) argumentsFor(ctx context.Context, name string, g given) (arguments json.RawMessage, unknown []string, err error) {
	if slices.Contains(s.devTools, name) && len(g.assignments) == 0 {
		arguments, err = g.forTool(parseSchema(nil))
		return arguments, nil, err
	}
	raw, err := s.tools(ctx)
	if err != nil {
		return nil, nil, err
	}
	tools := things(raw)
	i := indexNamed(tools, name)
	if i < 0 {
		return nil, nil, s.noTool(ctx, name, tools)
	}
	input := parseSchema(tools[i].InputSchema)
	arguments, err = g.forTool(input)
	return arguments, g.unknownTo(input), err
}

const (
	// progressToken asks the server to tell its progress.
	progressToken = "devproxyctl"
	// logLevel is the least of the server's messages that are shown.
	logLevel = "info"
	// metaLogLevel is where a request of the modern era says so.
	metaLogLevel = "io.modelcontextprotocol/logLevel"
)

// attention asks for the server's log messages, in the way of the era.
func (s *server) attention(ctx context.Context) mcp.Meta {
	const modern = "2026-07-28"
	said := s.session.InitializeResult()
	if said.ProtocolVersion >= modern {
		return mcp.Meta{metaLogLevel: logLevel}
	}
	if said.Capabilities != nil && said.Capabilities.Logging != nil { //nolint:staticcheck // SA1019: servers still log
		// One that refuses is called without.
		_ = s.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: logLevel}) //nolint:staticcheck // SA1019: servers still log
	}
	return mcp.Meta{}
}

// hear tells a person what the server says while it works.
func hear(stderr io.Writer, method string, params []byte) {
	switch method {
	case "notifications/progress":
		var p struct {
			Progress, Total json.Number
			Message         string
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		line := "progress " + p.Progress.String()
		if total := p.Total.String(); total != "" && total != "0" {
			line += "/" + total
		}
		_, _ = fmt.Fprintln(stderr, cli.PrintableLine(strings.TrimSpace(line+" "+p.Message)))
	case "notifications/message":
		var p struct {
			Level, Logger string
			Data          json.RawMessage
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		text, isText := wire.String(p.Data)
		if !isText {
			text = string(p.Data)
		}
		label := strings.TrimSpace(p.Level + " " + p.Logger)
		_, _ = fmt.Fprintln(stderr, cli.PrintableLine(label+": "+text))
	}
}

// show prints the result of a call.
func (r *request) show(cmd *cobra.Command, raw []byte) error {
	var result struct {
		Content           json.RawMessage
		StructuredContent json.RawMessage
		IsError           bool
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("reading the result: %w", err)
	}
	all := contents(result.Content)
	if r.asJSON {
		if err := printVersioned(cmd.OutOrStdout(), "result", raw); err != nil {
			return err
		}
		if result.IsError {
			return errors.New("the tool failed")
		}
		return nil
	}
	if result.IsError {
		var texts []string
		for _, c := range all {
			if text, _, description := c.body(); text != nil {
				texts = append(texts, *text)
			} else {
				texts = append(texts, "["+description+"]")
			}
		}
		return fmt.Errorf("the tool failed: %s", strings.Join(texts, "\n"))
	}
	s := sink{cmd, r.output}
	if len(all) == 0 && len(result.StructuredContent) > 0 {
		return s.print(string(result.StructuredContent))
	}
	return s.put(all)
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func newRead(target *cli.Target) *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "read URI",
		Short: "Read a resource of the server",
		Long: `Read a resource and print its text. Of one that is no text stderr tells the type
and size, and --output saves it.

` + serverExitCodes,
		Example: `  devproxyctl resources read file:///etc/motd
  devproxyctl resources read image://logo --output logo.png`,
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.use(cmd, target, false, func(ctx context.Context, s *server) error {
				_, err := s.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: args[0]})
				raw, err := s.conn.answer("resources/read", err)
				if err != nil {
					return err
				}
				if r.asJSON {
					return printVersioned(cmd.OutOrStdout(), "result", raw)
				}
				var result struct{ Contents json.RawMessage }
				if err := json.Unmarshal(raw, &result); err != nil {
					return fmt.Errorf("reading the answer: %w", err)
				}
				return sink{cmd, r.output}.put(contents(result.Contents))
			})
		},
	}
	r.addFlags(cmd)
	return cmd
}

func newGet(target *cli.Target) *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Get a prompt of the server",
		Long: `Get a prompt and print its messages, each under the role that says it. The
arguments of prompts are strings.

` + serverExitCodes,
		Example: `  devproxyctl prompts get review --arg language=go --arg style=terse`,
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments := map[string]string{}
			for _, argument := range r.arguments {
				name, value, ok := strings.Cut(argument, "=")
				if !ok || name == "" {
					return cli.Usage(fmt.Errorf("--arg %q: %w", argument, errNoValue))
				}
				arguments[name] = value
			}
			return r.use(cmd, target, false, func(ctx context.Context, s *server) error {
				return r.get(ctx, cmd, s, args[0], arguments)
			})
		},
	}
	r.addFlags(cmd)
	r.addArguments(cmd, "an argument, `NAME=VALUE`; may be repeated")
	return cmd
}

func (r *request) get(ctx context.Context, cmd *cobra.Command, s *server, name string, arguments map[string]string) error {
	prompts, err := s.prompts(ctx)
	if err != nil {
		return err
	}
	if all := things(prompts); indexNamed(all, name) < 0 {
		return unknown("prompt", name, all)
	}
	_, err = s.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: arguments})
	raw, err := s.conn.answer("prompts/get", err)
	if err != nil {
		return err
	}
	if r.asJSON {
		return printVersioned(cmd.OutOrStdout(), "result", raw)
	}
	var result struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	out := sink{cmd, r.output}
	var all []block
	for _, message := range result.Messages {
		if r.output == "" {
			if err := out.print(cli.PrintableLine(message.Role) + ":"); err != nil {
				return err
			}
			if err := out.put(contents(message.Content)); err != nil {
				return err
			}
		}
		all = append(all, contents(message.Content)...)
	}
	if r.output == "" {
		return nil
	}
	return out.put(all)
}
