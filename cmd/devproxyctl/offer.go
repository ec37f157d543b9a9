package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/wire"
)

// thing is a tool, a prompt, a resource or a template, as far as it is shown.
type thing struct {
	Name        string
	Title       string
	Description string
	URI         string
	URITemplate string
	MIMEType    string
	InputSchema json.RawMessage
	Output      json.RawMessage `json:"outputSchema"`
	Annotations annotations
	Arguments   []promptArgument
	Meta        map[string]json.RawMessage `json:"_meta"`
}

// annotations are what a tool says of its effects.
type annotations struct {
	Title           string
	ReadOnlyHint    *bool
	DestructiveHint *bool
	IdempotentHint  *bool
	OpenWorldHint   *bool
}

type promptArgument struct {
	Name, Description string
	Required          bool
}

// things reads what a list holds. What cannot be read has no name, and is shown
// as that.
func things(raw []json.RawMessage) []thing {
	all := make([]thing, len(raw))
	for i, r := range raw {
		if err := json.Unmarshal(r, &all[i]); err != nil {
			object, _ := wire.ParseObject(r)
			all[i] = thing{Description: fmt.Sprintf("(cannot be read: %v)", err)}
			if object != nil {
				all[i].Name, _ = wire.String(object.Get("name"))
			}
		}
	}
	return all
}

// about is what a thing says of itself, in one line.
func (t thing) about() string {
	title := t.Title
	if title == "" {
		title = t.Annotations.Title
	}
	text := strings.Join(strings.Fields(t.Description), " ")
	switch {
	case title == "" || title == t.Name:
		return text
	case text == "":
		return title
	}
	return title + ": " + text
}

// argumentColumns and argumentShare, a third, are how much of a terminal's width the
// arguments may have in a table, whose last column is the description.
const (
	argumentColumns = 48
	argumentShare   = 3
)

// arguments are shortened for a terminal, and whole elsewhere.
func (t thing) arguments(width int) string {
	var text string
	if t.InputSchema != nil {
		text = signature(parseSchema(t.InputSchema).properties())
	} else {
		parts := make([]string, len(t.Arguments))
		for i, a := range t.Arguments {
			parts[i] = a.Name
			if !a.Required {
				parts[i] += "?"
			}
		}
		text = strings.Join(parts, ", ")
	}
	if width > 0 {
		text = shorten(text, min(argumentColumns, width/argumentShare))
	}
	return text
}

func newTools(target *cli.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools [NAME]",
		Short: "List the tools of the server, or show one with its arguments",
		Long: `List the tools that a client gets: those of the server and, marked "(devproxy)",
those that devproxy adds. An argument with a question mark may be left out. With
NAME one tool is shown, with its arguments in words. It starts the daemon and
the server if they do not run.

` + serverExitCodes,
		Example: `  devproxyctl tools
  devproxyctl tools search
  devproxyctl tools --json | jq -r '.tools[].name'`,
		Args: cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := openServer(cmd, target, nil, nil)
			if err != nil {
				return err
			}
			defer s.close()
			raw, err := s.tools(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if len(args) > 0 {
				i := indexNamed(things(raw), args[0])
				switch {
				case i < 0:
					return s.noTool(cmd.Context(), args[0], things(raw))
				case asJSON:
					return printVersioned(out, "tool", raw[i])
				}
				return s.printTool(out, things(raw)[i], terminalWidth(out))
			}
			if asJSON {
				return writeJSON(out, struct {
					Version  int               `json:"version"`
					Tools    []json.RawMessage `json:"tools"`
					DevTools []string          `json:"devTools"`
				}{jsonVersion, raw, s.devTools})
			}
			if why := s.down(cmd.Context(), things(raw)); why != "" {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "the server's own tools are missing: "+cli.Printable(cli.ForPerson(why)))
			}
			return s.printTools(cmd, things(raw))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: each tool as the client gets it")
	return cmd
}

// printVersioned prints an answer as it came, under a name and beside the
// version of this program's JSON.
func printVersioned(out io.Writer, name string, raw []byte) error {
	_, err := fmt.Fprintf(out, "{\"version\":%d,%q:%s}\n", jsonVersion, name, cli.PrintableJSON(raw))
	return err
}

