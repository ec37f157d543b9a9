//go:build unix

package chaos

import (
	"slices"
	"time"
)

// action is one thing that a client does in its seat.
type action func(c *client, s *seat, d dice)

// uris are the resources that the backend has.
var uris = []string{"chaos://0", "chaos://1", "chaos://2", "chaos://3"}

// actions are everything that clients do.
var actions = []weighted[action]{
	{14, echo},
	{14, tool("slow", func(d dice) object { return object{"ms": d.IntN(3000), "steps": 1 + d.IntN(8)} })},
	{2, tool("big", func(d dice) object {
		size := 1<<20 + d.IntN(2<<20)
		if d.chance(20) {
			size = 3<<20 + d.IntN(7<<20)
		}
		return object{"bytes": size}
	})},
	{3, tool("late", func(d dice) object { return object{"ms": d.IntN(1500)} })},
	{2, tool("noise", func(d dice) object { return object{"lines": 1 + d.IntN(3000)} })},
	{1, tool("spawn", func(d dice) object { return object{"how": pick(d, "", "setsid")} })},
	{1, tool("stubborn", func(dice) object { return object{} })},
	{1, deadly(tool("crash", func(d dice) object { return object{"how": pick(d, "exit", "kill")} }))},
	{1, deadly(tool("torn", func(dice) object { return object{} }))},
	{4, tool("notify", func(d dice) object { return object{"how": "update", "uri": pick(d, uris...)} })},
	{2, tool("notify", func(dice) object { return object{"how": "list"} })},
	{4, tool("notify", func(d dice) object { return object{"how": "log", "level": pick(d, levels...)} })},
	{1, tool("dev_server_status", func(dice) object { return object{} })},
	{1, tool("dev_restart", func(dice) object { return object{} })},
	{7, ask},
	{2, hang},
	{8, plain("tools/list")},
	{3, plain("resources/list")},
	{1, plain("resources/templates/list")},
	{2, plain("prompts/list")},
	{2, plain("chaos/unknown")},
	{5, read},
	{2, complete},
	{3, ping},
	{3, setLevel},
	{6, subscribe},
	{4, unsubscribe},
	{9, takeBack},
	{2, repeatID},
	{2, func(_ *client, s *seat, _ dice) { s.notify("notifications/chaos", object{"x": 1.0}) }},
	{2, burst},
	{4, together},
	{3, leave},
	{2, stopReading},
}

func echo(_ *client, s *seat, d dice) {
	s.call("echo", object{}, options{progress: d.chance(30)})
}

func tool(name string, arguments func(dice) object) action {
	return func(_ *client, s *seat, d dice) {
		s.call(name, arguments(d), options{progress: d.chance(50)})
	}
}

// deadly does what ends the backend as often as the world wants it.
func deadly(do action) action {
	return func(c *client, s *seat, d dice) {
		if d.chance(c.world.plan.deadly) {
			do(c, s, d)
		} else {
			echo(c, s, d)
		}
	}
}

// repair restarts a backend that has failed, as the answers advise.
func repair(_ *client, s *seat, _ dice) { s.call("dev_restart", object{}, options{}) }

func ask(c *client, s *seat, d dice) {
	method := pick(d, "sampling/createMessage", "elicitation/create", "roots/list")
	// Nothing ends the wait for the answer of a legacy client but itself, where
	// the backend keeps no call open.
	s.call("ask", object{"how": method}, options{progress: d.chance(30), unbounded: !c.modern})
}

func hang(_ *client, s *seat, d dice) {
	r := s.call("hang", object{}, options{unbounded: true})
	if d.chance(60) {
		s.later(d.between(0, 3*time.Second), func() {
			if r.isOpen(s) {
				s.cancel(r, nil)
			}
		})
	}
}

func (r *request) isOpen(s *seat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.open()
}

func plain(method string) action {
	return func(_ *client, s *seat, d dice) { s.request(method, nil, options{progress: d.chance(10)}) }
}

func read(_ *client, s *seat, d dice) {
	s.request("resources/read", object{"uri": pick(d, uris...)}, options{})
}

func complete(_ *client, s *seat, d dice) {
	s.request("completion/complete", object{
		"ref": object{"type": "ref/prompt", "name": "p"}, "argument": object{"name": "a", "value": pick(d, "x", "y")},
	}, options{})
}

func ping(_ *client, s *seat, _ dice) { s.request("ping", nil, options{}) }

// setLevel changes which log lines the client wants: for all its requests to
// come if it is a modern one.
func setLevel(c *client, s *seat, d dice) {
	severity := d.IntN(len(levels))
	s.mu.Lock()
	s.model.lowest = min(s.model.lowest, severity)
	if c.modern {
		s.model.level = levels[severity]
	}
	s.mu.Unlock()
	if !c.modern {
		s.request("logging/setLevel", object{"level": levels[severity]}, options{})
	}
}

func subscribe(c *client, s *seat, d dice) {
	if c.modern {
		s.listenTo(filter{
			Tools: d.chance(70), Prompts: d.chance(20), Resources: d.chance(20),
			URIs: uris[d.IntN(3):][:d.IntN(2)],
		})
		return
	}
	s.subscribe(pick(d, uris...))
}

// listenTo opens a listen.
func (s *seat) listenTo(f filter) {
	l := &listen{asked: f, stops: s.world.stops.Load()}
	l.request = &request{
		method: "subscriptions/listen", params: object{"notifications": f}, wants: 1,
		heed: func(a answer) { s.listenEnded(l, a) },
	}
	s.mu.Lock()
	s.model.enter(l.request)
	s.model.listens[l.request.id] = l
	meta := s.meta()
	s.mu.Unlock()
	s.write(requestMessage(l.request, meta))
}

