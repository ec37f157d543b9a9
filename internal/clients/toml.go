package clients

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlFile is a file of TOML.
type tomlFile struct {
	source

	form    form
	decoded map[string]any
	lines   []expression
}

// expression is a header or an assignment of a file, with the lines it stands on.
type expression struct {
	// from and to are the offsets of its lines.
	from, to int
	// path is the full name of what it declares or assigns.
	path []string
	// header: it is the header of a table.
	header bool
	// strings are the values in it that are strings, by their full name.
	strings []located
}

type located struct {
	path     []string
	from, to int
}

func openTOML(content []byte, f form) (*tomlFile, error) {
	file := &tomlFile{source: sourceOf(content), form: f, decoded: map[string]any{}}
	if err := toml.Unmarshal(file.text, &file.decoded); err != nil {
		fault := &SyntaxError{Msg: "no valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			fault.Line, _ = at.Position()
		}
		return nil, fault
	}
	file.scan()
	return file, nil
}

// scan finds the expressions. The decoder of go-toml forgets where they are; its
// parser, though called unstable, knows.
func (f *tomlFile) scan() {
	var parser unstable.Parser
	parser.Reset(f.text)
	var table []string
	for parser.NextExpression() {
		node := parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			var at int
			table, at = keyOf(nil, node)
			f.lines = append(f.lines, f.expression(at, at, table, true))
		case unstable.KeyValue:
			from, length := int(node.Raw.Offset), int(node.Raw.Length)
			path, _ := keyOf(table, node)
			line := f.expression(from, from+length, path, false)
			line.strings = stringsIn(path, node.Value())
			f.lines = append(f.lines, line)
		default:
		}
	}
}

// expression completes one that stands between two offsets to whole lines.
func (f *tomlFile) expression(from, to int, path []string, header bool) expression {
	from = bytes.LastIndexByte(f.text[:from], '\n') + 1
	if end := bytes.IndexByte(f.text[to:], '\n'); end >= 0 {
		to += end + 1
	} else {
		to = len(f.text)
	}
	return expression{from: from, to: to, path: path, header: header}
}

// keyOf is the full name of a node, and the offset of its first part.
func keyOf(table []string, node *unstable.Node) (path []string, at int) {
	path, at = slices.Clone(table), -1
	for parts := node.Key(); parts.Next(); {
		part := parts.Node()
		path = append(path, string(part.Data))
		if at < 0 {
			at = int(part.Raw.Offset)
		}
	}
	return path, at
}

// stringsIn finds the strings of a value, also within inline tables.
func stringsIn(path []string, value *unstable.Node) []located {
	switch value.Kind {
	case unstable.String:
		from := int(value.Raw.Offset)
		return []located{{path, from, from + int(value.Raw.Length)}}
	case unstable.InlineTable:
		var found []located
		for children := value.Children(); children.Next(); {
			child := children.Node()
			if child.Kind == unstable.KeyValue {
				inner, _ := keyOf(path, child)
				found = append(found, stringsIn(inner, child.Value())...)
			}
		}
		return found
	default:
		return nil
	}
}

func (f *tomlFile) tree() (root map[string]any, keys []string, err error) {
	return f.decoded, f.form.keys, nil
}

func (f *tomlFile) container() (map[string]any, error) {
	at := f.decoded
	for _, key := range f.form.keys {
		value, found := at[key]
		if !found {
			return nil, nil //nolint:nilnil // a file without servers has none
		}
		table, ok := value.(map[string]any)
		if !ok {
			return nil, &SyntaxError{Msg: strings.Join(f.form.keys, ".") + " must be a table"}
		}
		at = table
	}
	return at, nil
}

func (f *tomlFile) servers() ([]Server, error) {
	container, err := f.container()
	if err != nil {
		return nil, err
	}
	var servers []Server
	for name, value := range container {
		entry, _ := value.(map[string]any)
		servers = append(servers, serverOf(name, entry))
	}
	slices.SortFunc(servers, func(a, b Server) int { return f.position(a.Name) - f.position(b.Name) })
	return servers, nil
}

// position is where a server is first spoken of.
func (f *tomlFile) position(name string) int {
	i := slices.IndexFunc(f.lines, func(e expression) bool { return f.concerns(e, name) })
	if i < 0 {
		return len(f.text)
	}
	return f.lines[i].from
}