func indexNamed(all []thing, name string) int {
	return slices.IndexFunc(all, func(t thing) bool { return t.Name == name })
}

// unknown says that there is no such tool or prompt, and which are like it.
func unknown(kind, name string, all []thing) error {
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
	}
	advice := fmt.Sprintf("see \"devproxyctl %ss\"", kind)
	similar := slices.DeleteFunc(slices.Clone(names), func(other string) bool {
		a, b := strings.ToLower(name), strings.ToLower(other)
		return a == "" || !strings.Contains(a, b) && !strings.Contains(b, a)
	})
	if near := config.Nearest(name, names); near != "" && !slices.Contains(similar, near) {
		similar = append([]string{near}, similar...)
	}
	const told = 5
	if len(similar) > 0 {
		advice = fmt.Sprintf("did you mean %s?", strings.Join(similar[:min(told, len(similar))], ", "))
	}
	return cli.Usage(fmt.Errorf("the server has no %s %q; %s", kind, name, advice))
}

// noTool says that the server has no tool of that name, or why it has none at all.
func (s *server) noTool(ctx context.Context, name string, tools []thing) error {
	if why := s.down(ctx, tools); why != "" {
		return fmt.Errorf("the server's tools are not known: %s", why)
	}
	return unknown("tool", name, tools)
}

// down says why a list has none of the server's own tools: it is the answer also
// while the server does not run. It returns "" where nothing stands in the way.
func (s *server) down(ctx context.Context, tools []thing) string {
	if s.statusTool == "" || slices.ContainsFunc(tools, func(t thing) bool { return !slices.Contains(s.devTools, t.Name) }) {
		return ""
	}
	_, err := s.session.CallTool(ctx, &mcp.CallToolParams{Name: s.statusTool})
	raw, err := s.conn.answer("tools/call", err)
	if err != nil {
		return ""
	}
	var answer struct{ StructuredContent serverStatus }
	if json.Unmarshal(raw, &answer) != nil || answer.StructuredContent.State == "running" {
		return ""
	}
	return answer.StructuredContent.why()
}

// serverStatus is what devproxy's own tool says of the server, masked.
type serverStatus struct {
	State, Message string
	Generation     uint64
	LastExit       struct {
		Generation uint64
		Stderr     []string
	}
	LastBuild struct {
		Message string
		Tail    []string
	}
}

// why says why the server does not run, with the lines that explain it.
func (s serverStatus) why() string {
	var lines []string
	switch build := s.LastBuild; {
	case s.State != "failed" && s.State != "backoff":
	case build.Message != "" && strings.HasPrefix(s.Message, build.Message):
		lines = build.Tail
	case s.LastExit.Generation == s.Generation: // and not one that ended long before
		lines = s.LastExit.Stderr
	}
	if len(lines) == 0 {
		return s.Message
	}
	return s.Message + "; its last lines:\n" + strings.Join(lines, "\n")
}

// mark shows a tool to be devproxy's own.
func (s *server) mark(name string) string {
	if slices.Contains(s.devTools, name) {
		return "(devproxy) "
	}
	return ""
}

func (s *server) printTools(cmd *cobra.Command, tools []thing) error {
	if len(tools) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "the server has no tools")
		return err
	}
	width := terminalWidth(cmd.OutOrStdout())
	t := table{heading: []string{"TOOL", "ARGUMENTS", "DESCRIPTION"}, style: firstBold}
	for _, tool := range tools {
		t.add(tool.Name, tool.arguments(width), s.mark(tool.Name)+tool.about())
	}
	return t.print(cmd.OutOrStdout(), width)
}

func firstBold(_, column int) lipgloss.Style {
	if column == 0 {
		return bold
	}
	return lipgloss.NewStyle()
}

// printTool shows one tool: a block a subject, as in status.
func (s *server) printTool(out io.Writer, t thing, width int) error {
	p := page{width: width}
	p.row("tool", "%s", strings.TrimSpace(bold.Render(cli.PrintableLine(t.Name))+" "+s.mark(t.Name)))
	if about := t.about(); about != "" {
		p.row("", "%s", cli.PrintableLine(about))
	}
	if hints := t.Annotations.words(); hints != "" {
		p.row("says", "%s", hints)
	}
	p.schema("takes", t.InputSchema)
	if t.Output != nil {
		p.schema("gives", t.Output)
	}
	return write(out, p.text.String())
}

