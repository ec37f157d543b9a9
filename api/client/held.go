package client

import (
	"os"

	"github.com/gofrs/flock"

	"github.com/debugmcp/devproxy/internal/project"
)

// Held reports whether some process is the daemon of the project, though it may not
// serve: one that starts or ends does not, nor does one whose socket was removed.
func Held(p project.Project) bool {
	if _, err := os.Stat(p.Lock()); err != nil {
		return false
	}
	lock := flock.New(p.Lock())
	defer func() { _ = lock.Close() }()
	// A shared lock, so that two who look do not see each other.
	free, err := lock.TryRLock()
	return err == nil && !free
}
