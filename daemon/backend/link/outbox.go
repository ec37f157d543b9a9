package link

import (
	"sync"

	"github.com/debugmcp/devproxy/internal/wire"
)

// item is one thing to send. For a cancellation the message is the notification and id the request it names.
type item struct {
	m       wire.Message
	id      int64 // of a request of ours, or of the one to cancel; else 0
	refused bool  // a request that found the queue full and only waits to be failed
}

// itemBytes is about what an item takes beside its message. It counts, since a backend may ask for millions of answers
// that say next to nothing.
const itemBytes = 256

func (it item) size() int { return itemBytes + sizeOf(it.m) }

// sizeOf is about what a message takes in a queue.
func sizeOf(m wire.Message) int { return len(m.Method) + len(m.Params) + len(m.Result) + len(m.Error) }

// outbox is the queue between callers that must not block and the one goroutine that sends. It counts bytes, also
// those that were taken but are not with the backend yet.
type outbox struct {
	wake chan struct{} // has room for one: something was put or the box was closed

	mu        sync.Mutex
	items     []item
	bytes     int
	congested bool
	dropping  bool // something was dropped since the queue had last drained
	closed    bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put adds an item. A request that finds the queue full comes out again as refused, so that it is told by the sending
// goroutine, not by the caller's. Everything else is dropped: a backend that does not read what it has asked for must
// not take the memory of the daemon. It reports the first that is dropped until the queue has drained.
func (b *outbox) put(it item) (dropped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.bytes > maxQueue {
		if it.m.Kind != wire.Request {
			dropped = !b.dropping
			b.dropping = true
			return dropped
		}
		it.m.Params = nil
		it.refused = true
	}
	b.items = append(b.items, it)
	b.bytes += it.size()
	b.congested = b.congested || b.bytes > HighWater
	b.signal()
	return false
}

func (b *outbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// next waits for an item; ok is false once the box is closed. The item's bytes count until sent is called.
func (b *outbox) next() (it item, ok bool) {
	for {
		it, ok, closed := b.take()
		if ok || closed {
			return it, ok
		}
		<-b.wake
	}
}

func (b *outbox) take() (it item, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.items) == 0 {
		return item{}, false, b.closed
	}
	it = b.items[0]
	b.items[0] = item{} // do not hold its bytes
	b.items = b.items[1:]
	return it, true, false
}

// sent gives back the bytes of an item, and reports whether that ended a congestion.
func (b *outbox) sent(it item) (drained bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= it.size()
	b.dropping = b.dropping && b.bytes > LowWater
	if b.congested && b.bytes <= LowWater {
		b.congested = false
		return true
	}
	return false
}

func (b *outbox) isCongested() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.congested
}

// close drops what is queued and ends next.
func (b *outbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.congested, b.items = true, false, nil
	b.signal()
}
