package era

import (
	"errors"
	"fmt"

	"github.com/debugmcp/devproxy/internal/wire"
)

type backLegacy struct{}

func (backLegacy) Era() Era { return Legacy }

func (backLegacy) HandshakeRequest(p Peer) (method string, params []byte) {
	version := LegacyVersion
	if p.Era == Legacy {
		version = Negotiate(p.Version)
	}
	var o wire.Object
	o.Set("protocolVersion", wire.Quote(version))
	o.Set("capabilities", p.forLegacyBackend())
	o.Set("clientInfo", orUnknown(p.Info))
	return methodInitialize, o.Bytes()
}

// ParseHandshake takes any version of the era, also such as devproxy would not offer itself.
func (backLegacy) ParseHandshake(result []byte) (Facts, error) {
	o, err := wire.ParseObject(result)
	if err != nil {
		return Facts{}, fmt.Errorf("reading the result of initialize: %w", err)
	}
	version, ok := wire.String(o.Get("protocolVersion"))
	if !ok {
		return Facts{}, errors.New("reading the result of initialize: it names no protocolVersion")
	}
	f := Facts{
		Era:          Legacy,
		Eras:         []Era{Legacy},
		Versions:     []string{version},
		Capabilities: onlyObject(o.Get("capabilities")),
		Info:         onlyObject(o.Get("serverInfo")),
		Instructions: onlyString(o.Get("instructions")),
		Raw:          result,
	}
	if e, _ := Of(version); e != Legacy {
		return f, fmt.Errorf("the backend answered initialize with version %q: %w", version, ErrVersion)
	}
	f.Version = version
	return f, nil
}

func onlyString(raw []byte) []byte {
	if _, ok := wire.String(raw); ok {
		return raw
	}
	return nil
}

func (backLegacy) Ready() (m wire.Message, ok bool) {
	return wire.NewNotification(noteInitialized, nil), true
}

func (backLegacy) Refusal(req Request) *wire.Error {
	if req.Source == Modern && isTasks(req.Method) {
		return methodNotFound()
	}
	return nil
}

func (backLegacy) Request(req Request, token int64) []byte {
	if req.Source != Modern {
		return withToken(req, token)
	}
	return editParams(req.Params, func(o *wire.Object) {
		if asksForInput(req.Method) {
			o.Delete("inputResponses")
			o.Delete("requestState")
		}
		if req.Method == methodToolsCall {
			o.Delete("task")
		}
		editMeta(o, func(meta *wire.Object) {
			stripEnvelope(meta)
			setToken(meta, token)
		})
	})
}

func stripEnvelope(meta *wire.Object) {
	for _, key := range []string{MetaVersion, MetaInfo, MetaCapabilities, MetaLevel} {
		meta.Delete(key)
	}
}

func (back backLegacy) Retry(req Request, token int64, _ []KeyedResult, _ []byte) []byte {
	return back.Request(req, token)
}

func (backLegacy) Result(_ string, raw []byte) (Result, error) {
	return Result{Raw: raw, Source: Legacy}, nil
}

func (backLegacy) Notification(source Era, method string, params []byte) (out []byte, ok bool) {
	switch method {
	case noteCancelled, noteInitialized:
		return nil, false
	case noteRootsChanged, noteProgress:
		return params, source != Modern
	}
	if source != Modern {
		return params, true
	}
	return editParams(params, func(o *wire.Object) { editMeta(o, stripEnvelope) }), true
}

func (backLegacy) Cancel(id int64, reason []byte) wire.Message { return cancel(id, reason) }

func cancel(id int64, reason []byte) wire.Message {
	var o wire.Object
	o.Set("requestId", []byte(wire.IntID(id)))
	if reason = onlyString(reason); reason != nil {
		o.Set("reason", reason)
	}
	return wire.NewNotification(noteCancelled, o.Bytes())
}

func (backLegacy) Subscribe(_ Peer, uri string) Call {
	return Call{Method: methodSubscribe, Params: oneMember("uri", uri)}
}

func (backLegacy) Unsubscribe(uri string) (c Call, ok bool) {
	return Call{Method: methodUnsubscribe, Params: oneMember("uri", uri)}, true
}

func (backLegacy) Listen(Peer, Filter) (c Call, ok bool) { return Call{}, false }

func (backLegacy) SetLevel(level string) (c Call, ok bool) {
	return Call{Method: methodSetLevel, Params: oneMember("level", level)}, true
}

func oneMember(key, value string) []byte {
	var o wire.Object
	o.Set(key, wire.Quote(value))
	return o.Bytes()
}
