// Package instance makes a process the only daemon of its project.
//
// The truth is a lock (flock) on a file that is never removed. Only its holder
// touches the socket: it dials what it finds there, removes it only if it is a
// socket of ours on which nobody listens (ECONNREFUSED), and binds its own. A
// plain file, a socket that answers, and a socket that does not answer in time
// are errors and stay where they are. Losers of the lock get a *RunningError
// and dial the winner.
//
// The lock file is compared with the path after it was locked, since a file
// that somebody removed can be locked by two. Should the state folder be removed
// under a running daemon, Watch takes the new lock or says that somebody else
// has it.
//
// On Linux and macOS every connection's peer must have our uid, besides the
// socket being 0600 in a folder that is 0700. On Windows the folder's ACL is
// all there is.
package instance
