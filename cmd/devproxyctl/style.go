package main

import (
	"fmt"
	"io"
	"os"

	"charm.land/lipgloss/v2"

	"github.com/debugmcp/devproxy/internal/cli"
)

// The few styles of the output, which plain output does without; see write.
var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	green = lipgloss.NewStyle().Foreground(lipgloss.Green)
	red   = lipgloss.NewStyle().Foreground(lipgloss.Red)
	amber = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	blue  = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

func stateStyle(state string) lipgloss.Style {
	switch state {
	case "running":
		return green
	case "failed":
		return red
	case "idle":
		return faint
	}
	return amber
}

func sourceStyle(source string) lipgloss.Style {
	switch source {
	case "backend":
		return green
	case "build":
		return amber
	}
	return blue
}

// levelStyles are those of the daemon's lines, by their level.
var levelStyles = map[string]lipgloss.Style{"WARN": amber, "ERROR": red}

// plain reports whether a person has asked for text without styles. NO_COLOR may
// have any value (no-color.org); that of lipgloss has to be a true one, and leaves
// bold and faint text as it is.
func plain() bool { return os.Getenv("NO_COLOR") != "" }

// write writes a text with its styles where out is a terminal that shows them,
// and without where it is none or NO_COLOR is set.
func write(out io.Writer, text string) error {
	_, err := lipgloss.Fprint(out, styled(text))
	return err
}

// styled is a text with its styles, or without if they are not wanted.
func styled(text string) string {
	if plain() {
		return cli.Printable(text)
	}
	return text
}

// cut shortens a line with styles to so many columns.
func cut(line string, columns int) string {
	if lipgloss.Width(line) <= columns {
		return line
	}
	return lipgloss.NewStyle().MaxWidth(columns).Render(line)
}

func writef(out io.Writer, format string, args ...any) error {
	return write(out, fmt.Sprintf(format, args...))
}
