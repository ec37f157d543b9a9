package daemon

import (
	"context"
	"log/slog"
)

// maskingHandler hides secrets in what another handler writes.
type maskingHandler struct {
	next slog.Handler
	mask func(string) string
}

// Enabled implements slog.Handler.
func (h maskingHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h maskingHandler) Handle(ctx context.Context, record slog.Record) error {
	masked := slog.NewRecord(record.Time, record.Level, h.mask(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, masked)
}

// WithAttrs implements slog.Handler.
func (h maskingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = h.attr(a)
	}
	return maskingHandler{next: h.next.WithAttrs(masked), mask: h.mask}
}

// WithGroup implements slog.Handler.
func (h maskingHandler) WithGroup(name string) slog.Handler {
	return maskingHandler{next: h.next.WithGroup(name), mask: h.mask}
}

// attr leaves an attribute alone whose text has no secret: a handler may write
// an error or a duration in a way of its own.
func (h maskingHandler) attr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() == slog.KindGroup {
		members := a.Value.Group()
		masked := make([]slog.Attr, len(members))
		for i, member := range members {
			masked[i] = h.attr(member)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(masked...)}
	}
	text := a.Value.String()
	if masked := h.mask(text); masked != text {
		return slog.String(a.Key, masked)
	}
	return a
}
