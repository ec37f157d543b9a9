// Package client is the way into a project's daemon, for the shim and for
// devproxyctl: Dial talks to one that runs, EnsureRunning starts one if none
// does.
//
// A Client is one connection. It never reconnects: who holds it is told that
// the connection ended and decides what that means. The socket is trusted
// because its file belongs to this user (checked before dialling) in a folder
// that only this user can write; there is no encryption and no token. Proxy
// settings of the environment are never applied.
//
// EnsureRunning settles no race itself. Whoever gets the daemon's lock is the
// daemon (package daemon/instance); one that was started in vain ends with
// ExitRunning, and its starter dials the winner. A file lock among clients only
// keeps twenty of them from starting twenty processes.
package client
