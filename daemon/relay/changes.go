package relay

import (
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

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
	case !l.note(lateNotice{method, string(out)}):
		r.log.Warn("too much came before a listen was acknowledged; a notification is dropped",
			"session", l.client.session.id, "method", method, "limit", maxLateBytes)
	}
}

// tellListens brings a change to those listens of a client that asked for it.
func (r *Router) tellListens(c *client, source era.Era, m wire.Message) {
	for _, listen := range c.sortedListens() {
		if listen.filter.Wants(m.Method, m.Params) {
			r.tellListen(listen, source, m.Method, m.Params)
		}
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
	if sub := era.SubscriptionOf(m.Params); sub != "" {
		if id, ok := sub.Echoed(); !ok || id != l.interest.listsListen() {
			return // a copy for a listen that has a successor
		}
	}
	for _, c := range r.clientsOf(l) {
		r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
		r.tellListens(c, l.facts.Era, m)
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
		r.tellListens(c, l.facts.Era, m)
	}
}

func (l *link) topicOf(sub wire.ID) (topic, bool) {
	id, ok := sub.Echoed()
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
	r.tellHolders(l, t, noteUpdated, updateOf(t))
}

// updateOf returns the params of an update of ours.
func updateOf(t topic) []byte {
	params := new(wire.Object)
	params.Set("uri", wire.Quote(t.uri))
	return params.Bytes()
}

// tellMissed tells a listen that a resource may have changed before it joined
// those who hear of it.
func (r *Router) tellMissed(l *listen, t topic) {
	if t.extra == "" {
		r.tellListen(l, era.Legacy, noteUpdated, updateOf(t))
	}
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