// listenEnded takes the end of a listen that the client did not end: by an error
// while there is no daemon, at once if nothing of it is honoured, or when the
// daemon is stopped for good. The caller holds mu.
func (s *seat) listenEnded(l *listen, a answer) {
	l.ended = true
	nothing := l.acked != nil && !l.acked.Tools && !l.acked.Prompts && !l.acked.Resources && len(l.acked.URIs) == 0
	stopped := l.stops%2 == 1 || s.world.stops.Load() != l.stops
	if l.acked != nil && !nothing && !stopped {
		s.world.violatef(s.name, "listen %s was ended, and nobody has stopped the daemon: %.200s %v", l.request.id, a.result, a.err)
	}
}

// subscribe subscribes a legacy client, unless that is under way.
func (s *seat) subscribe(uri string) *request {
	s.mu.Lock()
	sub := s.model.subs[uri]
	if sub == nil {
		sub = &subscription{}
		s.model.subs[uri] = sub
	}
	busy := sub.busy
	sub.busy, sub.may = true, true
	s.mu.Unlock()
	if busy {
		return nil
	}
	return s.request("resources/subscribe", object{"uri": uri}, options{
		heed:  func(a answer) { sub.busy, sub.must = false, a.err == nil },
		forgo: func() { sub.busy, sub.must = false, false },
	})
}

func unsubscribe(c *client, s *seat, d dice) {
	if c.modern {
		if l := s.anyListen(d); l != nil {
			s.cancel(l.request, func() { l.fenced = true })
		}
		return
	}
	uri := pick(d, uris...)
	s.mu.Lock()
	sub := s.model.subs[uri]
	able := sub != nil && !sub.busy
	if able {
		sub.busy, sub.must = true, false
	}
	s.mu.Unlock()
	if !able {
		return
	}
	s.request("resources/unsubscribe", object{"uri": uri}, options{
		heed: func(a answer) {
			sub.busy = false
			if a.err == nil {
				sub.may = false
			}
		},
		forgo: func() { sub.busy = false },
	})
}

// anyListen returns a listen that lives; nil if there is none.
func (s *seat) anyListen(d dice) *listen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var alive []*listen
	for _, l := range s.model.listens {
		if l.alive() {
			alive = append(alive, l)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	slices.SortFunc(alive, func(a, b *listen) int { return a.request.sent.Compare(b.request.sent) })
	return alive[d.IntN(len(alive))]
}

// takeBack cancels one of the requests in flight.
func takeBack(_ *client, s *seat, d dice) {
	n := d.IntN(1000)
	open := s.inFlight(func(*request) bool { return true })
	if len(open) > 0 {
		s.cancel(open[n%len(open)], nil)
	}
}

// repeatID uses the id of a request again that may still be open. Each use gets
// an answer.
func repeatID(_ *client, s *seat, _ dice) {
	r := &request{method: "tools/list", wants: 2, bounded: true}
	s.mu.Lock()
	s.model.enter(r)
	m := requestMessage(r, s.meta())
	s.mu.Unlock()
	s.write(m)
	s.write(m)
}

func burst(_ *client, s *seat, d dice) {
	for range 5 + d.IntN(15) {
		switch d.IntN(3) {
		case 0:
			s.call("echo", object{}, options{progress: true})
		case 1:
			s.request("tools/list", nil, options{})
		case 2:
			s.request("resources/read", object{"uri": pick(d, uris...)}, options{})
		}
	}
}

// together sends a batch, or a burst from a client that may not. Nothing in it
// may have no end, since all are answered together.
func together(c *client, s *seat, d dice) {
	if !c.batches() {
		burst(c, s, d)
		return
	}
	b := &batch{}
	o := options{batch: b, progress: d.chance(50)}
	large := d.chance(10) // too large for one answer
	for range 1 + d.IntN(8) {
		switch d.IntN(9) {
		case 0, 1:
			s.call("echo", object{}, o)
		case 2:
			s.call("slow", object{"ms": d.IntN(1500), "steps": 1 + d.IntN(4)}, o)
		case 3:
			s.request("tools/list", nil, o)
		case 4:
			s.request("resources/read", object{"uri": pick(d, uris...)}, o)
		case 5:
			s.request("ping", nil, options{batch: b})
		case 6:
			b.messages = append(b.messages, object{"jsonrpc": "2.0", "method": "notifications/chaos"})
		case 7:
			s.call("notify", object{"how": "update", "uri": pick(d, uris...)}, o)
		case 8:
			if r := s.request("resources/list", nil, o); d.chance(30) {
				s.repeat(r)
			}
		}
		if large {
			s.call("big", object{"bytes": 3 << 20}, o)
		}
	}
	s.writeBatch(b)
}

// repeat sends the last request of a batch once more. Each gets an answer.
func (s *seat) repeat(r *request) {
	s.mu.Lock()
	r.wants++
	s.mu.Unlock()
	r.batch.messages = append(r.batch.messages, r.batch.messages[len(r.batch.messages)-1])
}

func leave(c *client, _ *seat, d dice) {
	how := pick(d, leaveByEOF, leaveByEOF, leaveTerm, leaveInt, leaveHup, leaveKill)
	c.leave(how)
}

// stopReading leaves unread what the shim says, for a while.
func stopReading(_ *client, s *seat, d dice) {
	s.world.timeline.notef(s.name, "stops reading")
	s.ears.shut()
	s.noteStop(4 * time.Second)
	s.later(d.between(time.Second, 4*time.Second), func() {
		s.world.timeline.notef(s.name, "reads again")
		s.ears.open()
	})
}
