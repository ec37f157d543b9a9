//go:build unix

package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice decide for one step of one actor.
type dice struct{ *rand.Rand }

// roll returns the dice of a step. They follow from the seed and the step alone,
// so that what an actor decides does not depend on how the one before it went.
func roll(seed uint64, actor string, step int) dice {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %d", actor, step)
	return dice{rand.New(rand.NewPCG(seed, hash.Sum64()))}
}

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)+1))
}

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// weighted is one of several things to do, and how often.
type weighted[T any] struct {
	weight int
	what   T
}

func choose[T any](d dice, from []weighted[T]) T {
	total := 0
	for _, w := range from {
		total += w.weight
	}
	n := d.IntN(total)
	for _, w := range from {
		if n -= w.weight; n < 0 {
			return w.what
		}
	}
	panic("unreachable")
}
