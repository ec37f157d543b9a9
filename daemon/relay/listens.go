package relay

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// listen is an open subscriptions/listen of a modern client. It ends by the
// client's cancel or with the session, never with the backend.
type listen struct {
	client *client
	id     wire.ID
	number uint64     // of arrival
	filter era.Filter // what is or will be acknowledged
	// pending are the topics that the backend is being asked for; the
	// acknowledgement, which says what is honoured, waits for them.
	pending map[topic]struct{}
	acked   bool
	// late is what came before the acknowledgement, which must be the first
	// message.
	late      []lateNotice
	lateBytes int
}

type lateNotice struct{ method, params string }

const (
	// maxTopics bounds what one client subscribes to, over all its subscriptions
	// and listens, each of which counts as well: an HTTP backend gets a connection
	// for each.
	maxTopics = 4096
	// maxTopicBytes bounds the length of it: a kibibyte for each.
	maxTopicBytes = maxTopics << 10
	// maxLateBytes bounds what is kept for after an acknowledgement, for which a
	// backend has askWait.
	maxLateBytes = 1 << 20
)

// note keeps a notice for after the acknowledgement, once: what is said twice
// before it can be said at all is the same news. It reports false if too much is
// kept already.
func (l *listen) note(n lateNotice) bool {
	if slices.Contains(l.late, n) {
		return true
	}
	size := eventBytes + len(n.params)
	if l.lateBytes+size > maxLateBytes {
		return false
	}
	l.late = append(l.late, n)
	l.lateBytes += size
	return true
}

// tooMuchWanted says which limit the client passes if it subscribes to these
// too, "" if none.
func (c *client) tooMuchWanted(uris []string, unknown []wire.Member) string {
	count, size := wanted(uris, unknown)
	for uri := range c.subs {
		count, size = count+1, size+len(uri)
	}
	for _, l := range c.listens {
		n, bytes := wanted(l.filter.URIs, l.filter.Unknown)
		count, size = count+n, size+bytes
	}
	switch {
	case count > maxTopics:
		return fmt.Sprintf("this client would subscribe to %d things, and no more than %d may be", count, maxTopics)
	case size > maxTopicBytes:
		return fmt.Sprintf("what this client subscribes to would have %d bytes, and no more than %d may be", size, maxTopicBytes)
	}
	return ""
}

// wanted counts a listen, or a subscription.
func wanted(uris []string, unknown []wire.Member) (count, size int) {
	for _, uri := range uris {
		size += len(uri)
	}
	for _, m := range unknown {
		size += len(m.RawKey) + len(m.Value)
	}
	return max(1, len(uris)), size
}

// waiter is who wants to know what the backend said about a topic: a listen, or
// a resources/subscribe.
type waiter struct {
	listen *listen
	call   *call
}

func (w waiter) client() *client {
	if w.listen != nil {
		return w.listen.client
	}
	return w.call.client
}

// hasInterests reports whether the client wants to hear of anything.
func (c *client) hasInterests() bool { return len(c.listens) > 0 || len(c.subs) > 0 }

// sortedListens returns the client's listens as they came.
func (c *client) sortedListens() []*listen {
	return slices.SortedFunc(maps.Values(c.listens), func(a, b *listen) int {
		return cmp.Compare(a.number, b.number)
	})
}

// topics returns what of the filter the backend has to be asked for by name.
func (l *listen) topics() []topic {
	topics := make([]topic, 0, len(l.filter.URIs)+1)
	for _, uri := range l.filter.URIs {
		topics = append(topics, topic{uri: uri})
	}
	if len(l.filter.Unknown) > 0 {
		extra := era.Filter{Unknown: l.filter.Unknown}
		topics = append(topics, topic{extra: string(extra.Bytes()), owner: l.number})
	}
	return topics
}

func (l *listen) wantsLists() bool { return l.filter.Tools || l.filter.Prompts || l.filter.Resources }

// wants reports whether a topic is one of the listen's.
func (l *listen) wants(t topic) bool { return slices.Contains(l.topics(), t) }

