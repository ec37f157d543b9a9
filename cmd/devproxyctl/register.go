package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/clients"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/rewrite"
)

// newUserFileMode is that of a client's file in the user's home: other entries
// in it are likely to have secrets.
const newUserFileMode = 0o600

// registration is what the flags of register and unregister say.
type registration struct {
	target                *cli.Target
	scope, name           string
	printed, dry, replace bool
}

func newRegister(target *cli.Target) *cobra.Command {
	r := registration{target: target}
	cmd := &cobra.Command{
		Use:   "register [CLIENT...]",
		Short: "Have MCP clients start the shim of this project",
		Long: `Add the shim of this project to the configuration of MCP clients, at the place and
in the format that each of them documents. Everything else in the file stays as
it is, and a copy of it is kept beside it with ` + rewrite.BackupSuffix + ` added to its
name; no copy replaces an earlier one. Where the shim is registered already
nothing changes.

A file in the project is preferred to one in the user's home. It gets absolute
paths, so it is for this checkout alone.

Without a client all are listed, with what is registered where, and which of them
seem to be installed. They are
` + listed(clients.IDs()) + `.`,
		Example: `  devproxyctl register
  devproxyctl register claude-code vscode
  devproxyctl register codex --scope user --name weather
  devproxyctl register cursor --print`,
		ValidArgsFunction: completeClients,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, scope, err := r.check(args)
			if err != nil {
				return err
			}
			p, err := target.Project()
			if err != nil {
				return err
			}
			if len(chosen) == 0 {
				return r.list(cmd.OutOrStdout(), p)
			}
			return r.register(cmd, p, chosen, scope)
		},
	}
	r.addFlags(cmd, "project where the client has it", "that of the project's folder")
	cmd.Flags().BoolVar(&r.printed, "print", false, "print what to add, and to which file, and write nothing")
	cmd.Flags().BoolVar(&r.replace, "force", false, "replace an entry of the same name that is not ours")
	return cmd
}

func newUnregister(target *cli.Target) *cobra.Command {
	r := registration{target: target}
	cmd := &cobra.Command{
		Use:   "unregister CLIENT...",
		Short: "Take the shim of this project out of MCP clients again",
		Long: `Take the shim of this project out of the configuration of MCP clients, from the
file in the project and from that in the user's home. What register made for it
goes too: an object or a file in which nothing is left. Nothing else in them
changes, and a copy is kept as with register. An entry that register replaced is
not restored; it says in which copy that is.`,
		Example: `  devproxyctl unregister claude-code
  devproxyctl unregister codex --scope user`,
		ValidArgsFunction: completeClients,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, scope, err := r.check(args)
			if err == nil && len(chosen) == 0 {
				err = cli.Usage(errors.New("name a client; \"devproxyctl register\" lists where the shim is registered"))
			}
			if err != nil {
				return err
			}
			p, err := target.Project()
			if err != nil {
				return err
			}
			return r.unregister(cmd, p, chosen, scope)
		},
	}
	r.addFlags(cmd, "both", "all that start the shim of this project")
	return cmd
}

// addFlags adds the flags of both commands; scopes and names say what is meant
// without.
func (r *registration) addFlags(cmd *cobra.Command, scopes, names string) {
	flags := cmd.Flags()
	flags.StringVar(&r.scope, "scope", "", "which `SCOPE`: project or user (default: "+scopes+")")
	flags.StringVar(&r.name, "name", "", "`NAME` of the entry (default: "+names+")")
	flags.BoolVar(&r.dry, "dry-run", false, "show what would change, and write nothing")
	// Both are words out of a list that is known.
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{string(clients.Project), string(clients.User)}, cobra.ShellCompDirectiveNoFileComp))
}

func completeClients(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(clients.IDs(), func(id string) bool { return slices.Contains(given, id) }), cobra.ShellCompDirectiveNoFileComp
}

