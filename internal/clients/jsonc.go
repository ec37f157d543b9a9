package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// jsonFile is a file of JSON, with comments and trailing commas or without.
type jsonFile struct {
	source

	form form
	root *hujson.Object
	// whole is the value that root is, for its offsets.
	whole hujson.Value
	// keys lead to the servers in this file.
	keys []string
}

func openJSON(content []byte, f form) (*jsonFile, error) {
	file := &jsonFile{source: sourceOf(content), form: f, keys: f.keys}
	if len(bytes.TrimSpace(file.text)) == 0 {
		file.text = []byte("{}\n")
	}
	var err error
	if file.whole, err = hujson.Parse(file.text); err != nil {
		return nil, jsonFault(file.text, err)
	}
	root, ok := file.whole.Value.(*hujson.Object)
	if !ok {
		return nil, &SyntaxError{Line: file.line(file.whole.StartOffset), Msg: "the file must hold an object: { … }"}
	}
	file.root = root
	if f.alternative != nil {
		if found, err := file.container(f.alternative); err == nil && found != nil {
			file.keys = f.alternative
		}
	}
	return file, nil
}

var faultPosition = regexp.MustCompile(`^hujson: line (\d+), column \d+: `)

// jsonFault is the error of the parser for content, in our words.
func jsonFault(content []byte, err error) error {
	text := err.Error()
	position := faultPosition.FindStringSubmatch(text)
	if position == nil {
		return &SyntaxError{Msg: "no valid JSON: " + text}
	}
	line, err := strconv.Atoi(position[1])
	if err != nil {
		line = 0
	}
	// What is missing at the end is said to be missing in a line that is none.
	line = min(line, 1+bytes.Count(bytes.TrimRight(content, "\r\n"), []byte("\n")))
	return &SyntaxError{Line: line, Msg: "no valid JSON: " + strings.TrimPrefix(text, position[0])}
}

func (f *jsonFile) line(offset int) int { return 1 + bytes.Count(f.text[:offset], []byte("\n")) }

// member finds the member of that name. Two of them are an error: which one a
// client takes is not for us to say.
func (f *jsonFile) member(object *hujson.Object, name string) (*hujson.ObjectMember, error) {
	var found *hujson.ObjectMember
	for i := range object.Members {
		m := &object.Members[i]
		literal, ok := m.Name.Value.(hujson.Literal)
		if !ok || literal.String() != name {
			continue
		}
		if found != nil {
			return nil, &SyntaxError{Line: f.line(m.Name.StartOffset), Msg: fmt.Sprintf("%q is there twice", name)}
		}
		found = m
	}
	return found, nil
}

// container finds the object that keys lead to; nil if it is not there.
func (f *jsonFile) container(keys []string) (*hujson.Value, error) {
	at := &f.whole
	for _, key := range keys {
		object, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, f.notObject(at)
		}
		m, err := f.member(object, key)
		if m == nil || err != nil {
			return nil, err
		}
		at = &m.Value
	}
	if _, ok := at.Value.(*hujson.Object); !ok {
		return nil, f.notObject(at)
	}
	return at, nil
}

func (f *jsonFile) notObject(v *hujson.Value) error {
	return &SyntaxError{Line: f.line(v.StartOffset), Msg: strings.Join(f.keys, ".") + " must be an object: { … }"}
}

func (f *jsonFile) servers() ([]Server, error) {
	at, err := f.container(f.keys)
	if at == nil || err != nil {
		return nil, err
	}
	object, _ := at.Value.(*hujson.Object)
	var servers []Server
	for i := range object.Members {
		m := &object.Members[i]
		literal, _ := m.Name.Value.(hujson.Literal)
		if _, err := f.member(object, literal.String()); err != nil {
			return nil, err
		}
		entry, _ := decodeJSON(m.Value).(map[string]any)
		servers = append(servers, serverOf(literal.String(), entry))
	}
	return servers, nil
}

// decodeJSON gives the meaning of a value. Numbers keep their text.
func decodeJSON(v hujson.Value) any {
	v = v.Clone()
	v.Standardize()
	decoder := json.NewDecoder(bytes.NewReader(v.Pack()))
	decoder.UseNumber()
	var decoded any
	// It was parsed already, and has no extensions any more.
	_ = decoder.Decode(&decoded)
	return decoded
}

func (f *jsonFile) tree() (root map[string]any, keys []string, err error) {
	root, _ = decodeJSON(f.whole).(map[string]any)
	return root, f.keys, nil
}

