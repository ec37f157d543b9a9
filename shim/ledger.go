package shim

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// What the shim remembers is bounded. Above a bound something is not resumed
// after the loss of the daemon, and the client gets an error or a note says so;
// nothing is lost while the daemon lives.
const (
	// maxKeptBody is the largest request whose text is kept while it is in
	// flight. Those that are safe to send again are a few hundred bytes.
	maxKeptBody = 1 << 20
	// maxKept bounds the text that is kept in all.
	maxKept = 8 << 20
	// maxCalls bounds the requests that are open at a time. The daemon refuses
	// much sooner; this is for when there is none.
	maxCalls = 10_000
	// maxSubscriptions bounds the resources whose subscription is replayed, and
	// the daemon's questions whose cancellation is told.
	maxSubscriptions = 10_000
	// maxSubscribed bounds the text of those subscriptions. The daemon takes less.
	maxSubscribed = 8 << 20
)

// The methods and members that the shim knows. Everything else passes unread.
const (
	methodInitialize  = "initialize"
	methodDiscover    = "server/discover"
	methodPing        = "ping"
	methodSetLevel    = "logging/setLevel"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodListen      = "subscriptions/listen"
	methodToolsCall   = "tools/call"
	methodRead        = "resources/read"

	noteCancelled    = "notifications/cancelled"
	noteInitialized  = "notifications/initialized"
	noteAcknowledged = "notifications/subscriptions/acknowledged"

	// Keys of _meta, from the 2026-07-28 schema.
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// mintedPrefix begins the ids of requests that the shim sends of its own.
const mintedPrefix = "devproxy-shim:"

// call is one request of the client that is not answered.
type call struct {
	id      wire.ID
	method  string
	modern  bool // a tools/call of the modern era
	answers bool // a resources/read that brings inputResponses
	seq     uint64
	element []byte // its text in the batch that waits with it; nil for others

	sent   bool   // a daemon got it, whole or in part
	frame  []byte // its text, kept since it was sent; nil if it is too much
	resent bool   // a second daemon may have got it already

	acknowledged bool // a listen whose acknowledgement the client has
	duplicates   int  // further requests with its id, each owed an error
}

// ledger is what a daemon has to know of the client, and what the client is
// owed. It belongs to the loop.
type ledger struct {
	calls map[wire.ID]*call
	seq   uint64
	kept  int // bytes

	// handshake is the params of the initialize that was answered, and
	// shaken that there was one; initialized, that the client has confirmed it.
	handshake   []byte
	shaken      bool
	initialized bool

	level         []byte            // params of the last logging/setLevel
	subscriptions map[string][]byte // params of resources/subscribe by URI
	order         []string          // the URIs as they were subscribed to
	subscribed    int               // bytes of the two
	unresumed     bool              // a subscription was too much to be kept, and nobody was told yet

	questions map[wire.ID]bool // the daemon's requests that wait for the client
	minted    uint64
}

func newLedger() *ledger {
	return &ledger{
		calls:         map[wire.ID]*call{},
		subscriptions: map[string][]byte{},
		questions:     map[wire.ID]bool{},
	}
}

// open enters a request of the client.
func (l *ledger) open(m wire.Message) *call {
	l.seq++
	c := &call{id: m.ID, method: m.Method, seq: l.seq}
	switch m.Method {
	case methodToolsCall:
		c.modern = member(member(m.Params, "_meta"), metaVersion) != nil
	case methodRead:
		c.answers = member(m.Params, "inputResponses") != nil
	}
	l.calls[m.ID] = c
	return c
}

// sending notes that c goes to a daemon now, and keeps its text if it may.
func (l *ledger) sending(c *call, frame []byte) {
	c.sent = true
	if c.element != nil {
		// Apart from the rest of its batch, which may be large.
		frame, c.element = bytes.Clone(c.element), nil
	}
	if len(frame) > maxKeptBody || l.kept+len(frame) > maxKept {
		return
	}
	c.frame = frame
	l.kept += len(frame)
}

// unsend takes c back from a daemon and returns its text.
func (l *ledger) unsend(c *call) []byte {
	frame := c.frame
	l.kept -= len(frame)
	c.sent, c.frame = false, nil
	return frame
}

// forget removes c: it is answered or abandoned.
func (l *ledger) forget(c *call) {
	l.unsend(c)
	delete(l.calls, c.id)
}

// openCalls returns the calls in the order of their coming.
func (l *ledger) openCalls() []*call {
	bySeq := func(a, b *call) int { return cmp.Compare(a.seq, b.seq) }
	return slices.SortedFunc(maps.Values(l.calls), bySeq)
}

// sentCalls returns those of them that a daemon has.
func (l *ledger) sentCalls() []*call {
	return slices.DeleteFunc(l.openCalls(), func(c *call) bool { return !c.sent })
}

// settle takes an answer of the daemon into account. It returns false if the
// answer is to a request of the shim's own, and not for the client.
func (l *ledger) settle(m wire.Message) (forClient bool) {
	if strings.HasPrefix(string(m.ID), `"`+mintedPrefix) {
		return false
	}
	c := l.calls[m.ID]
	if c == nil {
		return true
	}
	if c.duplicates > 0 && isInvalidRequest(m) {
		c.duplicates--
		return true
	}
	if m.Kind == wire.Response {
		l.learn(c)
	}
	l.forget(c)
	return true
}

func isInvalidRequest(m wire.Message) bool {
	e, err := wire.ParseError(m.Error)
	return err == nil && e.Code == wire.CodeInvalidRequest
}

// learn remembers the state that a successful request has made.
func (l *ledger) learn(c *call) {
	switch c.method {
	case methodInitialize, methodSetLevel, methodSubscribe, methodUnsubscribe:
	default:
		return
	}
	m, err := wire.Parse(c.frame)
	if err != nil {
		return // its text was too much to be kept
	}
	uri, hasURI := wire.String(member(m.Params, "uri"))
	switch {
	case c.method == methodInitialize:
		l.handshake, l.shaken = m.Params, true
	case c.method == methodSetLevel:
		l.level = m.Params
	case !hasURI:
	case c.method == methodSubscribe:
		l.subscribe(uri, m.Params)
	case c.method == methodUnsubscribe:
		l.unsubscribe(uri)
	}
}

func (l *ledger) subscribe(uri string, params []byte) {
	if _, known := l.subscriptions[uri]; known {
		return // whatever else it said, it is the same subscription
	}
	size := len(uri) + len(params)
	if len(l.order) >= maxSubscriptions || l.subscribed+size > maxSubscribed {
		l.unresumed = true
		return
	}
	l.subscribed += size
	l.order = append(l.order, uri)
	l.subscriptions[uri] = bytes.Clone(params)
}

func (l *ledger) unsubscribe(uri string) {
	if params, known := l.subscriptions[uri]; known {
		l.subscribed -= len(uri) + len(params)
	}
	delete(l.subscriptions, uri)
	l.order = slices.DeleteFunc(l.order, func(known string) bool { return known == uri })
}

// replay returns the messages that make a new daemon know the client, except
// for the requests that are sent again under their own ids.
func (l *ledger) replay() [][]byte {
	var frames [][]byte
	if l.shaken {
		frames = append(frames, l.mint(methodInitialize, l.handshake))
		if l.initialized {
			frames = append(frames, wire.NewNotification(noteInitialized, nil).Bytes())
		}
	}
	if l.level != nil {
		frames = append(frames, l.mint(methodSetLevel, l.level))
	}
	for _, uri := range l.order {
		frames = append(frames, l.mint(methodSubscribe, l.subscriptions[uri]))
	}
	return frames
}

func (l *ledger) mint(method string, params []byte) []byte {
	l.minted++
	id := wire.StringID(mintedPrefix + strconv.FormatUint(l.minted, 10))
	return wire.NewRequest(id, method, params).Bytes()
}

// asked notes a request of the daemon to the client.
func (l *ledger) asked(id wire.ID) {
	if len(l.questions) < maxSubscriptions {
		l.questions[id] = true
	}
}

// cancelQuestions returns the notifications that take back what the daemon that
// is gone had asked, and forgets it.
func (l *ledger) cancelQuestions() [][]byte {
	ids := slices.Sorted(maps.Keys(l.questions))
	clear(l.questions)
	frames := make([][]byte, 0, len(ids))
	for _, id := range ids {
		params := append([]byte(`{"requestId":`), id...)
		params = append(params, `,"reason":"the devproxy daemon that asked is gone"}`...)
		frames = append(frames, wire.NewNotification(noteCancelled, params).Bytes())
	}
	return frames
}

// acknowledge takes an acknowledgement, and reports whether it is the first one
// for its listen, and so for the client. That of a listen which the client has
// cancelled meanwhile may be the second.
func (l *ledger) acknowledge(params []byte) (first bool) {
	c := l.calls[wire.ID(member(member(params, "_meta"), metaSubscription))]
	if c == nil {
		return false
	}
	first = !c.acknowledged
	c.acknowledged = true
	return first
}

// repeatable reports whether it does no harm if two daemons get the request.
func (c *call) repeatable() bool {
	switch c.method {
	case methodInitialize, methodDiscover, methodListen, methodPing,
		"tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return true
	case methodRead:
		return !c.answers
	}
	return false
}

// mayResend reports whether a request that a daemon had when it was lost may go
// to the next one: once, unless an error would cost the client its session.
func mayResend(c *call) bool {
	switch c.method {
	case methodInitialize, methodDiscover, methodListen:
		return true
	}
	return c.repeatable() && !c.resent
}

// member returns a member of an object as it was sent, nil if raw has none.
func member(raw []byte, key string) []byte {
	object, err := wire.ParseObject(raw)
	if err != nil {
		return nil
	}
	return object.Get(key)
}
