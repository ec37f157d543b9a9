package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/internal/cli"
)

// asker asks a person what the server wants to know, one question at a time.
type asker struct {
	// in is the terminal, nil where nobody can be asked.
	in  *bufio.Reader
	out io.Writer
	mu  sync.Mutex // held while a question is open
}

func newAsker(cmd *cobra.Command, stdinTaken bool) *asker {
	a := &asker{out: cmd.ErrOrStderr()}
	if !stdinTaken && isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr()) {
		a.in = bufio.NewReader(cmd.InOrStdin())
	}
	return a
}

// elicit is the handler of the SDK's client.
func (a *asker) elicit(ctx context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := request.Params
	a.say("the server asks: %s", cli.Printable(p.Message))
	declined := &mcp.ElicitResult{Action: "decline"}
	if a.in == nil {
		a.say("declined: there is no terminal to ask on")
		return declined, nil
	}
	result := &mcp.ElicitResult{Action: "accept"}
	var err error
	if p.Mode == "url" {
		a.say("open %s, then press Enter; Ctrl-D declines", cli.PrintableLine(p.URL))
		_, err = a.line(ctx)
	} else {
		result.Content, err = a.form(ctx, p.RequestedSchema)
	}
	if errors.Is(err, io.EOF) {
		a.say("declined")
		return declined, nil
	}
	return result, err
}

func (a *asker) say(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format+"\n", args...) }

// form asks for each property in turn, again where the answer does not fit.
func (a *asker) form(ctx context.Context, requested any) (map[string]any, error) {
	raw, err := json.Marshal(requested)
	if err != nil {
		return nil, err
	}
	properties := parseSchema(raw).properties()
	if len(properties) == 0 {
		a.say("press Enter to accept; Ctrl-D declines")
		_, err := a.line(ctx)
		return map[string]any{}, err
	}
	a.say("(Ctrl-D declines)")
	content := map[string]any{}
	for _, p := range properties {
		value, err := a.property(ctx, p)
		if err != nil {
			return nil, err
		}
		if value != nil {
			content[p.name] = value
		}
	}
	return content, nil
}

// property asks for one value; nil leaves it out.
func (a *asker) property(ctx context.Context, p property) (any, error) {
	question := signature([]property{p})
	if facts := p.schema.facts(); len(facts) > 0 {
		question += " (" + strings.Join(facts, "; ") + ")"
	}
	if about := p.schema.text("description"); about != "" {
		question += " - " + about
	}
	for {
		_, _ = fmt.Fprintf(a.out, "%s\n> ", cli.PrintableLine(question))
		text, err := a.line(ctx)
		if err != nil {
			return nil, err
		}
		encoded := p.schema.Get("default")
		if text != "" {
			encoded, err = p.schema.encode(text)
		}
		values := p.schema.values()
		isValue := func(value []byte) bool { return bytes.Equal(bytes.TrimSpace(value), encoded) }
		switch {
		case err != nil:
			a.say("want %s", p.schema.word())
		case encoded == nil && p.required:
			a.say("it is required")
		case encoded == nil:
			return nil, nil //nolint:nilnil // nothing was said, and nothing has to be
		case len(values) > 0 && !slices.ContainsFunc(values, isValue):
			a.say("want one of %s", cli.PrintableLine(string(bytes.Join(values, []byte(", ")))))
		default:
			var value any
			err := json.Unmarshal(encoded, &value)
			return value, err
		}
	}
}

// line reads what a person types. At the end of ctx the reader is left behind: a
// read of a terminal cannot be interrupted, and the program is about to end.
func (a *asker) line(ctx context.Context) (string, error) {
	type typed struct {
		text string
		err  error
	}
	lines := make(chan typed, 1)
	go func() {
		text, err := a.in.ReadString('\n')
		lines <- typed{text, err}
	}()
	select {
	case line := <-lines:
		return strings.TrimRight(line.text, "\r\n"), line.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
