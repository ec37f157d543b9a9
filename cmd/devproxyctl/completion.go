package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/wire"
	"github.com/debugmcp/devproxy/shim"
)

const (
	// completionPatience bounds what a press of the Tab key waits for: nobody
	// waits longer, and a daemon that is asked answers in milliseconds.
	completionPatience = time.Second
	// completionColumns is how much of a description is shown beside a word.
	completionColumns = 60
	// completedGenerations are as many as one would type the number of.
	completedGenerations = 10
)

// completer knows what may stand in a place of the command line. It asks only a
// daemon that runs, and the server only if that runs too: a press of the Tab key
// starts nothing.
type completer struct{ target *cli.Target }

// addCompletions has the shell complete the commands below root.
func addCompletions(root *cobra.Command, target *cli.Target) {
	c := completer{target}
	for path, complete := range map[string]cobra.CompletionFunc{
		"init":           folders,
		"build":          cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"call":           first(c.tools),
		"tools":          first(c.tools),
		"resources read": first(c.resources),
		"prompts get":    first(c.prompts),
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = complete
		}
	}
	c.addFlags(root)
	cli.AddCompletion(root)
}

// addFlags completes flags by their names, which mean the same in all commands.
func (c completer) addFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"session":    c.sessions,
		"generation": c.generations,
		"source":     cobra.FixedCompletions(client.LogSources(), cobra.ShellCompDirectiveNoFileComp),
		"method":     cobra.FixedCompletions(tracedMethods, cobra.ShellCompDirectiveNoFileComp),
		"arg":        c.arguments,
	} {
		if cmd.LocalFlags().Lookup(name) != nil {
			// Fails where the flag has a completion of its own, which stays.
			_ = cmd.RegisterFlagCompletionFunc(name, complete)
		}
	}
	for _, below := range cmd.Commands() {
		c.addFlags(below)
	}
}

// tracedMethods are the patterns that are of use with trace --method.
var tracedMethods = []string{
	"completion/complete", "elicitation/create", "initialize", "logging/setLevel", "notifications/*", "ping",
	"prompts/*", "prompts/get", "prompts/list", "resources/*", "resources/list", "resources/read", "roots/list",
	"sampling/createMessage", "server/discover", "subscriptions/listen", "tools/*", "tools/call", "tools/list",
}

func folders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// first completes the first argument, and no other.
func first(words func(ctx context.Context, cmd *cobra.Command) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := patient(cmd)
		defer cancel()
		return startingWith(typed, words(ctx, cmd)), cobra.ShellCompDirectiveNoFileComp
	}
}

func patient(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(cmd.Context(), completionPatience, fmt.Errorf("no answer within %s", completionPatience))
}

func startingWith(typed string, words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, typed) })
}

// word is something to complete with, and what it is in a few words. What a
// server says may be anything, and one that no shell could take is none.
func word(text, about string) (string, bool) {
	if text == "" || text != cli.PrintableLine(text) || strings.HasPrefix(text, "-") {
		return "", false
	}
	if about = shorten(cli.PrintableLine(about), completionColumns); about != "" {
		return cobra.CompletionWithDesc(text, about), true
	}
	return text, true
}

func wordsOf(all []thing, key func(thing) string) []string {
	var words []string
	for _, t := range all {
		if word, ok := word(key(t), t.about()); ok {
			words = append(words, word)
		}
	}
	return words
}

func nameOf(t thing) string { return t.Name }

// ask returns the list that the server gives, nil if it does not run: a press of
// the Tab key does not start it.
func (c completer) ask(ctx context.Context, cmd *cobra.Command, list func(*server, context.Context) ([]json.RawMessage, error)) []thing {
	if client.StateName(currentStatus(ctx, c.target).GetBackend().GetState()) != "running" {
		return nil
	}
	p, err := c.target.Project()
	if err != nil {
		return nil
	}
	s, err := attach(ctx, cmd, p, shim.Config{Socket: c.target.SocketPath, NoAutostart: true}, nil, nil)
	if err != nil {
		return nil
	}
	defer s.close()
	raw, err := list(s, ctx)
	if err != nil {
		return nil
	}
	return things(raw)
}

