// Package relay is the switchboard between the attached clients and the one
// backend: the Router.
//
// # Ownership
//
// One goroutine, Router.Run, owns every session, call, link, subscription and
// open question. Nothing in this package is locked except three small mailboxes
// at its border: the queue of events towards the loop, the outbox of each
// session, and the gate that makes one client wait. Everybody else posts events
// and reads what the loop publishes. The loop never waits for anyone.
//
// Two ways lead into the loop. Clients hand over one frame at a time and wait
// until it is taken; while the shared link to the backend is congested the loop
// does not take any, so that the backlog stays with the program that causes it.
// Everything else (the backend, the supervisor, dev tools, the ends of sessions)
// goes through a mailbox that is always drained, because a backend that cannot
// write cannot read either.
//
// # What happened to whom
//
// Everything asynchronous says which link or generation it is about, and what is
// not about a live one is dropped on arrival. Ids and progress tokens towards the
// backend are integers of ours that are never used twice, so that an answer to
// a request that was cancelled, or that belonged to a dead generation, finds
// nobody and needs no record to be recognised.
//
// # Where to find what
//
//   - router.go: the loop and its end; mailbox.go, agenda.go: what wakes it
//   - session.go, outbox.go: a client's connection
//   - client.go: a frame from a client; handshake.go: what is answered here
//   - calls.go, hold.go: a client's request from arrival to its one response
//   - observer.go, backend.go: generations that come and go
//   - links.go: the way to the backend, per session or shared
//   - lists.go: the dev tools in tools/list, and the lists of a backend that has none
//   - listens.go: what a client subscribes to; subscriptions.go, interest.go: what the
//     backend is asked for; changes.go: who hears of it
//   - logging.go: log levels
//   - inputs.go: whom the backend asks; dialogue.go, parking.go, urls.go: a modern client
//     of a legacy backend; round.go: a legacy client of a modern one; owners.go: whose
//     pages and tasks a shared backend speaks of
//   - failures.go: everything devproxy itself answers instead of the backend
//   - config.go: what it needs of others; snapshot.go: what others may read
//
// # Limits
//
// The package promises one response for each request as long as Run runs and the
// client reads. It does not persist anything: sessions are resumed by the shim,
// which sends a client's state again. On a stdio backend, which is one MCP
// session for all clients, a log line has no owner and a question of the backend
// goes to whoever most likely caused it.
package relay
