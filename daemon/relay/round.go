package relay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// maxRounds is how often a modern backend may answer one call with
// input_required: what its own shim for legacy clients allows (ERAS C.8).
const maxRounds = 8

// round is one call of a legacy client that runs on a modern backend, which
// answers input_required instead of asking (ERAS C.8): every entry becomes a
// request to the client, and when all are answered the call is made again. It is
// pure.
type round struct {
	count   int
	inputs  []era.Input
	answers map[string][]byte
	state   []byte
}

// begin takes an input_required result. It reports false if there were too many.
func (r *round) begin(inputs []era.Input, state []byte) bool {
	r.count++
	r.inputs, r.state = inputs, state
	r.answers = make(map[string][]byte, len(inputs))
	return r.count <= maxRounds
}

// answer takes the client's result for one entry and reports whether that was
// the last one.
func (r *round) answer(key string, result []byte) (complete bool) {
	r.answers[key] = result
	return r.complete()
}

func (r *round) complete() bool { return len(r.answers) >= len(r.inputs) }

// responses returns the answers in the order of the entries.
func (r *round) responses() []era.KeyedResult {
	var all []era.KeyedResult
	for _, in := range r.inputs {
		if result, ok := r.answers[in.Key]; ok {
			all = append(all, era.KeyedResult{Key: in.Key, Result: result})
		}
	}
	return all
}

// startRound asks a legacy client for what a modern backend wants for its call.
func (r *Router) startRound(l *link, call *call, res era.Result) {
	if call.round == nil {
		call.round = new(round)
	}
	if !call.round.begin(res.Inputs, res.State) {
		r.inputFailed(call, "the server asked for input too often")
		return
	}
	if len(res.Inputs) > maxQuestions {
		r.inputFailed(call, tooManyInputs(len(res.Inputs)))
		return
	}
	for _, in := range res.Inputs {
		if err := call.req.Peer.Can(in.Method, in.Params); err != nil {
			r.inputFailed(call, err.Error())
			return
		}
	}
	call.stage, call.link = callAsking, l
	l.asking[call] = struct{}{}
	if len(res.Inputs) == 0 {
		call.pause = r.agenda.after(pollAfter, func() { r.again(call) })
		return
	}
	for _, in := range res.Inputs {
		a := &ask{id: r.mintID(), client: call.client, method: in.Method, call: call, key: in.Key}
		if !r.sendAsk(a, call.front.Ask(in, r.mintName())) {
			r.withdrawRound(call, nil)
			r.inputFailed(call, "the server's request for input is larger than [proxy] max_message allows")
			return
		}
	}
}

func tooManyInputs(n int) string {
	return fmt.Sprintf("the server asked for %d inputs at once, and no more than %d may be", n, maxQuestions)
}

// roundAnswered takes one of the client's answers.
func (r *Router) roundAnswered(a *ask, m wire.Message) {
	call := a.call
	if m.Kind == wire.Failure {
		r.withdrawRound(call, nil)
		r.inputFailed(call, a.method+": "+errorOf(m).Message)
		return
	}
	if len(m.Result) == 0 || m.Result[0] != '{' {
		r.withdrawRound(call, nil)
		r.inputFailed(call, a.method+": the client's answer is no object")
		return
	}
	if call.round.answer(a.key, m.Result) {
		r.again(call)
	}
}

// again makes a call again with the inputs that were asked for.
func (r *Router) again(call *call) {
	l := call.link
	delete(l.asking, call)
	call.pause = nil
	if l.state != linkOpen {
		r.loseCall(call, Failure{Reason: ReasonLinkFailed, State: r.backend.state(), Generation: l.generation})
		return
	}
	lg := r.newLeg(call, l)
	params := l.back.Retry(call.req, token(call, lg), call.round.responses(), call.round.state)
	r.requestBackend(l, lg.id, call.client, call.req.Method, params, call.req.Peer)
}

// withdrawRound ends what a client is being asked for a call.
func (r *Router) withdrawRound(call *call, reason []byte) {
	delete(call.link.asking, call)
	r.agenda.stop(call.pause)
	call.pause = nil
	for _, id := range slices.Sorted(maps.Keys(call.client.asks)) {
		if a := call.client.asks[id]; a.call == call {
			r.withdraw(a, reason)
		}
	}
	call.stage = callHere
}

// inputFailed answers a call whose backend does not get what it asked for, as
// the TypeScript server's own shim for legacy clients does.
func (r *Router) inputFailed(call *call, text string) {
	call.stage = callHere
	if call.req.Method == methodToolsCall {
		r.succeed(call, call.front.ToolResult(text, true, nil))
		return
	}
	r.fail(call, &wire.Error{Code: wire.CodeInternal, Message: text})
}