// without removes a topic that the backend does not announce.
func (l *listen) without(t topic) {
	if t.extra != "" {
		l.filter.Unknown = nil
		return
	}
	l.filter.URIs = slices.DeleteFunc(l.filter.URIs, func(uri string) bool { return uri == t.uri })
}

// listen takes a subscriptions/listen.
func (r *Router) listen(call *call) {
	c := call.client
	filter, refusal := era.ParseFilter(call.req.Params)
	if refusal != nil {
		r.fail(call, refusal)
		return
	}
	if why := c.tooMuchWanted(filter.URIs, filter.Unknown); why != "" {
		r.failOwn(call, Failure{Reason: ReasonTooManyTopics, Message: why})
		return
	}
	r.release(call)
	for i, m := range filter.Unknown { // what is kept must not hold on to the frame it came in
		filter.Unknown[i].RawKey, filter.Unknown[i].Value = bytes.Clone(m.RawKey), bytes.Clone(m.Value)
	}
	r.lastKey++
	l := &listen{
		client: c, id: call.id, number: r.lastKey,
		filter:  filter.Honoured(r.factsFor(c, era.Modern)),
		pending: make(map[topic]struct{}),
	}
	c.listens[l.id] = l
	if l.filter.Empty() {
		r.acknowledge(l)
		return
	}
	if r.backend.serves() {
		r.expressListen(l, r.linkFor(c, call.req.Peer))
	}
	if len(l.pending) == 0 {
		r.acknowledge(l)
	}
}

// factsFor returns what is known of the backend for a client: of its own link,
// if it is open.
func (r *Router) factsFor(c *client, e era.Era) era.Facts {
	if l := r.linkNow(c); l != nil && l.state == linkOpen {
		return l.facts
	}
	facts, _ := r.facts(e)
	return facts
}

// expressListen asks the backend for what a new listen wants. Its waiters are
// noted even while the link is opening, which then asks for everything.
func (r *Router) expressListen(l *listen, on *link) {
	resumed := l.client.session.shim.Resumed
	if l.wantsLists() && on.state == linkOpen {
		on.interest.openLists(resumed)
	}
	for _, t := range l.topics() {
		if on.state == linkOpen && !on.announces(t) {
			l.without(t)
			continue
		}
		if on.state == linkOpen {
			on.interest.want(t, resumed)
			if on.interest.active(t) {
				if resumed {
					r.tellMissed(l, t)
				}
				continue
			}
		}
		l.pending[t] = struct{}{}
		r.awaitTopic(on, t, waiter{listen: l})
	}
	r.pursue(on)
}

// acknowledge sends the first message of a listen, and what came before it. A
// listen of which nothing is honoured ends at once.
func (r *Router) acknowledge(l *listen) {
	l.acked = true
	front := r.front(era.Modern)
	r.notify(l.client, noteAcknowledged, front.ListenAck(l.id, l.filter))
	if l.filter.Empty() {
		r.push(l.client, wire.NewResponse(l.id, front.ListenEnd(l.id)).Bytes())
		delete(l.client.listens, l.id)
		return
	}
	if l.client.session.shim.Resumed {
		r.announceTo(l)
	}
	for _, n := range l.late {
		r.notify(l.client, n.method, []byte(n.params))
	}
	l.late, l.lateBytes = nil, 0
}

// endListen ends a listen that the client has cancelled. It gets no answer.
func (r *Router) endListen(l *listen) {
	c := l.client
	delete(c.listens, l.id)
	if on := r.linkNow(c); on != nil {
		r.dropListen(l, on)
	}
}

func (r *Router) dropListen(l *listen, on *link) {
	for _, t := range l.topics() {
		if _, pending := l.pending[t]; pending {
			r.unawaitTopic(on, t, func(w waiter) bool { return w.listen == l })
		}
		if on.interest != nil {
			r.outcomes(on, on.interest.drop(t))
		}
	}
	r.pursue(on)
}

