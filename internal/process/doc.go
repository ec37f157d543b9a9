// Package process runs one operating system process together with everything that descends
// from it, and ends all of it.
//
// # Start, record, release
//
// [Start] does not run the command. It runs this very program again as a gate: a child in its
// own process group that waits on a pipe. The caller writes the child's [Identity] to disk and
// calls [Process.Release]; only then does the gate become the command. If the caller dies in
// between, the gate reads the end of the pipe and exits, so that no command ever runs
// unrecorded. Every program that calls Start therefore calls [Main] first.
//
// # The group, and how sure "gone" is
//
// A wrapper (npx, uv, sh -c) often dies before the server it started, so the unit is never the
// leader but the group:
//
//   - Linux: the leader's process group, plus every process of our user that carries
//     DEVPROXY_BACKEND=<marker> in its environment, which is what finds a grandchild that
//     called setsid. Not found is a process that left the group and has a cleaned environment
//     (env -i), overwrote its environment block (some servers do so to set their title), or
//     runs as another user.
//   - macOS: the process group alone. A process that calls setsid escapes.
//   - Windows: a job object, which a process is in from its first instruction. Nothing escapes,
//     and the job ends with the daemon. SIGTERM is CTRL_BREAK there. The gate sends it and ends
//     with the leader, so what a leader leaves behind is ended without one.
//
// The orphan of a killed daemon ([EndOrphan]) is found by its leader; a group whose leader is
// gone has nothing but a number, which could be anybody's. On Linux its members are still found
// by their marker, on macOS they are not.
//
// Gone means that two looks in a row found no live member; zombies do not count.
// Processes that belong to somebody else are never signalled: a group is trusted only while
// its leader is unreaped or its session matches, a marked process is checked again through a
// pidfd right before each signal, and an orphan of an earlier daemon needs boot id, pid and
// start time to agree.
//
// There is no parent-death signal: Linux sends it when the starting thread ends, which in Go is
// at random (golang/go#27505), and it reaches no grandchildren. A command learns of the daemon's
// death from the end of its stdin, and the next daemon ends what does not.
//
// # Concurrency
//
// All methods of [Process] may be called from any goroutine. Each process has one goroutine,
// which waits for the leader and ends with it. Output never holds it up: the pipes are our own,
// so a grandchild that keeps one open delays neither [Process.Done] nor [Process.Terminate].
// Every started process must be given to Terminate in the end, also when its leader exited by
// itself: Terminate ends what the leader left behind and releases the pipes.
package process
