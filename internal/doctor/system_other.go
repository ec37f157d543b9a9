//go:build !linux

package doctor

import "context"

// inotifyUse is Linux's own matter.
func inotifyUse(context.Context) (eventUse, bool) { return eventUse{}, false }
