// Package link holds the conversations with a backend: JSON-RPC over the pipes of a process ([OpenStdio]), over
// Streamable HTTP ([NewHTTP]) and over the HTTP+SSE transport of 2024-11-05 ([NewSSE]).
//
// A [Link] is one handshaken conversation. What is given to it is queued and never blocks; what comes back goes
// to its [Sink], from goroutines of the link. Links know transports and handshakes, not meaning: params arrive
// in the backend's era already, ids are the caller's, and answers pass as the bytes they came as.
//
// # Promises
//
//   - A request ends in at most one of: a message with its id, [Sink.Failed], or [Sink.Lost] of its link.
//   - Messages of one stream (a pipe, one HTTP response) reach the sink in the order they were sent; so progress
//     and logs come before the answer on whose stream they travel.
//   - An error that matches [era.ErrSessionLost] says that the backend has not processed the request. Every
//     other error leaves that open.
//   - A stray line, event or connection error costs what it carried, never the link, as long as the transport
//     lives: see [Sink.Lost] for when it does not.
//   - Only loopback addresses are dialled, whatever a URL, a redirect or an endpoint event says, and proxies
//     from the environment are ignored.
//
// # Limits of the promises
//
// Streams of one HTTP session are not ordered among each other: a log line that a server puts on its GET stream
// may come after the answer it preceded there. A [Link.Cancel] tells the backend and no more: whether it stops,
// and whether it answers, is the backend's affair. On one stream for all, an answer that a backend gives twice, or to
// a request that never was, is passed on like any other. Messages from a backend are held to [Options.MaxReply]; a
// longer one is dropped, and fails the request it answers where that can be told.
package link
