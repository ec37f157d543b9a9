package wire

import (
	"errors"
	"slices"
	"strings"
)

// ErrNotObject and ErrNotArray say that a text is JSON of another type than the one needed.
var (
	ErrNotObject = errors.New("not a JSON object")
	ErrNotArray  = errors.New("not a JSON array")
)

// Member is one name and value of an [Object]. RawKey and Value alias the text the object was parsed from.
type Member struct {
	Key    string // decoded
	RawKey []byte // as sent, with its quotes
	Value  []byte // as sent
}

// Object is the ordered members of one JSON object. Edits keep the order and the bytes of everything they
// do not name, so that an object with one member replaced differs in that member alone.
//
// A name that occurs twice is kept as it is; where it must be read the last one counts, as for JSON.parse.
// The zero value is an empty object.
type Object struct {
	raw     []byte
	members []Member
	changed bool
}

// ParseObject splits raw into its members and validates all of it. Absent text (nil, or empty) gives an
// empty object, anything that is not an object [ErrNotObject] or a *[SyntaxError].
func ParseObject(raw []byte) (*Object, error) {
	raw = trim(raw)
	if len(raw) == 0 {
		return &Object{}, nil
	}
	if raw[0] != '{' {
		return nil, otherType(raw, ErrNotObject)
	}
	type place struct{ key, value span }
	var room [8]place // enough for most params, results and _meta without a second allocation
	places := room[:0]
	keys, escapes := 0, false
	end, err := walkObject(raw, 0, 0, func(key, value span) {
		places = append(places, place{key, value})
		keys += key.to - key.from - 2
		escapes = escapes || escaped(raw[key.from:key.to])
	})
	if err != nil {
		return nil, err
	}
	if err := onlySpace(raw, end); err != nil {
		return nil, err
	}
	// All names share one string, so that an object costs three allocations and not one a member.
	var names strings.Builder
	names.Grow(keys)
	for _, p := range places {
		names.Write(raw[p.key.from+1 : p.key.to-1])
	}
	rest := names.String()
	members := make([]Member, len(places))
	for i, p := range places {
		n := p.key.to - p.key.from - 2
		m := Member{Key: rest[:n], RawKey: p.key.of(raw), Value: p.value.of(raw)}
		rest = rest[n:]
		if escapes {
			m.Key, _ = String(m.RawKey) // a validated string
		}
		members[i] = m
	}
	return &Object{raw: raw, members: members}, nil
}

func otherType(raw []byte, want error) error {
	if err := Valid(raw); err != nil {
		return err
	}
	return want
}

func (o *Object) index(key string) int {
	for i, m := range slices.Backward(o.members) {
		if m.Key == key {
			return i
		}
	}
	return -1
}

// Get returns the value of key as sent, or nil where there is none.
func (o *Object) Get(key string) []byte {
	if i := o.index(key); i >= 0 {
		return o.members[i].Value
	}
	return nil
}

// Has reports whether the object has a member of that name, be it null.
func (o *Object) Has(key string) bool { return o.index(key) >= 0 }

// Set gives key the value raw, which must be JSON: in its place where it exists, else at the end. Any
// duplicates of it go.
func (o *Object) Set(key string, raw []byte) {
	o.changed = true
	i := o.index(key)
	if i < 0 {
		o.members = append(o.members, Member{Key: key, RawKey: Quote(key), Value: raw})
		return
	}
	o.members[i].Value = raw
	o.members = append(deleteKey(o.members[:i], key), o.members[i:]...)
}

// Delete removes every member of that name.
func (o *Object) Delete(key string) {
	if o.Has(key) {
		o.changed = true
		o.members = deleteKey(o.members, key)
	}
}

func deleteKey(members []Member, key string) []Member {
	return slices.DeleteFunc(members, func(m Member) bool { return m.Key == key })
}

// Len returns the number of members, duplicates included.
func (o *Object) Len() int { return len(o.members) }

// Members returns the members in order. The caller must not modify the slice.
func (o *Object) Members() []Member { return o.members }

// Changed reports whether Bytes differs from the text the object was parsed from.
func (o *Object) Changed() bool { return o.changed }

// Bytes returns the object as JSON: the very text it was parsed from as long as nothing was edited.
func (o *Object) Bytes() []byte {
	if !o.changed && len(o.raw) > 0 {
		return o.raw
	}
	size := 2
	for _, m := range o.members {
		size += len(m.RawKey) + len(m.Value) + 2
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range o.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.RawKey...)
		out = append(out, ':')
		out = append(out, m.Value...)
	}
	return append(out, '}')
}

// Elements splits an array into its elements as sent. Anything else gives [ErrNotArray] or a *[SyntaxError].
func Elements(array []byte) ([][]byte, error) {
	array = trim(array)
	if len(array) == 0 || array[0] != '[' {
		return nil, otherType(array, ErrNotArray)
	}
	elems := [][]byte{}
	end, err := walkArray(array, 0, 0, func(value span) { elems = append(elems, value.of(array)) })
	if err != nil {
		return nil, err
	}
	return elems, onlySpace(array, end)
}

// JoinArray is the inverse of [Elements]; no elements give "[]".
func JoinArray(elems [][]byte) []byte {
	size := 2
	for _, e := range elems {
		size += len(e) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for i, e := range elems {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}