// listed writes words one after the other, with an end of line where a help text
// needs one.
func listed(words []string) string {
	const columns = 68
	var b strings.Builder
	column := 0
	for i, word := range words {
		if i > 0 {
			b.WriteString(",")
			if column > columns {
				b.WriteString("\n")
				column = 0
			} else {
				b.WriteString(" ")
			}
		}
		b.WriteString(word)
		column += len(word) + 2
	}
	return b.String()
}

// check reads the arguments and flags.
func (r *registration) check(args []string) (chosen []clients.Client, scope clients.Scope, err error) {
	for i, id := range args {
		client, err := clients.Lookup(id)
		if near := config.Nearest(id, clients.IDs()); err != nil && near != "" {
			err = fmt.Errorf("unknown client %q; did you mean %s?", id, near)
		}
		if err != nil {
			return nil, "", cli.Usage(err)
		}
		if !slices.Contains(args[:i], id) {
			chosen = append(chosen, client)
		}
	}
	scope = clients.Scope(r.scope)
	switch scope {
	case "", clients.Project, clients.User:
	default:
		return nil, "", cli.Usage(fmt.Errorf("--scope %q: want project or user", r.scope))
	}
	if r.name != "" {
		err = clients.CheckName(r.name)
	}
	if r.printed && r.dry {
		err = errors.New("--print and --dry-run exclude each other")
	}
	return chosen, scope, cli.Usage(err)
}

func hostOf(p project.Project) (clients.Host, error) {
	home, err := os.UserHomeDir()
	if entry, lookupErr := user.Current(); err != nil && lookupErr == nil && entry.HomeDir != "" {
		home, err = entry.HomeDir, nil // HOME is not set; so the state folder is found, too
	}
	if err != nil {
		return clients.Host{}, fmt.Errorf("finding the home directory: %w", err)
	}
	return clients.Host{
		OS: runtime.GOOS, Home: home, Root: p.Root, Getenv: os.Getenv,
		Exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
		OnPath: func(program string) bool { _, err := exec.LookPath(program); return err == nil },
		ReadDir: func(dir string) []string {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil
			}
			names := make([]string, len(entries))
			for i, entry := range entries {
				names[i] = entry.Name()
			}
			return names
		},
		ReadFile: func(path string) []byte {
			file, err := rewrite.Open(path)
			if err != nil {
				return nil
			}
			return file.Content
		},
	}, nil
}

