package logs

import (
	"bytes"
	"encoding/json"
)

// MaskJSON hides the secrets in the strings of a JSON text, by their form and by
// the names of the members that hold them. Everything else of the text is as it
// was, and the text is still JSON. What is no JSON is masked as text.
func (m *Masker) MaskJSON(raw []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	w := jsonMask{masker: m}
	out := make([]byte, 0, len(raw))
	done := int64(0)
	for {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		end := decoder.InputOffset()
		piece := raw[done:end]
		done = end
		masked, changed := w.take(token)
		if !changed {
			out = append(out, piece...)
			continue
		}
		// Before the string there are only separators.
		out = append(out, piece[:bytes.IndexByte(piece, '"')]...)
		out = append(out, quoteJSON(masked)...)
	}
	if rest := bytes.TrimSpace(raw[done:]); len(rest) > 0 || len(w.open) > 0 {
		return []byte(m.Mask(string(raw)))
	}
	return append(out, raw[done:]...)
}

func quoteJSON(text string) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // of a string to a buffer
	return bytes.TrimSpace(out.Bytes())
}

// jsonMask follows where in a JSON text it is.
type jsonMask struct {
	masker *Masker
	open   []jsonLevel
}

// jsonLevel is an object or array that has begun.
type jsonLevel struct {
	object bool
	isKey  bool // an object's next token is a name
	secret bool // what is in it goes by a secret name, or its next value does
}

// take returns the token's string with its secrets hidden, and whether that is
// another one.
func (w *jsonMask) take(token json.Token) (masked string, changed bool) {
	var level *jsonLevel
	if len(w.open) > 0 {
		level = &w.open[len(w.open)-1]
	}
	if delimiter, ok := token.(json.Delim); ok {
		switch delimiter {
		case '{', '[':
			// A name is for all that is below it in arrays; members have their own.
			secret := delimiter == '[' && level != nil && level.secret
			w.value(level)
			w.open = append(w.open, jsonLevel{object: delimiter == '{', isKey: delimiter == '{', secret: secret})
		default:
			w.open = w.open[:len(w.open)-1]
		}
		return "", false
	}
	text, isText := token.(string)
	if level != nil && level.object && level.isKey {
		level.isKey, level.secret = false, secretMember(text)
		return "", false
	}
	secret := level != nil && level.secret
	w.value(level)
	if !isText {
		return "", false
	}
	masked = w.masker.Mask(text)
	if secret && secretValue(text) {
		masked = hidden
	}
	return masked, masked != text
}

// value notes that a value of the level has come or begun.
func (w *jsonMask) value(level *jsonLevel) {
	if level != nil && level.object {
		level.isKey, level.secret = true, false
	}
}

// secretMember reports whether a member of that name holds something to be
// hidden. The protocol's own tokens are numbers of requests.
func secretMember(name string) bool { return name != "progressToken" && secretInText(name) }
