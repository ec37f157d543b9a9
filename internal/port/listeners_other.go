//go:build !linux && !windows

package port

import "errors"

// errNotTold: finding who listens needs an interface that is not there for us
// (macOS: libproc, so cgo).
var errNotTold = errors.New("this system does not tell who listens")

// Listeners is not told here.
func Listeners(int) ([]Listener, error) { return nil, errNotTold }

func holders(uint64) []int { return nil }

// descends has no use: there is one holder at most.
func descends(int, int) bool { return false }

// OwnedBy cannot tell, and objects to nobody.
func (Listener) OwnedBy([]int) bool { return true }

// MayBelongTo cannot tell either.
func (Listener) MayBelongTo(int) bool { return true }
