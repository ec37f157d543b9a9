package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
)

// What became of a call.
const (
	callOpen      = ""
	callOK        = "ok"
	callError     = "error"
	callToolError = "tool error"
	callCancelled = "cancelled"
	// callLost: the backend, or the way to it or to the client, broke off before
	// there was an answer.
	callLost = "lost"
	// callAnswered: there was an answer too long to be looked at whole.
	callAnswered = "answered"
	// callUnseen: there was an answer among messages that were missed.
	callUnseen = "not seen"
)

// lostReasons are those of devproxy's own answers to what was lost on its way.
var lostReasons = []string{"backend-lost", "backend-restarted", "request-lost"}

// maxCalls is how many calls are kept. A person scrolls through less.
const maxCalls = 500

// call is a client's request.
type call struct {
	session          uint64
	client           string
	id, method, name string
	began, ended     time.Time
	outcome          string
	// detail is what an outcome has to say beside, such as the code of an error.
	detail string
}

func (c *call) end(at time.Time, outcome, detail string) {
	c.ended, c.outcome, c.detail = at, outcome, detail
}

// took is how long it took, or has taken so far.
func (c *call) took(now time.Time) time.Duration {
	if c.outcome != callOpen {
		now = c.ended
	}
	return max(0, now.Sub(c.began))
}

type callKey struct {
	session uint64
	id      string
}

// calls are the recent calls of all clients, made of the messages at their
// border. It is for one goroutine.
type calls struct {
	all  []*call // oldest first
	open map[callKey]*call
	// lost counts the messages that were missed.
	lost uint64
	// began counts the calls there ever were.
	began uint64
	// ended, which may be nil, hears of each call that has ended.
	ended func(*call)
}

// take takes a message.
func (c *calls) take(e *client.TrafficEntry, body []byte) {
	c.lost += e.GetLost()
	at, id := e.GetTime().AsTime(), e.GetId()
	key := callKey{e.GetSession(), id}
	switch way, kind := client.DirectionName(e.GetDirection()), client.KindName(e.GetKind()); {
	case way == "from-client" && kind == "request":
		c.begin(key, e, body)
	case way == "from-client" && kind == "notification" && e.GetMethod() == "notifications/cancelled":
		var message struct {
			Params struct {
				RequestID json.RawMessage `json:"requestId"`
			} `json:"params"`
		}
		_ = json.Unmarshal(body, &message)
		c.end(callKey{e.GetSession(), string(message.Params.RequestID)}, at, callCancelled, "")
	case way == "to-client" && kind == "result":
		outcome, detail := outcomeOf(body, len(body) < int(e.GetSize()))
		c.end(key, at, outcome, detail)
	case way == "to-client" && kind == "error":
		outcome, detail := callError, strconv.FormatInt(e.GetErrorCode(), 10)
		var message struct {
			Error struct {
				Data failure `json:"data"`
			} `json:"error"`
		}
		if json.Unmarshal(body, &message) == nil && message.Error.Data.Reason != "" {
			outcome, detail = message.Error.Data.outcome(), message.Error.Data.Reason
		}
		c.end(key, at, outcome, detail)
	}
}

func (c *calls) begin(key callKey, e *client.TrafficEntry, body []byte) {
	if e.GetMethod() == "subscriptions/listen" {
		return // it stays open for as long as its client is there
	}
	one := &call{
		session: key.session, client: inCell(e.GetClientName()), id: key.id, method: inCell(e.GetMethod()),
		name: inCell(nameIn(body)), began: e.GetTime().AsTime(),
	}
	if c.open == nil {
		c.open = map[callKey]*call{}
	}
	c.open[key] = one
	c.all = append(c.all, one)
	c.began++
	if extra := len(c.all) - maxCalls; extra > 0 {
		for _, old := range c.all[:extra] {
			if key := (callKey{old.session, old.id}); c.open[key] == old {
				delete(c.open, key)
			}
		}
		c.all = slices.Delete(c.all, 0, extra)
	}
}

func (c *calls) end(key callKey, at time.Time, outcome, detail string) {
	one := c.open[key]
	if one == nil {
		return // it began before anybody looked, or was cancelled
	}
	delete(c.open, key)
	one.end(at, outcome, inCell(detail))
	if c.ended != nil {
		c.ended(one)
	}
}

// sessions tells which clients there are at a moment. What others had open is
// lost with them, and what none has open any more was answered unseen.
func (c *calls) sessions(sessions []*client.Session, at time.Time) {
	const settled = 2 * time.Second // a status may be older than a message by this
	inFlight := map[uint64]uint32{}
	for _, s := range sessions {
		inFlight[s.GetId()] = s.GetInFlight()
	}
	for key, one := range c.open {
		if at.Sub(one.began) < settled {
			continue
		}
		switch n, there := inFlight[key.session]; {
		case !there:
			c.end(key, at, callLost, "client left")
		case n == 0 && c.lost > 0:
			c.end(key, at, callUnseen, "")
		}
	}
}

// gone says that the daemon has ended, and with it all that was open.
func (c *calls) gone(at time.Time) {
	for key := range c.open {
		c.end(key, at, callLost, "daemon ended")
	}
}

// inCell is a text of others that has to keep to its place in a line.
func inCell(text string) string { return strings.ReplaceAll(cli.PrintableLine(text), "\t", " ") }

// nameIn is what a request is about: the tool, the prompt or the resource.
func nameIn(body []byte) string {
	var message struct {
		Params struct {
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &message) != nil {
		return "" // cut, or of another shape
	}
	return strings.TrimSpace(message.Params.Name + message.Params.URI)
}

// failure is what devproxy says of an answer that is its own.
type failure struct {
	Reason string `json:"reason"`
}

func (f failure) outcome() string {
	if slices.Contains(lostReasons, f.Reason) {
		return callLost
	}
	return callError
}

// metaFailure is where a tool result says that devproxy failed, not the tool; see
// docs/failures.md.
const metaFailure = "com.github.debugmcp.devproxy/failure"

// outcomeOf reads a result.
func outcomeOf(body []byte, isCut bool) (outcome, detail string) {
	var message struct {
		Result struct {
			IsError bool               `json:"isError"`
			Meta    map[string]failure `json:"_meta"`
		} `json:"result"`
	}
	if err := json.Unmarshal(body, &message); err != nil && isCut {
		return callAnswered, ""
	}
	if f := message.Result.Meta[metaFailure]; f.Reason != "" {
		return f.outcome(), f.Reason
	}
	if message.Result.IsError {
		return callToolError, ""
	}
	return callOK, ""
}
