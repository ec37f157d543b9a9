package era

import (
	"fmt"

	"github.com/debugmcp/devproxy/internal/wire"
)

type backModern struct{}

func (backModern) Era() Era { return Modern }

func (backModern) HandshakeRequest(p Peer) (method string, params []byte) {
	var o wire.Object
	setEnvelope(&o, p, "")
	return methodDiscover, o.Bytes()
}

// setEnvelope gives a request's params the _meta that every modern request must have.
func setEnvelope(o *wire.Object, p Peer, level string) {
	editMeta(o, func(meta *wire.Object) { envelope(meta, p, level) })
}

func envelope(meta *wire.Object, p Peer, level string) {
	meta.Set(MetaVersion, wire.Quote(ModernVersion))
	if p.Info != nil {
		meta.Set(MetaInfo, orUnknown(p.Info))
	}
	meta.Set(MetaCapabilities, p.forModernBackend())
	if level != "" {
		meta.Set(MetaLevel, wire.Quote(level))
	} else {
		meta.Delete(MetaLevel)
	}
}

func (backModern) ParseHandshake(result []byte) (Facts, error) {
	o, err := wire.ParseObject(result)
	if err != nil {
		return Facts{}, fmt.Errorf("reading the result of server/discover: %w", err)
	}
	versions := stringsOf(o.Get("supportedVersions"))
	f := Facts{
		Era:          Modern,
		Versions:     versions,
		Capabilities: onlyObject(o.Get("capabilities")),
		Info:         onlyObject(at(o.Get("_meta"), MetaServerInfo)),
		Instructions: onlyString(o.Get("instructions")),
		Raw:          result,
	}
	for _, e := range []Era{Modern, Legacy} {
		if _, ok := Mutual(versions, e); ok {
			f.Eras = append(f.Eras, e)
		}
	}
	version, ok := Mutual(versions, Modern)
	if !ok {
		return f, fmt.Errorf("the backend answered server/discover with versions %q: %w", versions, ErrVersion)
	}
	f.Version = version
	return f, nil
}

func (backModern) Ready() (m wire.Message, ok bool) { return wire.Message{}, false }

func (backModern) Refusal(req Request) *wire.Error {
	if req.Source == Modern {
		return nil
	}
	if isTasks(req.Method) {
		return methodNotFound()
	}
	// Without an object there is no place for the envelope.
	o, err := wire.ParseObject(req.Params)
	if err == nil {
		_, err = wire.ParseObject(o.Get("_meta"))
	}
	if err != nil {
		return &wire.Error{Code: wire.CodeInvalidParams, Message: "Invalid params: params and _meta must be objects"}
	}
	return nil
}

func (backModern) Request(req Request, token int64) []byte {
	if req.Source == Modern {
		return withToken(req, token)
	}
	return editParams(req.Params, func(o *wire.Object) {
		if req.Method == methodToolsCall {
			o.Delete("task")
		}
		editMeta(o, func(meta *wire.Object) {
			envelope(meta, req.Peer, req.Level)
			setToken(meta, token)
		})
	})
}

func (back backModern) Retry(req Request, token int64, responses []KeyedResult, state []byte) []byte {
	return editParams(back.Request(req, token), func(o *wire.Object) {
		o.Delete("inputResponses")
		o.Delete("requestState")
		if len(responses) > 0 {
			var keyed wire.Object
			for _, r := range responses {
				keyed.Set(r.Key, r.Result)
			}
			o.Set("inputResponses", keyed.Bytes())
		}
		if state != nil {
			o.Set("requestState", state)
		}
	})
}

func (backModern) Result(_ string, raw []byte) (Result, error) {
	res := Result{Raw: raw, Source: Modern}
	o, err := wire.ParseObject(raw)
	if err != nil {
		return res, nil // nothing to act upon
	}
	res.Untyped = nonNull(o.Get("resultType")) == nil
	switch text(o.Get("resultType")) {
	case "input_required":
		res.Kind = InputRequired
		res.State = nonNull(o.Get("requestState"))
		res.Inputs, err = parseInputs(o)
		return res, err
	case "task":
		res.Kind = Task
	}
	return res, nil
}

// HasResultType reports whether a result says what it is. A backend that took a modern request and does not is
// a legacy one that ignores the envelope, and must be asked for its era again.
func HasResultType(result []byte) bool { return nonNull(object(result).Get("resultType")) != nil }

func (backModern) Notification(_ Era, method string, params []byte) (out []byte, ok bool) {
	switch method {
	case noteCancelled, noteInitialized, noteProgress, noteRootsChanged:
		return nil, false // a modern server asks for the roots anew each time, and has no requests of its own
	default:
		return params, true
	}
}

func (backModern) Cancel(id int64, reason []byte) wire.Message { return cancel(id, reason) }

func (back backModern) Subscribe(p Peer, uri string) Call {
	return back.listen(p, Filter{URIs: []string{uri}})
}

func (backModern) Unsubscribe(string) (c Call, ok bool) { return Call{}, false }

func (back backModern) Listen(p Peer, f Filter) (c Call, ok bool) { return back.listen(p, f), true }

func (backModern) listen(p Peer, f Filter) Call {
	var o wire.Object
	o.Set("notifications", f.Bytes())
	setEnvelope(&o, p, "")
	return Call{Method: methodListen, Params: o.Bytes(), Open: true}
}

func (backModern) SetLevel(string) (c Call, ok bool) { return Call{}, false }
