package backend

import "sync"

// mailbox is the way into the loop. Putting never blocks, because observers of
// the loop put from loops of their own. It needs no bound: an event that
// repeats the one before it is merged with it, the loop takes what is there
// without waiting for anything, and the others are few for each attempt and each
// waiting caller.
type mailbox struct {
	mu     sync.Mutex
	items  []item
	closed bool
	// wake has room for one; it says that items are there.
	wake chan struct{}
}

// item is an event for the state machine, the request of a person that comes
// with it, a request that nobody waits for any more, or a change of what status
// alone shows.
type item struct {
	event   event
	request *request
	left    *request
	scene   func(*scene)
}

func newMailbox() *mailbox {
	return &mailbox{wake: make(chan struct{}, 1)}
}

// put reports whether the item was taken: not after close.
func (m *mailbox) put(it item) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if n := len(m.items); n > 0 && it.repeats(m.items[n-1]) {
		return true
	}
	m.items = append(m.items, it)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// repeats reports whether the item says no more than the one before it.
func (it item) repeats(last item) bool {
	mergeable := it.event.kind == needed || it.event.kind == outputChanged && it.request == nil
	return mergeable && it.plain() && last.plain() && it.event.kind == last.event.kind && it.event.change == last.event.change
}

// plain reports whether the item is about its event.
func (it item) plain() bool { return it.scene == nil && it.left == nil }

// take empties the mailbox.
func (m *mailbox) take() []item {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}

// close refuses what comes from now on, and returns what is left.
func (m *mailbox) close() []item {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	items := m.items
	m.items = nil
	return items
}
