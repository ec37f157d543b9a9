package era

import (
	"slices"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Levels returns the log levels of both eras, from the most to the least talkative.
func Levels() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// Severity returns the rank of a level among Levels; ok is false for a word that is no level.
func Severity(level string) (rank int, ok bool) {
	rank = slices.Index(Levels(), level)
	return rank, rank >= 0
}

// Admits reports whether one who asked for the level threshold gets a message of that level. Who asked for
// none gets none.
func Admits(threshold, level string) bool {
	least, asked := Severity(threshold)
	rank, known := Severity(level)
	return asked && known && rank >= least
}

// Lowest returns the more talkative of two levels; "" asks for nothing.
func Lowest(a, b string) string {
	rankA, okA := Severity(a)
	rankB, okB := Severity(b)
	if okA && (!okB || rankA <= rankB) {
		return a
	}
	if okB {
		return b
	}
	return ""
}

// ParseSetLevel reads the params of a logging/setLevel.
func ParseSetLevel(params []byte) (level string, e *wire.Error) {
	level = text(at(params, "level"))
	if _, ok := Severity(level); !ok {
		return "", &wire.Error{Code: wire.CodeInvalidParams, Message: "Invalid params: level is no log level"}
	}
	return level, nil
}
