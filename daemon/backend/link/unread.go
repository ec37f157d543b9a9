package link

import (
	"bytes"
	"unicode/utf8"

	"github.com/debugmcp/devproxy/internal/wire"
)

// What can be made out of frames that are no messages: whom they would have answered.

// answered returns the id of ours that a frame which is JSON but no JSON-RPC seems to answer. A server in JavaScript
// whose result is undefined sends neither a result nor an error, and nothing else for that request; without "jsonrpc"
// that is more likely a structured log line.
func answered(frame []byte) (id int64, ok bool) {
	o, err := wire.ParseObject(frame)
	if err != nil || o.Has("method") || !o.Has("result") && !o.Has("error") && !o.Has("jsonrpc") {
		return 0, false
	}
	return wire.ID(o.Get("id")).Int()
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

// head is what the beginning of a dropped message tells.
type head struct {
	method string
	id     wire.ID
	answer bool // a result or error began
}

// scanHead reads the members of an object that is cut off somewhere. It stops at the first member that is not
// whole, which is the one that made the message too long.
func scanHead(text []byte) head {
	var h head
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(text, " \t"), []byte("{"))
	for ok {
		var key, value []byte
		if key, rest, ok = scalar(rest, ':'); !ok {
			break
		}
		name, _ := wire.String(key)
		if name == "result" || name == "error" {
			h.answer = true
		}
		if value, rest, ok = scalar(rest, ','); !ok {
			break
		}
		switch name {
		case "id":
			h.id = wire.ID(value)
		case "method":
			h.method, _ = wire.String(value)
		}
	}
	return h
}

// scalar splits off one JSON value that is neither an object nor an array and is followed by end.
func scalar(text []byte, end byte) (value, rest []byte, ok bool) {
	text = bytes.TrimLeft(text, " \t")
	n := 0
	if len(text) > 0 && text[0] == '"' {
		n = stringLength(text)
	} else {
		n = bytes.IndexAny(text, ",:{}[] \t")
	}
	if n <= 0 || wire.Valid(text[:n]) != nil {
		return nil, nil, false
	}
	rest, ok = bytes.CutPrefix(bytes.TrimLeft(text[n:], " \t"), []byte{end})
	return text[:n], rest, ok
}

// stringLength is the length of the JSON string that text begins with, 0 if its end is not there.
func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
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
