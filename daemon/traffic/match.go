package traffic

import (
	"errors"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/internal/wire"
)

// maxAsked bounds the requests of which a matcher remembers when they came: as
// many as one client may have open.
const maxAsked = 4096

// Entry is a message, and what there is to know of it.
type Entry struct {
	Seen

	Kind wire.Kind // 0 for what is no JSON-RPC message
	// Method is that of the message, or of the request that it answers; empty if
	// that was not seen.
	Method string
	// ID is as in the message.
	ID wire.ID
	// Code is that of an error.
	Code int64
	// Latency is how long after its request a response came, if Answers says that
	// the request was seen.
	Latency time.Duration
	Answers bool
}

// Filter says which entries are wanted; its zero value wants all.
type Filter struct {
	// Session is a number; 0 means all.
	Session uint64
	// Method is a name in which "*" stands for any text; empty means all.
	Method string
}

// Matcher makes entries of messages and knows which request a response answers.
// The zero value is ready. It is for one goroutine.
type Matcher struct {
	asked map[request]asking
}

// request names a request that passes a border: ids are a matter of one side of
// one conversation.
type request struct {
	direction           relay.Direction
	session, generation uint64
	id                  wire.ID
}

type asking struct {
	method string
	at     time.Time
}

// Take makes an entry of a message, or one of each message of a batch.
func (m *Matcher) Take(seen Seen) []Entry {
	message, err := wire.Parse(seen.Frame)
	if !errors.Is(err, wire.ErrBatch) {
		return []Entry{m.entry(seen, message, err)}
	}
	frames, err := wire.ParseBatch(seen.Frame)
	if err != nil || len(frames) == 0 {
		return []Entry{{Seen: seen}}
	}
	entries := make([]Entry, len(frames))
	for i, frame := range frames {
		one := seen
		one.Frame = frame
		if i > 0 {
			one.Lost = 0
		}
		message, err := wire.Parse(frame)
		entries[i] = m.entry(one, message, err)
	}
	return entries
}

func (m *Matcher) entry(seen Seen, message wire.Message, err error) Entry {
	if err != nil {
		return Entry{Seen: seen}
	}
	e := Entry{Seen: seen, Kind: message.Kind, Method: message.Method, ID: message.ID}
	switch message.Kind {
	case wire.Request:
		m.ask(e)
	case wire.Failure:
		if failure, err := wire.ParseError(message.Error); err == nil {
			e.Code = failure.Code
		}
		m.answer(&e)
	case wire.Response:
		m.answer(&e)
	case wire.Notification:
	}
	return e
}

func (m *Matcher) ask(e Entry) {
	if m.asked == nil {
		m.asked = map[request]asking{}
	}
	if len(m.asked) >= maxAsked {
		for one := range m.asked { // any will do: their answers are late
			delete(m.asked, one)
			break
		}
	}
	m.asked[request{e.Direction, e.Session, e.Generation, e.ID}] = asking{e.Method, e.Time}
}

// answer finds the request that a response answers. One of the backend on a
// shared link belongs to nobody until somebody answers it.
func (m *Matcher) answer(e *Entry) {
	for _, session := range []uint64{e.Session, 0} {
		asked := request{opposite(e.Direction), session, e.Generation, e.ID}
		if a, ok := m.asked[asked]; ok {
			delete(m.asked, asked)
			e.Method, e.Latency, e.Answers = a.method, e.Time.Sub(a.at), true
			return
		}
	}
}

// opposite is the other way across the same border.
func opposite(d relay.Direction) relay.Direction {
	switch d {
	case relay.FromClient:
		return relay.ToClient
	case relay.ToClient:
		return relay.FromClient
	case relay.ToBackend:
		return relay.FromBackend
	case relay.FromBackend:
		return relay.ToBackend
	}
	return 0
}

// Wants reports whether an entry passes the filter.
func (f Filter) Wants(e Entry) bool {
	return (f.Session == 0 || f.Session == e.Session) && (f.Method == "" || matches(f.Method, e.Method))
}

// matches reports whether a name is as the pattern says.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, last)
}
