package relay

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// TestChaos lets clients of both eras, and backends of both eras that come and
// go, do whatever they like in a random order, and checks what must hold all the
// same:
//
//   - every request that is neither cancelled nor abandoned gets exactly one
//     response, no other one more than one;
//   - nobody hears what belongs to another: answers, progress, updates, questions;
//   - a tools/call reaches a backend at most once;
//   - every question of a backend that lives gets exactly one answer, unless it
//     was taken back;
//   - in the end nothing is left.
//
// CHAOS_SEED=n runs that seed alone, and CHAOS_SEEDS=n more of them.
func TestChaos(t *testing.T) {
	first, count := uint64(0), uint64(150)
	if n, err := strconv.ParseUint(os.Getenv("CHAOS_SEEDS"), 10, 64); err == nil {
		count = n
	}
	if n, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		first, count = n, 1
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed).run() })
		})
	}
}

type chaos struct {
	*world
	random   *rand.Rand
	clients  []*chaosClient
	backends map[*testLink]*chaosLink
	calls    map[string]int // tools/call by what it carries
	history  []string
	shared   bool
	modern   bool
}

type chaosClient struct {
	*testClient
	name    string
	modern  bool
	n       int
	gone    bool
	sent    map[string]*chaosRequest // by id
	asked   map[string]string        // our requests to it, by id, with their method
	listens map[string]chaosFilter
	subs    map[string]bool // that it may hear of
	states  []chaosRetry
}

type chaosRequest struct {
	method    string
	token     string
	cancelled bool
	responses int
}

type chaosFilter struct {
	uri   string
	ended bool
}

type chaosRetry struct{ state, params string }

type chaosLink struct {
	*testLink
	dead      bool
	pending   map[int64]chaosPending
	asked     map[string]*chaosQuestion
	questions int
}

type chaosPending struct {
	method string
	params []byte
}

type chaosQuestion struct {
	taken   bool
	answers int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	return &chaos{
		world: newWorld(t, Config{}), random: rand.New(rand.NewPCG(seed, 7)),
		backends: make(map[*testLink]*chaosLink), calls: make(map[string]int),
	}
}

func (c *chaos) failf(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(c.history, "\n"))
}

func (c *chaos) notef(format string, args ...any) {
	c.history = append(c.history, fmt.Sprintf(format, args...))
}

func (c *chaos) chance(percent int) bool { return c.random.IntN(100) < percent }

func (c *chaos) run() {
	for range 3 + c.random.IntN(3) {
		c.join()
	}
	for range 250 {
		c.act()
		c.observe()
	}
	c.calm()
	c.finish()
}

// act does one thing.
func (c *chaos) act() {
	switch n := c.random.IntN(100); {
	case n < 40:
		c.clientActs(c.clients[c.random.IntN(len(c.clients))])
	case n < 80:
		c.backendActs()
	case n < 88:
		time.Sleep(time.Duration(c.random.IntN(3000)) * time.Millisecond)
	case n < 90:
		c.join()
	default:
		c.supervisorActs()
	}
}

