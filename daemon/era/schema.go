package era

import (
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Modern tools may have an outputSchema of any JSON Schema and a structuredContent of any value (SEP-2106).
// Legacy clients refuse a whole tools/list for one outputSchema whose root is not of type object, and a call
// for a structuredContent that is no object. So both are wrapped, the value as {"result": value}, exactly as
// the TypeScript server does it for legacy clients.

const wrapped = "#/properties/result" // where a wrapped schema lies in its wrapper

// wrapTools wraps the output schemas in the result of a tools/list and remembers which.
func wrapTools(result *wire.Object, shapes Shapes) {
	tools, err := wire.Elements(result.Get("tools"))
	if err != nil {
		return
	}
	changed := false
	for i, raw := range tools {
		tool := object(raw)
		name, named := wire.String(tool.Get("name"))
		needed := needsWrap(tool.Get("outputSchema"))
		if named && shapes != nil {
			if needed {
				shapes[name] = true
			} else {
				delete(shapes, name)
			}
		}
		if needed {
			tool.Set("outputSchema", wrapSchema(tool.Get("outputSchema")))
			tools[i], changed = tool.Bytes(), true
		}
	}
	if changed {
		result.Set("tools", wire.JoinArray(tools))
	}
}

func needsWrap(schema []byte) bool {
	return isObject(schema) && text(at(schema, "type")) != "object"
}

func wrapSchema(schema []byte) []byte {
	natural := object(schema)
	var properties, wrapper wire.Object
	properties.Set("result", reroot(schema, is2019(natural) && string(natural.Get("$recursiveAnchor")) != "true"))
	if dialect := onlyString(natural.Get("$schema")); dialect != nil {
		wrapper.Set("$schema", dialect)
	}
	wrapper.Set("type", []byte(`"object"`))
	wrapper.Set("properties", properties.Bytes())
	wrapper.Set("required", []byte(`["result"]`))
	return wrapper.Bytes()
}

// is2019 tells the only dialect with $recursiveRef.
func is2019(schema *wire.Object) bool {
	return strings.Contains(text(schema.Get("$schema")), "draft/2019-09/")
}

// reroot makes the references of a schema that is to lie at [wrapped] point where they did: "#" and "#/…" are
// relative to the root of the document. A schema with an $id of its own is a document of its own.
func reroot(raw []byte, recursive bool) []byte {
	if len(raw) > 0 && raw[0] == '[' {
		return mapArray(raw, func(elem []byte) []byte { return reroot(elem, recursive) })
	}
	if !isObject(raw) {
		return raw
	}
	schema := object(raw)
	if id := schema.Get("$id"); id != nil && !strings.HasPrefix(text(id), "#") {
		return raw
	}
	recursion := false
	for _, m := range schema.Members() {
		switch m.Key {
		case "$ref", "$dynamicRef":
			replace(schema, m, rerootPointer(m.Value))
		case "$recursiveRef":
			recursion = recursive && text(m.Value) == "#"
		case "const", "enum", "default", "examples": // values, not schemas
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
			replace(schema, m, mapObject(m.Value, func(named []byte) []byte { return reroot(named, recursive) }))
		default:
			replace(schema, m, reroot(m.Value, recursive))
		}
	}
	if recursion {
		referToRoot(schema)
	}
	return schema.Bytes()
}

// replace sets a member if its value differs, so that an unchanged schema keeps its bytes.
func replace(o *wire.Object, m wire.Member, value []byte) {
	if string(value) != string(m.Value) {
		o.Set(m.Key, value)
	}
}

func rerootPointer(raw []byte) []byte {
	pointer := text(raw)
	if pointer != "#" && !strings.HasPrefix(pointer, "#/") {
		return raw
	}
	return wire.Quote(wrapped + pointer[1:])
}

// referToRoot replaces "$recursiveRef":"#", which knows the root of the document only, by a plain reference.
func referToRoot(schema *wire.Object) {
	schema.Delete("$recursiveRef")
	if !schema.Has("$ref") {
		schema.Set("$ref", wire.Quote(wrapped))
		return
	}
	all, _ := wire.Elements(schema.Get("allOf")) // none where absent
	var ref wire.Object
	ref.Set("$ref", wire.Quote(wrapped))
	schema.Set("allOf", wire.JoinArray(append(all, ref.Bytes())))
}

func mapObject(raw []byte, f func([]byte) []byte) []byte {
	if !isObject(raw) {
		return raw
	}
	o := object(raw)
	for _, m := range o.Members() {
		replace(o, m, f(m.Value))
	}
	return o.Bytes()
}

func mapArray(raw []byte, f func([]byte) []byte) []byte {
	elems, err := wire.Elements(raw)
	if err != nil {
		return raw
	}
	changed := false
	for i, elem := range elems {
		elems[i] = f(elem)
		changed = changed || string(elems[i]) != string(elem)
	}
	if !changed {
		return raw
	}
	return wire.JoinArray(elems)
}

// wrapStructured wraps the structuredContent in the result of a tools/call where its schema was, or where it is
// no object. The latter also gets a text block, for clients that show text only, if there is none.
func wrapStructured(result *wire.Object, schemaWrapped bool) {
	value := result.Get("structuredContent")
	if value == nil {
		return
	}
	if !isObject(value) {
		addText(result, value)
	}
	if !isObject(value) || schemaWrapped {
		var o wire.Object
		o.Set("result", value)
		result.Set("structuredContent", o.Bytes())
	}
}

func addText(result *wire.Object, value []byte) {
	content := [][]byte{}
	if raw := nonNull(result.Get("content")); raw != nil {
		var err error
		if content, err = wire.Elements(raw); err != nil {
			return
		}
	}
	for _, block := range content {
		if text(at(block, "type")) == "text" {
			return
		}
	}
	compact, err := wire.Compact(value)
	if err != nil {
		return // impossible for a value that was parsed
	}
	result.Set("content", wire.JoinArray(append(content, textBlock(string(compact)))))
}