func (c completer) tools(ctx context.Context, cmd *cobra.Command) []string {
	words := wordsOf(c.ask(ctx, cmd, (*server).tools), nameOf)
	if words != nil {
		return words
	}
	// Those of devproxy's own answer also while the server does not.
	if p, err := c.target.Project(); err == nil && p.HasConfig() == nil {
		words = devTools(p)
	}
	return cobra.AppendActiveHelp(words, "the server does not run, so its own tools are not known")
}

func (c completer) resources(ctx context.Context, cmd *cobra.Command) []string {
	return wordsOf(c.ask(ctx, cmd, (*server).resources), func(t thing) string { return t.URI })
}

func (c completer) prompts(ctx context.Context, cmd *cobra.Command) []string {
	return wordsOf(c.ask(ctx, cmd, (*server).prompts), nameOf)
}

// arguments completes --arg: the names that a tool or a prompt takes, and then
// the values where its schema names them.
func (c completer) arguments(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 0 {
		return nil, directive
	}
	ctx, cancel := patient(cmd)
	defer cancel()
	list := (*server).tools
	if cmd.Name() == "get" {
		list = (*server).prompts
	}
	var found thing
	all := c.ask(ctx, cmd, list)
	if i := indexNamed(all, args[0]); i >= 0 {
		found = all[i]
	}
	if name, _, ok := strings.Cut(typed, "="); ok {
		return startingWith(typed, found.valuesOf(name)), directive
	}
	return startingWith(typed, found.argumentNames()), directive | cobra.ShellCompDirectiveNoSpace
}

// argumentNames are those of a tool or prompt, each ready for its value.
func (t thing) argumentNames() []string {
	var words []string
	for _, p := range parseSchema(t.InputSchema).properties() {
		about := strings.TrimSuffix(p.schema.word()+", "+strings.Join(strings.Fields(p.schema.text("description")), " "), ", ")
		if word, ok := word(p.name+"=", about); ok {
			words = append(words, word)
		}
	}
	for _, a := range t.Arguments {
		if word, ok := word(a.Name+"=", strings.Join(strings.Fields(a.Description), " ")); ok {
			words = append(words, word)
		}
	}
	return words
}

// valuesOf are the values that an argument may have, each behind its name.
func (t thing) valuesOf(name string) []string {
	var words []string
	for _, p := range parseSchema(t.InputSchema).properties() {
		if p.name != name {
			continue
		}
		values := p.schema.values()
		if types := p.schema.types(); values == nil && len(types) == 1 && types[0] == "boolean" {
			values = [][]byte{[]byte("true"), []byte("false")}
		}
		for _, value := range values {
			text, isText := wire.String(value)
			if !isText {
				text = string(value)
			}
			if word, ok := word(name+"="+text, ""); ok {
				words = append(words, word)
			}
		}
	}
	return words
}

func (c completer) sessions(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := patient(cmd)
	defer cancel()
	var words []string
	for _, session := range currentStatus(ctx, c.target).GetSessions() {
		about := strings.TrimSpace(session.GetClientName() + " " + session.GetClientVersion())
		if word, ok := word(strconv.FormatUint(session.GetId(), 10), about); ok {
			words = append(words, word)
		}
	}
	return startingWith(typed, words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (c completer) generations(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := patient(cmd)
	defer cancel()
	backend := currentStatus(ctx, c.target).GetBackend()
	var words []string
	for n := backend.GetGeneration(); n > 0 && len(words) < completedGenerations; n-- {
		if word, ok := word(strconv.FormatUint(n, 10), ""); ok {
			words = append(words, word)
		}
	}
	if len(words) > 0 {
		words = append([]string{cobra.CompletionWithDesc("last", "the latest, "+client.StateName(backend.GetState()))}, words...)
	}
	return startingWith(typed, words), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
