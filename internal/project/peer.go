package project

import "fmt"

// StrangerError says that the process at the other end of a socket is another
// user's.
type StrangerError struct {
	// UID is the other user's id, and Ours is this process's.
	UID, Ours int
}

// Error names the two.
func (e *StrangerError) Error() string {
	return fmt.Sprintf("the peer is uid %d, not ours (%d)", e.UID, e.Ours)
}
