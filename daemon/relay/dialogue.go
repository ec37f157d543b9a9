package relay

import (
	"strconv"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// maxQuestions bounds what one backend call may have asked and not got answered.
const maxQuestions = 64

// question is a request of a legacy backend that a modern client gets to see as
// an entry of inputRequests.
type question struct {
	key    string
	server wire.ID // the backend's id
	input  era.Input
}

// reply is what to answer the backend.
type reply struct {
	server wire.ID
	result []byte
	err    *wire.Error
}

// dialogue is one call of a modern client that runs on a legacy backend, which
// asks by requests of its own (ERAS C.7): the client's request is answered with
// input_required, the call on the backend stays parked, and the client's retry
// takes its place. It is pure: it knows neither time nor ids of requests.
type dialogue struct {
	open []question
	keys int
	// attached says that a request of the client waits for the call.
	attached bool
}

// ask adds a question of the backend. It reports false if there are too many.
func (d *dialogue) ask(server wire.ID, in era.Input) bool {
	if len(d.open) >= maxQuestions {
		return false
	}
	d.keys++
	in.Key = "i" + strconv.Itoa(d.keys)
	d.open = append(d.open, question{key: in.Key, server: server, input: in})
	return true
}

// withdraw forgets a question that the backend took back.
func (d *dialogue) withdraw(server wire.ID) bool {
	for i, q := range d.open {
		if q.server == server {
			d.open = append(d.open[:i], d.open[i+1:]...)
			return true
		}
	}
	return false
}

// due reports whether the waiting request has to be answered with
// input_required.
func (d *dialogue) due() bool { return d.attached && len(d.open) > 0 }

// detach returns the open questions for input_required; no request waits from
// now on.
func (d *dialogue) detach() []era.Input {
	d.attached = false
	inputs := make([]era.Input, len(d.open))
	for i, q := range d.open {
		inputs[i] = q.input
	}
	return inputs
}

// retry attaches a request that brings responses and returns what to answer the
// backend. Responses to questions that are not open (any more) are dropped.
func (d *dialogue) retry(responses []era.KeyedResult) []reply {
	d.attached = true
	var replies []reply
	for _, response := range responses {
		for i, q := range d.open {
			if q.key == response.Key {
				replies = append(replies, reply{server: q.server, result: response.Result})
				d.open = append(d.open[:i], d.open[i+1:]...)
				break
			}
		}
	}
	return replies
}

// close forgets the open questions: the call they belong to is over.
func (d *dialogue) close() { d.open = nil }

// abandon returns what to answer to the open questions when nobody will.
func (d *dialogue) abandon() []reply {
	replies := make([]reply, len(d.open))
	for i, q := range d.open {
		replies[i] = declined(q.server, q.input.Method)
	}
	d.open = nil
	return replies
}

// declined is the answer to a question of the backend that nobody will answer:
// for an elicitation the protocol has a word for it.
func declined(server wire.ID, method string) reply {
	if method == methodElicit {
		return reply{server: server, result: []byte(`{"action":"cancel"}`)}
	}
	return refuseQuestion(server, "the client is gone or has cancelled")
}

// refuseQuestion answers a question with an error.
func refuseQuestion(server wire.ID, message string) reply {
	return reply{server: server, err: &wire.Error{Code: wire.CodeInternal, Message: message}}
}
