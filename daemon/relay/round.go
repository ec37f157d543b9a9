package relay

import (
	"github.com/debugmcp/devproxy/daemon/era"
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