// shimPath finds the shim: beside this program, or in PATH. If it is the same one,
// its name in PATH is taken, which is likely to outlive the next update.
func shimPath() (string, error) {
	beside, looked, err := client.Beside(clients.ShimName)
	if err != nil {
		return "", err
	}
	inPath, err := exec.LookPath(clients.ShimName)
	if err == nil {
		inPath, err = filepath.Abs(inPath)
	}
	switch {
	case err == nil && (beside == "" || sameFile(inPath, beside)):
		return inPath, nil
	case beside != "":
		return beside, nil
	}
	return "", fmt.Errorf("%s is neither in %s nor in PATH: install it, for it is what clients start", clients.ShimName, strings.Join(looked, ", "))
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// place is a file of a client.
type place struct {
	client clients.Client
	scope  clients.Scope
	path   string
}

// scopesOf are those that are meant: the one asked for, or else all, the project's
// first.
func scopesOf(asked clients.Scope) []clients.Scope {
	if asked != "" {
		return []clients.Scope{asked}
	}
	return []clients.Scope{clients.Project, clients.User}
}

// placeFor is where a client is registered: in the scope asked for, or else in
// the first one it has.
func placeFor(h clients.Host, client clients.Client, scope clients.Scope) (place, error) {
	for _, scope := range scopesOf(scope) {
		if path := client.Path(h, scope); path != "" {
			return place{client, scope, path}, nil
		}
	}
	if scope == "" {
		return place{}, fmt.Errorf("%s: there is no %s on this system", client.ID, client.Name)
	}
	return place{}, cli.Usage(fmt.Errorf("%s: %s has no file of %s scope; leave --scope out", client.ID, client.Name, scope))
}

func (r *registration) register(cmd *cobra.Command, p project.Project, chosen []clients.Client, scope clients.Scope) error {
	if err := p.HasConfig(); err != nil {
		return cli.Usage(fmt.Errorf("%w; \"devproxyctl init\" writes one", err))
	}
	host, err := hostOf(p)
	if err != nil {
		return err
	}
	shim, err := shimPath()
	if err != nil {
		return err
	}
	entry := clients.Shim(r.name, shim, p.Root)
	if r.name == "" {
		entry.Name = clients.NameFor(filepath.Base(p.Root))
	}
	cfg, _ := config.Load(p.Root) // a faulty one is for the daemon to refuse
	return each(chosen, func(client clients.Client) error {
		at, err := placeFor(host, client, scope)
		if err != nil {
			return err
		}
		if r.printed {
			return printSnippet(cmd, at, entry)
		}
		if err := r.registerAt(cmd.OutOrStdout(), at, entry); err != nil || cfg == nil {
			return err
		}
		return warnOfDirect(cmd.ErrOrStderr(), at, p.Root, cfg)
	})
}

// warnOfDirect names the entries that start the server itself: a client would have
// its tools twice, and one of them past devproxy.
func warnOfDirect(stderr io.Writer, at place, root string, cfg *config.Config) error {
	file, err := rewrite.Open(at.path)
	if err != nil {
		return fmt.Errorf("%s: %w", at.client.ID, err)
	}
	servers, err := at.client.Servers(file.Content)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", at.client.ID, at.path, err)
	}
	for _, server := range servers {
		if server.Starts(cfg.Backend.Command, cfg.DeriveEntry(), root) {
			_, _ = fmt.Fprintf(stderr, "%s: entry %q of %s starts the server itself, past devproxy; \"devproxyctl register %s --name %s --force\" puts the shim in its place\n",
				at.client.ID, server.Name, at.path, at.client.ID, cli.PrintableLine(server.Name))
		}
	}
	return nil
}

