//go:build unix

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// answerPatience is how long an answer may take, whatever goes wrong meanwhile.
const answerPatience = 60 * time.Second

// Keys of _meta.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaInfo         = "io.modelcontextprotocol/clientInfo"
	metaLevel        = "io.modelcontextprotocol/logLevel"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

type object = map[string]any

// model is what a client knows in one seat: what it asked for, and so what it
// may hear. It is guarded by the seat's mu.
type model struct {
	last     int
	requests map[string]*request      // by the JSON text of the id
	tokens   map[string]*request      // by the JSON text of the progress token
	subs     map[string]*subscription // by URI, of a legacy client
	listens  map[string]*listen       // by the JSON text of the id, of a modern client
	asked    map[string]*question     // by the JSON text of the daemon's id
	level    string                   // that a modern client asks for in each request
	lowest   int                      // severity of the lowest level ever asked for
	greeting *request                 // the initialize that is under way; or nil
	ready    bool                     // a legacy client's handshake is done
	updates  map[string]int           // heard, by URI and listen
	failed   bool                     // an answer said that the backend has failed, and nothing was done about it yet
}

func newModel() *model {
	return &model{
		requests: map[string]*request{}, tokens: map[string]*request{}, subs: map[string]*subscription{},
		listens: map[string]*listen{}, asked: map[string]*question{}, updates: map[string]int{},
		lowest: len(levels),
	}
}

// request is a request of the client.
type request struct {
	id, method  string
	tool, token string // of a tools/call
	params      object
	wants, got  int  // answers: one for each time that the id was used
	written     bool // so that a cancel of it comes behind it
	cancelled   bool
	fenced      bool // and the daemon is known to have heard it
	bounded     bool // it must be answered even if nothing happens
	sent        time.Time
	heed        func(answer) // called with the answer, under the seat's mu
	forgo       func()       // called when it is cancelled, likewise
	done        chan struct{}
	answer      answer
	batch       *batch // that it was sent in; or nil
}

// batch is several messages that are sent as one.
type batch struct{ messages []object }

func (r *request) open() bool { return r.got < r.wants && !r.cancelled }

// answer is what a request got.
type answer struct {
	result json.RawMessage
	err    *rpcError
}

// subscription is what a legacy client made of a URI.
type subscription struct {
	may, must, busy bool
}

// listen is a subscriptions/listen of a modern client.
type listen struct {
	request *request
	asked   filter
	acked   *filter
	fenced  bool // cancelled, and the daemon is known to have heard it
	ended   bool
	stops   int64 // of the world, when it was sent
}

func (l *listen) alive() bool { return !l.ended && !l.request.cancelled }

// filter is what a listen asks for.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

// question is a request of the daemon.
type question struct {
	answered  bool
	withdrawn bool
}

var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// hearBatch takes messages that came as one: answers to the requests of one batch.
func (s *seat) hearBatch(messages []message) {
	var of *batch
	for _, m := range messages {
		r := s.model.requests[string(m.ID)]
		if m.Method != "" || r == nil || r.batch == nil || of != nil && r.batch != of {
			s.world.violatef(s.name, "in a batch: what answers no request of one batch: %s %s", m.Method, m.ID)
			return
		}
		of = r.batch
		s.hearAnswer(m)
	}
}

// hearAnswer takes a response.
func (s *seat) hearAnswer(m message) {
	s.world.tally.answers.Add(1)
	if m.Error != nil {
		s.world.tally.failures.Add(1)
	}
	s.hearFailure(m)
	r := s.model.requests[string(m.ID)]
	if r == nil {
		s.world.violatef(s.name, "an answer to a request that was never made: id %s", m.ID)
		return
	}
	r.got++
	switch {
	case r.got > r.wants:
		s.world.violatef(s.name, "answer %d to %s %s, which was sent %d times", r.got, r.method, r.id, r.wants)
		return
	case r.cancelled && r.fenced:
		s.world.violatef(s.name, "an answer to %s %s, which the daemon knew to be cancelled", r.method, r.id)
		return
	}
	r.answer = answer{result: m.Result, err: m.Error}
	s.checkAnswer(r)
	// What comes after a cancellation is not to be relied on.
	if r.heed != nil && !r.cancelled {
		r.heed(r.answer)
	}
	if r.got == r.wants {
		close(r.done)
	}
}

// hearFailure counts what the backend did not answer itself, by devproxy's reason.
func (s *seat) hearFailure(m message) {
	type failure struct{ Reason, State string }
	var why failure
	var result struct {
		Meta struct {
			Failure failure `json:"com.github.debugmcp.devproxy/failure"`
		} `json:"_meta"`
	}
	switch {
	case m.Error != nil && m.Error.Data != nil:
		_ = json.Unmarshal(m.Error.Data, &why) // what is not devproxy's has no reason
	case bytes.Contains(m.Result, []byte(`"isError":true`)):
		// No tool of the backend says that. The shim gives no reason.
		_ = json.Unmarshal(m.Result, &result)
		if why = result.Meta.Failure; why.Reason == "" {
			why.Reason = "without-daemon"
		}
	}
	s.model.failed = s.model.failed || why.State == "failed"
	if why.Reason != "" {
		s.world.tally.refused(why.Reason)
	}
}

