package config

import (
	"fmt"
	"strings"
)

// Error is one thing that is wrong with the configuration.
type Error struct {
	// File is relative to the project's root where it lies inside of it.
	File string
	// Line counts from 1; 0 where the fault is that something is not there.
	Line int
	// Key is the full name, such as "backend.command" or "watch.ignore[1]";
	// empty where the file is no TOML.
	Key string
	// Msg says what is wrong and, where that is known, what to write instead.
	Msg string
}

// Error is the fault in one line: "devproxy.toml:7: backend.comand: unknown key".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	b.WriteString(": " + e.Msg)
	return b.String()
}

// Errors are several faults of one file, in the order of their lines. A single
// fault is returned as an [*Error] of its own.
type Errors []*Error

// Error is one fault per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first fault.
func (e Errors) Unwrap() []error {
	faults := make([]error, len(e))
	for i, fault := range e {
		faults[i] = fault
	}
	return faults
}
