package era

import (
	"fmt"
	"slices"

	"github.com/debugmcp/devproxy/internal/wire"
)

// MergeTools adds tools to the result of a tools/list: after those it has, only on the last page, and only those
// whose name it does not have itself. The caller leaves out names that were on earlier pages.
func MergeTools(result []byte, extra [][]byte) ([]byte, error) {
	o, err := wire.ParseObject(result)
	if err != nil {
		return nil, fmt.Errorf("reading the result of tools/list: %w", err)
	}
	if !LastPage(result) {
		return result, nil
	}
	tools := [][]byte{}
	if raw := nonNull(o.Get("tools")); raw != nil {
		if tools, err = wire.Elements(raw); err != nil {
			return nil, fmt.Errorf("reading the tools of tools/list: %w", err)
		}
	}
	names := namesOf(tools)
	before := len(tools)
	for _, tool := range extra {
		if name, _ := ToolName(tool); !slices.Contains(names, name) {
			tools = append(tools, tool)
		}
	}
	if len(tools) == before && o.Has("tools") {
		return result, nil
	}
	o.Set("tools", wire.JoinArray(tools))
	return o.Bytes(), nil
}

// ToolNames returns the names of the tools in the result of a tools/list.
func ToolNames(result []byte) []string { return namesOf(toolsOf(result)) }

func toolsOf(result []byte) [][]byte {
	tools, _ := wire.Elements(at(result, "tools")) // what is no array has no tools
	return tools
}

func namesOf(tools [][]byte) []string {
	var names []string
	for _, tool := range tools {
		if name, ok := ToolName(tool); ok {
			names = append(names, name)
		}
	}
	return names
}

// LastPage reports whether the result of a list is its last page. The Go SDK's client takes an empty cursor for
// none.
func LastPage(result []byte) bool {
	cursor := nonNull(at(result, "nextCursor"))
	return cursor == nil || text(cursor) == "" && cursor[0] == '"'
}

// emptyList returns the empty result of a list method, with nothing of an era in it.
func emptyList(method string) *wire.Object {
	key := ""
	switch method {
	case methodToolsList:
		key = "tools"
	case methodPromptsList:
		key = "prompts"
	case methodResourcesList:
		key = "resources"
	case methodTemplatesList:
		key = "resourceTemplates"
	default:
		return nil
	}
	var o wire.Object
	o.Set(key, []byte("[]"))
	return &o
}

// toolResult returns the result of a tools/call with nothing of an era in it.
func toolResult(message string, isError bool, structured []byte) *wire.Object {
	var o wire.Object
	o.Set("content", wire.JoinArray([][]byte{textBlock(message)}))
	if isError {
		o.Set("isError", []byte("true"))
	}
	if structured != nil {
		o.Set("structuredContent", structured)
	}
	return &o
}

func textBlock(s string) []byte {
	var o wire.Object
	o.Set("type", []byte(`"text"`))
	o.Set("text", wire.Quote(s))
	return o.Bytes()
}

// failedTool returns the tool result that tells the model of an error.
func failedTool(e *wire.Error) *wire.Object {
	o := toolResult(e.Message, true, nil)
	if e.Data != nil {
		var meta wire.Object
		meta.Set(MetaFailure, e.Data)
		o.Set("_meta", meta.Bytes())
	}
	return o
}
