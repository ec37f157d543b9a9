//go:build unix

package integration

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// matrixBackends is every fixture, and two that speak one era in ways of their
// own. What a client cannot do with them directly it can behind devproxy.
var matrixBackends = append(slices.Clone(fixtureBackends),
	backend{name: "ts2-http-modern-only", eras: "modern", transport: "http", command: nodeFixture("ts2.mjs", "http", "--port", "{port}", "--modern-only")},
	backend{name: "go-legacy-only", eras: "legacy", transport: "stdio", command: goFixture("legacy-only")},
)

// couples are the clients that share a backend: each client once, always two of
// different eras. The first one's request starts the backend.
var couples = [][2]string{{"ts2-auto", "ts1"}, {"go-2025", "ts2-pin"}, {"go", "ts2-legacy"}}

// couplesOn returns those that share the backend at an index of matrixBackends.
// Where the starter decides about the link all of them do. Elsewhere a client's
// link is the one that it has alone, and what is left to see is that two of
// different eras do not disturb each other: one couple for a backend, in turns,
// so that each is on shared links, on HTTP, and on links of both eras.
func couplesOn(index int) [][2]string {
	if starterDecides(matrixBackends[index]) {
		return couples
	}
	return couples[index%len(couples):][:1]
}

// step is one thing that a client does in a cell of the matrix.
type step struct {
	name string
	run  func(*seat, testing.TB)
}

// steps in the order in which a client takes them. The subscription of "change"
// lives on until the end, across the restart.
var steps = []step{
	{"list", (*seat).lists},
	{"call", (*seat).calls},
	{"read, prompt, completion", (*seat).reads},
	{"error", (*seat).failures},
	{"unknown method", (*seat).unknownMethod},
	{"progress", (*seat).progress},
	{"subscribe, update, list_changed", (*seat).subscription},
	{"elicitation", (*seat).elicited},
	{"elicitation in push style", (*seat).elicitedByPush},
	{"elicitation by URL", (*seat).elicitedByURL},
	{"URL elicitation required", (*seat).gate},
	{"sampling", (*seat).sampled},
	{"roots", (*seat).askedForRoots},
	{"log", (*seat).logs},
	{"cancel", (*seat).cancelling},
}

// impossible says what does not work in a cell, and why. It names only what
// does not work without devproxy either, and what DESIGN gives up.
type impossible struct {
	step string
	// client, backend and link restrict the entry to clients and backends whose
	// names begin so, and to links of that era; "" is any.
	client, backend, link string
	reason                string
	// direct names a client and a stdio backend that show the same without
	// devproxy.
	direct [2]string
}

var impossibles = []impossible{
	{
		step: "elicitation in push style", link: "modern", direct: [2]string{"ts2-pin", "go-stdio"},
		reason: "a modern server may not send requests; both SDKs refuse the handler that tries",
	},
	{
		step: "roots", client: "go", backend: "ts2", link: "modern", direct: [2]string{"go", "ts2-stdio"},
		reason: "go-sdk 1.8.0 fails on an input request without params, which is how TypeScript 2.4.0 asks for roots",
	},
}

func (i impossible) covers(s *seat, step string) bool {
	return i.step == step && strings.HasPrefix(s.kind.name, i.client) &&
		strings.HasPrefix(s.backend.name, i.backend) && (i.link == "" || i.link == s.link)
}

// seat is one client in a cell.
type seat struct {
	cell
	project *project
	backend backend
	// link is the era in which the backend is spoken to for this client.
	link string
	// unsubscribe takes back what "change" subscribed to.
	unsubscribe func()
}

// The matrix: every client behind devproxy on every backend, alone and beside a
// client of the other era, through a restart.
func TestMatrix(t *testing.T) {
	for index, b := range matrixBackends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			// One project for a backend: what comes and goes are its clients.
			p := newProject(t)
			// Servers on TypeScript 1.32.2 do not end with their input.
			p.use(t, b, `stop_timeout = "300ms"`)
			p.startDaemon(t)
			for i, kind := range clientKinds {
				t.Run(kind.name, func(t *testing.T) {
					// Elsewhere the restart at the last one's end has left a fresh backend.
					if i == 0 || starterDecides(b) {
						p.ctl(t, "stop")
					}
					s := p.seat(t, b, kind.name, kind.era)
					s.client.tools(t)
					s.checkLink(t)
					for _, step := range steps {
						s.take(t, step)
					}
					restart(t, p, s)
				})
			}
			for _, couple := range couplesOn(index) {
				t.Run(couple[0]+" and "+couple[1], func(t *testing.T) {
					p.ctl(t, "stop")
					starter := clientNamed(t, couple[0]).era
					one, other := p.seat(t, b, couple[0], starter), p.seat(t, b, couple[1], starter)
					for _, s := range []*seat{one, other} {
						s.client.tools(t)
						s.checkLink(t)
					}
					settle(t, one, other)
					for _, step := range steps {
						one.take(t, step)
						other.overhears(t, one, step.name)
						other.take(t, step)
						one.overhears(t, other, step.name)
					}
					atOnce(t, one, other)
					restart(t, p, one, other)
				})
			}
		})
	}
}

