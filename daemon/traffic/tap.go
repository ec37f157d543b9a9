package traffic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/daemon/relay"
)

const (
	// maxTracers bounds who looks at a time: each may hold as much as the largest
	// messages have.
	maxTracers = 4
	// maxQueued bounds the messages that wait for a tracer: what passes while a
	// person's terminal scrolls.
	maxQueued = 4096
	// maxQueuedBytes bounds their size together. It is that of the largest
	// message, which could not be shown otherwise.
	maxQueuedBytes = 64 << 20
)

// ErrTooMany says that maxTracers look already.
var ErrTooMany = fmt.Errorf("%d others trace the traffic already, and no more may", maxTracers)

// Seen is a message and when it passed.
type Seen struct {
	relay.Traffic

	Time time.Time
	// Lost is how many messages before it did not fit into the queue.
	Lost uint64
}

// Tap is where tracers look. Its zero value has none.
type Tap struct {
	mu      sync.Mutex                // of changes of tracers
	tracers atomic.Pointer[[]*Tracer] // nil or empty while nobody looks
}

// Watched reports whether anybody looks.
func (t *Tap) Watched() bool {
	all := t.tracers.Load()
	return all != nil && len(*all) > 0
}

// See shows a message to all tracers. It never waits for one.
func (t *Tap) See(m relay.Traffic) {
	all := t.tracers.Load()
	if all == nil || len(*all) == 0 {
		return
	}
	seen := Seen{Traffic: m, Time: time.Now()}
	for _, tracer := range *all {
		tracer.add(seen)
	}
}

// Open adds a tracer, which sees what passes from now on until it is closed. The
// error is ErrTooMany.
func (t *Tap) Open() (*Tracer, error) {
	tracer := &Tracer{tap: t, ready: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*Tracer
	if now := t.tracers.Load(); now != nil {
		all = slices.Clone(*now)
	}
	if len(all) >= maxTracers {
		return nil, ErrTooMany
	}
	all = append(all, tracer)
	t.tracers.Store(&all)
	return tracer, nil
}

func (t *Tap) remove(tracer *Tracer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(*t.tracers.Load()), func(other *Tracer) bool { return other == tracer })
	t.tracers.Store(&rest)
}

// Tracer is one who looks. Next is for one goroutine.
type Tracer struct {
	tap   *Tap
	ready chan struct{} // has room for one; full after something was queued

	mu    sync.Mutex // held for moments only: the router waits for it
	queue []Seen
	bytes int
	lost  uint64
}

func (t *Tracer) add(seen Seen) {
	t.mu.Lock()
	if len(t.queue) >= maxQueued || t.bytes+len(seen.Frame) > maxQueuedBytes {
		t.lost++
		t.mu.Unlock()
		return
	}
	seen.Lost, t.lost = t.lost, 0
	t.queue = append(t.queue, seen)
	t.bytes += len(seen.Frame)
	t.mu.Unlock()
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// Next waits for the next message. The error is the cause of the end of ctx.
func (t *Tracer) Next(ctx context.Context) (Seen, error) {
	for {
		if seen, ok := t.take(); ok {
			return seen, nil
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return Seen{}, context.Cause(ctx)
		}
	}
}

func (t *Tracer) take() (Seen, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.queue = nil // what it had room for may be a lot
		return Seen{}, false
	}
	seen := t.queue[0]
	t.queue[0] = Seen{}
	t.queue = t.queue[1:]
	t.bytes -= len(seen.Frame)
	return seen, true
}

// Close ends the tracer.
func (t *Tracer) Close() { t.tap.remove(t) }
