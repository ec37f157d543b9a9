package relay

import (
	"fmt"
	"strconv"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// urlRound is a call of a modern client that a legacy backend refused with
// -32042 until the user has visited some pages (ERAS C.7, step 9).
type urlRound struct {
	count    int
	open     []string        // elicitation ids asked for, by the position of their key
	accepted map[string]bool // what the user said to those asked for before
	waits    map[string]struct{}
	waited   map[string]struct{} // those whose completion was awaited once
}

// urlRequired takes a -32042.
func (r *Router) urlRequired(l *link, call *call, e *wire.Error) {
	elicitations := era.URLElicitations(e)
	if call.urls == nil {
		call.urls = &urlRound{
			accepted: make(map[string]bool), waits: make(map[string]struct{}), waited: make(map[string]struct{}),
		}
	}
	u := call.urls
	u.count++
	if len(elicitations) == 0 || !takesInput(call.req.Method) ||
		call.req.Peer.Can(methodElicit, elicitations[0].Params) != nil {
		r.failTranslated(call, l.facts.Era, e)
		return
	}
	if len(elicitations) > maxQuestions {
		r.inputFailed(call, tooManyInputs(len(elicitations)))
		return
	}
	if u.count > maxRounds {
		r.inputFailed(call, "the server asked for the same pages too often")
		return
	}
	for _, el := range elicitations {
		accepted, known := u.accepted[el.ID]
		_, waited := u.waited[el.ID]
		switch {
		case !known || el.ID == "":
		case !accepted:
			r.inputFailed(call, "the user did not agree to open the page that the server needs: "+e.Message)
			return
		case waited:
			r.inputFailed(call, "the page that the server needs was not completed: "+e.Message)
			return
		default:
			u.waits[el.ID] = struct{}{}
		}
	}
	if len(u.waits) > 0 {
		r.awaitURL(l, call)
		return
	}
	if r.unfinished(call.client) >= maxUnfinished {
		r.failOwn(call, Failure{
			Reason: ReasonTooManyOpen, State: r.backend.state(), Generation: r.backend.number,
			Message: fmt.Sprintf("%d requests of this client wait for input that it was asked for, and no more may", maxUnfinished),
		})
		return
	}
	u.open = nil
	inputs := make([]era.Input, len(elicitations))
	for i, el := range elicitations {
		u.open = append(u.open, el.ID)
		inputs[i] = el.Input(urlKey(i))
	}
	binding := era.Binding(call.req.Method, call.req.Params)
	state := r.mintState(&pending{client: call.client, binding: binding, urls: u})
	r.succeed(call, call.front.InputRequired(inputs, state))
}

func urlKey(i int) string { return "u" + strconv.Itoa(i+1) }

// retryAfterURL makes the call anew, now that the client has answered.
func (r *Router) retryAfterURL(call *call, u *urlRound) {
	responses, _ := era.InputResponses(call.req.Params)
	for i, id := range u.open {
		for _, response := range responses {
			if response.Key == urlKey(i) {
				action, _ := memberString(response.Result, "action")
				u.accepted[id] = action == "accept"
			}
		}
	}
	call.urls = u
	call.req.Params = withoutRetry(call.req.Params)
	call.params = readParams(call.req)
	r.forward(call)
}

// withoutRetry returns params without what makes a request a retry.
func withoutRetry(params []byte) []byte {
	o, err := wire.ParseObject(params)
	if err != nil {
		return params
	}
	o.Delete("inputResponses")
	o.Delete("requestState")
	return o.Bytes()
}

// awaitURL waits for the word that the pages are done, for a while, and then
// makes the call again.
func (r *Router) awaitURL(l *link, call *call) {
	call.stage, call.link = callAsking, l
	l.asking[call] = struct{}{}
	call.pause = r.agenda.after(urlWait, func() { r.urlsDone(call) })
}

func (r *Router) urlsDone(call *call) {
	for id := range call.urls.waits {
		call.urls.waited[id] = struct{}{}
	}
	clear(call.urls.waits)
	delete(call.link.asking, call)
	r.agenda.stop(call.pause)
	call.pause, call.stage = nil, callHere
	r.forward(call)
}

// elicitationComplete takes the word that a page is done: for a call that waits
// for it, or for the legacy client that was sent there.
func (r *Router) elicitationComplete(l *link, m wire.Message) {
	id := era.ElicitationID(m.Params)
	for _, call := range sortedCalls(l.asking) {
		if call.urls == nil {
			continue
		}
		if _, waits := call.urls.waits[id]; waits {
			delete(call.urls.waits, id)
			call.urls.waited[id] = struct{}{}
			if len(call.urls.waits) == 0 {
				r.urlsDone(call)
			}
		}
	}
	if l.facts.Era != era.Legacy {
		return
	}
	c := l.owner
	if c == nil {
		c = l.owners.elicitations.owner(id)
	}
	if c != nil && r.sessions[c.session] == c {
		r.tellLegacy(c, era.Legacy, m.Method, m.Params)
	}
}
