package relay

import (
	"bytes"

	"github.com/debugmcp/devproxy/daemon/era"
)

// handshake is what a client was told in the handshake of an era.
type handshake struct {
	asked  string
	facts  era.Facts
	result []byte
	known  bool // not the superset that is told before any backend is known
}

// facts returns what there is to say of the backend to a client of that era.
func (r *Router) facts(e era.Era) (facts era.Facts, known bool) {
	if facts, ok := r.config.Facts(e); ok {
		return facts, true
	}
	return era.Superset(), false
}

// initialize answers the legacy handshake. It starts nothing.
func (r *Router) initialize(call *call) {
	c := call.client
	c.said.Initialized = true
	c.said.Peer = cloned(call.req.Peer)
	c.peer = c.said.Peer
	asked, _ := memberString(call.req.Params, "protocolVersion")
	r.tell(call, short(asked))
	r.publishGreeting()
}

// cloned returns a peer that does not hold on to the frame it came in.
func cloned(p era.Peer) era.Peer {
	p.Info, p.Capabilities = bytes.Clone(p.Info), bytes.Clone(p.Capabilities)
	return p
}

// discover answers the modern handshake. It starts nothing.
func (r *Router) discover(call *call) { r.tell(call, "") }

// tell answers a handshake, and remembers how.
func (r *Router) tell(call *call, asked string) {
	facts, known := r.facts(call.req.Source)
	result := call.front.Handshake(facts, asked)
	call.client.told[call.req.Source] = handshake{asked: asked, facts: facts, result: result, known: known}
	r.publishPeer(call.client)
	r.succeed(call, result)
}

// initialized ends the legacy handshake: from now on the client may be sent
// what it has not asked for.
func (r *Router) initialized(c *client) {
	if !c.said.Initialized || c.ready {
		return
	}
	c.ready = true
	if l := r.linkNow(c); l != nil && l.state == linkOpen {
		r.openLists(l)
		r.pursue(l)
	}
	if c.session.shim.Resumed && r.backend.serves() {
		// Its lists may be those of another daemon's backend.
		r.announce(c)
	}
	r.seekersMayAsk()
}

// stale says what of a client's handshakes no longer holds.
func (r *Router) stale(c *client) string {
	if !r.backend.serves() {
		return ""
	}
	for e, told := range c.told {
		facts, known := r.facts(e)
		if !known || bytes.Equal(r.front(e).Handshake(facts, told.asked), told.result) {
			continue
		}
		if !told.known {
			return "connected before anything was known of the backend, and was told that it has every capability"
		}
		return "was told capabilities, name or instructions that the backend has changed since"
	}
	return ""
}

// toldHas reports whether a client was told of a capability.
func (c *client) toldHas(e era.Era, capability string) bool {
	told, ok := c.told[e]
	return ok && told.facts.Has(capability)
}