// What the matrix leaves out does not work without devproxy either.
func TestImpossibleDirectly(t *testing.T) {
	for _, known := range impossibles {
		t.Run(known.step, func(t *testing.T) {
			t.Parallel()
			p := newFolders(t)
			kind, b := clientNamed(t, known.direct[0]), backendNamed(t, known.direct[1])
			s := &seat{
				cell:    cell{client: kind.make(t, p.clientEnv(), b.direct(t, p)...), kind: kind, era: kind.era},
				backend: b, link: landingEra(kind, b),
			}
			if !known.covers(s, known.step) {
				t.Fatalf("%s on %s is no case of the entry", kind.name, b.name)
			}
			if got := s.client.connect(t); got.Era != s.link {
				t.Fatalf("landed on %+v, want the %s era", got, s.link)
			}
			i := slices.IndexFunc(steps, func(step step) bool { return step.name == known.step })
			if failures := attempt(t, s, steps[i]); len(failures) == 0 {
				t.Errorf("works directly by now: %s", known.reason)
			}
		})
	}
}

// seat connects a client. starter is the era of the client whose request starts
// the backend.
func (p *project) seat(t *testing.T, b backend, name, starter string) *seat {
	t.Helper()
	kind := clientNamed(t, name)
	s := &seat{
		cell:    cell{client: p.client(t, name), kind: kind, era: kind.era},
		project: p, backend: b, link: linkEra(b, kind.era, starter),
	}
	if got := s.client.connect(t); got.Era != kind.era {
		t.Fatalf("%s landed on %+v, want the %s era", name, got, kind.era)
	}
	return s
}

// starterDecides says that the link to a backend has the era of the client whose
// request starts it.
func starterDecides(b backend) bool {
	return b.eras == "legacy+modern" && b.transport == "stdio"
}

// linkEra is the era in which a backend is to be spoken to for a client.
func linkEra(b backend, client, starter string) string {
	switch {
	case starterDecides(b):
		return starter
	case b.eras == "legacy" || b.eras == "modern":
		return b.eras
	}
	// The HTTP fixtures that offer both keep no session for a legacy client,
	// who is better served by a translation.
	return "modern"
}

// checkLink compares the status with what the cell expects.
func (s *seat) checkLink(t *testing.T) {
	t.Helper()
	got := s.project.status(t)
	if s.backend.transport == "stdio" && (got.Backend.ProtocolVersion == "2026-07-28") != (s.link == "modern") {
		t.Errorf("the backend is spoken to in version %s, want the %s era", got.Backend.ProtocolVersion, s.link)
	}
	if shared := s.backend.transport != "http"; got.Backend.SharedLink != shared {
		t.Errorf("the link is shared: %v, want %v", got.Backend.SharedLink, shared)
	}
	var eras []string
	for _, session := range got.Sessions {
		eras = append(eras, session.ProtocolEra)
	}
	if !slices.Contains(eras, s.era) {
		t.Errorf("the sessions have the eras %v, want %s among them", eras, s.era)
	}
}

// take runs a step, unless it is known not to work.
func (s *seat) take(t *testing.T, step step) {
	t.Helper()
	for _, known := range impossibles {
		if known.covers(s, step.name) {
			return
		}
	}
	if failures := attempt(t, s, step); len(failures) > 0 {
		t.Errorf("%s, %s link, %s: %s", s.kind.name, s.link, step.name, strings.Join(failures, "\n"))
	}
}

// overhears fails the test for what a client heard of what another one did.
func (s *seat) overhears(t *testing.T, whose *seat, step string) {
	t.Helper()
	// Whatever is under way reaches the client before the answer to this.
	s.client.wantText(t, "quiet", "echo", object{"text": "quiet"})
	for _, e := range s.client.inbox.pending() {
		// On a shared link a log line has no owner, and over HTTP its own may reach
		// a client late. Changed lists are for all.
		ownerless := e.Method == "notifications/message" && (s.backend.transport != "http" || step != "log") ||
			strings.HasSuffix(e.Method, "list_changed")
		// Both have subscribed to the same resource.
		subscribed := e.Method == "notifications/resources/updated" && s.unsubscribe != nil
		if !ownerless && !subscribed {
			t.Errorf("%s heard of %s's %s: %v", s.kind.name, whose.kind.name, step, e)
		}
	}
	s.client.forget()
}

