package era

import (
	"errors"

	"github.com/debugmcp/devproxy/internal/wire"
)

// errNoInput says that an input_required result asks for nothing.
var errNoInput = errors.New("the backend asks for input without saying which")

// parseInputs reads what an input_required result asks for. It may ask for nothing but a retry with its state.
func parseInputs(result *wire.Object) ([]Input, error) {
	requests, err := wire.ParseObject(nonNull(result.Get("inputRequests")))
	if err != nil {
		return nil, errors.New("the input requests of the backend are no object")
	}
	if requests.Len() == 0 && nonNull(result.Get("requestState")) == nil {
		return nil, errNoInput
	}
	var inputs []Input
	for _, m := range requests.Members() {
		request := object(m.Value)
		method, ok := wire.String(request.Get("method"))
		if !ok {
			return nil, errors.New("an input request of the backend has no method")
		}
		inputs = append(inputs, Input{Key: m.Key, Method: method, Params: nonNull(request.Get("params"))})
	}
	return inputs, nil
}

// inputRequests is the inverse of parseInputs, for inputs that a legacy backend asked for by requests. Members
// go that exist only in requests: their _meta, and the elicitationId that completes by a notification. There are
// always params: the Go SDK's client (1.8.0) fails on an input request without, which is how roots are asked for.
func inputRequests(inputs []Input) []byte {
	var requests wire.Object
	for _, in := range inputs {
		var request wire.Object
		request.Set("method", wire.Quote(in.Method))
		params := editParams(in.Params, func(o *wire.Object) {
			o.Delete("_meta")
			if in.Method == methodElicit {
				o.Delete("elicitationId")
			}
		})
		if params == nil {
			params = []byte("{}")
		}
		request.Set("params", params)
		requests.Set(in.Key, request.Bytes())
	}
	return requests.Bytes()
}

// URLElicitation is one of the things for which an error -32042 sends the user to a web page.
type URLElicitation struct {
	ID     string // as in the notifications/elicitation/complete that may follow
	Params []byte // of an elicitation/create in url mode
}

// Input returns the elicitation as an input under a key.
func (u URLElicitation) Input(key string) Input {
	return Input{Key: key, Method: methodElicit, Params: u.Params}
}

// URLElicitations returns what an error -32042 asks for, nil where it is another error or a malformed one.
func URLElicitations(e *wire.Error) []URLElicitation {
	if e == nil || e.Code != CodeURLElicitation {
		return nil
	}
	elems, _ := wire.Elements(at(e.Data, "elicitations")) // what is no array has none
	var out []URLElicitation
	for _, elem := range elems {
		params, err := wire.ParseObject(elem)
		if err != nil {
			return nil
		}
		if _, ok := wire.String(params.Get("url")); !ok {
			return nil
		}
		if text(params.Get("mode")) != "url" {
			params.Set("mode", []byte(`"url"`))
		}
		if _, ok := wire.String(params.Get("message")); !ok {
			params.Set("message", wire.Quote(e.Message))
		}
		out = append(out, URLElicitation{ID: text(params.Get("elicitationId")), Params: params.Bytes()})
	}
	return out
}
