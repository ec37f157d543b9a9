// Package shim is the program that an MCP client spawns: it carries the
// client's JSON-RPC lines to the project's daemon and the daemon's back, starts
// a daemon if none runs, and keeps its client when the daemon goes.
//
// # What it promises
//
// It never exits while its stdin is open, except on a signal, a lost stdout, or
// when the daemon gives the client up because it does not read. To stdout it
// writes whole JSON-RPC lines and nothing else. On the end of its stdin it lets
// what was read finish for less than a quarter of a second and exits, if need be
// in the middle of a line that its client takes too long to read.
//
// # Losing the daemon
//
// The shim remembers what a daemon has to know of its client: the initialize
// request, the log level, the subscriptions, the open subscriptions/listen
// requests, the ids in flight with their text, and the questions of the daemon
// that the client has not answered. When the stream breaks it
//
//   - tells the client that the daemon's open questions are cancelled;
//   - answers what was in flight with an error, unless it is safe to send again:
//     ping, the four lists, resources/read without inputResponses (once), and
//     initialize, server/discover and subscriptions/listen (always: they start
//     nothing, and an error there would cost the client its session);
//   - sends all of it again if the daemon has handed over to a successor: then it
//     has answered before whatever reached the backend and may have had effects;
//   - dials again, starting a daemon if need be, with a growing pause;
//   - replays initialize, level and subscriptions under ids of its own, whose
//     answers it swallows, and the listens under theirs, whose second
//     acknowledgement it swallows.
//
// A request that must not be sent twice goes only to a daemon that has welcomed
// the client, so that one which ends in that moment has not got it.
//
// Meanwhile requests wait a few seconds, ping is answered with {}, and what has
// waited too long gets an error that says why there is no daemon. A daemon that
// cannot be started, or a devproxy.toml that is missing or wrong, is an answer
// too, on stderr and to each request; the shim goes on trying, at growing
// intervals and whenever the client asks again, so that a corrected file works
// without a restart of the client.
//
// A daemon that was stopped on purpose (devproxyd stop) is not started again by
// a shim that was attached to it: the requests of its client say so, and the
// shim attaches when somebody has started one. A newly spawned shim does start
// one.
//
// # What it does not do
//
// It does not read devproxy.toml, translate between eras, or look into params
// and results beyond the few members named above. A message goes through it
// byte for byte. State above the bounds in ledger.go is not remembered; what
// that costs is said there.
//
// # Ownership
//
// All state belongs to the loop in Run. The pumps beside it (stdin, stdout,
// stderr, and two for the stream) only move what they are given.
package shim