// settle waits until what follows the start of the backend has reached the
// clients.
func settle(t *testing.T, seats ...*seat) {
	t.Helper()
	for _, s := range seats {
		s.client.wantText(t, "settled", "echo", object{"text": "settled"})
		s.client.forget()
	}
}

func (s *seat) failures(t testing.TB) {
	t.Helper()
	if failed := s.client.tool(t, "fail", nil); !failed.IsError || failed.text() != "failing as told" {
		t.Errorf("fail gave %+v", failed)
	}
	s.client.wantError(t, -32602, "readResource", object{"params": object{"uri": "test://nope"}})
}

func (s *seat) unknownMethod(t testing.TB) {
	t.Helper()
	code := -32601
	if s.backend.name == "go-http" {
		// go-sdk 1.8.0 answers 400 with plain text, upon which its own client
		// gives up the session and the TypeScript ones fail the request.
		code = -32603
	}
	s.client.wantError(t, code, "request", object{"method": "vendor/echo", "params": object{"a": 1}})
	s.client.wantText(t, "still here", "echo", object{"text": "still here"})
}

// subscription hears a change it asked for, none after it took that back, and
// asks again.
func (s *seat) subscription(t testing.TB) {
	t.Helper()
	unsubscribe := s.subscribe(t)
	s.touched(t)
	unsubscribe()
	updates := func() int {
		s.client.forget()
		s.client.wantText(t, "touched", "touch", nil)
		if s.kind.goSDK || s.era == "legacy" {
			// Over HTTP it may come after the answers. The others have ended the
			// one listen that brought both.
			s.client.awaitNotification(t, "notifications/tools/list_changed")
		}
		s.client.wantText(t, "quiet", "echo", object{"text": "quiet"})
		return s.client.heard(notification("notifications/resources/updated"))
	}
	if s.kind.goSDK && s.era == "modern" {
		// It ends its listen in the background.
		await(t, "the end of the updates", func() (bool, string) { return updates() == 0, "not yet" })
	} else if n := updates(); n > 0 {
		t.Errorf("heard %d updates after unsubscribing", n)
	}
	s.unsubscribe = s.subscribe(t)
	s.touched(t)
}

// touched lets the backend change what the client has subscribed to.
func (s *seat) touched(t testing.TB) {
	t.Helper()
	s.client.forget()
	s.client.wantText(t, "touched", "touch", nil)
	s.client.awaitNotification(t, "notifications/tools/list_changed")
	updated := s.client.awaitNotification(t, "notifications/resources/updated")
	if got := decode[struct{ URI string }](t, updated.Params); got.URI != "test://a" {
		t.Errorf("updated %s", updated.Params)
	}
	s.client.wantText(t, "quiet", "echo", object{"text": "quiet"})
	if n := s.client.heard(notification("notifications/resources/updated")); n > 0 {
		t.Errorf("heard of the update %d times too many", n)
	}
	// The Go fixture changes its list twice. Where the one conversation with a
	// modern backend has to be asked anew for list changes, these are announced
	// once more, since some may have been missed.
	repeats := strings.HasPrefix(s.backend.name, "go") || s.link == "modern" && s.backend.transport == "stdio"
	if n := s.client.heard(notification("notifications/tools/list_changed")); n > 0 && !repeats {
		t.Errorf("heard of the changed list %d times too many", n)
	}
}

func (s *seat) elicited(t testing.TB) {
	t.Helper()
	s.asksFor(t, "ask", "elicitation/create", "accept Bob")
}

func (s *seat) elicitedByPush(t testing.TB) {
	t.Helper()
	s.asksFor(t, "push", "elicitation/create", "accept Bob")
}

func (s *seat) elicitedByURL(t testing.TB) {
	t.Helper()
	s.asksFor(t, "visit", "elicitation/create", "accept")
}

func (s *seat) sampled(t testing.TB) {
	t.Helper()
	s.asksFor(t, "sample", "sampling/createMessage", "hello")
}

func (s *seat) askedForRoots(t testing.TB) {
	t.Helper()
	s.asksFor(t, "roots", "roots/list", "file:///fixture")
}

