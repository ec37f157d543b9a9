// Package backend keeps the one backend process of a project: it starts it when
// it is needed, watches it, restarts it, stops it, and knows what it said of
// itself.
//
// # What it promises
//
//   - At most one generation is alive at any moment. The next one starts when the
//     whole process group of the last is gone, its output is read and its links
//     are joined; if a group outlives the stop ladder nothing starts any more, and
//     the state names the survivors.
//   - One start serves all who need it, however many ask. No start begins during a
//     build, which may have done half of its work: restarts and rebuilds that meet
//     end in one new generation.
//   - A start can be abandoned wherever it is. Whatever it had begun is ended.
//   - A start that fails for a request or a person is not repeated by itself; a
//     crash of what has served is, with growing delays and an end.
//   - The Observer hears of an end when it is asked for or seen, not when the last
//     process is gone.
//
// # How
//
// [Supervisor.Run] is a loop that owns everything. What happens becomes an event;
// transition (state.go) is a pure function that makes of state and event the next
// state and effects; the loop performs those. Effects that take time run in
// goroutines of their own, which the loop waits for, and end in an event that
// carries the number of its attempt, so that late ones are known for what they
// are. Others read what is published ([Supervisor.Status], [Supervisor.Subscribe],
// [Supervisor.Facts]) and never wait for the loop.
//
//	      Need, Start, Restart                     ready
//	Idle ─────────────────────► Starting ───────────────────────► Running
//	 ▲                           │   ▲                            │  │  ▲
//	 │ Stop                fails │   │ gone            Restart,   │  │ exits
//	 │                           ▼   │                 Changed    ▼  │
//	Stopping ◄───────────────────────┼──────────────── Draining ◄─┘  │
//	 │  │  └── gone, next Starting ──┘                     │         │
//	 │  └──── gone, crashed ──► Backoff ── delay ──► Starting        │
//	 └─────── gone, given up ─► Failed ── Restart, Changed ► Starting
//
// What follows Stopping is decided when it is entered, and decided again by every
// Start, Restart, Changed and Stop until the group is gone: so they coalesce.
//
// # Containers
//
// A command that is `docker run` or `podman run` starts what is no process of
// its group: the container belongs to the engine, outlives a CLI that is killed,
// and has a port on which the engine listens. So it gets labels, one for the
// project and one for the generation, and "gone" means also that the engine lists
// no container of the project any more; see container.go. Nothing without our
// label is ever touched.
//
// # Limits
//
// What "the whole group" is depends on the system, see package process. Who
// listens on the backend's port cannot be found out on macOS; there a stranger on
// the port is noticed before a start, but not named, and one who takes it during
// the start is not noticed. There is no telling a backend that crashes
// at start from one that dies of the handshake, so a stdio backend that exits at
// once is started twice, once for each era.
package backend