// checkAnswer looks at what an answer says.
func (s *seat) checkAnswer(r *request) {
	if r.answer.err != nil {
		if r.answer.err.Message == "" {
			s.world.violatef(s.name, "the error for %s %s has no message", r.method, r.id)
		}
		return
	}
	var result struct {
		ResultType *string
		IsError    bool
		Content    []struct{ Text string }
		Contents   []struct{ URI string }
	}
	if err := json.Unmarshal(r.answer.result, &result); err != nil {
		s.world.violatef(s.name, "the result of %s %s: %v", r.method, r.id, err)
		return
	}
	if s.client.modern != (result.ResultType != nil) && r.method != "ping" {
		s.world.violatef(s.name, "resultType is %s in the result of %s %s", said(result.ResultType), r.method, r.id)
	}
	// A backend that all share does not say whose call its question is about.
	asks := said(result.ResultType) == "input_required" && s.world.plan.transport != "http"
	if r.method == "resources/read" && !asks && (len(result.Contents) != 1 || result.Contents[0].URI != r.params["uri"]) {
		s.world.violatef(s.name, "the result of reading %v is %.200s", r.params["uri"], r.answer.result)
	}
	if result.IsError {
		s.world.tally.failures.Add(1)
	}
	if r.token == "" || result.IsError || result.ResultType != nil && *result.ResultType != "complete" {
		return
	}
	if len(result.Content) != 1 || !strings.HasPrefix(result.Content[0].Text, "ok "+r.token+" ") {
		s.world.violatef(s.name, "the result of %s %s is another call's: %.200s", r.tool, r.token, r.answer.result)
		return
	}
	s.client.succeeded(r.token)
}

func said(value *string) string {
	if value == nil {
		return "missing"
	}
	return *value
}

// hearNotification takes a notification, which has to concern this client.
func (s *seat) hearNotification(m message) {
	s.world.tally.news.Add(1)
	var p struct {
		Meta          map[string]json.RawMessage `json:"_meta"`
		ProgressToken json.RawMessage            `json:"progressToken"`
		RequestID     json.RawMessage            `json:"requestId"`
		URI           string
		Level         string
		Notifications filter
	}
	if m.Params != nil {
		if err := json.Unmarshal(m.Params, &p); err != nil {
			s.world.violatef(s.name, "the params of %s: %v", m.Method, err)
			return
		}
	}
	subscription := string(p.Meta[metaSubscription])
	switch m.Method {
	case "notifications/progress":
		s.hearProgress(string(p.ProgressToken))
	case "notifications/message":
		s.hearLog(p.Level)
	case "notifications/cancelled":
		s.hearWithdrawal(string(p.RequestID))
	case "notifications/subscriptions/acknowledged":
		s.hearAcknowledged(subscription, p.Notifications)
	case "notifications/resources/updated":
		s.hearChange(m.Method, subscription, p.URI)
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		s.hearChange(m.Method, subscription, "")
	default:
		s.world.violatef(s.name, "a notification that nobody sends: %s", m.Method)
	}
}

func (s *seat) hearProgress(token string) {
	r := s.model.tokens[token]
	switch {
	case r == nil:
		s.world.violatef(s.name, "progress of token %s, which is not its own", token)
	case r.got >= r.wants:
		s.world.violatef(s.name, "progress of token %s after the answer", token)
	case r.fenced:
		s.world.violatef(s.name, "progress of token %s, whose request the daemon knew to be cancelled", token)
	}
}

func (s *seat) hearLog(level string) {
	severity := slices.Index(levels, level)
	if severity < 0 || severity < s.model.lowest {
		s.world.violatef(s.name, "a log line of level %q, the lowest ever asked for is %s", level, levelName(s.model.lowest))
	}
}

func levelName(severity int) string {
	if severity >= len(levels) {
		return "none"
	}
	return levels[severity]
}

func (s *seat) hearWithdrawal(id string) {
	q := s.model.asked[id]
	if q == nil {
		s.world.violatef(s.name, "question %s is withdrawn, which was never asked", id)
		return
	}
	q.withdrawn = true
}

func (s *seat) hearAcknowledged(id string, honoured filter) {
	l := s.model.listens[id]
	switch {
	case l == nil || !s.client.modern:
		s.world.violatef(s.name, "an acknowledgement of listen %s, which was never made", id)
		return
	case l.acked != nil:
		s.world.violatef(s.name, "a second acknowledgement of listen %s", id)
		return
	case l.ended || l.fenced:
		s.world.violatef(s.name, "an acknowledgement of listen %s, which has ended", id)
		return
	}
	for _, uri := range honoured.URIs {
		if !slices.Contains(l.asked.URIs, uri) {
			s.world.violatef(s.name, "listen %s is to hear of %s, which it did not ask for", id, uri)
		}
	}
	l.acked = &honoured
}

