package relay

import "sync"

// mailboxLimit is how many bytes of messages from the backend may wait for the
// loop before whoever reads the backend waits too. The loop always empties the
// whole mailbox, so this bounds memory and delays nobody for long.
const mailboxLimit = 16 << 20

// eventBytes is about what an event takes beside the text of its message. It
// counts, since a backend may send millions of messages that say next to nothing.
const eventBytes = 256

// event is something that happened outside the loop.
type event interface{ handle(r *Router) }

// mailbox is the way into the loop for everybody but clients. Posting never
// blocks, except that postMessage waits while too many bytes are queued.
type mailbox struct {
	mu     sync.Mutex
	events []event
	bytes  int
	closed bool
	space  chan struct{} // closed when the loop has taken everything; nil while nobody waits for that

	ready chan struct{} // holds a token while there may be something to take
}

func newMailbox() *mailbox {
	return &mailbox{ready: make(chan struct{}, 1)}
}

// post queues an event and reports whether anybody will handle it.
func (m *mailbox) post(e event) bool { return m.add(e, 0) }

func (m *mailbox) add(e event, size int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.events = append(m.events, e)
	m.bytes += size
	select {
	case m.ready <- struct{}{}:
	default:
	}
	return true
}

// postMessage queues an event that holds size bytes. When the mailbox is full it
// then waits for the loop, or until abandon is closed.
func (m *mailbox) postMessage(e event, size int, abandon <-chan struct{}) {
	if !m.add(e, size) {
		return
	}
	for {
		full, space := m.full()
		if !full {
			return
		}
		select {
		case <-space:
		case <-abandon:
			return
		}
	}
}

func (m *mailbox) full() (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes <= mailboxLimit || m.closed {
		return false, nil
	}
	if m.space == nil {
		m.space = make(chan struct{})
	}
	return true, m.space
}

// take empties the mailbox.
func (m *mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.empty()
	return events
}

func (m *mailbox) empty() {
	m.events, m.bytes = nil, 0
	if m.space != nil {
		close(m.space)
		m.space = nil
	}
}

// close makes every later post fail and returns what nobody will handle now.
func (m *mailbox) close() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.closed = true
	m.empty()
	return events
}
