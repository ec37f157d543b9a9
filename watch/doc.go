// Package watch tells when a project's build output has settled on new content.
//
// File events say that something may have happened; they are late, doubled,
// misnamed and at times lost. So they only set a timer. Once nothing has
// happened for the settle time, the watched paths are looked at, and what counts
// is whether their content differs from the last one that was reported or that
// a backend was started from (see [Watcher.Baseline]). Saving a file unchanged,
// touching it, or building the same thing again is therefore no change, and a
// build that takes away the folder, fills another and renames it is one.
//
// # What is looked at
//
// Regular files below the configured paths, without those that an ignore
// pattern names and without the directories node_modules, .git, .hg, .svn and
// __pycache__. Symbolic links are followed: one to a file counts as that file,
// one to a directory as that directory, each directory once, and none that
// contains the link's own directory or the project, so that there are no loops.
// Permissions and times alone never count. Content is compared by a 64-bit hash
// with a seed of this process: the fingerprint never leaves it, and to miss a
// change takes a chance of one in 2^64. A file above 64 MiB counts by its size
// and time of modification.
//
// # How events are had
//
// Every directory below the paths is watched, and every directory on the way to
// them from the project's root, so that paths may appear, vanish, be renamed into
// place or be links that are pointed elsewhere. Each 30 seconds the paths
// themselves are looked at, whatever the events say. Where the system gives no
// events (limits that are used up, network file systems, or a change that was
// found twice without one), the watcher polls, and its [Status] says why.
//
// # Limits of the promise
//
// At most 100,000 files and, with events, 10,000 directories are looked at. Of a
// path outside of the project only the last directory on the way is watched. A
// file that a link leads to is noticed by its events only if it lies inside of a
// watched directory, else at the next look. On Windows a directory that has
// directories cannot be renamed while those are watched: a build that does so
// needs polling.
//
// All state belongs to the goroutine in [Watcher.Run]; looking at files happens
// in one goroutine beside it, which it waits for.
package watch
