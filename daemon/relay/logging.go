package relay

import (
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// lateLines is how long a modern client on a link of its own goes on hearing the
// log lines of a request that was answered. A legacy backend sends them on
// another HTTP stream than the answer, which may overtake them.
const lateLines = 500 * time.Millisecond

// levelWait is how long requests wait for a legacy backend to take a log level:
// servers answer requests side by side, and the lines of one that overtook the
// level would be missing.
const levelWait = time.Second

// heardLevel is what a client may still hear after its requests were answered.
type heardLevel struct {
	level string
	until time.Time
}

// setLevel takes a logging/setLevel. Requests to a modern backend carry the
// level from now on; a legacy backend is given the lowest that anybody wants.
func (r *Router) setLevel(call *call) {
	c := call.client
	level, refusal := era.ParseSetLevel(call.req.Params)
	if refusal != nil {
		r.fail(call, refusal)
		return
	}
	if facts, known := r.facts(era.Legacy); known && !facts.Has("logging") {
		r.fail(call, errNoMethod())
		return
	}
	c.said.Level = level
	if l := r.linkNow(c); l != nil {
		r.adjustLevel(l, "")
	}
	r.succeed(call, call.front.Ack())
}

// adjustLevel gives a legacy backend on an open link the lowest level that its
// clients want now: what legacy clients have set, and what open requests of modern
// ones carry. next is what a request carries that is about to be sent, if any. The
// backend keeps the last one when nobody wants any: there is no way to take it back.
func (r *Router) adjustLevel(l *link, next string) {
	if l.state != linkOpen {
		return // as with the stored answer of a backend that is gone
	}
	if l.facts.Era != era.Legacy || !l.facts.Has("logging") || l.leveling != 0 {
		return // not in this era, or looked at again after the answer
	}
	level := r.wantedLevel(l, next)
	if level == "" || level == l.level {
		return
	}
	request, ok := l.back.SetLevel(level)
	if !ok {
		return
	}
	l.level = level
	lg := &leg{id: l.newID(), method: request.Method}
	lg.answered = func(m wire.Message) {
		if m.Kind == wire.Failure {
			r.log.Info("backend did not take a log level", "generation", l.generation, "level", level)
		}
		r.leveled(l, lg.id)
	}
	l.legs[lg.id] = lg
	l.leveling = lg.id
	r.agenda.after(levelWait, func() { r.leveled(l, lg.id) })
	r.requestBackend(l, lg.id, l.owner, request.Method, request.Params, r.peerOf(l))
}

// leveled notes that a level was taken, or was waited for long enough, and lets
// the requests go on that wait behind it.
func (r *Router) leveled(l *link, id int64) {
	if l.leveling != id {
		return
	}
	l.leveling = 0
	if l.state == linkOpen {
		r.adjustLevel(l, "")
		r.drainLink(l)
	}
}

func (r *Router) wantedLevel(l *link, next string) string {
	level, unset := era.Lowest(next, ""), false
	for _, c := range r.clientsOf(l) {
		level = era.Lowest(level, c.said.Level)
		unset = unset || c.ready && c.said.Level == ""
	}
	for _, lg := range l.legs {
		if lg.call != nil && lg.call.req.Source == era.Modern {
			level = era.Lowest(level, lg.call.req.Level)
		}
	}
	for _, call := range l.waiting {
		level = era.Lowest(level, call.req.Level)
	}
	if unset && l.unasked && level != "" {
		// A client that never set a level hears everything from such a backend,
		// and goes on to when another client sets one.
		return era.Levels()[0]
	}
	return level
}

// backendLog brings a log line to all who are to have it. On a shared link it
// has no owner, in either era.
func (r *Router) backendLog(l *link, m wire.Message, via int64) {
	if l.level == "" {
		l.unasked = true
	}
	level := era.MessageLevel(m.Params)
	for _, c := range r.clientsOf(l) {
		switch {
		case r.legacyHears(l, c, level):
			r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
		case modernHears(l, c, level, via):
			if out, ok := r.front(era.Modern).Notification(l.facts.Era, m.Method, m.Params, ""); ok {
				r.notify(c, m.Method, out)
			}
		}
	}
}

// legacyHears reports whether a legacy client gets a line of that level.
func (r *Router) legacyHears(l *link, c *client, level string) bool {
	switch {
	case !c.ready:
		return false
	case l.owner != nil && l.facts.Era == era.Legacy:
		// It is the client's own conversation: the backend knows what it wants.
		return true
	case c.said.Level == "":
		// Some legacy backends log until told otherwise, others when told to;
		// modern ones only when told to.
		return l.facts.Era == era.Legacy && l.unasked
	}
	return era.Admits(c.said.Level, level)
}

// modernHears reports whether a modern client has a request open, or had one a
// moment ago, that asked for lines of that level. via is the request on whose
// stream the line came, if that is known.
func modernHears(l *link, c *client, level string, via int64) bool {
	if lg := l.legs[via]; lg != nil && lg.call != nil {
		return lg.call.client == c && modernAdmits(lg.call, level)
	}
	for _, call := range c.calls {
		if call.link == l && call.leg != nil && modernAdmits(call, level) {
			return true
		}
	}
	return l.owner == c && l.facts.Era == era.Legacy &&
		time.Now().Before(c.late.until) && era.Admits(c.late.level, level)
}

// noteLate notes that a request was answered that asked for log lines.
func (c *client) noteLate(req era.Request) {
	if req.Source != era.Modern || req.Level == "" {
		return
	}
	now, level := time.Now(), req.Level
	if now.Before(c.late.until) {
		level = era.Lowest(level, c.late.level)
	}
	c.late = heardLevel{level, now.Add(lateLines)}
}

func modernAdmits(call *call, level string) bool {
	return call.req.Source == era.Modern && era.Admits(call.req.Level, level)
}
