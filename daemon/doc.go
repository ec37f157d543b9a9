// Package daemon is the long-lived process of one project: it puts the parts
// together, serves them over gRPC, and decides when to end. It has no policy of
// its own: what a restart means is the supervisor's, what a client hears is the
// router's.
//
// Run is the composition root. What it starts it stops, in reverse order, and
// it returns when nothing of it is left: no goroutine, no socket, no process of
// the backend's group.
package daemon
