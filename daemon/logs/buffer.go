package logs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Source is who said a line.
type Source string

// The sources.
const (
	Backend Source = "backend"
	Build   Source = "build"
	Daemon  Source = "daemon"
)

// Entry is one line.
type Entry struct {
	// Sequence is assigned by Append and counts all lines from 1. What is read
	// with a filter has gaps where it left lines out; other gaps are lost lines.
	Sequence uint64
	// Time is set by Append if it is zero.
	Time   time.Time
	Source Source
	// Stream is "stderr", "stdout" or "stdout-noise" of a process, or the level
	// of a daemon line.
	Stream string
	// Generation of the backend; 0 where there is none.
	Generation uint64
	// Text is valid UTF-8 without the line's end.
	Text string
}

// Filter says which lines are wanted; its zero value wants all.
type Filter struct {
	// Sources are wanted; none means all.
	Sources []Source
	// Since is the time from which on they are wanted; zero means all.
	Since time.Time
	// Generation is that of the backend; 0 means all.
	Generation uint64
	// Match decides by the entry last, where the others want it; nil means all.
	// It may take its time: nobody waits for it who appends.
	Match func(Entry) bool
}

// admits is what can be decided under the lock.
func (f Filter) admits(e *Entry) bool {
	return (len(f.Sources) == 0 || slices.Contains(f.Sources, e.Source)) &&
		(f.Generation == 0 || f.Generation == e.Generation) && !e.Time.Before(f.Since)
}

func (f Filter) wants(e *Entry) bool { return f.admits(e) && (f.Match == nil || f.Match(*e)) }

// Limits bound a buffer; 0 stands for the default.
type Limits struct {
	Lines int
	// Bytes of text.
	Bytes int
}

const (
	// defaultLines is enough for the output around several restarts.
	defaultLines = 10_000
	// defaultBytes bounds the text of these lines: a server that logs its
	// messages must not make a large process of the daemon.
	defaultBytes = 8 << 20
	// maxText is the length to which a line is cut: far longer than a person
	// reads, and short enough for hundreds of them to fit.
	maxText = 32 << 10
	// followBatch is how many lines a follower copies under the lock at once.
	followBatch = 256
)

// Buffer keeps the last lines. Its methods may be called from any goroutine.
type Buffer struct {
	maxLines, maxBytes int

	mu      sync.Mutex // held for copying a few lines at most
	entries []Entry    // the live ones start at head; their sequences are consecutive
	head    int
	bytes   int
	next    uint64        // sequence of the next line
	grown   chan struct{} // closed by the next Append; nil while nobody waits
}

// NewBuffer makes an empty buffer.
func NewBuffer(limits Limits) *Buffer {
	b := &Buffer{maxLines: limits.Lines, maxBytes: limits.Bytes, next: 1}
	if b.maxLines <= 0 {
		b.maxLines = defaultLines
	}
	if b.maxBytes <= 0 {
		b.maxBytes = defaultBytes
	}
	return b
}

// Append adds a line. A long one is cut, and says so.
func (b *Buffer) Append(e Entry) {
	e.Text = clean(e.Text)
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Sequence = b.next
	b.next++
	b.entries = append(b.entries, e)
	b.bytes += len(e.Text)
	b.forget()
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
}

// forget drops the oldest lines until the bounds hold again.
func (b *Buffer) forget() {
	for len(b.entries)-b.head > b.maxLines || b.bytes > b.maxBytes {
		b.bytes -= len(b.entries[b.head].Text)
		b.entries[b.head] = Entry{}
		b.head++
	}
	// Moving down only when half is unused makes it one copy per line on average.
	if b.head > len(b.entries)/2 {
		live := copy(b.entries, b.entries[b.head:])
		clear(b.entries[live:])
		b.entries, b.head = b.entries[:live], 0
	}
}

func clean(text string) string {
	text = strings.TrimRight(text, "\r\n")
	if size := len(text); size > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = fmt.Sprintf("%s… [cut, %d bytes in all]", text[:end], size)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Tail copies the last n lines that the filter wants; n <= 0 means all.
func (b *Buffer) Tail(n int, filter Filter) []Entry {
	if filter.Match == nil {
		return b.tail(n, filter)
	}
	all := b.tail(0, filter)
	first := len(all) // of the wanted ones, which gather at the end
	for i := len(all) - 1; i >= 0 && (n <= 0 || len(all)-first < n); i-- {
		if filter.Match(all[i]) {
			first--
			all[first] = all[i]
		}
	}
	return slices.Clip(all[first:])
}

func (b *Buffer) tail(n int, filter Filter) []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var admitted []Entry
	for i := len(b.entries) - 1; i >= b.head && (n <= 0 || len(admitted) < n); i-- {
		if filter.admits(&b.entries[i]) {
			admitted = append(admitted, b.entries[i])
		}
	}
	slices.Reverse(admitted)
	return admitted
}

// Follow calls send with the last tail lines that the filter wants (tail <= 0:
// all) and then with each that comes, without a gap between the two, until ctx
// ends or send fails; it returns ctx's cause or send's error. A send that takes
// long delays nobody, but lines may be forgotten meanwhile.
func (b *Buffer) Follow(ctx context.Context, tail int, filter Filter, send func(Entry) error) error {
	at := b.start(tail, filter)
	batch := make([]Entry, 0, followBatch)
	for {
		var grown <-chan struct{}
		batch, at, grown = b.after(at, batch[:0])
		for i := range batch {
			if !filter.wants(&batch[i]) {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := send(batch[i]); err != nil {
				return err
			}
		}
		if grown == nil {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// start is the sequence of the first line that Follow sends.
func (b *Buffer) start(tail int, filter Filter) uint64 {
	if tail <= 0 {
		return 0
	}
	if last := b.Tail(tail, filter); len(last) > 0 {
		return last[0].Sequence
	}
	return 0 // none yet, so that the first that comes is wanted
}

// after copies lines from sequence at on into batch, and gives the sequence to
// go on from. If there are none, grown is closed by the next Append.
func (b *Buffer) after(at uint64, batch []Entry) (_ []Entry, next uint64, grown <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	live := b.entries[b.head:]
	first := b.next - uint64(len(live))
	at = max(at, first)
	if at >= b.next {
		if b.grown == nil {
			b.grown = make(chan struct{})
		}
		return batch, at, b.grown
	}
	live = live[at-first:]
	batch = append(batch, live[:min(len(live), followBatch)]...)
	return batch, at + uint64(len(batch)), nil
}
