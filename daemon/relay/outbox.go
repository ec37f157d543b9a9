package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// outboxLimit is how much may wait for a client that reads, and how much a
	// client that does not read may pile up before its patience counts: three of
	// the largest messages that the official clients can take.
	outboxLimit = 32 << 20
	// outboxCap is where even a client that reads a little is given up: a
	// backend may write faster than a client reads for a while, but not for ever
	// at the cost of this process's memory.
	outboxCap = 128 << 20
	// slowAfter is how long a client with a full outbox may accept nothing. It
	// outlasts a SIGSTOP by a debugger, a suspended terminal or a long
	// collection of garbage.
	slowAfter = 30 * time.Second
	// chatterCap is where log lines and progress are left out: a backend may write
	// more of both than any client reads. What comes while a client is stopped for
	// less than slowAfter fits.
	chatterCap = 64 << 20
	// allOutCap bounds all outboxes together in the same way. A client that waits
	// for less than chatterFloor is not among those who make it full.
	allOutCap    = 256 << 20
	chatterFloor = 1 << 20
	// frameBytes is about what a frame takes beside its text. It counts for the
	// same reason as eventBytes.
	frameBytes = 64
)

// outbox is the queue of frames towards one client. The loop pushes and never
// waits; one sender takes.
type outbox struct {
	mu     sync.Mutex
	frames [][]byte
	size   int
	// accepted is when the sender last showed that the client takes bytes.
	accepted time.Time
	cause    error
	// discard says that what is queued is not to be sent any more.
	discard bool
	// all is the size of all outboxes.
	all *atomic.Int64

	ready chan struct{} // holds a token while there may be something to take
	done  chan struct{} // closed with the outbox
}

func newOutbox(all *atomic.Int64) *outbox {
	return &outbox{all: all, accepted: time.Now(), ready: make(chan struct{}, 1), done: make(chan struct{})}
}

// push queues a frame and returns how many bytes wait now.
func (o *outbox) push(frame []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause != nil {
		return 0
	}
	if len(o.frames) == 0 {
		// The client had taken everything, so its patience starts now.
		o.accepted = time.Now()
	}
	o.frames = append(o.frames, frame)
	o.grow(frameBytes + len(frame))
	o.wake()
	return o.size
}

func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// next waits for a frame. After close it returns what is still queued, then the
// cause.
func (o *outbox) next(ctx context.Context) ([]byte, error) {
	for {
		frame, err := o.take()
		if frame != nil || err != nil {
			return frame, err
		}
		select {
		case <-o.ready:
		case <-o.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (o *outbox) take() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.accepted = time.Now()
	if o.cause != nil && (o.discard || len(o.frames) == 0) {
		return nil, o.cause
	}
	if len(o.frames) == 0 {
		return nil, nil
	}
	frame := o.frames[0]
	o.frames[0] = nil
	o.frames = o.frames[1:]
	o.grow(-frameBytes - len(frame))
	if len(o.frames) > 0 {
		o.wake()
	}
	return frame, nil
}

func (o *outbox) grow(by int) {
	o.size += by
	o.all.Add(int64(by))
}

// full reports whether too much waits for log lines and progress to be added.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size > chatterCap || o.size > chatterFloor && o.all.Load() > allOutCap
}

// progress notes that the client took some bytes of the frame being sent.
func (o *outbox) progress() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.accepted = time.Now()
}

// slow reports whether the client has to be given up, and if not, when to look
// again; never if its outbox is within limits.
func (o *outbox) slow(now time.Time) (slow bool, again time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.size > outboxCap:
		return true, time.Time{}
	case o.size <= outboxLimit:
		return false, time.Time{}
	case now.Sub(o.accepted) >= slowAfter:
		return true, time.Time{}
	}
	return false, o.accepted.Add(slowAfter)
}

// close ends the outbox, for the cause that it is given first. discard gives up
// what is queued.
func (o *outbox) close(cause error, discard bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if discard {
		o.discard, o.frames = true, nil
		o.grow(-o.size)
	}
	if o.cause == nil {
		o.cause = cause
		close(o.done)
	}
}

func (o *outbox) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause
}
