package relay

import (
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// taskStatus brings the status of a task to the client that started it.
func (r *Router) taskStatus(l *link, m wire.Message) {
	c := l.owner
	if c == nil {
		id, _ := memberString(m.Params, "taskId")
		c = l.owners.tasks.owner(id)
	}
	if c != nil && r.sessions[c.session] == c {
		r.tellLegacy(c, l.facts.Era, m.Method, m.Params)
	}
}

// ownership is whose things are that a legacy backend names in notifications, on
// a link that several clients share.
type ownership struct {
	elicitations owners
	tasks        owners
}

// noteElicitation remembers who was sent to a page.
func (o *ownership) noteElicitation(params []byte, c *client) {
	if id := era.ElicitationID(params); id != "" {
		o.elicitations.note(id, c)
	}
}

// noteURLs remembers to whom an error passed that names pages to visit.
func (r *Router) noteURLs(l *link, call *call, e *wire.Error) {
	for _, el := range era.URLElicitations(e) {
		l.owners.elicitations.note(el.ID, call.client)
	}
}

// noteTask remembers who started a task.
func (r *Router) noteTask(l *link, call *call, result []byte) {
	if !call.params.task || !l.shared() || l.facts.Era != era.Legacy || call.req.Source != era.Legacy {
		return
	}
	if o, err := wire.ParseObject(result); err == nil {
		if id, ok := memberString(o.Get("task"), "taskId"); ok {
			l.owners.tasks.note(id, call.client)
		}
	}
}

// maxOwned bounds what is remembered of each kind; the oldest is forgotten, and
// its notifications are dropped.
const maxOwned = 1024

// maxOwnedName bounds each name; of what has a longer one nothing is remembered.
const maxOwnedName = 4 << 10

// owners maps names to clients. The zero value is empty.
type owners struct {
	byName map[string]*client
	order  []string
}

func (o *owners) note(name string, c *client) {
	if len(name) > maxOwnedName {
		return
	}
	if o.byName == nil {
		o.byName = make(map[string]*client)
	}
	if _, have := o.byName[name]; !have {
		if len(o.order) >= maxOwned {
			delete(o.byName, o.order[0])
			o.order = o.order[1:]
		}
		o.order = append(o.order, name)
	}
	o.byName[name] = c
}

func (o *owners) owner(name string) *client { return o.byName[name] }
