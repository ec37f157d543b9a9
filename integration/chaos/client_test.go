//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// client is an actor: it sits down, asks for what it likes, leaves, and sits
// down again.
type client struct {
	world        *world
	name         string
	modern       bool
	version      string // that a legacy client offers
	capabilities []string
	step, seats  int

	mu        sync.Mutex // guards what follows
	seat      *seat      // nil while it is away
	calls     int
	successes []string // tokens of the calls whose result says that they were executed
}

func newClient(w *world, number int) *client {
	c := &client{world: w, name: fmt.Sprintf("c%d", number)}
	d := roll(w.seed, c.name, 0)
	c.modern = d.chance(50)
	c.version = pick(d, "2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26", "2025-03-26", "2024-11-05")
	for _, capability := range []string{"sampling", "elicitation", "roots"} {
		if d.chance(80) && (capability != "elicitation" || c.modern || c.version >= "2025-06-18") {
			c.capabilities = append(c.capabilities, capability)
		}
	}
	w.timeline.notef(c.name, "modern %v, version %s, can %v", c.modern, c.version, c.capabilities)
	return c
}

// batches reports whether the client may send several messages as one.
func (c *client) batches() bool { return !c.modern && c.version < "2025-06-18" }

func (c *client) declared() object {
	declared := object{}
	for _, capability := range c.capabilities {
		declared[capability] = object{}
	}
	return declared
}

// current returns where the client sits; nil while it is away.
func (c *client) current() *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seat
}

func (c *client) nextToken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return fmt.Sprintf("%s.%d", c.name, c.calls)
}

func (c *client) succeeded(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.successes = append(c.successes, token)
}

// live is the client's part in the storm.
func (c *client) live(ctx context.Context) {
	for ctx.Err() == nil {
		c.step++
		d := roll(c.world.seed, c.name, c.step)
		rest := d.between(0, 250*time.Millisecond)
		s := c.current()
		switch {
		case s == nil || s.isEnded():
			c.sitDown()
		case !c.modern && !s.isReady():
			c.shakeHands(ctx, s)
		case d.chance(30) && s.heedFailure():
			repair(c, s, d)
		default:
			choose(d, actions)(c, s, d)
		}
		pause(ctx, rest)
	}
}

func (c *client) sitDown() {
	c.seats++
	s, err := c.world.newSeat(c, fmt.Sprintf("%s#%d", c.name, c.seats))
	if err != nil {
		c.world.violatef(c.name, "starting a shim: %v", err)
		return
	}
	c.mu.Lock()
	c.seat = s
	c.mu.Unlock()
}

func (s *seat) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model.ready
}

// heedFailure reports whether the backend needs somebody to start it again, once.
func (s *seat) heedFailure() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.model.failed
	s.model.failed = false
	return failed
}

// shakeHands does the legacy handshake, or waits for the one under way. Where
// there is no daemon to be had it is refused, and tried again.
func (c *client) shakeHands(ctx context.Context, s *seat) {
	s.mu.Lock()
	r := s.model.greeting
	s.mu.Unlock()
	if r == nil {
		r = s.request("initialize", object{
			"protocolVersion": c.version, "capabilities": c.declared(),
			"clientInfo": object{"name": "chaos-" + c.name, "version": "1"},
		}, options{})
		s.mu.Lock()
		s.model.greeting = r
		s.mu.Unlock()
	}
	a, ok := s.await(ctx, r)
	if !ok {
		return
	}
	s.mu.Lock()
	s.model.greeting, s.model.ready = nil, a.err == nil
	s.mu.Unlock()
	if a.err == nil {
		s.notify("notifications/initialized", nil)
	}
}

// leave gets up, if the client sits.
func (c *client) leave(how syscall.Signal) {
	c.mu.Lock()
	s := c.seat
	c.seat = nil
	c.mu.Unlock()
	if s != nil {
		s.leave(how)
	}
}

// dismiss ends whatever is left of the client.
func (c *client) dismiss() {
	c.leave(leaveKill)
}

// options are what a request may have besides its params.
type options struct {
	tool, token string
	progress    bool
	unbounded   bool
	heed        func(answer)
	forgo       func()
	batch       *batch // that the request goes into; nil to send it at once
}

// request sends a request with a new id.
func (s *seat) request(method string, params object, o options) *request {
	r := &request{
		method: method, tool: o.tool, token: o.token, params: params, wants: 1, bounded: !o.unbounded, heed: o.heed, forgo: o.forgo,
		batch: o.batch,
	}
	s.mu.Lock()
	n := s.model.enter(r)
	meta := s.meta()
	if o.progress {
		token := fmt.Sprintf(`"p%d"`, n)
		if n%2 == 0 {
			token = fmt.Sprint(n)
		}
		s.model.tokens[token] = r
		meta["progressToken"] = json.RawMessage(token)
	}
	s.mu.Unlock()
	s.world.tally.requests.Add(1)
	m := requestMessage(r, meta)
	if r.batch != nil {
		r.batch.messages = append(r.batch.messages, m)
	} else {
		s.write(m)
	}
	s.mu.Lock()
	r.written = true
	s.mu.Unlock()
	return r
}

