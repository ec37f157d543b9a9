//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// recovery is how long it may take until everything works again once nothing
	// goes wrong any more.
	recovery = 30 * time.Second
	// newsPatience is how long an update may take to reach a client.
	newsPatience = 10 * time.Second
)

// calm proves that all is well again.
func (w *world) calm(ctx context.Context) {
	for _, c := range w.clients {
		c.quieten()
	}
	w.calmBackend()
	if !await(ctx, recovery, func() bool { return w.command(ctx, "calm", "devproxyd", "start").code == 0 }) {
		w.violatef("calm", "devproxyd start does not succeed")
		return
	}
	if w.plan.newCalm {
		w.renew(ctx)
	}
	w.restartIfNeeded(ctx)
	each(w.clients, func(c *client) { c.recover(ctx) })
	if w.isBroken() {
		return
	}
	each(w.clients, func(c *client) { c.settle(ctx) })
	if w.isBroken() {
		return
	}
	each(w.clients, func(c *client) { c.subscribeAnew(ctx) })
	for _, uri := range uris {
		if !w.isBroken() {
			w.checkNews(ctx, uri)
		}
	}
}

// renew replaces devproxyd: devproxyd restart has to take that over.
func (w *world) renew(ctx context.Context) {
	version, err := w.upgrade()
	if err != nil {
		w.violatef("calm", "replacing devproxyd: %v", err)
		return
	}
	if o := w.command(ctx, "calm", "devproxyd", "restart"); o.code != 0 {
		w.violatef("calm", "devproxyd restart: %v", o)
		return
	}
	if s, ok := w.status(ctx, "calm"); !ok || (s.Daemon.Version == otherVersion) != (version == otherVersion) {
		w.violatef("calm", "the daemon is %q after devproxyd restart, and %s is installed", s.Daemon.Version, version)
	}
}

// calmBackend lets every life of the backend from now on get as far as to serve.
func (w *world) calmBackend() {
	if err := os.WriteFile(filepath.Join(w.base, "calm"), nil, 0o644); err != nil {
		w.violatef("calm", "%v", err)
	}
}

func each(clients []*client, do func(*client)) {
	var doing sync.WaitGroup
	for _, c := range clients {
		doing.Go(func() { do(c) })
	}
	doing.Wait()
}

// restartIfNeeded restarts a backend that is not started again by itself, and any
// other in some worlds.
func (w *world) restartIfNeeded(ctx context.Context) {
	restart := w.plan.freshCalm
	if !await(ctx, recovery, func() bool {
		s, ok := w.status(ctx, "calm")
		w.timeline.notef("calm", "the backend is %s: %s", s.state(), s.Backend.Message)
		if !ok {
			return false
		}
		restart = restart || s.state() == "failed"
		if restart {
			restart = w.command(ctx, "calm", "devproxyctl", "restart").code != 0
			return !restart
		}
		return s.state() == "running" || s.state() == "idle"
	}) && ctx.Err() == nil {
		w.violatef("calm", "the backend does not come up again")
	}
}

// quieten ends what the client does not need an answer to any more.
func (c *client) quieten() {
	s := c.current()
	if s == nil || s.isEnded() {
		return
	}
	s.ears.open()
	for _, r := range s.inFlight(func(r *request) bool { return !r.bounded }) {
		s.cancel(r, nil)
	}
}

// recover sits down if need be, and has to get the backend's tools and a good
// answer from one of them.
func (c *client) recover(ctx context.Context) {
	last := "nothing was tried"
	ok := await(ctx, recovery, func() bool {
		s := c.current()
		if s == nil || s.isEnded() {
			c.sitDown()
			last = "it had to sit down"
			return false
		}
		if !c.modern && !s.isReady() {
			c.shakeHands(ctx, s)
			last = "the handshake was not done"
			return false
		}
		last = s.tryTools(ctx)
		return last == ""
	})
	if !ok && ctx.Err() == nil {
		c.world.violatef(c.name, "nothing works within %v of the last fault: %s", recovery, last)
	}
}

