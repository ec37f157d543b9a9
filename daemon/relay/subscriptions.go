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
	id, ok := sub.Echoed()
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
		r.log.Info("backend did not take a subscription; trying again",
			"generation", l.generation, "error", o.err.Message)
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
	r.failTranslated(call, on.facts.Era, refusal)
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