// enter gives a request an id, of either kind, and notes that it is sent.
func (m *model) enter(r *request) int {
	m.last++
	r.id = fmt.Sprint(m.last)
	if m.last%3 == 0 {
		r.id = fmt.Sprintf(`"id %d"`, m.last)
	}
	r.sent, r.done = time.Now(), make(chan struct{})
	m.requests[r.id] = r
	return m.last
}

func requestMessage(r *request, meta object) object {
	params := object{}
	maps.Copy(params, r.params)
	if len(meta) > 0 && r.method != "ping" {
		params["_meta"] = meta
	}
	m := object{"jsonrpc": "2.0", "id": json.RawMessage(r.id), "method": r.method}
	if len(params) > 0 {
		m["params"] = params
	}
	return m
}

// meta is what a modern request says about the client. The caller holds mu.
func (s *seat) meta() object {
	meta := object{}
	if s.client.modern {
		meta[metaVersion] = "2026-07-28"
		meta[metaCapabilities] = s.client.declared()
		meta[metaInfo] = object{"name": "chaos-" + s.client.name, "version": "1"}
		if s.model.level != "" {
			meta[metaLevel] = s.model.level
		}
	}
	return meta
}

func (s *seat) notify(method string, params object) {
	m := object{"jsonrpc": "2.0", "method": method}
	if params != nil {
		m["params"] = params
	}
	s.write(m)
}

// await waits for the answer to a request.
func (s *seat) await(ctx context.Context, r *request) (answer, bool) {
	select {
	case <-r.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return r.answer, true
	case <-s.ended:
	case <-ctx.Done():
	}
	return answer{}, false
}

// cancel takes a request back, and asks something behind it: with that answer
// the daemon is known to have heard it.
func (s *seat) cancel(r *request, fenced func()) {
	s.mu.Lock()
	r.cancelled = true
	if r.forgo != nil {
		r.forgo()
	}
	s.mu.Unlock()
	s.notify("notifications/cancelled", object{"requestId": json.RawMessage(r.id), "reason": "changed its mind"})
	s.request("ping", nil, options{heed: func(answer) {
		r.fenced = true
		if fenced != nil {
			fenced()
		}
	}})
}

// call calls a tool.
func (s *seat) call(tool string, arguments object, o options) *request {
	o.tool = tool
	if o.token = s.client.nextToken(); !strings.HasPrefix(tool, "dev_") {
		arguments["token"] = o.token
	} else {
		o.token = ""
	}
	params := object{"name": tool, "arguments": arguments}
	if s.client.modern && o.heed == nil {
		o.heed = func(a answer) { s.comeBack(params, o, a) }
	}
	return s.request("tools/call", params, o)
}

// comeBack goes on with a call that asked for input, as a modern client does.
// The caller holds mu.
func (s *seat) comeBack(params object, o options, a answer) {
	var result struct {
		ResultType    string
		InputRequests map[string]struct {
			Method string
			Params json.RawMessage
		}
		RequestState *string
	}
	if a.err != nil || json.Unmarshal(a.result, &result) != nil || result.ResultType != "input_required" {
		return
	}
	responses := object{}
	var reply reply
	for key, q := range result.InputRequests {
		capability, known := capabilityFor[q.Method]
		if !known || s.world.plan.era == "legacy" && !slices.Contains(s.client.capabilities, capability) {
			s.world.violatef(s.name, "%s is to ask %s, which it did not say that it can", o.tool, q.Method)
			return
		}
		reply = s.world.replyTo(q.Method, o.token)
		responses[key] = inputFor(q.Method)
		if reply.refuse && q.Method == "elicitation/create" {
			responses[key] = object{"action": "decline"}
		}
	}
	if reply.silent {
		return
	}
	retry := object{"name": params["name"], "arguments": params["arguments"], "inputResponses": responses}
	if result.RequestState != nil {
		retry["requestState"] = *result.RequestState
	}
	o.progress = false
	o.heed = func(a answer) { s.comeBack(params, o, a) }
	s.later(reply.delay, func() { s.request("tools/call", retry, o) })
}

// inFlight returns the open requests that may be cancelled, in a fixed order.
func (s *seat) inFlight(keep func(*request) bool) []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*request
	for _, r := range s.model.requests {
		if r.written && r.open() && r.wants == 1 && r.method != "initialize" && r.method != "subscriptions/listen" && r.method != "ping" && keep(r) {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *request) int { return a.sent.Compare(b.sent) })
	return open
}
