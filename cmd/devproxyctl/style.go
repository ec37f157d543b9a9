package main

import "charm.land/lipgloss/v2"

// The few styles of the output. lipgloss leaves them out where the output is no
// terminal or NO_COLOR is set.
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
