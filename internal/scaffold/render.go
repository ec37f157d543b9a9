package scaffold

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/debugmcp/devproxy/internal/clients"
	"github.com/debugmcp/devproxy/internal/config"
)

// TOML is the text of devproxy.toml: what was decided, with its reasons, and the
// keys that a person is likely to want, as comments with their defaults.
func (p *Plan) TOML() []byte {
	var w page
	w.comment(`How devproxy builds, starts and watches this MCP server. Written by "devproxyctl init".`)
	w.comment("All keys: https://github.com/debugmcp/devproxy/blob/main/docs/configuration.md")
	w.comment(`A change of [backend] or [build] applies with "devproxyctl restart", one of [watch] or [proxy] with "devproxyd restart".`)
	w.table("backend")
	p.backend(&w)
	w.table("build")
	if p.build == "" {
		w.comment("The command that builds your server, run in the project's root by the shell.")
		w.line(`# command = "npm run build"`)
	} else {
		w.comment("From: " + p.buildWhy + ".")
		w.set("command", clients.QuoteTOML(p.build))
	}
	if p.builder != "" {
		w.comment("A command that goes on building whenever a source changes, as long as the daemon runs.")
		w.line("# watch = " + clients.QuoteTOML(p.builder))
	}
	w.either("build", "timeout", p.buildTimeout)
	w.table("watch")
	w.comment("What the server runs from; a change restarts it. Here: " + p.watchWhy + ".")
	w.set("paths", list(p.watch))
	if p.entry != "" {
		w.comment("Without this file the server is not started.")
		w.set("entry", clients.QuoteTOML(p.entry))
	}
	w.either("watch", "ignore", "")
	w.either("watch", "settle", "")
	w.table("proxy")
	w.either("proxy", "request_wait", p.requestWait)
	w.either("proxy", "idle_exit", "")
	w.either("proxy", "tool_prefix", "")
	return []byte(w.text.String())
}

func (p *Plan) backend(w *page) {
	w.comment("From: " + p.why + ".")
	w.set("command", list(p.command))
	w.comment("stdio, http or sse. Here: " + p.transportWhy + ".")
	w.set("transport", clients.QuoteTOML(string(p.transport)))
	if p.transport != config.Stdio {
		w.comment("The port that the server listens on; without it, or with 0, a free one, passed as {port} and $PORT. Here: " + p.portWhy + ".")
		if p.portGiven {
			w.set("port", fmt.Sprint(p.port))
		} else {
			w.line("# port = 3000")
		}
		path := p.path
		if p.transport == config.SSE && path == "" {
			path = "/sse"
		}
		w.either("backend", "path", path)
		w.either("backend", "health", p.health)
	}
	if p.cwd != "" {
		w.either("backend", "cwd", p.cwd)
	}
	w.comment("Environment variables, on top of those of the daemon.")
	if len(p.env) > 0 {
		w.set("env", variables(p.env))
	} else {
		w.line(`# env = { LOG_LEVEL = "debug" }`)
	}
	w.comment("A file of NAME=value lines, for what nobody else should see.")
	w.line(`# env_file = ".env"`)
	w.either("backend", "start", "")
	w.either("backend", "start_timeout", "")
}

// page is a file of TOML in the making.
type page struct{ text strings.Builder }

func (w *page) line(text string) { w.text.WriteString(text + "\n") }

// comment writes lines of at most lineWidth columns.
func (w *page) comment(text string) {
	line := "#"
	for word := range strings.FieldsSeq(strings.Map(printable, text)) {
		if len(line)+1+len(word) > lineWidth && line != "#" {
			w.line(line)
			line = "#"
		}
		line += " " + word
	}
	w.line(line)
}

const lineWidth = 110

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// printable leaves what may stand in a comment.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

func (w *page) table(name string) { w.line("\n[" + name + "]") }

func (w *page) set(name, value string) { w.line(name + " = " + value) }

// either sets a key to a string, or shows its default if that is empty.
func (w *page) either(table, name, value string) {
	for _, key := range config.Keys() {
		if key.Table != table || key.Name != name {
			continue
		}
		first, _, _ := strings.Cut(key.Doc, ". ")
		w.comment(strings.ReplaceAll(first, "`", "") + ".")
		if value != "" {
			w.set(name, clients.QuoteTOML(value))
		} else {
			w.line("# " + name + " = " + key.Default)
		}
	}
}

func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = clients.QuoteTOML(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func variables(env []Variable) string {
	pairs := make([]string, len(env))
	for i, v := range env {
		name := v.Name
		if !plainKey.MatchString(name) {
			name = clients.QuoteTOML(name)
		}
		pairs[i] = name + " = " + clients.QuoteTOML(v.Value)
	}
	return "{ " + strings.Join(pairs, ", ") + " }"
}
