package backend

import (
	"context"
	"fmt"
	"sync"
)

// buildTail is how many lines of a build's output are kept for status and
// errors: compilers say what is wrong at the end.
const buildTail = 40

// buildRun is one run of the build command.
type buildRun struct {
	cancel context.CancelCauseFunc
	// watchers are those of the requests it is for.
	watchers []*steps
	befores  []func() error

	mu   sync.Mutex // lines may come from more than one goroutine
	tail tail
}

func (l *loop) startBuild(work context.Context, tag uint64) {
	b := &buildRun{tail: tail{limit: buildTail}}
	for _, r := range l.requests {
		if !r.building || r.build != 0 {
			continue
		}
		r.build = tag
		b.watchers = append(b.watchers, r.steps)
		b.befores = append(b.befores, r.before)
	}
	var ctx context.Context
	ctx, b.cancel = context.WithCancelCause(work)
	l.build = b
	l.group.Go(func() {
		defer b.cancel(nil)
		e := b.run(ctx, l.config.Build)
		e.build = tag
		l.inbox.put(item{event: e})
	})
}

// run builds, and then does what is to be done before the restart.
func (b *buildRun) run(ctx context.Context, build func(context.Context, func(string)) error) event {
	err := build(ctx, b.line)
	e := event{kind: built, tail: b.tail.lines()}
	if err != nil {
		e.failure = fail(BuildFailed, fmt.Sprintf("the build failed: %v", err))
		e.failure.Tail = e.tail
		return e
	}
	for _, before := range b.befores {
		if err := runBefore(before); err != nil {
			e.failure = fail(ConfigInvalid, err.Error())
			return e
		}
	}
	return e
}

func (b *buildRun) line(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tail.add(text)
	for _, w := range b.watchers {
		w.add(Step{Output: &text})
	}
}

// tail keeps the last lines of an output. It has no lock of its own.
type tail struct {
	limit int
	kept  []string
	next  int // where the oldest is, once kept is full
}

func (t *tail) add(line string) {
	if len(t.kept) < t.limit {
		t.kept = append(t.kept, line)
		return
	}
	t.kept[t.next] = line
	t.next = (t.next + 1) % t.limit
}

// lines returns them, oldest first.
func (t *tail) lines() []string {
	if len(t.kept) == 0 {
		return nil
	}
	lines := make([]string, 0, len(t.kept))
	lines = append(lines, t.kept[t.next:]...)
	return append(lines, t.kept[:t.next]...)
}