func (p *page) schema(subject string, raw []byte) {
	for _, line := range parseSchema(raw).describe() {
		p.row(subject, "%s", cli.PrintableLine(line))
		subject = ""
	}
}

// words tells the hints that a tool gives of its effects.
func (a annotations) words() string {
	var words []string
	for _, hint := range []struct {
		value   *bool
		yes, no string
	}{
		{a.ReadOnlyHint, "it only reads", "it changes things"},
		{a.DestructiveHint, "it may destroy", "it destroys nothing"},
		{a.IdempotentHint, "calling it twice is as calling it once", ""},
		{a.OpenWorldHint, "it reaches beyond this machine", ""},
	} {
		switch {
		case hint.value == nil:
		case *hint.value:
			words = append(words, hint.yes)
		case hint.no != "":
			words = append(words, hint.no)
		}
	}
	return strings.Join(words, "; ")
}

func newResources(target *cli.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resources",
		Short: "List the resources of the server, or read one",
		Long: `List the resources of the server and the templates of their URIs. It starts the
daemon and the server if they do not run.

` + serverExitCodes,
		Example: `  devproxyctl resources
  devproxyctl resources read file:///etc/motd
  devproxyctl resources --json | jq -r '.resources[].uri'`,
		Args: cli.Group,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openServer(cmd, target, nil, nil)
			if err != nil {
				return err
			}
			defer s.close()
			resources, err := s.resources(cmd.Context())
			if err != nil {
				return err
			}
			templates, err := s.templates(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), struct {
					Version   int               `json:"version"`
					Resources []json.RawMessage `json:"resources"`
					Templates []json.RawMessage `json:"resourceTemplates"`
				}{jsonVersion, resources, templates})
			}
			return printResources(cmd, append(things(resources), things(templates)...))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: each resource as the client gets it")
	cmd.AddCommand(newRead(target))
	return cmd
}

func printResources(cmd *cobra.Command, resources []thing) error {
	if len(resources) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "the server has no resources")
		return err
	}
	t := table{heading: []string{"URI", "NAME", "TYPE", "DESCRIPTION"}, style: firstBold}
	for _, r := range resources {
		uri := r.URI
		if r.URITemplate != "" {
			uri = r.URITemplate
		}
		t.add(uri, r.Name, r.MIMEType, r.about())
	}
	return t.print(cmd.OutOrStdout(), terminalWidth(cmd.OutOrStdout()))
}

func newPrompts(target *cli.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prompts",
		Short: "List the prompts of the server, or get one",
		Long: `List the prompts of the server with their arguments; one with a question mark may
be left out. It starts the daemon and the server if they do not run.

` + serverExitCodes,
		Example: `  devproxyctl prompts
  devproxyctl prompts get review --arg language=go`,
		Args: cli.Group,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openServer(cmd, target, nil, nil)
			if err != nil {
				return err
			}
			defer s.close()
			raw, err := s.prompts(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), struct {
					Version int               `json:"version"`
					Prompts []json.RawMessage `json:"prompts"`
				}{jsonVersion, raw})
			}
			return printPrompts(cmd, things(raw))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: each prompt as the client gets it")
	cmd.AddCommand(newGet(target))
	return cmd
}

func printPrompts(cmd *cobra.Command, prompts []thing) error {
	if len(prompts) == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "the server has no prompts")
		return err
	}
	width := terminalWidth(cmd.OutOrStdout())
	t := table{heading: []string{"PROMPT", "ARGUMENTS", "DESCRIPTION"}, style: firstBold}
	for _, p := range prompts {
		t.add(p.Name, p.arguments(width), p.about())
	}
	return t.print(cmd.OutOrStdout(), width)
}

// errNoValue is for an --arg without a value.
var errNoValue = errors.New("want NAME=VALUE")

// splitArgument takes an --arg apart. forced says that its value is JSON.
func splitArgument(argument string) (name, value string, forced bool, err error) {
	name, value, ok := strings.Cut(argument, "=")
	name, forced = strings.CutSuffix(name, ":")
	if !ok || name == "" {
		return "", "", false, cli.Usage(fmt.Errorf("--arg %q: %w", argument, errNoValue))
	}
	return name, value, forced, nil
}