// each does something for every client, also after one has failed.
func each(chosen []clients.Client, do func(clients.Client) error) error {
	var failures []error
	for _, client := range chosen {
		if err := do(client); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func printSnippet(cmd *cobra.Command, at place, entry clients.Entry) error {
	snippet, err := at.client.Snippet(entry)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s scope: this goes into %s\n", at.client.Name, at.scope, at.path)
	_, err = io.WriteString(cmd.OutOrStdout(), snippet)
	return err
}

func (r *registration) registerAt(out io.Writer, at place, entry clients.Entry) error {
	file, err := rewrite.Open(at.path)
	if err != nil {
		return fmt.Errorf("%s: %w", at.client.ID, err)
	}
	content, outcome, err := at.client.Register(file.Content, entry, r.replace)
	if taken, ok := errors.AsType[*clients.TakenError](err); ok {
		return fmt.Errorf("%s: %s: %w; --force replaces it, --name gives ours another name", at.client.ID, at.path, taken)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", at.client.ID, at.path, err)
	}
	if outcome == clients.Already {
		_, err := fmt.Fprintf(out, "%s: already registered as %s in %s\n", at.client.ID, entry.Name, at.path)
		return err
	}
	what := map[clients.Outcome]string{clients.Added: "added", clients.Updated: "updated", clients.Replaced: "replaced"}[outcome]
	kept := ""
	if outcome == clients.Replaced {
		kept = ", with the entry that was replaced,"
	}
	then := at.client.Name + ": " + at.client.Then(at.scope)
	if at.scope == clients.Project {
		then += "\n  It has absolute paths, for this checkout alone: keep it out of version control"
	}
	return r.change(out, at, change{file: file, content: content, what: what, name: entry.Name, kept: kept, then: then})
}

// change is one of a file.
type change struct {
	file    *rewrite.File
	content []byte
	// what was done with the entry of that name.
	what, name string
	// kept says what is in the backup besides the rest; then what to know or do.
	kept, then string
}

// change writes a file and says so, or shows what it would do.
func (r *registration) change(out io.Writer, at place, c change) error {
	if r.dry {
		_, err := fmt.Fprintf(out, "%s: this would have %s %s in %s:\n%s", at.client.ID, c.what, c.name, at.path, changedLines(c.file.Content, c.content))
		return err
	}
	mode := fs.FileMode(newFileMode)
	if at.scope == clients.User {
		mode = newUserFileMode
	}
	backup, err := c.file.Write(c.content, mode)
	if err != nil {
		return fmt.Errorf("%s: %w", at.client.ID, err)
	}
	text := fmt.Sprintf("%s: %s %s in %s", at.client.ID, c.what, c.name, at.path)
	if backup != "" {
		text += fmt.Sprintf(", and kept the file before%s as %s", c.kept, filepath.Base(backup))
	}
	if c.then != "" {
		text += "\n  " + c.then
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// changedLines shows which lines go and which come. Edits are in one place, so
// what is before and behind it is equal.
func changedLines(before, after []byte) string {
	old, changed := bytes.SplitAfter(before, []byte("\n")), bytes.SplitAfter(after, []byte("\n"))
	for len(old) > 0 && len(changed) > 0 && bytes.Equal(old[0], changed[0]) {
		old, changed = old[1:], changed[1:]
	}
	for len(old) > 0 && len(changed) > 0 && bytes.Equal(old[len(old)-1], changed[len(changed)-1]) {
		old, changed = old[:len(old)-1], changed[:len(changed)-1]
	}
	var b strings.Builder
	writeLines(&b, "-", old)
	writeLines(&b, "+", changed)
	return b.String()
}

func writeLines(b *strings.Builder, sign string, lines [][]byte) {
	for _, line := range lines {
		if len(line) > 0 {
			fmt.Fprintf(b, "  %s %s\n", sign, cli.PrintableLine(strings.TrimRight(string(line), "\r\n")))
		}
	}
}

func (r *registration) unregister(cmd *cobra.Command, p project.Project, chosen []clients.Client, scope clients.Scope) error {
	host, err := hostOf(p)
	if err != nil {
		return err
	}
	return each(chosen, func(client clients.Client) error {
		removed := false
		for _, scope := range scopesOf(scope) {
			path := client.Path(host, scope)
			if path == "" {
				continue
			}
			upTo := p.Root
			if scope == clients.User {
				upTo = host.Home
			}
			done, err := r.unregisterAt(cmd.OutOrStdout(), place{client, scope, path}, p.Root, upTo)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", client.ID, path, err)
			}
			removed = removed || done
		}
		if !removed {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: not registered\n", client.ID)
			return err
		}
		return nil
	})
}

// unregisterAt takes the entries that start the project's shim out of a file, and
// with them what register made for them. upTo is the folder below which that may be.
func (r *registration) unregisterAt(out io.Writer, at place, root, upTo string) (done bool, err error) {
	file, err := rewrite.Open(at.path)
	if err != nil || !file.Exists {
		return false, err
	}
	servers, err := at.client.Servers(file.Content)
	if err != nil {
		return false, err
	}
	var names []string
	for _, server := range servers {
		switch ours := server.Serves(root); {
		case r.name != "" && server.Name != r.name:
		case ours:
			names = append(names, server.Name)
		case r.name != "":
			return false, fmt.Errorf("%w; it was left alone", &clients.TakenError{Name: server.Name, Server: server})
		}
	}
	if len(names) == 0 {
		return false, nil
	}
	content, removed, err := at.client.Unregister(file.Content, names)
	if err != nil {
		return false, err
	}
	c := change{file: file, content: content, what: "removed", name: strings.Join(removed, ", ")}
	theirs, replaced := earlier(at.client, file, removed)
	if replaced != "" {
		c.then = replaced
	}
	if !slices.ContainsFunc(theirs, at.client.HoldsServers) {
		var empty bool
		if c.content, empty, err = at.client.Tidy(content); err != nil {
			return false, err
		}
		if empty && len(theirs) == 0 {
			return true, r.removeFile(out, at, c, upTo)
		}
	}
	return true, r.change(out, at, c)
}

// earlier are the contents that a file had before there were shims in it, as far as
// backups tell, and what is to say of an entry in one of them that register replaced.
func earlier(client clients.Client, file *rewrite.File, removed []string) (theirs [][]byte, replaced string) {
	for _, path := range file.Backups() {
		backup, err := rewrite.Open(path)
		if err != nil || client.OnlyShims(backup.Content) {
			continue
		}
		theirs = append(theirs, backup.Content)
		servers, err := client.Servers(backup.Content)
		if err != nil {
			continue
		}
		for _, server := range servers {
			if _, shim := server.IsShim(); !shim && slices.Contains(removed, server.Name) {
				replaced = fmt.Sprintf("the entry %s that it had replaced is in %s", cli.PrintableLine(server.Name), path)
			}
		}
	}
	return theirs, replaced
}

// removeFile removes a file that register made and in which nothing is left.
func (r *registration) removeFile(out io.Writer, at place, c change, upTo string) error {
	if r.dry {
		_, err := fmt.Fprintf(out, "%s: this would have removed %s, and %s with it, which has nothing else in it\n", at.client.ID, c.name, at.path)
		return err
	}
	if err := c.file.Remove(upTo); err != nil {
		return fmt.Errorf("%s: %w", at.client.ID, err)
	}
	text := fmt.Sprintf("%s: removed %s, and %s with it, which had nothing else in it", at.client.ID, c.name, at.path)
	if backups := c.file.Backups(); len(backups) > 0 {
		text += "; left " + strings.Join(backups, ", ")
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// list shows all clients: which seem to be installed, where they keep their
// servers, and as what the shim is registered there.
func (r *registration) list(out io.Writer, p project.Project) error {
	host, err := hostOf(p)
	if err != nil {
		return err
	}
	t := table{heading: []string{"CLIENT", "INSTALLED", "REGISTERED", "FILE"}, style: firstBold}
	for _, client := range clients.All() {
		name, installed := client.ID, "–"
		if client.Installed(host) {
			installed = "yes"
		}
		for _, scope := range scopesOf("") {
			path := client.Path(host, scope)
			if path == "" {
				continue
			}
			t.add(name, installed, registeredAs(client, path, p.Root), shownPath(path, host))
			name, installed = "", ""
		}
		if name != "" {
			t.add(name, installed, "–", "(there is no "+client.Name+" on "+systemName(host.OS)+")")
		}
	}
	const whole = 0 // a path that is cut is of no use
	if err := t.print(out, whole); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nA file below ~ is for all projects (--scope user), any other for this one.\nRegister with \"devproxyctl register CLIENT\".\n")
	return err
}

// shownPath is a path as a person in the project would write it.
func shownPath(path string, host clients.Host) string {
	if rel, err := filepath.Rel(host.Root, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return host.Short(path)
}

// systemName is what people call a system.
func systemName(goos string) string {
	switch goos {
	case "linux":
		return "Linux"
	case "darwin":
		return "macOS"
	case "windows":
		return "Windows"
	}
	return goos
}

// registeredAs is the name of the project's shim in a file.
func registeredAs(client clients.Client, path, root string) string {
	file, err := rewrite.Open(path)
	if err != nil {
		return "unreadable"
	}
	servers, err := client.Servers(file.Content)
	if syntax, ok := errors.AsType[*clients.SyntaxError](err); ok {
		if syntax.Line > 0 {
			return fmt.Sprintf("faulty line %d", syntax.Line)
		}
		return "faulty"
	}
	var names []string
	for _, server := range servers {
		if server.Serves(root) {
			names = append(names, cli.PrintableLine(server.Name))
		}
	}
	if len(names) == 0 {
		return "–"
	}
	return strings.Join(names, ", ")
}
