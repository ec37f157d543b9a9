package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// schema is a JSON schema, or a part of one, read as far as a person needs it.
// What is no schema reads as one that allows anything.
type schema struct {
	*wire.Object

	root *wire.Object // for references
}

// property is one of a schema's.
type property struct {
	name     string
	required bool
	schema   schema
}

func parseSchema(raw []byte) schema {
	object, err := wire.ParseObject(raw)
	if err != nil {
		object = &wire.Object{}
	}
	return schema{object, object}.resolved()
}

// part is the schema under a keyword.
func (s schema) part(raw []byte) schema {
	object, err := wire.ParseObject(raw)
	if err != nil {
		object = &wire.Object{}
	}
	return schema{object, s.root}.resolved()
}

const (
	// longestReference bounds a chain of references, which may be a ring, and
	// choices within choices.
	longestReference = 4
	// describedDepth and describedLines end the description of a schema that
	// contains itself.
	describedDepth = 3
	describedLines = 300
)

// resolved follows a reference within the document.
func (s schema) resolved() schema {
	for range longestReference {
		ref, ok := strings.CutPrefix(s.text("$ref"), "#/")
		if !ok {
			break
		}
		target := s.root
		for step := range strings.SplitSeq(ref, "/") {
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			next, err := wire.ParseObject(target.Get(step))
			if err != nil {
				return s
			}
			target = next
		}
		s.Object = target
	}
	return s
}

func (s schema) text(key string) string {
	text, _ := wire.String(s.Get(key))
	return text
}

// properties are those of an object, in the order of the schema.
func (s schema) properties() []property {
	all, err := wire.ParseObject(s.Get("properties"))
	if err != nil {
		return nil
	}
	var required []string
	_ = json.Unmarshal(s.Get("required"), &required) // none, if it is something else
	var properties []property
	for _, m := range all.Members() {
		properties = append(properties, property{m.Key, slices.Contains(required, m.Key), s.part(m.Value)})
	}
	return properties
}

// alternatives are the schemas of anyOf and oneOf; none if there is no choice.
func (s schema) alternatives() []schema {
	var all []schema
	for _, key := range []string{"anyOf", "oneOf"} {
		elements, err := wire.Elements(s.Get(key))
		if err != nil {
			continue
		}
		for _, element := range elements {
			all = append(all, s.part(element))
		}
	}
	return all
}

// types are the JSON types of its values; none means any.
func (s schema) types() []string { return s.typesWithin(longestReference) }

func (s schema) typesWithin(depth int) []string {
	if name := s.text("type"); name != "" {
		return []string{name}
	}
	var names []string
	if json.Unmarshal(s.Get("type"), &names) == nil && len(names) > 0 {
		return names
	}
	if depth == 0 {
		return nil
	}
	for _, alternative := range s.alternatives() {
		of := alternative.typesWithin(depth - 1)
		if len(of) == 0 {
			return nil
		}
		names = append(names, of...)
	}
	for _, value := range s.values() {
		names = append(names, typeOf(value))
	}
	if len(names) == 0 && s.Has("properties") {
		return []string{"object"}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// values are those of enum or const.
func (s schema) values() [][]byte {
	if s.Has("const") {
		return [][]byte{s.Get("const")}
	}
	if values, err := wire.Elements(s.Get("enum")); err == nil {
		return values
	}
	// A choice of constants, each with a title.
	var values [][]byte
	for _, alternative := range s.alternatives() {
		if !alternative.Has("const") {
			return nil
		}
		values = append(values, alternative.Get("const"))
	}
	return values
}

// typeOf names the type of a JSON value.
func typeOf(value []byte) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// word is the type in a word or two: "string", "integer or null", "array of
// string".
func (s schema) word() string { return s.wordWithin(longestReference) }

func (s schema) wordWithin(depth int) string {
	types := slices.Clone(s.types())
	if len(types) == 0 {
		return "any"
	}
	for i, name := range types {
		if items := s.part(s.Get("items")); name == "array" && depth > 0 && items.Len() > 0 {
			types[i] = "array of " + items.wordWithin(depth-1)
		}
	}
	return strings.Join(types, " or ")
}

// signature lists the arguments in a line: "text: string, count?: integer".
func signature(properties []property) string {
	parts := make([]string, len(properties))
	for i, p := range properties {
		optional := "?"
		if p.required {
			optional = ""
		}
		parts[i] = p.name + optional + ": " + p.schema.word()
	}
	return strings.Join(parts, ", ")
}

// facts are what the schema says of a value besides its type.
func (s schema) facts() []string {
	var facts []string
	if values := s.values(); len(values) > 0 {
		facts = append(facts, "one of "+string(bytes.Join(values, []byte(", "))))
	}
	for _, keyword := range []struct{ key, words string }{
		{"format", "format %s"}, {"pattern", "matches %s"}, {"minimum", "at least %s"}, {"exclusiveMinimum", "more than %s"},
		{"maximum", "at most %s"}, {"exclusiveMaximum", "less than %s"}, {"multipleOf", "a multiple of %s"},
		{"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s elements"}, {"maxItems", "at most %s elements"}, {"default", "default %s"},
	} {
		if value := s.Get(keyword.key); value != nil {
			text, isText := wire.String(value)
			if !isText || keyword.key == "default" {
				text = string(value)
			}
			facts = append(facts, fmt.Sprintf(keyword.words, text))
		}
	}
	return facts
}

// describe tells the properties in words, a line each, those within others
// indented. A schema that contains itself is told to some depth, and some length.
func (s schema) describe() []string {
	var lines []string
	s.describeTo(&lines, 0)
	closed := string(bytes.TrimSpace(s.Get("additionalProperties"))) == "false"
	switch {
	case len(lines) >= describedLines:
		return append(lines, "…")
	case len(lines) == 0 && closed:
		return []string{"nothing"}
	case len(lines) == 0:
		return []string{"anything: the schema names no properties"}
	case closed:
		return append(lines, "(and no others)")
	}
	return lines
}

func (s schema) describeTo(lines *[]string, depth int) {
	if depth > describedDepth {
		return
	}
	for _, p := range s.properties() {
		if len(*lines) >= describedLines {
			return
		}
		head := p.schema.word()
		if p.required {
			head += ", required"
		}
		line := fmt.Sprintf("%s%s (%s)", strings.Repeat("  ", depth), p.name, strings.Join(append([]string{head}, p.schema.facts()...), "; "))
		if about := p.schema.text("description"); about != "" {
			line += ": " + strings.Join(strings.Fields(about), " ")
		}
		*lines = append(*lines, line)
		p.schema.describeTo(lines, depth+1)
		p.schema.part(p.schema.Get("items")).describeTo(lines, depth+1)
		for _, alternative := range p.schema.alternatives() {
			alternative.describeTo(lines, depth+1)
		}
	}
}
