package era

import "github.com/debugmcp/devproxy/internal/wire"

type frontLegacy struct{}

func (frontLegacy) Era() Era { return Legacy }

func (frontLegacy) Handshake(f Facts, asked string) []byte {
	o := handshakeBase(f, Legacy)
	o.Set("protocolVersion", wire.Quote(Negotiate(asked)))
	o.Set("capabilities", f.forClients(Legacy))
	o.Set("serverInfo", orUnknown(f.Info))
	if f.Instructions != nil {
		o.Set("instructions", f.Instructions)
	}
	return o.Bytes()
}

// handshakeBase returns the result that a backend gave to the same handshake, as far as there is one.
func handshakeBase(f Facts, e Era) *wire.Object {
	if f.Era == e {
		return object(f.Raw)
	}
	return &wire.Object{}
}

func (front frontLegacy) Result(req Request, res Result, shapes Shapes) []byte {
	if res.Source != Modern {
		return res.Raw
	}
	if res.Kind != Complete {
		return front.incomplete(req, res)
	}
	o, err := wire.ParseObject(res.Raw)
	if err != nil {
		return res.Raw
	}
	o.Delete("resultType")
	if isCacheable(req.Method) {
		o.Delete("ttlMs")
		o.Delete("cacheScope")
	}
	editMeta(o, func(meta *wire.Object) { meta.Delete(MetaServerInfo) })
	switch req.Method {
	case methodToolsList:
		wrapTools(o, shapes)
	case methodToolsCall:
		name, _ := ToolName(req.Params)
		wrapStructured(o, shapes[name])
	}
	return o.Bytes()
}

// incomplete stands in for a result that should not have come this far: a task of an extension that was not
// declared, or a question that was not asked. A tool says so, anything else gives what is left of it.
func (front frontLegacy) incomplete(req Request, res Result) []byte {
	if req.Method == methodToolsCall {
		reason := "The server asked for more input, which could not be given."
		if res.Kind == Task {
			reason = "The server answered with a task of an extension that this client's protocol version does not have."
		}
		return front.ToolResult(reason, true, nil)
	}
	o := object(res.Raw)
	for _, key := range []string{"resultType", "inputRequests", "requestState"} {
		o.Delete(key)
	}
	editMeta(o, func(meta *wire.Object) { meta.Delete(MetaServerInfo) })
	return o.Bytes()
}

func (frontLegacy) Failure(req Request, source Era, e *wire.Error) (result []byte, err *wire.Error) {
	if source != Modern {
		return nil, e
	}
	switch e.Code {
	case CodeMissingCapability:
		if req.Method == methodToolsCall {
			return failedTool(e).Bytes(), nil
		}
		return nil, internal(e)
	case CodeUnsupportedVersion, CodeHeaderMismatch:
		return nil, internal(e)
	default:
		return nil, e
	}
}

// internal is an error that concerns devproxy and the backend, as far as it concerns the client.
func internal(e *wire.Error) *wire.Error {
	return &wire.Error{Code: wire.CodeInternal, Message: e.Message, Data: e.Data}
}

func (frontLegacy) OwnFailure(req Request, e *wire.Error) (result []byte, err *wire.Error) {
	if req.Method == methodToolsCall {
		return failedTool(e).Bytes(), nil
	}
	return nil, e
}

func (frontLegacy) Empty(method string) (result []byte, ok bool) {
	o := emptyList(method)
	if o == nil {
		return nil, false
	}
	return o.Bytes(), true
}

// Ack is empty to the last member: the TypeScript client 1.32.2 takes nothing else.
func (frontLegacy) Ack() []byte { return []byte("{}") }

func (frontLegacy) ListenAck(wire.ID, Filter) []byte { return nil }

func (frontLegacy) ListenEnd(wire.ID) []byte { return nil }

func (frontLegacy) Notification(source Era, method string, params []byte, _ wire.ID) (out []byte, ok bool) {
	if source != Modern {
		return params, true
	}
	switch method {
	case noteAcknowledged, noteCancelled, noteElicited, noteTasks:
		return nil, false // about our own listens, or of an extension
	default:
		return editParams(params, func(o *wire.Object) {
			editMeta(o, func(meta *wire.Object) { meta.Delete(MetaSubscription) })
		}), true
	}
}

func (frontLegacy) InputRequired([]Input, string) []byte { return nil }

func (frontLegacy) Ask(in Input, elicitationID string) []byte {
	if in.Method != methodElicit || text(at(in.Params, "mode")) != "url" {
		return in.Params
	}
	return editParams(in.Params, func(o *wire.Object) { o.Set("elicitationId", wire.Quote(elicitationID)) })
}

func (frontLegacy) ToolResult(message string, isError bool, structured []byte) []byte {
	return toolResult(message, isError, structured).Bytes()
}
