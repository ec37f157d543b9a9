// Package logs keeps what the backend, its build and the daemon say: in a
// [Buffer] that can be read and followed while it grows, and, for the daemon's
// own lines, in a file that is rotated ([File]).
//
// The buffer never blocks who writes to it. It forgets its oldest lines; who
// follows it slower than it forgets loses lines, and sees it in the sequence
// numbers. Lines are kept as they were said. What looks secret in them is hidden
// by a [Masker] where they are read, so that a person can ask to see it; in the
// file it is hidden for good.
//
// A masker knows the values of environment variables with telling names, and the
// forms in which credentials are usually written. It is a safety net against
// carelessness: a secret that is hashed, cut in pieces or named unsuspiciously
// gets through.
package logs
