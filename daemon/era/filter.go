package era

import (
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Filter is what a subscriptions/listen asks for.
type Filter struct {
	Tools, Prompts, Resources bool // list changes
	URIs                      []string
	Unknown                   []wire.Member // as sent, such as the taskIds of the tasks extension
}

// ParseFilter reads the params of a subscriptions/listen.
func ParseFilter(params []byte) (Filter, *wire.Error) {
	raw := at(params, "notifications")
	if !isObject(raw) {
		return Filter{}, badFilter("notifications is required and must be an object")
	}
	return parseFilter(raw)
}

func badFilter(reason string) *wire.Error {
	return &wire.Error{Code: wire.CodeInvalidParams, Message: "Invalid params: " + reason}
}

func parseFilter(raw []byte) (f Filter, e *wire.Error) {
	for _, m := range object(raw).Members() {
		switch m.Key {
		case "toolsListChanged":
			e = parseFlag(m, &f.Tools)
		case "promptsListChanged":
			e = parseFlag(m, &f.Prompts)
		case "resourcesListChanged":
			e = parseFlag(m, &f.Resources)
		case "resourceSubscriptions":
			f.URIs, e = parseURIs(m.Value)
		default:
			f.Unknown = append(f.Unknown, m)
		}
		if e != nil {
			return Filter{}, e
		}
	}
	return f, nil
}

func parseFlag(m wire.Member, flag *bool) *wire.Error {
	*flag = string(m.Value) == "true"
	if !*flag && string(m.Value) != "false" {
		return badFilter("notifications." + m.Key + " must be a boolean")
	}
	return nil
}

func parseURIs(raw []byte) ([]string, *wire.Error) {
	const reason = "notifications.resourceSubscriptions must be an array of strings"
	elems, err := wire.Elements(raw)
	if err != nil {
		return nil, badFilter(reason)
	}
	var uris []string
	for _, elem := range elems {
		uri, ok := wire.String(elem)
		if !ok {
			return nil, badFilter(reason)
		}
		if !slices.Contains(uris, uri) {
			uris = append(uris, uri)
		}
	}
	return uris, nil
}

// ParseAck reads the params of a notifications/subscriptions/acknowledged: which listen it is about, and what
// the backend honours of it.
func ParseAck(params []byte) (sub wire.ID, honoured Filter) {
	f, e := parseFilter(at(params, "notifications"))
	if e != nil {
		f = Filter{}
	}
	return SubscriptionOf(params), f
}

// Empty reports whether the filter asks for nothing.
func (f Filter) Empty() bool {
	return !f.Tools && !f.Prompts && !f.Resources && len(f.URIs) == 0 && len(f.Unknown) == 0
}

// Honoured returns what of the filter is acknowledged over a backend with these facts. Tools are always, as
// devproxy has tools of its own that it announces after every start; the rest where the backend has it; what
// is unknown only where the backend is modern too, and may know it.
func (f Filter) Honoured(facts Facts) Filter {
	h := Filter{
		Tools:     f.Tools,
		Prompts:   f.Prompts && facts.Has("prompts"),
		Resources: f.Resources && facts.Has("resources"),
	}
	if facts.Has("resources.subscribe") {
		h.URIs = slices.Clone(f.URIs)
	}
	if facts.Era == Modern {
		h.Unknown = slices.Clone(f.Unknown)
	}
	return h
}

// Wants reports whether a change notification is one of those asked for. An update may name a resource below
// the one subscribed to.
func (f Filter) Wants(method string, params []byte) bool {
	switch method {
	case noteToolsChanged:
		return f.Tools
	case notePromptsChanged:
		return f.Prompts
	case noteResourcesChanged:
		return f.Resources
	case noteUpdated:
		uri, _ := URIOf(params)
		return slices.ContainsFunc(f.URIs, func(subscribed string) bool { return Covers(subscribed, uri) })
	case noteTasks:
		return f.names("taskIds", at(params, "taskId"))
	default:
		return false
	}
}

func (f Filter) names(key string, want []byte) bool {
	for _, m := range f.Unknown {
		if m.Key != key {
			continue
		}
		elems, err := wire.Elements(m.Value)
		if err == nil && slices.ContainsFunc(elems, func(e []byte) bool { return string(e) == string(want) }) {
			return true
		}
	}
	return false
}

// Covers reports whether an update of the resource uri is for one who subscribed to another: because it is
// the same, or lies below it, as the schema of notifications/resources/updated allows.
func Covers(subscribed, uri string) bool {
	rest, ok := strings.CutPrefix(uri, subscribed)
	switch {
	case !ok || subscribed == "":
		return false
	case rest == "" || strings.HasSuffix(subscribed, "/"):
		return true
	default:
		return strings.ContainsRune("/?#", rune(rest[0]))
	}
}

// IsChange tells the notifications that reach modern clients by their listens alone.
func IsChange(method string) bool {
	switch method {
	case noteToolsChanged, notePromptsChanged, noteResourcesChanged, noteUpdated, noteTasks:
		return true
	default:
		return false
	}
}

// Bytes returns the filter as the notifications member of a listen or an acknowledgement.
func (f Filter) Bytes() []byte {
	var o wire.Object
	for _, flag := range []struct {
		key string
		set bool
	}{
		{"toolsListChanged", f.Tools}, {"promptsListChanged", f.Prompts}, {"resourcesListChanged", f.Resources},
	} {
		if flag.set {
			o.Set(flag.key, []byte("true"))
		}
	}
	if len(f.URIs) > 0 {
		uris := make([][]byte, len(f.URIs))
		for i, uri := range f.URIs {
			uris[i] = wire.Quote(uri)
		}
		o.Set("resourceSubscriptions", wire.JoinArray(uris))
	}
	for _, m := range f.Unknown {
		o.Set(m.Key, m.Value)
	}
	return o.Bytes()
}
