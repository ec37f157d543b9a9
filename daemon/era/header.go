package era

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// NameHeader returns the value of the header Mcp-Name that a modern HTTP request of this method must carry, as it
// is in the params. See [EncodeHeader].
func NameHeader(method string, params []byte) (value string, ok bool) {
	switch method {
	case methodToolsCall, methodPromptsGet:
		return wire.String(at(params, "name"))
	case methodResourcesRead:
		return wire.String(at(params, "uri"))
	case "tasks/get", "tasks/update", "tasks/cancel":
		return wire.String(at(params, "taskId"))
	default:
		return "", false
	}
}

const (
	base64Prefix = "=?base64?"
	base64Suffix = "?="
)

// EncodeHeader returns the value of a header Mcp-Name or Mcp-Param-… as the specification wants it: plain where
// it is visible ASCII with no blanks at its ends, else in base64. changed reports the latter. The Go SDK 1.8.0
// takes the plain bytes in Mcp-Name only: after a -32020 send those.
func EncodeHeader(value string) (header string, changed bool) {
	if isPlainHeader(value) {
		return value, false
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(value)) + base64Suffix, true
}

func isPlainHeader(value string) bool {
	if strings.HasPrefix(value, base64Prefix) && strings.HasSuffix(value, base64Suffix) {
		return false // would be decoded
	}
	for _, c := range []byte(value) {
		if c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return strings.Trim(value, " \t") == value
}

// RawHeader reports whether a value may be sent in a header as it is, without making two headers of one.
func RawHeader(value string) bool { return !strings.ContainsAny(value, "\r\n\x00") }

// ParamHeader is an argument of a tool that modern HTTP requests repeat in a header (SEP-2243).
type ParamHeader struct {
	Name string   // of the header, "Mcp-Param-" included
	Path []string // to the argument
}

// maxHeaderDepth is how deep arguments are looked for in an inputSchema: real ones are one or two levels deep,
// and the bound keeps the work on a hostile schema linear.
const maxHeaderDepth = 16

// ParamHeaders returns the arguments that a tool wants repeated in headers: the properties of its inputSchema
// that are marked with x-mcp-header, reachable by properties alone and of a primitive type. Marks that are not
// valid are left out, and so is the second of two that name one header.
func ParamHeaders(inputSchema []byte) []ParamHeader {
	var out []ParamHeader
	seen := map[string]bool{}
	var walk func(schema []byte, path []string)
	walk = func(schema []byte, path []string) {
		for _, m := range object(at(schema, "properties")).Members() {
			here := append(slices.Clip(path), m.Key)
			name := text(at(m.Value, "x-mcp-header"))
			key := strings.ToLower(name)
			if isToken(name) && isPrimitive(text(at(m.Value, "type"))) && !seen[key] {
				seen[key] = true
				out = append(out, ParamHeader{Name: "Mcp-Param-" + name, Path: here})
			}
			if len(here) < maxHeaderDepth {
				walk(m.Value, here)
			}
		}
	}
	walk(inputSchema, nil)
	return out
}

// isToken tells a name that HTTP allows for a field (RFC 9110, 5.6.2).
func isToken(name string) bool {
	for _, c := range []byte(name) {
		alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isPrimitive tells the types whose values can be headers. The specification leaves out number, which the
// TypeScript client sends nevertheless.
func isPrimitive(typ string) bool {
	switch typ {
	case "string", "integer", "boolean", "number":
		return true
	default:
		return false
	}
}

// Value returns the header's value for the params of a tools/call, not yet encoded. ok is false where the
// argument is absent, null or no primitive: then there is no header.
func (h ParamHeader) Value(params []byte) (value string, ok bool) {
	raw := at(params, append([]string{"arguments"}, h.Path...)...)
	switch {
	case len(raw) == 0, raw[0] == '{', raw[0] == '[', raw[0] == 'n':
		return "", false
	case raw[0] == '"':
		return wire.String(raw)
	case raw[0] == 't', raw[0] == 'f':
		return string(raw), true
	}
	if n, isInt := wire.ID(raw).Int(); isInt {
		return strconv.FormatInt(n, 10), true
	}
	return string(raw), true
}

// ToolHeaders returns, by name, the headers that the tools in a result of tools/list want. Tools without any
// are in it too, with none, so that a tool is known to want none.
func ToolHeaders(result []byte) map[string][]ParamHeader {
	out := map[string][]ParamHeader{}
	for _, tool := range toolsOf(result) {
		if name, ok := ToolName(tool); ok {
			out[name] = ParamHeaders(at(tool, "inputSchema"))
		}
	}
	return out
}
