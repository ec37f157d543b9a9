//go:build !linux

package process

import "context"

// Subreaper only waits for ctx here: adopting orphaned descendants is a service of Linux. Orphans
// fall to launchd on macOS, which reaps them, and Windows has no zombies.
func Subreaper(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
