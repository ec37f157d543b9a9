package logs

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Handler logs to the buffer, from slog.LevelInfo on: lines of the source Daemon
// with the level for a stream.
func (b *Buffer) Handler() slog.Handler { return newLineHandler(slog.LevelInfo, b.Append) }

// lineHandler makes a line of a record: the message, then the attributes as
// slog's text handler writes them.
type lineHandler struct {
	emit    func(Entry)
	attrs   slog.Handler // writes to scratch
	scratch *scratch
}

// scratch is shared by a handler and those derived from it.
type scratch struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLineHandler(level slog.Leveler, emit func(Entry)) *lineHandler {
	s := &scratch{}
	attrs := slog.NewTextHandler(&s.text, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{} // said elsewhere
			}
			return a
		},
	})
	return &lineHandler{emit: emit, attrs: attrs, scratch: s}
}

// Enabled implements slog.Handler.
func (h *lineHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.attrs.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *lineHandler) Handle(ctx context.Context, record slog.Record) error {
	attrs, err := h.format(ctx, record)
	if err != nil {
		return err
	}
	// A line is one line, in the log as in the terminal.
	text := strings.ReplaceAll(strings.TrimSpace(record.Message+" "+attrs), "\n", `\n`)
	h.emit(Entry{Time: record.Time, Source: Daemon, Stream: record.Level.String(), Text: text})
	return nil
}

func (h *lineHandler) format(ctx context.Context, record slog.Record) (string, error) {
	h.scratch.mu.Lock()
	defer h.scratch.mu.Unlock()
	h.scratch.text.Reset()
	if err := h.attrs.Handle(ctx, record); err != nil {
		return "", err
	}
	return strings.TrimSpace(h.scratch.text.String()), nil
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lineHandler{emit: h.emit, attrs: h.attrs.WithAttrs(attrs), scratch: h.scratch}
}

// WithGroup implements slog.Handler.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	return &lineHandler{emit: h.emit, attrs: h.attrs.WithGroup(name), scratch: h.scratch}
}