// endListens tells the listens of a client that there will be nothing more.
func (r *Router) endListens(c *client) {
	for _, l := range c.sortedListens() {
		r.push(c, wire.NewResponse(l.id, r.front(era.Modern).ListenEnd(l.id)).Bytes())
	}
	clear(c.listens)
}

// subscribe takes a resources/subscribe of a legacy client. While the backend
// serves its answer is the backend's.
func (r *Router) subscribe(call *call) {
	c := call.client
	uri, ok := era.URIOf(call.req.Params)
	if !ok {
		r.fail(call, &wire.Error{Code: wire.CodeInvalidParams, Message: "Invalid params: uri must be a string"})
		return
	}
	if !r.factsFor(c, era.Legacy).Has("resources.subscribe") {
		r.fail(call, errNoMethod())
		return
	}
	_, have := c.subs[uri]
	if why := c.tooMuchWanted([]string{uri}, nil); !have && why != "" {
		r.failOwn(call, Failure{Reason: ReasonTooManyTopics, Message: why})
		return
	}
	t := topic{uri: uri}
	c.subs[uri] = struct{}{}
	if !r.backend.serves() {
		r.succeed(call, call.front.Ack())
		return
	}
	on := r.linkFor(c, call.req.Peer)
	if on.state == linkOpen {
		if !have {
			on.interest.want(t, c.session.shim.Resumed)
		}
		if on.interest.active(t) {
			r.succeed(call, call.front.Ack())
			if !have && c.session.shim.Resumed {
				r.tellLegacy(c, on.facts.Era, noteUpdated, updateOf(t))
			}
			return
		}
	}
	r.awaitTopic(on, t, waiter{call: call})
	call.link, call.awaits = on, t
	r.pursue(on)
}

func errNoMethod() *wire.Error {
	return &wire.Error{Code: wire.CodeMethodNotFound, Message: "Method not found"}
}

// unqueueSubscription forgets that a resources/subscribe waits for the backend's
// word. The subscription itself stays: the backend has it, or will.
func (r *Router) unqueueSubscription(call *call) {
	if call.awaits != (topic{}) {
		r.unawaitTopic(call.link, call.awaits, func(w waiter) bool { return w.call == call })
		call.awaits = topic{}
	}
}

// unsubscribe takes a resources/unsubscribe. The client hears nothing more of
// the resource from here on, so it need not wait for the backend.
func (r *Router) unsubscribe(call *call) {
	c := call.client
	uri, ok := era.URIOf(call.req.Params)
	if !ok {
		r.fail(call, &wire.Error{Code: wire.CodeInvalidParams, Message: "Invalid params: uri must be a string"})
		return
	}
	if _, have := c.subs[uri]; have {
		delete(c.subs, uri)
		if on := r.linkNow(c); on != nil && on.interest != nil {
			r.outcomes(on, on.interest.drop(topic{uri: uri}))
			r.pursue(on)
		}
	}
	r.succeed(call, call.front.Ack())
}

// dropInterests takes back everything that a client wanted to hear.
func (r *Router) dropInterests(c *client) {
	on := r.linkNow(c)
	if on == nil {
		return
	}
	for _, l := range c.sortedListens() {
		r.dropListen(l, on)
	}
	if on.interest == nil {
		return
	}
	for _, uri := range slices.Sorted(maps.Keys(c.subs)) {
		r.outcomes(on, on.interest.drop(topic{uri: uri}))
	}
	r.pursue(on)
}

// fence lets a call wait until the subscriptions that its client sent before it
// have reached the backend, so that a change it causes is heard.
func (r *Router) fence(call *call) {
	if !r.wait(call, callFenced) {
		return
	}
	c := call.client
	c.fenced = append(c.fenced, call)
	if len(c.fenced) == 1 {
		c.unfence = r.agenda.after(fenceWait, func() { r.unfenceAll(c) })
	}
}

// unfenceAll lets the fenced calls of a client go on.
func (r *Router) unfenceAll(c *client) {
	r.agenda.stop(c.unfence)
	fenced := c.fenced
	c.fenced = nil
	for _, call := range fenced {
		call.stage = callHere
		r.proceed(call)
	}
}