// asksFor calls a tool that asks the client.
func (s *seat) asksFor(t testing.TB, tool, method, want string) {
	t.Helper()
	s.client.wantText(t, want, tool, nil)
	// The go-sdk answers roots/list from the list it was given.
	if method != "roots/list" || !s.kind.goSDK {
		s.client.await(t, method, func(e event) bool { return e.Event == "request" && e.Method == method })
	}
	if more := s.client.heard(func(e event) bool { return e.Event == "request" }); more > 0 {
		t.Errorf("was asked %d times too many", more)
	}
}

// gate calls a tool that refuses until the user has been sent to a page: with an
// error that a legacy client sees, and a modern one as a request for input.
func (s *seat) gate(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(s.backend.name, "ts1") {
		return // only this SDK has the error
	}
	if s.era == "legacy" {
		s.client.wantError(t, -32042, "callTool", toolCall("gate", object{"who": s.kind.name}))
		s.client.wantText(t, "open", "gate", object{"who": s.kind.name})
		return
	}
	s.client.wantText(t, "open", "gate", object{"who": s.kind.name})
	s.client.await(t, "the question", func(e event) bool { return e.Event == "request" && e.Method == "elicitation/create" })
}

func (s *seat) cancelling(t testing.TB) {
	t.Helper()
	const line = "fixture: slow was cancelled"
	before := strings.Count(s.project.ctl(t, "logs", "-n", "0", "--source", "backend"), line)
	s.cancels(t, func() { s.project.awaitLog(t, "backend", line, before+1) })
}

// atOnce lets both clients use the backend at the same time: each gets its own
// answers and its own progress.
func atOnce(t *testing.T, seats ...*seat) {
	t.Helper()
	var calls []*call
	for i, s := range seats {
		args := toolCall("slow", object{"ms": 60, "steps": i + 2})
		args["progress"] = true
		calls = append(calls, s.client.begin(t, "callTool", args))
	}
	for i, s := range seats {
		if result, err := calls[i].wait(t); err != nil || decode[toolResult](t, result).text() != "done" {
			t.Errorf("%s: slow gave %s, %v", s.client.name, result, err)
		}
		s.client.wantProgress(t, i+2)
		if more := s.client.heard(func(e event) bool { return e.Event == "progress" }); more > 0 {
			t.Errorf("%s heard %d progress notifications too many", s.client.name, more)
		}
	}
}

// restart restarts the backend under the clients: the calls in flight are
// answered with what happened, and everything else goes on.
func restart(t *testing.T, p *project, seats ...*seat) {
	t.Helper()
	var calls []*call
	for _, s := range seats {
		args := toolCall("slow", object{"ms": 60_000, "steps": 1000})
		args["progress"] = true
		calls = append(calls, s.client.begin(t, "callTool", args))
		s.client.await(t, "progress of the call in flight", func(e event) bool { return e.Event == "progress" })
		s.client.forget()
	}
	p.ctl(t, "restart")
	for i, s := range seats {
		result, err := calls[i].wait(t)
		if err != nil {
			t.Errorf("%s: the call in flight gave %v, want a result that says what happened", s.kind.name, err)
		} else if got := decode[toolResult](t, result); !got.IsError || !strings.Contains(got.text(), "restart") {
			t.Errorf("%s: the call in flight gave %+v, want an error that says what happened", s.kind.name, got)
		}
		s.client.awaitNotification(t, "notifications/tools/list_changed")
	}
	for _, s := range seats {
		s.lists(t)
		s.calls(t)
		settle(t, seats...)
		// Nobody has to subscribe again.
		s.touched(t)
	}
}

// attempt takes a step that may fail, and returns what it says.
func attempt(t testing.TB, s *seat, step step) []string {
	t.Helper()
	v := &verdict{TB: t}
	var group sync.WaitGroup
	// A goroutine of its own, for Fatalf to end.
	group.Go(func() { step.run(s, v) })
	group.Wait()
	return v.failures
}

// verdict gathers the failures of an attempt instead of failing the test.
type verdict struct {
	testing.TB
	failures []string
}

func (v *verdict) Helper() {}

func (v *verdict) Failed() bool { return len(v.failures) > 0 }

func (v *verdict) Errorf(format string, args ...any) {
	v.failures = append(v.failures, fmt.Sprintf(format, args...))
}

func (v *verdict) Error(args ...any) { v.failures = append(v.failures, fmt.Sprint(args...)) }

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Fatal(args ...any) {
	v.Error(args...)
	runtime.Goexit()
}

func (v *verdict) FailNow() { runtime.Goexit() }