// hearChange takes the news of a change: of a resource if uri is not empty.
func (s *seat) hearChange(method, subscription, uri string) {
	if s.client.modern {
		l := s.model.listens[subscription]
		switch {
		case l == nil:
			s.world.violatef(s.name, "%s for listen %s, which was never made", method, subscription)
			return
		case l.ended || l.fenced:
			s.world.violatef(s.name, "%s for listen %s, which has ended", method, subscription)
			return
		case l.acked == nil && !l.request.cancelled: // else the shim has swallowed it
			s.world.violatef(s.name, "%s for listen %s before its acknowledgement", method, subscription)
			return
		case !l.asked.wants(method, uri):
			s.world.violatef(s.name, "%s of %q for listen %s, which did not ask for it", method, uri, subscription)
			return
		}
	} else {
		if subscription != "" {
			s.world.violatef(s.name, "%s has a subscription id", method)
		}
		if !s.model.ready {
			s.world.violatef(s.name, "%s before the handshake is done", method)
		}
		if sub := s.model.subs[uri]; uri != "" && (sub == nil || !sub.may) {
			s.world.violatef(s.name, "an update of %s, which it has not subscribed to", uri)
			return
		}
	}
	s.model.updates[updateKey(uri, subscription)]++
}

func updateKey(uri, subscription string) string { return uri + " " + subscription }

func (f filter) wants(method, uri string) bool {
	switch method {
	case "notifications/tools/list_changed":
		return f.Tools
	case "notifications/prompts/list_changed":
		return f.Prompts
	case "notifications/resources/list_changed":
		return f.Resources
	}
	return slices.Contains(f.URIs, uri)
}

// hearQuestion takes a request of the daemon. What becomes of it depends on the
// call that asked.
func (s *seat) hearQuestion(m message) {
	id := string(m.ID)
	switch {
	case s.client.modern:
		s.world.violatef(s.name, "a request to a modern client: %s", m.Method)
		return
	case s.model.asked[id] != nil:
		s.world.violatef(s.name, "two requests with id %s", id)
		return
	case !s.model.ready:
		s.world.violatef(s.name, "%s before the handshake is done", m.Method)
	}
	q := &question{}
	s.model.asked[id] = q
	capability, known := capabilityFor[m.Method]
	if m.Method != "ping" && (!known || !slices.Contains(s.client.capabilities, capability)) {
		s.world.violatef(s.name, "%s, which it did not say that it can", m.Method)
		return
	}
	token := tokenIn(m.Params)
	if s.world.plan.transport == "http" && token != "" && !strings.HasPrefix(token, s.client.name+".") {
		s.world.violatef(s.name, "a question of another client's call: %s", token)
		return
	}
	reply := s.world.replyTo(m.Method, token)
	if reply.silent {
		return
	}
	s.later(reply.delay, func() { s.answerQuestion(m, q, reply) })
}

// answerQuestion answers, unless the daemon does not want it any more.
func (s *seat) answerQuestion(m message, q *question, reply reply) {
	s.mu.Lock()
	over := q.withdrawn || q.answered
	q.answered = true
	s.mu.Unlock()
	if over {
		return
	}
	response := object{"jsonrpc": "2.0", "id": m.ID}
	if reply.refuse {
		response["error"] = object{"code": -1, "message": "the user says no"}
	} else {
		response["result"] = inputFor(m.Method)
	}
	s.write(response)
}

// capabilityFor is what a client must have said for it to be asked.
var capabilityFor = map[string]string{
	"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots",
}

// inputFor is a good answer to a question.
func inputFor(method string) object {
	switch method {
	case "sampling/createMessage":
		return object{"role": "assistant", "model": "m", "content": object{"type": "text", "text": "x"}}
	case "elicitation/create":
		return object{"action": "accept", "content": object{}}
	case "roots/list":
		return object{"roots": []any{}}
	}
	return object{}
}

// tokenIn is the token of the call that asks, as far as the question says it.
func tokenIn(params json.RawMessage) string {
	var p struct {
		Message  string
		Messages []struct{ Content struct{ Text string } }
	}
	if params == nil || json.Unmarshal(params, &p) != nil {
		return ""
	}
	if len(p.Messages) > 0 {
		return p.Messages[0].Content.Text
	}
	return p.Message
}

// reply is what a client does about a question.
type reply struct {
	silent, refuse bool
	delay          time.Duration
}

// replyTo decides that by the call's token.
func (w *world) replyTo(method, token string) reply {
	d := roll(w.seed, "reply to "+method+" of "+token, 0)
	n := d.IntN(100)
	return reply{silent: n < 15, refuse: n >= 15 && n < 30, delay: d.between(0, 800*time.Millisecond)}
}

// overdue returns a request that should have been answered by now.
func (s *seat) overdue() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forsaken {
		return ""
	}
	for _, r := range s.model.requests {
		since := r.sent
		if s.stopped.After(since) {
			since = s.stopped
		}
		if r.bounded && r.open() && time.Since(since) > answerPatience {
			return fmt.Sprintf("%s %s %s (id %s) was not answered within %v", r.method, r.tool, r.token, r.id, answerPatience)
		}
	}
	return ""
}