// tryTools returns what is wrong with the tools.
func (s *seat) tryTools(ctx context.Context) string {
	list, ok := s.await(ctx, s.request("tools/list", nil, options{}))
	var result struct{ Tools []struct{ Name string } }
	if !ok || list.err != nil || json.Unmarshal(list.result, &result) != nil {
		return "tools/list failed"
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	if build := s.world.builds.name(); !slices.Contains(names, build) || !slices.Contains(names, "echo") {
		return "tools/list has no " + build + ": " + strings.Join(names, ", ")
	}
	r := s.call("echo", object{}, options{heed: func(answer) {}})
	echoed, ok := s.await(ctx, r)
	if !ok || echoed.err != nil || !strings.Contains(string(echoed.result), "ok "+r.token+" ") {
		return "echo failed: " + string(echoed.result)
	}
	return ""
}

// settle waits for the answers to everything that is still open.
func (c *client) settle(ctx context.Context) {
	s := c.current()
	bounded := func(r *request) bool { return r.bounded }
	if !await(ctx, recovery, func() bool { return len(s.inFlight(bounded)) == 0 }) && ctx.Err() == nil {
		for _, r := range s.inFlight(bounded) {
			c.world.violatef(s.name, "%s %s %s (id %s) is not answered though all is well", r.method, r.tool, r.token, r.id)
		}
	}
}

// subscribeAnew makes sure that it is known what the client hears of.
func (c *client) subscribeAnew(ctx context.Context) {
	s := c.current()
	d := roll(c.world.seed, c.name+" subscribes anew", 0)
	if c.modern {
		s.listenTo(filter{Tools: true, URIs: []string{pick(d, uris...)}})
		if !await(ctx, newsPatience, s.allAcknowledged) && ctx.Err() == nil {
			c.world.violatef(s.name, "a listen is not acknowledged within %v", newsPatience)
		}
		return
	}
	for _, uri := range uris {
		if s.isInDoubt(uri) || d.chance(40) {
			if r := s.subscribe(uri); r != nil {
				if a, ok := s.await(ctx, r); (!ok || a.err != nil) && ctx.Err() == nil {
					c.world.violatef(s.name, "subscribing to %s: %v", uri, a.err)
				}
			}
		}
	}
}

func (s *seat) allAcknowledged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.model.listens {
		if l.alive() && l.acked == nil {
			return false
		}
	}
	return true
}

// isInDoubt reports whether it is not known if a legacy client is subscribed.
func (s *seat) isInDoubt(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.model.subs[uri]
	return sub != nil && sub.may && !sub.must
}

// expected returns what the client has to hear when a resource changes, with
// how often it has heard it so far.
func (s *seat) expected(uri string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	expected := map[string]int{}
	if sub := s.model.subs[uri]; sub != nil && sub.must {
		expected[updateKey(uri, "")] = s.model.updates[updateKey(uri, "")]
	}
	for id, l := range s.model.listens {
		if l.alive() && l.acked != nil && slices.Contains(l.acked.URIs, uri) {
			expected[updateKey(uri, id)] = s.model.updates[updateKey(uri, id)]
		}
	}
	return expected
}

// unheard returns what of it was not heard since.
func (s *seat) unheard(before map[string]int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unheard []string
	for key, n := range before {
		if s.model.updates[key] <= n {
			unheard = append(unheard, key)
		}
	}
	return unheard
}

// checkNews lets the backend say that a resource has changed: all who subscribed
// to it have to hear that. That nobody else does is looked at all the time.
func (w *world) checkNews(ctx context.Context, uri string) {
	before := map[*client]map[string]int{}
	for _, c := range w.clients {
		before[c] = c.current().expected(uri)
	}
	speaker := w.clients[0].current()
	said, ok := speaker.await(ctx, speaker.call("notify", object{"how": "update", "uri": uri}, options{heed: func(answer) {}}))
	if (!ok || said.err != nil) && ctx.Err() == nil {
		w.violatef(speaker.name, "calling notify: %v", said.err)
		return
	}
	for _, c := range w.clients {
		s := c.current()
		if !await(ctx, newsPatience, func() bool { return len(s.unheard(before[c])) == 0 }) && ctx.Err() == nil {
			w.violatef(s.name, "the news was not heard within %v: %q", newsPatience, s.unheard(before[c]))
		}
	}
}