func (c *chaos) join() {
	name := fmt.Sprintf("c%d", len(c.clients))
	client := &chaosClient{
		testClient: c.attach(name, Shim{Resumed: c.chance(20)}), name: name, modern: c.chance(50),
		sent: map[string]*chaosRequest{}, asked: map[string]string{}, listens: map[string]chaosFilter{}, subs: map[string]bool{},
	}
	c.clients = append(c.clients, client)
	c.notef("%s joins, modern %v", name, client.modern)
	if !client.modern {
		c.request(client, methodInitialize, `"protocolVersion":"2025-11-25","capabilities":{`+metaCaps+`},"clientInfo":{"name":"x","version":"1"}`)
		c.tell(client, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
}

func (c *chaos) tell(client *chaosClient, frame string) {
	c.notef("%s> %s", client.name, frame)
	if err := client.session.Receive(c.t.Context(), []byte(frame)); err != nil && !client.gone {
		c.failf("%s: %v", client.name, err)
	}
	synctest.Wait()
}

// request sends a request with a new id.
func (c *chaos) request(client *chaosClient, method, params string) string {
	client.n++
	id := strconv.Itoa(client.n)
	r := &chaosRequest{method: method}
	meta := ""
	if client.modern {
		meta = strings.TrimSuffix(strings.TrimPrefix(modernMeta(metaCaps), `"_meta":{`), "}")
	}
	if c.chance(40) {
		r.token = client.name + "-" + id
		meta = strings.TrimPrefix(meta+`,"progressToken":"`+r.token+`"`, ",")
	}
	if meta != "" {
		params = strings.TrimSuffix(`"_meta":{`+meta+`},`+params, ",")
	}
	client.sent[id] = r
	c.tell(client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params))
	return id
}

func (c *chaos) clientActs(client *chaosClient) {
	if client.gone {
		return
	}
	uri := fmt.Sprintf("u:%d", c.random.IntN(4))
	switch c.random.IntN(16) {
	case 0, 1, 2, 3:
		c.request(client, methodToolsCall, fmt.Sprintf(`"name":"t","arguments":{"u":"%s-%d"}`, client.name, client.n))
	case 4:
		c.request(client, methodToolsList, "")
	case 5:
		c.request(client, methodRead, `"uri":"x:1"`)
	case 6:
		c.request(client, methodPromptsGet, `"name":"p"`)
	case 7:
		c.request(client, "made/up", `"x":1.0`)
	case 8, 9:
		c.cancel(client)
	case 10:
		c.subscribe(client, uri)
	case 11:
		c.unsubscribe(client)
	case 12, 13:
		c.answerAsk(client)
	case 14:
		c.retry(client)
	case 15:
		if c.chance(30) {
			c.leave(client)
		}
	}
}

func (c *chaos) cancel(client *chaosClient) {
	for id, r := range client.sent {
		if r.responses == 0 && !r.cancelled && r.method != methodInitialize {
			r.cancelled = true
			c.tell(client, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
			return
		}
	}
}

func (c *chaos) subscribe(client *chaosClient, uri string) {
	client.subs[uri] = true
	if !client.modern {
		c.request(client, methodSubscribe, fmt.Sprintf(`"uri":%q`, uri))
		return
	}
	client.listens[strconv.Itoa(client.n+1)] = chaosFilter{uri: uri}
	id := c.request(client, methodListen, fmt.Sprintf(`"notifications":{"toolsListChanged":true,"resourceSubscriptions":[%q]}`, uri))
	delete(client.sent, id) // it is never answered
}

func (c *chaos) unsubscribe(client *chaosClient) {
	for id, l := range client.listens {
		if !l.ended {
			client.listens[id] = chaosFilter{uri: l.uri, ended: true}
			c.tell(client, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
			return
		}
	}
	if client.modern {
		return
	}
	for uri := range client.subs {
		c.request(client, methodUnsubscribe, fmt.Sprintf(`"uri":%q`, uri))
		synctest.Wait()
		c.observe()
		delete(client.subs, uri)
		return
	}
}

func (c *chaos) answerAsk(client *chaosClient) {
	for id := range client.asked {
		delete(client.asked, id)
		if c.chance(80) {
			c.tell(client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","by":%q}}`, id, client.name))
		} else {
			c.tell(client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no"}}`, id))
		}
		return
	}
}

func (c *chaos) retry(client *chaosClient) {
	if len(client.states) == 0 {
		return
	}
	last := client.states[len(client.states)-1]
	client.states = client.states[:len(client.states)-1]
	c.request(client, methodToolsCall, last.params+`,"inputResponses":{"i1":{"action":"accept"},"k":{"roots":[]}},"requestState":`+last.state)
}

func (c *chaos) leave(client *chaosClient) {
	client.gone = true
	c.notef("%s leaves", client.name)
	if c.chance(50) {
		client.session.EndOfInput()
	} else {
		client.session.Close(errors.New("gone"))
	}
	synctest.Wait()
}

func (c *chaos) supervisorActs() {
	c.mu.Lock()
	up := c.gen != nil
	c.openErr = nil
	if c.chance(15) {
		c.openErr = errors.New("refused")
	}
	c.mu.Unlock()
	switch {
	case up && c.chance(30):
		c.notef("draining")
		c.router.Draining(c.number)
	case up && c.chance(40):
		c.lose()
	case up:
		c.fall()
	case c.chance(20):
		c.notef("unavailable")
		c.fail(&Failure{Reason: "start-failed", State: "failed", Waiting: c.chance(50)})
	default:
		c.rise()
	}
	synctest.Wait()
}

func (c *chaos) rise() {
	c.modern, c.shared = c.chance(50), c.chance(60)
	e, sharing := "legacy", "own"
	if c.modern {
		e = "modern"
	}
	if c.shared {
		sharing = "shared"
	}
	c.notef("up %s %s", e, sharing)
	c.up(e, sharing, c.vars["ALL"])
	synctest.Wait()
}

func (c *chaos) fall() {
	c.notef("down")
	for _, l := range c.backends {
		l.dead = true
	}
	c.down(Failure{Reason: ReasonLost, Message: "gone"})
	synctest.Wait()
}

// lose breaks one link, which the transport notices first.
func (c *chaos) lose() {
	for _, l := range c.alive() {
		c.notef("link lost")
		l.dead = true
		l.sink.Lost(errors.New("broken"))
		return
	}
}

// alive returns the links that take part, in the order of their opening.
func (c *chaos) alive() []*chaosLink {
	c.mu.Lock()
	defer c.mu.Unlock()
	var alive []*chaosLink
	for _, l := range c.links {
		known := c.backends[l]
		if known == nil {
			known = &chaosLink{testLink: l, pending: map[int64]chaosPending{}, asked: map[string]*chaosQuestion{}}
			c.backends[l] = known
		}
		if !known.dead && c.gen == l.g {
			alive = append(alive, known)
		}
	}
	return alive
}

func (c *chaos) backendActs() {
	alive := c.alive()
	if len(alive) == 0 {
		return
	}
	l := alive[c.random.IntN(len(alive))]
	ids := slices.Sorted(maps.Keys(l.pending))
	switch n := c.random.IntN(20); {
	case n < 11 && len(ids) > 0:
		c.backendAnswers(l, ids[c.random.IntN(len(ids))], c.chance(15))
	case n < 13 && len(ids) > 0:
		id := ids[c.random.IntN(len(ids))]
		c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}`, id))
	case n < 16 && !c.modern:
		c.backendAsks(l, ids)
	case n == 16:
		c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u:%d"}}`, c.random.IntN(4)))
	case n == 17:
		c.backendSays(l, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
	case n == 18 && len(ids) > 0:
		id := ids[c.random.IntN(len(ids))]
		delete(l.pending, id)
		c.notef("request %d lost", id)
		l.sink.Failed(id, errors.New("reset"))
	case n == 19:
		for id, q := range l.asked {
			if q.answers == 0 && !q.taken {
				q.taken = true
				c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
				break
			}
		}
	}
	synctest.Wait()
}

func (c *chaos) backendSays(l *chaosLink, frame string) {
	c.backendSaysVia(l, frame, 0)
}

func (c *chaos) backendSaysVia(l *chaosLink, frame string, via int64) {
	c.notef("L>%d %s", via, frame)
	m, err := wire.Parse([]byte(frame))
	if err != nil {
		c.failf("%v", err)
	}
	l.sink.Message(m, via)
	synctest.Wait()
}

func (c *chaos) backendAnswers(l *chaosLink, id int64, badly bool) {
	p := l.pending[id]
	if p.method == methodListen {
		honoured := `{}`
		if o, err := wire.ParseObject(p.params); err == nil && !badly {
			honoured = string(o.Get("notifications"))
		}
		c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%d},"notifications":%s}}`, id, honoured))
		if !badly {
			// It stays open.
			l.pending[id] = chaosPending{method: "open"}
		}
		return
	}
	if p.method == "open" && !badly {
		return
	}
	delete(l.pending, id)
	switch {
	case badly:
		c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"bad"}}`, id))
	case c.modern && takesInput(p.method) && c.chance(25):
		c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"theirs"}}`, id))
	default:
		c.backendSays(l, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","tools":[],"content":[]}}`, id))
	}
}

