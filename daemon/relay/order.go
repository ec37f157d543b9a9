package relay

import (
	"cmp"
	"maps"
	"slices"
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
