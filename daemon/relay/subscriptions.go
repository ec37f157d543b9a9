package relay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// askWait is how long a backend may take to answer a subscription before the
	// next one gets its turn.
	askWait = 10 * time.Second
	// endWait is how long the end of a cancelled listen is awaited: servers may
	// answer it or not.
	endWait = time.Second
	// reviveAfter is the pause before a subscription that the backend ended by
	// itself is opened again, and before one that merely failed is tried again.
	reviveAfter = time.Second
	retryAfter  = 10 * time.Second
	// fenceWait is how long requests wait for the subscriptions that the client
	// sent before them.
	fenceWait = 2 * time.Second
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
	late []lateNotice
}

type lateNotice struct {
	method string
	params []byte
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
	return slices.SortedFunc(maps.Values(c.listens), func(a, b *listen) int { return cmp.Compare(a.number, b.number) })
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
	if len(c.listens) >= maxOpen || len(filter.URIs) > maxOpen {
		r.failOwn(call, Failure{Reason: ReasonTooManyOpen})
		return
	}
	r.release(call)
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
			if on.interest.active(t) && !resumed {
				continue
			}
		}
		l.pending[t] = struct{}{}
		r.awaitTopic(on, t, waiter{listen: l})
	}
	r.pursue(on)
}

// announces reports whether the backend can be asked for a topic at all.
func (l *link) announces(t topic) bool {
	if t.extra != "" {
		return l.facts.Era == era.Modern
	}
	return l.facts.Has("resources.subscribe")
}

// awaitTopic notes that somebody wants to know what becomes of a topic.
func (r *Router) awaitTopic(l *link, t topic, w waiter) {
	l.waiters[t] = append(l.waiters[t], w)
	w.client().unsettled++
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
		r.notify(l.client, n.method, n.params)
	}
	l.late = nil
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

// unawaitTopic removes waiters.
func (r *Router) unawaitTopic(l *link, t topic, gone func(waiter) bool) {
	l.waiters[t] = slices.DeleteFunc(l.waiters[t], func(w waiter) bool {
		if !gone(w) {
			return false
		}
		r.settledOne(w.client())
		return true
	})
}