// concerns reports whether an expression is about the server of that name and
// nothing else.
func (f *tomlFile) concerns(e expression, name string) bool {
	prefix := append(slices.Clone(f.form.keys), name)
	return len(e.path) >= len(prefix) && slices.Equal(e.path[:len(prefix)], prefix)
}

// inline reports whether all servers stand in one inline table, to which
// nothing can be added from outside.
func (f *tomlFile) inline() bool {
	return slices.ContainsFunc(f.lines, func(e expression) bool {
		return !e.header && len(e.path) <= len(f.form.keys) && slices.Equal(e.path, f.form.keys[:len(e.path)])
	})
}

var errInline = errors.New("the servers stand in an inline table, which cannot be extended; make a table of each, such as [mcp_servers.NAME]")

// add puts a table at the end of the file, where one can always stand.
func (f *tomlFile) add(e Entry) ([]byte, error) {
	if f.inline() {
		return nil, errInline
	}
	newline := f.newline()
	lines := []string{"[" + strings.Join(f.form.keys, ".") + "." + e.Name + "]"}
	for _, m := range f.form.members(e) {
		lines = append(lines, m.name+" = "+tomlValue(m.value))
	}
	block := strings.Join(lines, newline)
	end := len(f.text)
	switch {
	case len(bytes.TrimSpace(f.text)) == 0:
		return f.changed(splice{end, end, block + newline}), nil
	case !bytes.HasSuffix(f.text, []byte("\n")):
		// The file goes on without an end of its last line, so that remove leaves
		// it as it was.
		return f.changed(splice{end, end, newline + newline + block}), nil
	}
	return f.changed(splice{end, end, newline + block + newline}), nil
}

// remove cuts the lines that are about a server: each run of them, with the
// comments between and the empty line before.
func (f *tomlFile) remove(name string) ([]byte, error) {
	var cuts []splice
	for i := 0; i < len(f.lines); i++ {
		if !f.concerns(f.lines[i], name) {
			continue
		}
		cut := splice{from: f.lines[i].from, to: f.lines[i].to}
		header := f.lines[i].header
		for i+1 < len(f.lines) && f.concerns(f.lines[i+1], name) {
			i++
			cut.to = f.lines[i].to
		}
		if header {
			cut.from = f.withoutGap(cut)
		}
		cuts = append(cuts, cut)
	}
	if len(cuts) == 0 {
		return nil, errInline
	}
	return f.changed(cuts...), nil
}

// withoutGap is the beginning of a cut with the empty line before it, and with
// the end of the line before that where the cut ends a file without one.
func (f *tomlFile) withoutGap(cut splice) int {
	before, gap := bytes.CutSuffix(f.text[:cut.from], []byte(f.newline()))
	if !gap || len(before) > 0 && !bytes.HasSuffix(before, []byte("\n")) {
		return cut.from
	}
	if cut.to == len(f.text) && !bytes.HasSuffix(f.text, []byte("\n")) {
		before = bytes.TrimSuffix(before, []byte(f.newline()))
	}
	return len(before)
}

// removeEmpty has nothing to do: a server brings its own table, and takes it along.
func (f *tomlFile) removeEmpty() ([]byte, bool, error) { return nil, false, nil }

func (f *tomlFile) isEmpty() bool { return len(bytes.TrimSpace(f.text)) == 0 }

func (f *tomlFile) setCommand(name, command string) ([]byte, error) {
	path := append(slices.Clone(f.form.keys), name, "command")
	for _, line := range f.lines {
		for _, value := range line.strings {
			if slices.Equal(value.path, path) {
				return f.changed(splice{value.from, value.to, QuoteTOML(command)}), nil
			}
		}
	}
	return nil, fmt.Errorf("the command of %q is not where it is expected", name)
}

func tomlValue(value any) string {
	switch value := value.(type) {
	case string:
		return QuoteTOML(value)
	case []string:
		quoted := make([]string, len(value))
		for i, text := range value {
			quoted[i] = QuoteTOML(text)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return fmt.Sprint(value)
}

// QuoteTOML writes a string in the plainest form that can hold it.
func QuoteTOML(text string) string {
	special := strings.ContainsFunc(text, unicode.IsControl)
	switch {
	case !special && !strings.ContainsAny(text, `"\`):
		return `"` + text + `"`
	case !special && !strings.ContainsRune(text, '\''):
		return "'" + text + "'"
	}
	// The escapes of JSON are escapes of TOML too, which wants one more.
	return strings.ReplaceAll(quoteJSON(text), "\x7f", `\u007F`)
}
