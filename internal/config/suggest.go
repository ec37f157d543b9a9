package config

import "strings"

// Nearest is the candidate that a person who wrote word most likely meant, or
// "". A third of the word may differ: more is another word.
func Nearest(word string, candidates []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
	}
	best, bestDistance := "", len(word)/3+1
	for _, candidate := range candidates {
		distance := editDistance(plain(word), plain(candidate))
		if distance < bestDistance || (distance == 0 && best == "") {
			best, bestDistance = candidate, distance
		}
	}
	return best
}

// editDistance counts the bytes to insert, delete, replace or swap with their
// neighbour to make b of a.
func editDistance(a, b string) int {
	before, last, this := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		this[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			this[j] = min(last[j]+1, this[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				this[j] = min(this[j], before[j-2]+1)
			}
		}
		before, last, this = last, this, before
	}
	return last[len(b)]
}
