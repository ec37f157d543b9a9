package shim

import (
	"bytes"
	"encoding/json"

	"github.com/debugmcp/devproxy/internal/wire"
)

// idIn returns the id of the request that begins with head, or "" if it does
// not say: the member may come behind the params, as the TypeScript SDK writes
// it.
func idIn(head []byte) wire.ID {
	decoder := json.NewDecoder(bytes.NewReader(head))
	decoder.UseNumber() // keeps the text of the number
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return ""
	}
	depth, key, atKey := 1, "", true
	for {
		token, err := decoder.Token()
		// A token at the very end may be the first half of itself.
		if err != nil || decoder.InputOffset() >= int64(len(head)) {
			return ""
		}
		delim, isDelim := token.(json.Delim)
		switch {
		case isDelim && (delim == '{' || delim == '['):
			depth++
		case isDelim:
			depth--
			atKey = depth == 1 // the value that has ended was the member's
		case depth > 1:
		case atKey:
			key, _ = token.(string)
			atKey = false
		case key == "id":
			return idOf(token)
		default:
			atKey = true
		}
	}
}

func idOf(token json.Token) wire.ID {
	switch id := token.(type) {
	case string:
		return wire.StringID(id)
	case json.Number:
		return wire.ID(id)
	}
	return ""
}
