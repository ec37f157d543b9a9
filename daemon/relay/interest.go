package relay

import (
	"slices"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// topic is one thing a backend can be asked to announce: the changes of one
// resource, or what foreign members of a listen filter name (taskIds of the
// tasks extension), which only a modern backend can be asked for. Exactly one of
// uri and extra is set.
type topic struct {
	uri   string
	extra string // a JSON object of filter members
	// owner keeps the extra topics of two listens apart, so that each gets its
	// own announcements.
	owner uint64
}

// operationKind is what to ask the backend.
type operationKind uint8

const (
	opSubscribe   operationKind = iota + 1 // a request, answered
	opUnsubscribe                          // a request, answered
	opListen                               // a request for a topic, acknowledged
	opListenLists                          // a request for the list flags, acknowledged
	opCancel                               // the end of a listen
)

// operation is one thing to send to the backend. id is that of the request to
// send, or to cancel.
type operation struct {
	kind  operationKind
	id    int64
	topic topic
}

// outcomeKind is what became known about a topic.
type outcomeKind uint8

const (
	// expressed: the backend announces the topic from now on.
	expressed outcomeKind = iota + 1
	// refused: the backend says there is no such thing.
	refused
	// failed: the backend did not manage; asking again later may help.
	failed
	// missed: the backend announces the topic, but did not without a gap, so
	// changes may have gone unheard.
	missed
	// missedLists: the same for the lists.
	missedLists
	// ended: the backend stopped announcing by itself; the topic is to be
	// revived after a while.
	ended
	// endedLists: the same for the lists.
	endedLists
	// settled: nobody wants the topic any more and nothing had to be asked.
	settled
)

// outcome is a consequence for those who want the topic.
type outcome struct {
	kind  outcomeKind
	topic topic
	err   *wire.Error // for refused and failed
}

// interest holds what one link's backend is asked to announce against what it
// ought to be asked, and brings the one to the other: one request at a time, in
// the order in which things were wanted. It is pure: events go in, operations
// and outcomes come out.
//
// A legacy backend is asked with resources/subscribe and unsubscribe, and
// announces list changes unasked. A modern one is asked with one
// subscriptions/listen for the list flags and one for each topic. The Go SDK
// (1.8.0) forgets the list flags of a connection when any of its listens is
// cancelled, so on a link that has all listens on one connection the flags are
// asked for anew after each cancel; the old flags are cancelled as well, because
// other servers would announce everything twice.
type interest struct {
	modern bool
	// isolated says that every listen is a conversation of its own (HTTP), so
	// that the end of one does not touch the others.
	isolated bool
	newID    func() int64

	topics    map[topic]*topicState
	queue     []topic // to be looked at, in order
	wantLists bool
	lists     listsState

	// busy is the request in progress, 0 for none.
	busy   operation
	ending map[int64]struct{} // cancelled listens whose end is awaited
}

type topicState struct {
	refs   int
	queued bool
	// listen is the id of the listen that announces a topic on a modern link.
	listen int64
	on     bool
	// unsure says that a subscribe may or may not have got through.
	unsure bool
	// gap says that changes may have been missed before the topic is expressed.
	gap bool
	// paused keeps a topic that failed from being asked for until revived.
	paused bool
}

type listsState struct {
	listen int64
	on     bool
	gap    bool
	paused bool
}

func newInterest(modern, isolated bool, newID func() int64) *interest {
	return &interest{
		modern: modern, isolated: isolated, newID: newID,
		topics: make(map[topic]*topicState),
		ending: make(map[int64]struct{}),
	}
}

// want adds one who wants the topic. gap says that he may have missed changes.
func (i *interest) want(t topic, gap bool) {
	s := i.topics[t]
	if s == nil {
		s = new(topicState)
		i.topics[t] = s
	}
	s.refs++
	s.gap = s.gap || gap
	s.paused = false
	i.enqueue(t, s)
}

// drop removes one who wanted the topic.
func (i *interest) drop(t topic) []outcome {
	s := i.topics[t]
	if s == nil || s.refs == 0 {
		return nil
	}
	s.refs--
	if s.refs > 0 {
		return nil
	}
	s.gap, s.paused = false, false
	if i.idle(t, s) {
		return i.forget(t)
	}
	i.enqueue(t, s)
	return nil
}

// idle reports that the backend knows nothing of the topic and is not being
// asked about it.
func (i *interest) idle(t topic, s *topicState) bool {
	return !s.on && !s.unsure && (i.busy.id == 0 || i.busy.topic != t)
}

func (i *interest) forget(t topic) []outcome {
	delete(i.topics, t)
	i.queue = slices.DeleteFunc(i.queue, func(queued topic) bool { return queued == t })
	return []outcome{{kind: settled, topic: t}}
}

// refs returns how many want the topic.
func (i *interest) refs(t topic) int {
	if s := i.topics[t]; s != nil {
		return s.refs
	}
	return 0
}

// active reports whether the topic is expressed, and not about to be taken back.
func (i *interest) active(t topic) bool {
	s := i.topics[t]
	return s != nil && s.on && (i.busy.id == 0 || i.busy.topic != t)
}

// openLists asks for the list flags from now on. gap says that changes may have
// been missed before.
func (i *interest) openLists(gap bool) {
	i.wantLists = true
	i.lists.gap = i.lists.gap || gap
}

// revive asks again for a topic that failed or ended.
func (i *interest) revive(t topic) {
	if s := i.topics[t]; s != nil && s.paused {
		s.paused = false
		i.enqueue(t, s)
	}
}

// reviveLists asks again for the list flags after they ended.
func (i *interest) reviveLists() { i.lists.paused = false }

func (i *interest) enqueue(t topic, s *topicState) {
	if !s.queued {
		s.queued = true
		i.queue = append(i.queue, t)
	}
}

// next returns what to send now. It is to be called after every event.
func (i *interest) next() []operation {
	if i.busy.id != 0 || len(i.ending) > 0 {
		return nil
	}
	if i.modern && i.wantLists && !i.lists.on && !i.lists.paused {
		return i.begin(operation{kind: opListenLists, id: i.newID()})
	}
	for len(i.queue) > 0 {
		t := i.queue[0]
		i.queue = i.queue[1:]
		s := i.topics[t]
		s.queued = false
		if ops := i.reconcile(t, s); len(ops) > 0 {
			return ops
		}
	}
	return nil
}

func (i *interest) reconcile(t topic, s *topicState) []operation {
	switch {
	case s.refs > 0 && !s.on && !s.paused:
		kind := opSubscribe
		if i.modern {
			kind = opListen
		}
		return i.begin(operation{kind: kind, id: i.newID(), topic: t})
	case s.refs == 0 && (s.on || s.unsure) && i.modern:
		return i.retire(t, s)
	case s.refs == 0 && (s.on || s.unsure):
		return i.begin(operation{kind: opUnsubscribe, id: i.newID(), topic: t})
	case s.refs == 0:
		delete(i.topics, t)
	}
	return nil
}

func (i *interest) begin(op operation) []operation {
	i.busy = op
	return []operation{op}
}

// retire ends the listen of a topic nobody wants.
func (i *interest) retire(t topic, s *topicState) []operation {
	delete(i.topics, t)
	ops := []operation{{kind: opCancel, id: s.listen, topic: t}}
	if i.isolated {
		return append(ops, i.next()...)
	}
	i.ending[s.listen] = struct{}{}
	if i.lists.on {
		ops = append(ops, operation{kind: opCancel, id: i.lists.listen})
		i.ending[i.lists.listen] = struct{}{}
		i.lists = listsState{gap: true}
	}
	return ops
}

// acknowledged takes the acknowledgement of a listen; honoured says whether it
// covers what was asked.
func (i *interest) acknowledged(id int64, honoured bool) ([]operation, []outcome) {
	if id != i.busy.id || id == 0 {
		return nil, nil
	}
	op := i.busy
	i.busy = operation{}
	if op.kind == opListenLists {
		i.lists.listen, i.lists.on = id, true
		return nil, i.heardLists()
	}
	if !honoured {
		// A server that honours nothing may hold the listen open all the same.
		return []operation{{kind: opCancel, id: id, topic: op.topic}},
			i.unheard(op.topic, &wire.Error{
				Code: wire.CodeInvalidParams, Message: "the backend does not announce changes of this resource"})
	}
	return nil, i.heard(op.topic, id)
}

func (i *interest) heardLists() []outcome {
	if !i.lists.gap {
		return nil
	}
	i.lists.gap = false
	return []outcome{{kind: missedLists}}
}

func (i *interest) heard(t topic, listen int64) []outcome {
	s := i.topics[t]
	s.on, s.unsure, s.listen = true, false, listen
	if s.refs == 0 {
		i.enqueue(t, s)
		return []outcome{{kind: settled, topic: t}}
	}
	out := []outcome{{kind: expressed, topic: t}}
	if s.gap {
		s.gap = false
		out = append(out, outcome{kind: missed, topic: t})
	}
	return out
}

// unheard notes that the backend does not announce the topic.
func (i *interest) unheard(t topic, err *wire.Error) []outcome {
	s := i.topics[t]
	s.on = false
	if s.refs == 0 {
		if s.unsure {
			i.enqueue(t, s)
		} else {
			i.forget(t)
		}
		return []outcome{{kind: settled, topic: t}}
	}
	s.paused = true
	kind := failed
	if gone(err) {
		kind = refused
	}
	return []outcome{{kind: kind, topic: t, err: err}}
}

// gone reports whether an error says that asking again is of no use.
func gone(err *wire.Error) bool {
	switch err.Code {
	case era.CodeResourceNotFound, wire.CodeInvalidParams, wire.CodeMethodNotFound:
		return true
	}
	return false
}

// answered takes the answer to a request of the interest: of a subscribe or
// unsubscribe, or the end of a listen, with err nil for a result. It reports
// whether the id was one of these.
func (i *interest) answered(id int64, err *wire.Error) ([]outcome, bool) {
	if _, ok := i.ending[id]; ok {
		delete(i.ending, id)
		return nil, true
	}
	if id == i.busy.id && id != 0 {
		return i.finished(err), true
	}
	return i.listenEnded(id)
}

func (i *interest) finished(err *wire.Error) []outcome {
	op := i.busy
	i.busy = operation{}
	switch op.kind {
	case opUnsubscribe:
		// Whatever it says, there is nothing more to be done about it.
		return i.unsubscribed(op.topic)
	case opListenLists:
		i.lists.paused = true
		return []outcome{{kind: endedLists}}
	case opListen:
		if err == nil {
			err = &wire.Error{
				Code: wire.CodeInternal, Message: "the backend ended the subscription without acknowledging it"}
		}
		return i.unheard(op.topic, err)
	case opSubscribe, opCancel:
	}
	if err != nil {
		return i.unheard(op.topic, err)
	}
	return i.heard(op.topic, 0)
}

func (i *interest) unsubscribed(t topic) []outcome {
	s := i.topics[t]
	s.on, s.unsure = false, false
	if s.refs > 0 {
		// It was wanted again in the meantime.
		i.enqueue(t, s)
		return nil
	}
	return i.forget(t)
}

func (i *interest) listenEnded(id int64) ([]outcome, bool) {
	if i.lists.on && i.lists.listen == id {
		i.lists = listsState{gap: true, paused: true}
		return []outcome{{kind: endedLists}}, true
	}
	for t, s := range i.topics {
		if s.on && s.listen == id && id != 0 {
			s.on, s.gap, s.paused = false, true, true
			if s.refs == 0 {
				return i.forget(t), true
			}
			return []outcome{{kind: ended, topic: t}}, true
		}
	}
	return nil, false
}

// expired notes that the operation in progress, or the end of a cancelled
// listen, has been awaited long enough.
func (i *interest) expired(id int64) ([]operation, []outcome) {
	if _, ok := i.ending[id]; ok {
		delete(i.ending, id)
		return nil, nil
	}
	if id != i.busy.id || id == 0 {
		return nil, nil
	}
	op := i.busy
	late := &wire.Error{Code: wire.CodeInternal, Message: "the backend did not answer the subscription in time"}
	switch op.kind {
	case opSubscribe:
		i.topics[op.topic].unsure = true
		return nil, i.finished(late)
	case opListen, opListenLists:
		return []operation{{kind: opCancel, id: id, topic: op.topic}}, i.finished(late)
	case opUnsubscribe, opCancel:
	}
	return nil, i.finished(nil)
}

// topicOf returns the topic whose listen has this id.
func (i *interest) topicOf(id int64) (topic, bool) {
	for t, s := range i.topics {
		if s.on && s.listen == id {
			return t, true
		}
	}
	return topic{}, false
}

// mine reports whether a request in flight is one of the interest's.
func (i *interest) mine(id int64) bool {
	if id == i.busy.id || id == i.lists.listen && i.lists.on {
		return true
	}
	_, ok := i.topicOf(id)
	return ok
}

// listsListen returns the id of the listen for the list flags, 0 for none.
func (i *interest) listsListen() int64 { return i.lists.listen }