func (f *jsonFile) setCommand(name, command string) ([]byte, error) {
	at, err := f.container(append(slices.Clone(f.keys), name))
	if at == nil || err != nil {
		return nil, err
	}
	object, _ := at.Value.(*hujson.Object)
	m, err := f.member(object, "command")
	if m == nil || err != nil {
		return nil, err
	}
	target := m.Value
	if words, ok := target.Value.(*hujson.Array); ok && len(words.Elements) > 0 {
		target = words.Elements[0]
	}
	return f.changed(splice{target.StartOffset, target.EndOffset, quoteJSON(command)}), nil
}

func (f *jsonFile) add(e Entry) ([]byte, error) {
	value := object(f.form.members(e))
	at, err := f.container(f.keys)
	if err != nil {
		return nil, err
	}
	if at != nil {
		return f.insert(at, e.Name, value), nil
	}
	// The deepest object that is there gets the ones that are missing.
	parent, missing := &f.whole, f.keys
	for len(missing) > 1 {
		next, err := f.container(f.keys[:len(f.keys)-len(missing)+1])
		if err != nil {
			return nil, err
		}
		if next == nil {
			break
		}
		parent, missing = next, missing[1:]
	}
	value = object{{e.Name, value}}
	for _, key := range slices.Backward(missing[1:]) {
		value = object{{key, value}}
	}
	return f.insert(parent, missing[0], value), nil
}

// member is a part of an object: a string, a list of strings or an object.
type member struct {
	name  string
	value any
}

type object []member

// insert adds a member to an object, in the object's own style: on a line of its
// own with the indentation of its neighbours, or on the same line if they are.
func (f *jsonFile) insert(at *hujson.Value, name string, value any) []byte {
	into, _ := at.Value.(*hujson.Object)
	style := f.style()
	closing := at.EndOffset - 1
	if len(into.Members) == 0 {
		return f.insertFirst(at, name, value, style)
	}
	last := into.Members[len(into.Members)-1].Value
	trailing := last.AfterExtra != nil
	first := into.Members[0].Name
	oneLine := !bytes.ContainsRune(f.text[at.StartOffset:first.StartOffset], '\n') &&
		!bytes.ContainsRune(f.text[last.EndOffset:closing], '\n')
	end := trimmedEnd(f.text, at.StartOffset+1, closing)
	var text string
	if oneLine {
		text = style.space + style.render(name, value, "", true)
	} else {
		indent := f.indentBefore(into.Members[len(into.Members)-1].Name.StartOffset, f.indentOf(at.StartOffset)+style.unit)
		text = style.newline + indent + style.render(name, value, indent, false)
	}
	if trailing {
		return f.changed(splice{end, end, text + ","})
	}
	return f.changed(splice{last.EndOffset, last.EndOffset, ","}, splice{end, end, text})
}

// insertFirst adds the first member of an object.
func (f *jsonFile) insertFirst(at *hujson.Value, name string, value any, style jsonStyle) []byte {
	closing := at.EndOffset - 1
	end := trimmedEnd(f.text, at.StartOffset+1, closing)
	rest := string(f.text[end:closing])
	if style.compact {
		return f.changed(splice{end, end, style.render(name, value, "", true)})
	}
	outer := f.indentOf(at.StartOffset)
	indent := outer + style.unit
	text := style.newline + indent + style.render(name, value, indent, false)
	if strings.Contains(rest, "\n") {
		return f.changed(splice{end, end, text})
	}
	return f.changed(splice{end, closing, text + style.newline + outer})
}

// trimmedEnd is where the text between two offsets ends without the white space
// at its end.
func trimmedEnd(text []byte, from, to int) int {
	return from + len(bytes.TrimRight(text[from:to], " \t\r\n"))
}