// settledOne notes that a subscription of a client is no more in doubt. What the
// client has sent after it goes on.
func (r *Router) settledOne(c *client) {
	if c.unsettled--; c.unsettled == 0 {
		r.unfenceAll(c)
	}
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
	if _, have := c.subs[uri]; !have && len(c.subs) >= maxOpen {
		r.failOwn(call, Failure{Reason: ReasonTooManyOpen})
		return
	}
	t := topic{uri: uri}
	_, have := c.subs[uri]
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
		if on.interest.active(t) && !c.session.shim.Resumed {
			r.succeed(call, call.front.Ack())
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

// clientsOf returns the clients that a link serves.
func (r *Router) clientsOf(l *link) []*client {
	if l.owner != nil {
		return []*client{l.owner}
	}
	return slices.DeleteFunc(slices.Clone(r.order), func(c *client) bool { return c.link != nil })
}

// express asks the backend of a new link for everything that its clients want.
// What a client was promised before may have changed unheard.
func (r *Router) express(l *link) {
	r.openLists(l)
	for _, c := range r.clientsOf(l) {
		for _, uri := range slices.Sorted(maps.Keys(c.subs)) {
			t := topic{uri: uri}
			fresh := slices.ContainsFunc(l.waiters[t], func(w waiter) bool { return w.call != nil && w.call.client == c })
			r.expressTopic(l, t, !fresh || c.session.shim.Resumed)
		}
		for _, listen := range c.sortedListens() {
			for _, t := range listen.topics() {
				_, fresh := listen.pending[t]
				r.expressTopic(l, t, !fresh || c.session.shim.Resumed)
			}
		}
	}
	r.pursue(l)
}

func (r *Router) expressTopic(l *link, t topic, gap bool) {
	if l.announces(t) {
		l.interest.want(t, gap)
		return
	}
	r.settleTopic(l, t, errNoMethod())
}

// openLists asks a modern backend for list changes as soon as a client on the
// link is to hear of them: a legacy one always, a modern one by a listen.
func (r *Router) openLists(l *link) {
	if !l.announcesLists() {
		return
	}
	for _, c := range r.clientsOf(l) {
		if c.ready || slices.ContainsFunc(c.sortedListens(), (*listen).wantsLists) {
			l.interest.openLists(l.gap)
			return
		}
	}
}

// listFlags are the list changes that a backend says it announces.
func (l *link) listFlags() era.Filter {
	return era.Filter{
		Tools:     l.facts.Has("tools.listChanged"),
		Prompts:   l.facts.Has("prompts.listChanged"),
		Resources: l.facts.Has("resources.listChanged"),
	}
}

func (l *link) announcesLists() bool { return !l.listFlags().Empty() }

// pursue sends what the interest of a link wants sent.
func (r *Router) pursue(l *link) {
	if l.state != linkOpen {
		return
	}
	for {
		ops := l.interest.next()
		if len(ops) == 0 {
			return
		}
		r.perform(l, ops)
	}
}

func (r *Router) perform(l *link, ops []operation) {
	for _, op := range ops {
		wait := askWait
		if op.kind == opCancel {
			wait = endWait
			r.cancelBackend(l, op.id, l.owner, nil)
		} else if !r.askBackend(l, op) {
			continue
		}
		r.agenda.after(wait, func() { r.operationExpired(l, op.id) })
	}
}

func (r *Router) askBackend(l *link, op operation) bool {
	peer := r.peerOf(l)
	var request era.Call
	ok := true
	switch {
	case op.kind == opListenLists:
		request, ok = l.back.Listen(peer, l.listFlags())
	case op.kind == opUnsubscribe:
		request, ok = l.back.Unsubscribe(op.topic.uri)
	case op.topic.extra != "":
		extra, err := wire.ParseObject([]byte(op.topic.extra))
		if err != nil {
			return false
		}
		request, ok = l.back.Listen(peer, era.Filter{Unknown: extra.Members()})
	default:
		request = l.back.Subscribe(peer, op.topic.uri)
	}
	if ok {
		r.requestBackend(l, op.id, l.owner, request.Method, request.Params, peer)
	}
	return ok
}

// peerOf is for whom a link speaks when it speaks for nobody in particular.
func (r *Router) peerOf(l *link) era.Peer {
	if l.owner != nil {
		return l.owner.peer
	}
	return r.Greeting()
}

func (r *Router) operationExpired(l *link, id int64) {
	if l.state != linkOpen {
		return
	}
	ops, outs := l.interest.expired(id)
	r.perform(l, ops)
	r.outcomes(l, outs)
	r.pursue(l)
}

// interestAnswered takes an answer to a request of the interest, if it is one.
func (r *Router) interestAnswered(l *link, id int64, m wire.Message) bool {
	var refusal *wire.Error
	if m.Kind == wire.Failure {
		refusal = errorOf(m)
	}
	outs, ok := l.interest.answered(id, refusal)
	if ok {
		r.outcomes(l, outs)
		r.pursue(l)
	}
	return ok
}

// acknowledgedByBackend takes the acknowledgement of one of our own listens.
func (r *Router) acknowledgedByBackend(l *link, params []byte) {
	sub, honoured := era.ParseAck(params)
	id, ok := sub.Int()
	if !ok {
		return
	}
	t := l.interest.busy.topic
	covered := t == (topic{}) || t.extra != "" && len(honoured.Unknown) > 0 || slices.Contains(honoured.URIs, t.uri)
	ops, outs := l.interest.acknowledged(id, covered)
	r.perform(l, ops)
	r.outcomes(l, outs)
	r.pursue(l)
}

// outcomes tells those concerned what became of their topics.
func (r *Router) outcomes(l *link, outs []outcome) {
	for _, o := range outs {
		switch o.kind {
		case expressed, settled:
			r.settleTopic(l, o.topic, nil)
		case refused, failed:
			r.notAnnounced(l, o)
		case missed:
			r.updatedFor(l, o.topic)
		case missedLists:
			for _, c := range r.clientsOf(l) {
				r.announce(c)
			}
		case ended:
			r.later(l, reviveAfter, func() { l.interest.revive(o.topic) })
		case endedLists:
			r.later(l, reviveAfter, l.interest.reviveLists)
		}
	}
}

// later changes the interest of a link after a while, if it lives that long.
func (r *Router) later(l *link, d time.Duration, change func()) {
	r.agenda.after(d, func() {
		if l.state == linkOpen {
			change()
			r.pursue(l)
		}
	})
}

// notAnnounced tells those who just asked for a topic that the backend refused.
// Those who had it before lose it only if the backend says that it is gone, and
// are told by an update, upon which they find out for themselves.
func (r *Router) notAnnounced(l *link, o outcome) {
	r.settleTopic(l, o.topic, o.err)
	if l.interest.refs(o.topic) == 0 {
		return
	}
	if o.kind == failed {
		r.log.Info("backend did not take a subscription; trying again", "generation", l.generation, "error", o.err.Message)
		r.later(l, retryAfter, func() { l.interest.revive(o.topic) })
		return
	}
	r.log.Warn("backend does not know a subscribed resource any more",
		"generation", l.generation, "uri", o.topic.uri, "error", o.err.Message)
	r.updatedFor(l, o.topic)
	for _, c := range r.clientsOf(l) {
		if _, have := c.subs[o.topic.uri]; have && o.topic.extra == "" {
			delete(c.subs, o.topic.uri)
			l.interest.drop(o.topic)
		}
		for _, listen := range c.sortedListens() {
			if listen.wants(o.topic) {
				listen.without(o.topic)
				l.interest.drop(o.topic)
			}
		}
	}
}

// settleTopic answers those who wait for the backend's word on a topic. With an
// error they do not get it.
func (r *Router) settleTopic(l *link, t topic, refusal *wire.Error) {
	waiters := l.waiters[t]
	delete(l.waiters, t)
	for _, w := range waiters {
		if w.listen != nil {
			r.settleListen(l, w.listen, t, refusal)
		} else {
			r.settleSubscribe(l, w.call, t, refusal)
		}
		r.settledOne(w.client())
	}
}

func (r *Router) settleListen(on *link, l *listen, t topic, refusal *wire.Error) {
	delete(l.pending, t)
	if refusal != nil {
		l.without(t)
		if on.interest != nil {
			on.interest.drop(t)
		}
	}
	if len(l.pending) == 0 && !l.acked {
		r.acknowledge(l)
	}
}

func (r *Router) settleSubscribe(on *link, call *call, t topic, refusal *wire.Error) {
	call.awaits = topic{}
	if refusal == nil {
		r.succeed(call, call.front.Ack())
		return
	}
	if _, have := call.client.subs[t.uri]; have {
		delete(call.client.subs, t.uri)
		if on.interest != nil {
			on.interest.drop(t)
		}
	}
	result, refusal := call.front.Failure(call.req, on.facts.Era, refusal)
	if refusal != nil {
		r.fail(call, refusal)
		return
	}
	r.succeed(call, result)
}

// settleWaiters ends all doubts of a link that is gone: what was asked for is
// asked for again with the next one.
func (r *Router) settleWaiters(l *link) {
	for _, t := range slices.SortedFunc(maps.Keys(l.waiters), compareTopics) {
		r.settleTopic(l, t, nil)
	}
}

func compareTopics(a, b topic) int {
	return cmp.Or(cmp.Compare(a.uri, b.uri), cmp.Compare(a.extra, b.extra), cmp.Compare(a.owner, b.owner))
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

// announce tells a client that all lists may have changed: as a notification if
// it is a legacy one, on each listen that asked if it is modern.
func (r *Router) announce(c *client) {
	if c.ready {
		facts := r.factsFor(c, era.Legacy)
		r.notify(c, noteTools, nil)
		if facts.Has("prompts") || c.toldHas(era.Legacy, "prompts") {
			r.notify(c, notePrompts, nil)
		}
		if facts.Has("resources") || c.toldHas(era.Legacy, "resources") {
			r.notify(c, noteResources, nil)
		}
	}
	for _, l := range c.sortedListens() {
		r.announceTo(l)
	}
}

func (r *Router) announceTo(l *listen) {
	for _, method := range []string{noteTools, notePrompts, noteResources} {
		if l.filter.Wants(method, nil) {
			r.tellListen(l, era.Legacy, method, nil)
		}
	}
}

// tellListen brings a change to a listen, after its acknowledgement.
func (r *Router) tellListen(l *listen, source era.Era, method string, params []byte) {
	out, ok := r.front(era.Modern).Notification(source, method, params, l.id)
	switch {
	case !ok:
	case l.acked:
		r.notify(l.client, method, out)
	case !slices.ContainsFunc(l.late, func(n lateNotice) bool { return n.method == method && string(n.params) == string(out) }):
		// What is said twice before it can be said once is the same news.
		l.late = append(l.late, lateNotice{method, out})
	}
}

// tellLegacy brings a notification of a backend to a legacy client.
func (r *Router) tellLegacy(c *client, source era.Era, method string, params []byte) {
	if !c.ready {
		return
	}
	if out, ok := r.front(era.Legacy).Notification(source, method, params, ""); ok {
		r.notify(c, method, out)
	}
}

// listChanged passes a list change of the backend on to all who are to hear it.
func (r *Router) listChanged(l *link, m wire.Message) {
	if sub := era.SubscriptionOf(m.Params); sub != "" && sub != wire.IntID(l.interest.listsListen()) {
		// A copy for a listen that has a successor.
		return
	}
	for _, c := range r.clientsOf(l) {
		r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
		for _, listen := range c.sortedListens() {
			if listen.filter.Wants(m.Method, m.Params) {
				r.tellListen(listen, l.facts.Era, m.Method, m.Params)
			}
		}
	}
}

// resourceUpdated passes an update on to those who subscribed to the resource,
// or to one above it.
func (r *Router) resourceUpdated(l *link, m wire.Message) {
	if sub := era.SubscriptionOf(m.Params); sub != "" {
		if t, ok := l.topicOf(sub); ok {
			r.tellHolders(l, t, m.Method, m.Params)
		}
		return
	}
	uri, _ := era.URIOf(m.Params)
	for _, c := range r.clientsOf(l) {
		for subscribed := range c.subs {
			if era.Covers(subscribed, uri) {
				r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
				break
			}
		}
		for _, listen := range c.sortedListens() {
			if listen.filter.Wants(m.Method, m.Params) {
				r.tellListen(listen, l.facts.Era, m.Method, m.Params)
			}
		}
	}
}

func (l *link) topicOf(sub wire.ID) (topic, bool) {
	id, ok := sub.Int()
	if !ok {
		return topic{}, false
	}
	return l.interest.topicOf(id)
}

// tellHolders brings a notification to those who want a topic.
func (r *Router) tellHolders(l *link, t topic, method string, params []byte) {
	for _, c := range r.clientsOf(l) {
		if _, have := c.subs[t.uri]; have && t.extra == "" {
			r.tellLegacy(c, l.facts.Era, method, params)
		}
		for _, listen := range c.sortedListens() {
			if listen.wants(t) {
				r.tellListen(listen, l.facts.Era, method, params)
			}
		}
	}
}

// updatedFor says in the backend's place that a resource may have changed.
func (r *Router) updatedFor(l *link, t topic) {
	if t.extra != "" {
		return
	}
	params := new(wire.Object)
	params.Set("uri", wire.Quote(t.uri))
	r.tellHolders(l, t, noteUpdated, params.Bytes())
}

// otherNotification passes on what the router does not know. Like a log line it
// goes to everybody if it belongs to nobody.
func (r *Router) otherNotification(l *link, m wire.Message, via int64) {
	if sub := era.SubscriptionOf(m.Params); sub != "" && l.facts.Era == era.Modern {
		if t, ok := l.topicOf(sub); ok {
			r.tellHolders(l, t, m.Method, m.Params)
		}
		return
	}
	clients := r.clientsOf(l)
	if lg := l.legs[via]; lg != nil && lg.call != nil {
		clients = []*client{lg.call.client}
	}
	for _, c := range clients {
		if c.eraNow() != era.Modern {
			r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
			continue
		}
		if out, ok := r.front(era.Modern).Notification(l.facts.Era, m.Method, m.Params, ""); ok {
			r.notify(c, m.Method, out)
		}
	}
}

// backendNotification takes a notification of the backend.
func (r *Router) backendNotification(l *link, m wire.Message, via int64) {
	switch m.Method {
	case noteProgress:
		r.backendProgress(l, m.Params)
	case noteMessage:
		r.backendLog(l, m, via)
	case noteCancelled:
		r.backendCancelled(l, m.Params)
	case noteAcknowledged:
		r.acknowledgedByBackend(l, m.Params)
	case noteTools, notePrompts, noteResources:
		r.listChanged(l, m)
	case noteUpdated:
		r.resourceUpdated(l, m)
	case noteElicitComplete:
		r.elicitationComplete(l, m)
	case noteTaskStatus:
		r.taskStatus(l, m)
	default:
		r.otherNotification(l, m, via)
	}
}
