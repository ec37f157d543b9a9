package link

import (
	"bytes"
	"unicode/utf8"

	"github.com/debugmcp/devproxy/internal/wire"
)

// What can be made out of frames that are no messages: whom they would have answered.

// answered returns the id of ours that a frame which is no JSON-RPC seems to answer. A server in JavaScript
// whose result is undefined sends neither a result nor an error, and nothing else for that request; without "jsonrpc"
// that is more likely a structured log line. What is no JSON (text of another encoding, two threads that write at
// once) or too deep may tell by its ends, if it has both: a line that a server's death has cut off is a loss.
func answered(frame []byte) (id int64, ok bool) {
	o, err := wire.ParseObject(frame)
	if err != nil {
		outline := wire.OutlineOf(frame)
		whole := bytes.HasSuffix(bytes.TrimSpace(frame), []byte("}"))
		if !whole || !outline.Answer || outline.Method != "" || !bytes.Contains(frame, []byte(`"jsonrpc"`)) {
			return 0, false
		}
		return outline.ID.Echoed()
	}
	if o.Has("method") || !o.Has("result") && !o.Has("error") && !o.Has("jsonrpc") {
		return 0, false
	}
	if !o.Has("jsonrpc") {
		return wire.ID(o.Get("id")).Int() // log lines have ids that are strings
	}
	return wire.ID(o.Get("id")).Echoed()
}

// asked returns the id of the request that such a frame was meant to be. Without "jsonrpc" it was more likely a
// structured log line.
func asked(frame []byte) (id wire.ID, ok bool) {
	o, err := wire.ParseObject(frame)
	if err != nil || !o.Has("method") || !o.Has("jsonrpc") {
		return "", false
	}
	raw := o.Get("id")
	if _, isString := wire.String(raw); isString {
		return wire.ID(raw), true
	}
	_, isInt := wire.ID(raw).Int()
	return wire.ID(raw), isInt
}

// cut shortens text for a person, between two characters if it has any.
func cut(text []byte, limit int) string {
	if len(text) <= limit {
		return string(text)
	}
	end := limit
	for end > 0 && end > limit-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return string(text[:end]) + "…"
}
