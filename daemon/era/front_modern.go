package era

import "github.com/debugmcp/devproxy/internal/wire"

type frontModern struct{ offer Offer }

func (frontModern) Era() Era { return Modern }

func (front frontModern) Handshake(f Facts, _ string) []byte {
	o := handshakeBase(f, Modern)
	versions := [][]byte{}
	for _, v := range front.offer.Versions() {
		versions = append(versions, wire.Quote(v))
	}
	o.Set("supportedVersions", wire.JoinArray(versions))
	o.Set("capabilities", f.forClients(Modern))
	if f.Instructions != nil {
		o.Set("instructions", f.Instructions)
	}
	o.Set("ttlMs", []byte("0"))
	stamp(o, methodDiscover)
	stampServer(o, f.Info)
	return o.Bytes()
}

// stamp gives a result what the TypeScript client demands of it, which is more than the specification does: it
// allows "absent" for all of these.
func stamp(o *wire.Object, method string) {
	o.Set("resultType", []byte(`"complete"`))
	if isCacheable(method) {
		if isList(method) || !isTTL(o.Get("ttlMs")) {
			o.Set("ttlMs", []byte("0"))
		}
		if scope := text(o.Get("cacheScope")); scope != "private" && scope != "public" {
			o.Set("cacheScope", []byte(`"private"`))
		}
	}
	if method == methodToolsCall && nonNull(o.Get("content")) == nil {
		o.Set("content", []byte("[]"))
	}
	if isNull(o.Get("nextCursor")) {
		o.Delete("nextCursor")
	}
}

// isTTL tells a valid ttlMs. A fractional one is a decoding error for the Go SDK's client.
func isTTL(raw []byte) bool {
	for _, c := range raw {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(raw) > 0
}

func stampServer(o *wire.Object, info []byte) {
	if !isObject(info) {
		return
	}
	editMeta(o, func(meta *wire.Object) {
		if !meta.Has(MetaServerInfo) {
			meta.Set(MetaServerInfo, orUnknown(info))
		}
	})
}

func (front frontModern) Result(req Request, res Result, _ Shapes) []byte {
	typed := res.Source == Modern && !res.Untyped
	if typed && !isList(req.Method) {
		return res.Raw
	}
	o, err := wire.ParseObject(res.Raw)
	if err != nil {
		return res.Raw
	}
	if typed {
		return withoutTTL(o)
	}
	stamp(o, req.Method)
	stampServer(o, res.ServerInfo)
	return o.Bytes()
}

// withoutTTL keeps a client from serving yesterday's list out of its cache: both SDK clients do for as long as
// ttlMs says, and what is under development changes sooner.
func withoutTTL(o *wire.Object) []byte {
	if ttl := o.Get("ttlMs"); ttl != nil && string(ttl) != "0" {
		o.Set("ttlMs", []byte("0"))
	}
	return o.Bytes()
}

func (frontModern) Failure(_ Request, _ Era, e *wire.Error) (result []byte, err *wire.Error) {
	switch e.Code {
	case CodeResourceNotFound:
		return nil, &wire.Error{Code: wire.CodeInvalidParams, Message: e.Message, Data: e.Data}
	case CodeURLElicitation:
		return nil, &wire.Error{
			Code:    CodeMissingCapability,
			Message: e.Message,
			Data:    []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`),
		}
	case CodeUnsupportedVersion, CodeHeaderMismatch:
		return nil, internal(e)
	default:
		return nil, e
	}
}

func (frontModern) OwnFailure(req Request, e *wire.Error) (result []byte, err *wire.Error) {
	if req.Method != methodToolsCall {
		return nil, e
	}
	o := failedTool(e)
	stamp(o, methodToolsCall)
	return o.Bytes(), nil
}

func (frontModern) Empty(method string) (result []byte, ok bool) {
	o := emptyList(method)
	if o == nil {
		return nil, false
	}
	stamp(o, method)
	return o.Bytes(), true
}

func (frontModern) Ack() []byte { return []byte(`{"resultType":"complete"}`) }

func (frontModern) ListenAck(sub wire.ID, honoured Filter) []byte {
	var o wire.Object
	o.Set("notifications", honoured.Bytes())
	return stampSubscription(&o, sub)
}

func (frontModern) ListenEnd(sub wire.ID) []byte {
	var o wire.Object
	o.Set("resultType", []byte(`"complete"`))
	return stampSubscription(&o, sub)
}

func stampSubscription(o *wire.Object, sub wire.ID) []byte {
	editMeta(o, func(meta *wire.Object) { meta.Set(MetaSubscription, []byte(sub)) })
	return o.Bytes()
}

func (frontModern) Notification(source Era, method string, params []byte, sub wire.ID) (out []byte, ok bool) {
	switch method {
	case noteAcknowledged, noteCancelled, noteElicited, noteTaskStatus:
		return nil, false // ours, or not of this era
	}
	if IsChange(method) && sub == "" || source != Modern && method == noteTasks {
		return nil, false
	}
	return editParams(params, func(o *wire.Object) {
		editMeta(o, func(meta *wire.Object) {
			if sub != "" {
				meta.Set(MetaSubscription, []byte(sub))
			} else {
				meta.Delete(MetaSubscription) // names a listen of ours
			}
		})
	}), true
}

func (frontModern) InputRequired(inputs []Input, state string) []byte {
	var o wire.Object
	o.Set("resultType", []byte(`"input_required"`))
	o.Set("inputRequests", inputRequests(inputs))
	o.Set("requestState", wire.Quote(state))
	return o.Bytes()
}

func (frontModern) Ask(Input, string) []byte { return nil }

func (frontModern) ToolResult(message string, isError bool, structured []byte) []byte {
	o := toolResult(message, isError, structured)
	stamp(o, methodToolsCall)
	return o.Bytes()
}
