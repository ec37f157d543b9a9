// Package build runs the project's build command and streams what it prints.
//
// A build is one process group, started and ended like a backend's (internal/process): behind a
// gate, marked, and gone as a whole when Run returns. That includes what the command left in the
// background: two builds that write into one folder would spoil each other, so a watcher or
// compile server that a build wants to keep for the next one is ended too. On Linux this reaches
// marked processes in sessions of their own; elsewhere the limits of internal/process apply.
//
// A build watcher ([Keeper]) runs in the same way, for as long as the daemon does.
package build
