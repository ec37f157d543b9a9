package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/lmittmann/tint"
)

func TestLogOnTheTerminalIsPrintable(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(tint.NewTextHandler(&out, &tint.Options{ReplaceAttr: printable}))
	log.With("name", "a\x1b]0;t\x07").WithGroup("g").Warn("it happened", "n", 7, "error", errors.New("\x1b[2Jb"), "text", "c\nd\u009b")
	text := out.String()
	for _, raw := range []string{"\x1b]", "\x1b[2J", "\x07", "\u009b", "\nd"} {
		if strings.Contains(text, raw) {
			t.Errorf("%q is in %q", raw, text)
		}
	}
	for _, shown := range []string{"WRN", "it happened", "7", `]0;t`, "2Jb"} {
		if !strings.Contains(text, shown) {
			t.Errorf("%q is not in %q", shown, text)
		}
	}
}
