package link

import (
	"sync"
	"sync/atomic"

	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// maxEarly and maxEarlyBytes bound what waits for a first sink. A backend that was started before anyone
	// came may log for hours; the first of it is kept, and its requests beyond that are refused.
	maxEarly      = 1024
	maxEarlyBytes = 4 << 20
)

// outlet is the way from a link's goroutines to its sink. It keeps the sink's promises: one call at a time, and
// none after Lost or Close. Messages that come before there is a sink wait for it in order.
type outlet struct {
	mu         sync.Mutex
	sink       Sink // nil until bound
	early      []arrival
	earlyBytes int
	loss       error // that came before the sink

	ended atomic.Bool // not under mu: ending must not wait for a sink that does
}

type arrival struct {
	m   wire.Message
	via int64
}

// message reports false if nobody took the message because too much waits for a sink already.
func (o *outlet) message(m wire.Message, via int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended.Load():
	case o.sink != nil:
		o.sink.Message(m, via)
	case len(o.early) >= maxEarly || o.earlyBytes+sizeOf(m) > maxEarlyBytes:
		return false
	default:
		o.early = append(o.early, arrival{m, via})
		o.earlyBytes += sizeOf(m)
	}
	return true
}

func (o *outlet) failed(id int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sink != nil && !o.ended.Load() {
		o.sink.Failed(id, err)
	}
}

func (o *outlet) writable() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sink != nil && !o.ended.Load() {
		o.sink.Writable()
	}
}

func (o *outlet) lost(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended.Load():
	case o.sink == nil:
		o.loss = err
	default:
		o.ended.Store(true)
		o.sink.Lost(err)
	}
}

// bind gives the outlet its sink, or another one.
func (o *outlet) bind(sink Sink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended.Load() {
		return
	}
	o.sink = sink
	for _, a := range o.early {
		sink.Message(a.m, a.via)
	}
	o.early, o.earlyBytes = nil, 0
	if o.loss != nil {
		o.ended.Store(true)
		sink.Lost(o.loss)
	}
}

// mute ends the deliveries. One that is under way may still finish.
func (o *outlet) mute() { o.ended.Store(true) }