// indentOf is the white space at the beginning of the line of an offset.
func (f *jsonFile) indentOf(offset int) string {
	line := f.text[bytes.LastIndexByte(f.text[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// indentBefore is the white space between the beginning of the line and an
// offset, or otherwise if there is something else.
func (f *jsonFile) indentBefore(offset int, otherwise string) string {
	line := f.text[bytes.LastIndexByte(f.text[:offset], '\n')+1 : offset]
	if len(bytes.Trim(line, " \t")) > 0 {
		return otherwise
	}
	return string(line)
}

func (f *jsonFile) remove(name string) ([]byte, error) {
	at, err := f.container(f.keys)
	if at == nil || err != nil {
		return nil, err
	}
	return f.removeFrom(at, name), nil
}

// removeEmpty takes the object of the servers out if nothing is in it, not even a
// comment.
func (f *jsonFile) removeEmpty() ([]byte, bool, error) {
	at, err := f.container(f.keys)
	if at == nil || err != nil {
		return nil, false, err
	}
	object, _ := at.Value.(*hujson.Object)
	if len(object.Members) > 0 || len(bytes.TrimSpace(f.text[at.StartOffset+1:at.EndOffset-1])) > 0 {
		return nil, false, nil
	}
	parent, err := f.container(f.keys[:len(f.keys)-1])
	if parent == nil || err != nil {
		return nil, false, err
	}
	return f.removeFrom(parent, f.keys[len(f.keys)-1]), true, nil
}

func (f *jsonFile) isEmpty() bool {
	return len(f.root.Members) == 0 && len(bytes.TrimSpace(f.text[f.whole.StartOffset+1:f.whole.EndOffset-1])) == 0 &&
		len(bytes.TrimSpace(f.text[:f.whole.StartOffset])) == 0 && len(bytes.TrimSpace(f.text[f.whole.EndOffset:])) == 0
}

// removeFrom takes a member out of an object.
func (f *jsonFile) removeFrom(at *hujson.Value, name string) []byte {
	from, _ := at.Value.(*hujson.Object)
	i := slices.IndexFunc(from.Members, func(m hujson.ObjectMember) bool {
		literal, ok := m.Name.Value.(hujson.Literal)
		return ok && literal.String() == name
	})
	if i < 0 {
		return f.changed()
	}
	m := from.Members[i]
	before := at.StartOffset + 1
	if i > 0 {
		before = commaAfter(from.Members[i-1].Value) + 1
	}
	cut := splice{from: trimmedEnd(f.text, before, m.Name.StartOffset), to: m.Value.EndOffset}
	var comma []splice
	switch last := i == len(from.Members)-1; {
	case !last || m.Value.AfterExtra != nil:
		cut.to = commaAfter(m.Value) + 1
	case i > 0:
		// The one before becomes the last.
		previous := before - 1
		comma = []splice{{previous, before, ""}}
	}
	closing := at.EndOffset - 1
	if len(from.Members) == 1 && cut.from == before && len(bytes.TrimSpace(f.text[cut.to:closing])) == 0 {
		cut.to = closing
	} else if f.keepsLine(before, cut) {
		cut.from = m.Name.StartOffset
	}
	return f.changed(append(comma, cut)...)
}

// keepsLine reports whether the beginning of a member's line has to stay when
// the member goes: for a comment behind it, which would move to a line of
// somebody else, or because the comment before it ends with that line.
func (f *jsonFile) keepsLine(before int, cut splice) bool {
	after, _, _ := bytes.Cut(f.text[cut.to:], []byte("\n"))
	after = bytes.TrimSpace(after)
	if bytes.HasPrefix(after, []byte("//")) || bytes.HasPrefix(after, []byte("/*")) {
		return true
	}
	comment := f.text[before:cut.from]
	comment = comment[bytes.LastIndexByte(comment, '\n')+1:]
	return len(after) > 0 && bytes.Contains(comment, []byte("//"))
}

// commaAfter is the offset of the comma that follows a value.
func commaAfter(v hujson.Value) int { return v.EndOffset + len(v.AfterExtra) }

// jsonStyle is how a file is laid out.
type jsonStyle struct {
	// newline ends a line, unit is one step of indentation, space follows a
	// colon and a comma on the same line.
	newline, unit, space string
	// compact: the whole file is one line.
	compact bool
}

func (f *jsonFile) style() jsonStyle {
	style := jsonStyle{newline: f.newline(), unit: "  ", space: " "}
	if len(f.root.Members) == 0 {
		return style
	}
	first := f.root.Members[0]
	if unit := f.indentBefore(first.Name.StartOffset, ""); unit != "" {
		style.unit = unit
	}
	if !bytes.ContainsRune(bytes.TrimSpace(f.text), '\n') {
		style.compact = true
		if len(first.Value.BeforeExtra) == 0 {
			style.space = ""
		}
	}
	return style
}

// render writes a member. Lists are on one line, for they are short.
func (s jsonStyle) render(name string, value any, indent string, oneLine bool) string {
	return quoteJSON(name) + ":" + s.space + s.value(value, indent, oneLine)
}

func (s jsonStyle) value(value any, indent string, oneLine bool) string {
	switch value := value.(type) {
	case string:
		return quoteJSON(value)
	case []string:
		quoted := make([]string, len(value))
		for i, text := range value {
			quoted[i] = quoteJSON(text)
		}
		return "[" + strings.Join(quoted, ","+s.space) + "]"
	case object:
		parts := make([]string, len(value))
		for i, m := range value {
			parts[i] = s.render(m.name, m.value, indent+s.unit, oneLine)
		}
		if oneLine {
			return "{" + strings.Join(parts, ","+s.space) + "}"
		}
		inner := s.newline + indent + s.unit
		return "{" + inner + strings.Join(parts, ","+inner) + s.newline + indent + "}"
	}
	return "null"
}

// quoteJSON writes a string as people do: without escapes for HTML.
func quoteJSON(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	// A string cannot fail.
	_ = encoder.Encode(text)
	return strings.TrimSuffix(out.String(), "\n")
}
