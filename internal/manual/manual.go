// Package manual writes man pages of commands, one for each, from what the
// commands say of themselves.
package manual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section is the part of the manual that commands are in.
const Section = 1

// Source is what a page says of where it comes from.
type Source struct {
	// Version is that of the programs.
	Version string
	// Date is that of the pages: of the sources, not of the day they are made.
	Date time.Time
}

// Page is one man page.
type Page struct {
	Name string // such as "devproxyctl-resources-read.1"
	Text []byte // in roff, with the macros of man(7)
}

// Write makes the pages of root in the folder dir.
func Write(dir string, root *cobra.Command, source Source) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the man pages: %w", err)
	}
	var failures []error
	for _, page := range Pages(root, source) {
		failures = append(failures, os.WriteFile(filepath.Join(dir, page.Name), page.Text, 0o644))
	}
	return errors.Join(failures...)
}

// Pages are those of cmd and of all below it that are not hidden.
func Pages(cmd *cobra.Command, source Source) []Page {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	pages := []Page{{Name: fmt.Sprintf("%s.%d", name(cmd), Section), Text: page(cmd, source)}}
	for _, below := range visible(cmd) {
		pages = append(pages, Pages(below, source)...)
	}
	return pages
}

func name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// visible are the commands below cmd that a person may know of, without cobra's
// own help.
func visible(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			all = append(all, below)
		}
	}
	return all
}

// page is the man page of one command.
func page(cmd *cobra.Command, source Source) []byte {
	var r roff
	r.line(`.TH %s %d %s %s %s`, quoted(strings.ToUpper(name(cmd))), Section, source.Date.Format(time.DateOnly),
		quoted("devproxy "+source.Version), quoted("devproxy"))
	// No hyphens within words, and lines of unequal length: much of it is typed.
	r.line(".nh")
	r.line(".ad l")
	r.section("NAME")
	r.line(`%s \- %s`, escape(name(cmd)), escape(lowerFirst(cmd.Short)))
	r.section("SYNOPSIS")
	r.synopsis(cmd)
	r.section("DESCRIPTION")
	about, codes, _ := strings.Cut(cmd.Long, "\nExit codes: ")
	r.text(about)
	if commands := visible(cmd); len(commands) > 0 {
		r.section("COMMANDS")
		for _, below := range commands {
			r.line(".TP")
			r.line(`\fB%s\fR(%d)`, escape(name(below)), Section)
			r.line("%s", guarded(escape(below.Short+".")))
		}
	}
	r.flags("OPTIONS", cmd.NonInheritedFlags())
	r.flags("COMMON OPTIONS", cmd.InheritedFlags())
	if codes != "" {
		r.section("EXIT STATUS")
		r.codes(codes)
	}
	if cmd.Example != "" {
		r.section("EXAMPLES")
		r.verbatim(strings.Split(cmd.Example, "\n"))
	}
	r.section("SEE ALSO")
	r.seeAlso(cmd)
	return []byte(r.b.String())
}

// roff is a page in the making.
type roff struct{ b strings.Builder }

func (r *roff) line(format string, args ...any) { fmt.Fprintf(&r.b, format+"\n", args...) }

func (r *roff) section(heading string) { r.line(".SH %s", quoted(heading)) }

func (r *roff) synopsis(cmd *cobra.Command) {
	command, arguments, _ := strings.Cut(cmd.UseLine(), " ")
	if path := cmd.CommandPath(); strings.HasPrefix(cmd.UseLine(), path) {
		command, arguments = path, strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), path))
	}
	if len(visible(cmd)) > 0 {
		arguments = strings.TrimSpace("[COMMAND] " + arguments)
	}
	r.line(`\fB%s\fR %s`, escape(command), escape(arguments))
}

// text writes paragraphs. Lines that are indented stay as they are.
func (r *roff) text(text string) {
	first := true
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if !first {
			r.line(".PP")
		}
		first = false
		var typed []string
		for line := range strings.SplitSeq(block, "\n") {
			if strings.HasPrefix(line, "  ") {
				typed = append(typed, line)
				continue
			}
			r.verbatim(typed)
			typed = nil
			r.line("%s", guarded(escape(line)))
		}
		r.verbatim(typed)
	}
}

// verbatim writes lines that are not to be filled.
func (r *roff) verbatim(lines []string) {
	if len(lines) == 0 {
		return
	}
	r.line(".RS 2")
	r.line(".nf")
	for _, line := range lines {
		r.line("%s", guarded(escape(strings.TrimPrefix(line, "  "))))
	}
	r.line(".fi")
	r.line(".RE")
}

func (r *roff) flags(heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	r.section(heading)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(flag)
		option := `\fB\-\-` + escape(flag.Name) + `\fR`
		if flag.Shorthand != "" {
			option = `\fB\-` + escape(flag.Shorthand) + `\fR, ` + option
		}
		if value != "" {
			option += ` \fI` + escape(value) + `\fR`
		}
		if initial := flag.DefValue; initial != "" && initial != "false" && initial != "0" && initial != "[]" && initial != "0s" {
			usage += " (default: " + initial + ")"
		}
		r.line(".TP")
		r.line("%s", option)
		r.line("%s", guarded(escape(usage)))
	})
}

// codes writes a list such as "0 done; 1 it did not happen, …; 2 ….", and what is
// said of the others behind it.
func (r *roff) codes(list string) {
	list, more, _ := strings.Cut(strings.TrimSuffix(strings.Join(strings.Fields(list), " "), "."), ". ")
	for entry := range strings.SplitSeq(list, "; ") {
		code, meaning, _ := strings.Cut(entry, " ")
		r.line(".TP")
		r.line(`\fB%s\fR`, escape(code))
		r.line("%s", guarded(escape(meaning)))
	}
	if more != "" {
		r.line(".PP")
		r.line("%s", guarded(escape(more+".")))
	}
}

func (r *roff) seeAlso(cmd *cobra.Command) {
	var pages []string
	add := func(page string) { pages = append(pages, fmt.Sprintf(`\fB%s\fR(%d)`, escape(page), Section)) }
	if parent := cmd.Parent(); parent != nil {
		add(name(parent))
	}
	for _, program := range []string{"devproxyctl", "devproxyd", "devproxy-shim"} {
		if program != name(cmd) && (cmd.Parent() == nil || program != name(cmd.Parent())) {
			add(program)
		}
	}
	r.line("%s", strings.Join(pages, ",\n"))
	r.line(".PP")
	r.line("%s", escape("https://github.com/debugmcp/devproxy"))
}

func lowerFirst(text string) string {
	if len(text) > 1 && strings.ToUpper(text[:2]) == text[:2] {
		return text // a word such as MCP
	}
	return strings.ToLower(text[:1]) + text[1:]
}

var escaper = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`,
	"→", `\(->`, "←", `\(<-`, "…", "...", "–", `\(en`, "“", `\(lq`, "”", `\(rq`)

// escape has a text shown as it is typed, so that it can be copied.
func escape(text string) string { return escaper.Replace(text) }

// guarded keeps a line from being read as a request.
func guarded(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}

func quoted(argument string) string {
	return `"` + strings.ReplaceAll(escape(argument), `"`, `\(dq`) + `"`
}
