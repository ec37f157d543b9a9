//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// longestNote is how much of what happened is kept: the begin of a message says
// what it is.
const longestNote = 400

// timeline is what happened in a world, as it happened.
type timeline struct {
	began time.Time

	mu    sync.Mutex
	notes []string
}

func newTimeline() *timeline { return &timeline{began: time.Now()} }

// notef notes what an actor did or saw.
func (l *timeline) notef(actor, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if len(what) > longestNote {
		what = fmt.Sprintf("%s... (%d bytes)", what[:longestNote], len(what))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, fmt.Sprintf("%9.3f %-9s %s", time.Since(l.began).Seconds(), actor, what))
}

func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.notes, "\n")
}
