package relay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/debugmcp/devproxy/internal/wire"
)

// sortedIDs returns the ids of legs as they were sent. What happens to several
// at once happens in that order, so that it is the same every time.
func sortedIDs(legs map[int64]*leg) []int64 { return slices.Sorted(maps.Keys(legs)) }

// sortedCalls returns a set of calls by session and id.
func sortedCalls(calls map[*call]struct{}) []*call {
	return slices.SortedFunc(maps.Keys(calls), func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.client.session.id, b.client.session.id), cmp.Compare(a.id, b.id))
	})
}

// idInHead finds the id of a request in the start of its frame: the value of the
// member "id" of the outermost object, if it comes before the end of head.
func idInHead(head []byte) wire.ID {
	depth, key := 0, ""
	for i := 0; i < len(head); i++ {
		switch c := head[i]; c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := stringEnd(head, i)
			if end < 0 {
				return ""
			}
			if depth == 1 && key == "id" {
				return wire.ID(head[i:end])
			}
			if depth == 1 {
				key, _ = wire.String(head[i:end])
			}
			i = end - 1
		case ',':
			key = ""
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if depth == 1 && key == "id" {
				return numberAt(head[i:])
			}
		}
	}
	return ""
}

// stringEnd returns where the string that starts at i ends, -1 if it does not.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// numberAt returns the number at the start of text, "" if it may go on beyond it.
func numberAt(text []byte) wire.ID {
	end := slices.IndexFunc(text, func(c byte) bool { return c == ',' || c == '}' || c == ' ' })
	if end < 0 {
		return ""
	}
	return wire.ID(text[:end])
}