func (c *chaos) backendAsks(l *chaosLink, ids []int64) {
	via := int64(0)
	if !l.shared && len(ids) > 0 && c.chance(70) {
		via = ids[c.random.IntN(len(ids))]
	}
	l.questions++
	id := strconv.Itoa(l.questions)
	l.asked[id] = &chaosQuestion{}
	method := []string{methodElicit, methodRoots, methodSample, methodPing}[c.random.IntN(4)]
	c.backendSaysVia(l, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"message":"m"}}`, id, method), via)
}

// observe reads everything that has come out and checks it.
func (c *chaos) observe() {
	synctest.Wait()
	for _, l := range c.backends {
		c.hear(l)
	}
	for _, l := range c.alive() {
		c.hear(l)
	}
	for _, client := range c.clients {
		for frame, ok := client.pop(); ok; frame, ok = client.pop() {
			c.notef("%s< %s", client.name, frame)
			c.check(client, frame)
		}
	}
}

// hear notes what a link was told.
func (c *chaos) hear(l *chaosLink) {
	for frame, ok := l.pop(); ok; frame, ok = l.pop() {
		c.notef("L< %s", frame)
		if rest, cancel := strings.CutPrefix(frame, "cancel "); cancel {
			id, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			delete(l.pending, id)
			continue
		}
		m, err := wire.Parse([]byte(frame))
		if err != nil {
			c.failf("the backend got %s: %v", frame, err)
		}
		switch m.Kind {
		case wire.Request:
			id, _ := m.ID.Int()
			l.pending[id] = chaosPending{m.Method, m.Params}
			c.count(m)
		case wire.Response, wire.Failure:
			q := l.asked[string(m.ID)]
			if q == nil {
				c.failf("the backend got an answer to a question it never asked: %s", frame)
			}
			if q.answers++; q.answers > 1 {
				c.failf("a second answer to question %s", m.ID)
			}
		case wire.Notification:
		}
	}
}

// count checks that a tools/call reaches a backend once.
func (c *chaos) count(m wire.Message) {
	if m.Method != methodToolsCall {
		return
	}
	o, err := wire.ParseObject(m.Params)
	if err != nil {
		c.failf("%v", err)
	}
	if o.Has("requestState") || o.Has("inputResponses") {
		return
	}
	u, _ := memberString(o.Get("arguments"), "u")
	if c.calls[u]++; c.calls[u] > 1 {
		c.failf("tools/call %s reached the backend twice", u)
	}
}

// check looks at what a client gets.
func (c *chaos) check(client *chaosClient, frame string) {
	m, err := wire.Parse([]byte(frame))
	if err != nil {
		c.failf("%s got %s: %v", client.name, frame, err)
	}
	switch m.Kind {
	case wire.Response, wire.Failure:
		c.checkResponse(client, m)
	case wire.Request:
		if client.modern {
			c.failf("a request to the modern client %s: %s", client.name, frame)
		}
		client.asked[string(m.ID)] = m.Method
	case wire.Notification:
		c.checkNotification(client, m)
	}
}

func (c *chaos) checkResponse(client *chaosClient, m wire.Message) {
	id := string(m.ID)
	r := client.sent[id]
	if r == nil {
		c.failf("%s got an answer to a request it never made: %s", client.name, m.Bytes())
	}
	if r.responses++; r.responses > 1 {
		c.failf("%s got a second answer to %s", client.name, id)
	}
	if r.cancelled {
		c.failf("%s got an answer to %s, which it has cancelled", client.name, id)
	}
	if state := memberRaw(m.Result, "requestState"); state != nil && r.method == methodToolsCall {
		client.states = append(client.states, chaosRetry{string(state), fmt.Sprintf(`"name":"t","arguments":{"u":"%s-%d"}`, client.name, client.n)})
	}
}

func memberRaw(object []byte, key string) []byte {
	o, err := wire.ParseObject(object)
	if err != nil {
		return nil
	}
	return o.Get(key)
}

func (c *chaos) checkNotification(client *chaosClient, m wire.Message) {
	sub := string(era.SubscriptionOf(m.Params))
	if client.modern && era.IsChange(m.Method) {
		if l, ok := client.listens[sub]; !ok || l.ended {
			c.failf("%s hears of a listen that it does not have: %s", client.name, m.Bytes())
		}
	}
	switch m.Method {
	case noteProgress:
		token, _ := wire.String(era.ProgressToken(m.Params))
		name, id, _ := strings.Cut(token, "-")
		r := client.sent[id]
		if name != client.name || r == nil || r.responses > 0 {
			c.failf("%s hears of the progress of %q", client.name, token)
		}
	case noteUpdated:
		uri, _ := era.URIOf(m.Params)
		if !client.subs[uri] {
			c.failf("%s hears of %s", client.name, uri)
		}
	case noteCancelled:
		delete(client.asked, string(era.CancelledID(m.Params)))
	}
}

// calm brings up a backend that answers everything, and waits until all is
// quiet.
func (c *chaos) calm() {
	c.notef("calm")
	c.mu.Lock()
	c.openErr = nil
	up := c.gen != nil
	c.mu.Unlock()
	if up {
		c.fall()
	}
	c.rise()
	for range 60 {
		for _, client := range c.clients {
			if !client.gone {
				c.answerAsk(client)
			}
		}
		for _, l := range c.alive() {
			for _, id := range slices.Sorted(maps.Keys(l.pending)) {
				c.backendAnswers(l, id, false)
			}
		}
		time.Sleep(time.Second)
		c.observe()
	}
	for _, client := range c.clients {
		for id, r := range client.sent {
			if !client.gone && !r.cancelled && r.responses != 1 {
				c.failf("%s got %d answers to %s %s", client.name, r.responses, r.method, id)
			}
		}
	}
}

// finish lets everybody leave, and looks at what is left.
func (c *chaos) finish() {
	for _, client := range c.clients {
		if !client.gone {
			// What it still wants when it leaves is taken back.
			c.request(client, methodToolsCall, `"name":"last","arguments":{"u":"`+client.name+`-last"}`)
			c.observe()
			c.leave(client)
		}
	}
	time.Sleep(stateLife + time.Second)
	c.observe()
	for l, known := range c.backends {
		for id, q := range known.asked {
			if !known.dead && l.g == c.gen && !q.taken && q.answers != 1 {
				c.failf("question %s got %d answers", id, q.answers)
			}
		}
		for id, p := range known.pending {
			if !known.dead && l.g == c.gen && takesInput(p.method) {
				c.failf("request %d (%s) still runs on the backend for nobody", id, p.method)
			}
		}
	}
	c.stop(ErrShutdown)
	r := c.router
	if r.held.count != 0 || r.held.bytes != 0 || len(r.held.calls) != 0 {
		c.failf("%d requests of %d bytes are held for nobody", r.held.count, r.held.bytes)
	}
	if len(r.states)+len(r.seekers)+len(r.sessions)+len(r.order)+len(r.links) != 0 {
		c.failf("left: %d states, %d seekers, %d sessions, %d in order, %d links",
			len(r.states), len(r.seekers), len(r.sessions), len(r.order), len(r.links))
	}
}
