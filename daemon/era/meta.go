package era

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// The methods that are named more than once here. Everything else passes without being known.
const (
	methodInitialize  = "initialize"
	methodDiscover    = "server/discover"
	methodPing        = "ping"
	methodSetLevel    = "logging/setLevel"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodListen      = "subscriptions/listen"

	methodToolsList     = "tools/list"
	methodPromptsList   = "prompts/list"
	methodResourcesList = "resources/list"
	methodTemplatesList = "resources/templates/list"
	methodToolsCall     = "tools/call"
	methodPromptsGet    = "prompts/get"
	methodResourcesRead = "resources/read"

	methodElicit   = "elicitation/create"
	methodSampling = "sampling/createMessage"
	methodRoots    = "roots/list"

	noteCancelled        = "notifications/cancelled"
	noteInitialized      = "notifications/initialized"
	noteProgress         = "notifications/progress"
	noteRootsChanged     = "notifications/roots/list_changed"
	noteToolsChanged     = "notifications/tools/list_changed"
	notePromptsChanged   = "notifications/prompts/list_changed"
	noteResourcesChanged = "notifications/resources/list_changed"
	noteUpdated          = "notifications/resources/updated"
	noteAcknowledged     = "notifications/subscriptions/acknowledged"
	noteElicited         = "notifications/elicitation/complete"
	noteTaskStatus       = "notifications/tasks/status" // legacy
	noteTasks            = "notifications/tasks"        // the modern extension
)

// isList tells the methods whose result is a list, possibly in pages.
func isList(method string) bool {
	switch method {
	case methodToolsList, methodPromptsList, methodResourcesList, methodTemplatesList:
		return true
	default:
		return false
	}
}

// isCacheable tells the methods whose modern result must carry ttlMs and cacheScope.
func isCacheable(method string) bool {
	return isList(method) || method == methodResourcesRead || method == methodDiscover
}

// asksForInput tells the methods that may answer input_required in the modern era.
func asksForInput(method string) bool {
	return method == methodToolsCall || method == methodPromptsGet || method == methodResourcesRead
}

func isTasks(method string) bool { return strings.HasPrefix(method, "tasks/") }

// object splits raw, for reading: what is no object has no members.
func object(raw []byte) *wire.Object {
	o, err := wire.ParseObject(raw)
	if err != nil {
		return &wire.Object{}
	}
	return o
}

// isObject reports whether raw, which is valid JSON or nil, is an object.
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

func isNull(raw []byte) bool { return string(raw) == "null" }

// at returns the member of raw at the end of a path of names, nil where there is none.
func at(raw []byte, path ...string) []byte {
	for _, key := range path {
		raw = object(raw).Get(key)
	}
	return raw
}

func text(raw []byte) string {
	s, _ := wire.String(raw)
	return s
}

// editMeta edits _meta. One that is emptied goes; one that is no object is none of our business.
func editMeta(o *wire.Object, edit func(meta *wire.Object)) {
	meta, err := wire.ParseObject(o.Get("_meta"))
	if err != nil {
		return
	}
	edit(meta)
	switch {
	case !meta.Changed():
	case meta.Len() == 0:
		o.Delete("_meta")
	default:
		o.Set("_meta", meta.Bytes())
	}
}

// editParams edits params. Params that are emptied go, those that are no object stay as they are.
func editParams(params []byte, edit func(o *wire.Object)) []byte {
	o, err := wire.ParseObject(params)
	if err != nil {
		return params
	}
	edit(o)
	switch {
	case !o.Changed():
		return params
	case o.Len() == 0:
		return nil
	default:
		return o.Bytes()
	}
}

// setToken gives a request's _meta our progress token, or takes away the one it has.
func setToken(meta *wire.Object, token int64) {
	if token == 0 {
		meta.Delete("progressToken")
		return
	}
	meta.Set("progressToken", []byte(wire.IntID(token)))
}

// withToken returns the params of a request with our progress token instead of the client's.
func withToken(req Request, token int64) []byte {
	if token == 0 && req.Token == nil {
		return req.Params
	}
	return editParams(req.Params, func(o *wire.Object) {
		editMeta(o, func(meta *wire.Object) { setToken(meta, token) })
	})
}

// TokenOf returns the progress token that a request's params ask for, raw, or nil.
func TokenOf(params []byte) []byte { return nonNull(at(params, "_meta", "progressToken")) }

