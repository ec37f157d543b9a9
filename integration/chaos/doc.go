// Package chaos is the seeded fault test: the real programs, clients of both
// eras with random traffic, a backend that does everything a server under
// development may do, and somebody who kills, stops and restarts daemon, backend
// and shims, rebuilds, installs another version, steals the port and takes away the
// right to write. While this goes on, and when it is calm again, it is checked that
// what devproxy promises holds.
//
// # Running it
//
//	make chaos SEED=7 DURATION=10m
//
// lives through one world after the other, of seeds 7, 8, 9 and so on, until the
// duration is over or a world fails. Without SEED the first one is random. Below
// the make target this is
//
//	go test -race -count=1 -v -timeout=0 ./integration/chaos -seed 7 -duration 10m
//
// A plain `go test ./integration/...` lives through one short world of a random
// seed; -short skips it. -keep keeps the folder of a world that failed, -timeline
// prints the timeline of those too that are through, and -bin takes programs that
// are built already: besides them the folder has a folder other, whose devproxyd
// says that it is version v99.0.0. It must be on the file system of /tmp.
//
// The test needs /proc, so it runs on Linux. Run by root, a world lives under
// another uid: for root no folder is read-only.
//
// # What a seed decides
//
// Everything about a world (transport, era and port of the backend, how many
// clients, which faults) and what each actor does in each of its steps: the
// clients, the faults, the backend's lives. How long a step takes, and so what
// meets what, it does not decide: a failure of a seed need not come again at
// once, but it comes more often with that seed than with others.
//
// # Reading a failure
//
// A failure prints the seed, what was violated, `devproxyctl status`, the
// processes that are alive, the tails of the daemon's logs, and the timeline:
// seconds since the begin, who, what. The actors are
//
//	c2, c2#3   a client, and its third shim: "> " is what it wrote, "< " what it
//	           read; 2/5 is the second of the five messages of a batch
//	fault1, 2  who does the faults; two at most at once
//	backend    a line of the backend's journal, with the pid of the life that wrote it
//	calm       what is done when the faults are over
//	compare    the comparison of the daemon with a fresh one
//	watch, end what is looked at all the time, and in the end
//
// Find the VIOLATION, the id, token or URI it names, and read upwards.
//
// # What must hold
//
//  1. Every request that is neither cancelled nor abandoned gets one answer, in
//     bounded time; a cancelled one at most one, and none once the daemon knows.
//  2. The output of a shim has whole JSON-RPC messages and nothing else.
//  3. At most one generation of the backend is alive, and one daemon serves.
//  4. A client hears of what it asked for and subscribed to, and of nothing else.
//  5. A tools/call is executed at most once, and once if the answer says so.
//  6. A shim ends with its client, and not before.
//  7. When the faults are over everything works again, subscriptions too.
//  8. After a stop there is no process, socket or temporary file.
//  9. The daemon has lost no goroutine and no descriptor.
//  10. Its memory is bounded, and no program reports a data race or panics.
//
// # The pieces
//
//   - world, plan: a project from nothing to nothing, and what its seed decides.
//   - client, actions: what clients do; seat: one shim of a client; model: what it
//     asked for, and so what it may hear.
//   - faults: what goes wrong.
//   - internal/chaosbackend: the backend, and its journal; journal: reading it.
//   - watch, calm, end: what is checked all the time, afterwards, and in the end.
package chaos