func nonNull(raw []byte) []byte {
	if isNull(raw) {
		return nil
	}
	return raw
}

// LevelOf returns the log level that a modern request's params ask for, "" where they do not.
func LevelOf(params []byte) string { return text(at(params, "_meta", MetaLevel)) }

// ProgressToken returns the token of a notifications/progress, raw, or nil.
func ProgressToken(params []byte) []byte { return nonNull(at(params, "progressToken")) }

// WithProgressToken returns the params of a notifications/progress with another token.
func WithProgressToken(params, token []byte) []byte {
	return editParams(params, func(o *wire.Object) { o.Set("progressToken", token) })
}

// CancelledID returns the request that a notifications/cancelled names, "" where it names none.
func CancelledID(params []byte) wire.ID { return wire.ID(nonNull(at(params, "requestId"))) }

// WithRequestID returns the params of a notifications/cancelled that names another request.
func WithRequestID(params []byte, id wire.ID) []byte {
	return editParams(params, func(o *wire.Object) { o.Set("requestId", []byte(id)) })
}

// CancelReason returns the reason of a notifications/cancelled, raw, or nil.
func CancelReason(params []byte) []byte { return at(params, "reason") }

// URIOf returns the uri in params: of a subscribe, an unsubscribe or an update.
func URIOf(params []byte) (uri string, ok bool) { return wire.String(at(params, "uri")) }

// ToolName returns the name in the params of a tools/call.
func ToolName(params []byte) (name string, ok bool) { return wire.String(at(params, "name")) }

// MessageLevel returns the level of a notifications/message.
func MessageLevel(params []byte) string { return text(at(params, "level")) }

// SubscriptionOf returns the listen that a modern notification belongs to, "" where it belongs to none.
func SubscriptionOf(params []byte) wire.ID {
	return wire.ID(nonNull(at(params, "_meta", MetaSubscription)))
}

// ElicitationID returns the id in the params of a notifications/elicitation/complete.
func ElicitationID(params []byte) string { return text(at(params, "elicitationId")) }

// InputResponses returns what a modern retry answers to the inputs it was asked for. ok is false where it is
// no such retry.
func InputResponses(params []byte) (responses []KeyedResult, ok bool) {
	o, err := wire.ParseObject(at(params, "inputResponses"))
	if err != nil {
		return nil, false
	}
	for _, m := range o.Members() {
		responses = append(responses, KeyedResult{Key: m.Key, Result: m.Value})
	}
	return responses, len(responses) > 0
}

// RequestState returns the requestState of a modern retry, "" where there is none.
func RequestState(params []byte) string { return text(at(params, "requestState")) }

// Binding identifies what a request asks for, apart from its _meta and from what a retry adds. A request and
// its retry have the same, whatever the order in which the client wrote their members.
func Binding(method string, params []byte) [sha256.Size]byte {
	o := object(params)
	for _, key := range []string{"_meta", "inputResponses", "requestState"} {
		o.Delete(key)
	}
	return sha256.Sum256(appendCanonical(wire.Quote(method), o.Bytes(), canonicalDepth))
}

// canonicalDepth is how deep members are sorted. Each level reads what is below it again, so that without a bound
// a message nested as deep as it may be would take a thousand times as long as another. What lies deeper must
// come back as it was written.
const canonicalDepth = 16

// appendCanonical appends raw with its members sorted and its strings written in one way.
func appendCanonical(dst, raw []byte, depth int) []byte {
	switch {
	case depth == 0:
		return append(dst, raw...)
	case isObject(raw):
		members := slices.Clone(object(raw).Members())
		slices.SortStableFunc(members, func(a, b wire.Member) int { return strings.Compare(a.Key, b.Key) })
		dst = append(dst, '{')
		for _, m := range members {
			dst = append(append(dst, wire.Quote(m.Key)...), ':')
			dst = append(appendCanonical(dst, m.Value, depth-1), ',')
		}
		return append(dst, '}')
	case len(raw) > 0 && raw[0] == '[':
		elems, _ := wire.Elements(raw) // of an array that was parsed with its message
		dst = append(dst, '[')
		for _, e := range elems {
			dst = append(appendCanonical(dst, e, depth-1), ',')
		}
		return append(dst, ']')
	case len(raw) > 0 && raw[0] == '"':
		return append(dst, wire.Quote(text(raw))...)
	default:
		return append(dst, raw...)
	}
}
