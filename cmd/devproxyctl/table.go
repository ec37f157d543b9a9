package main

import (
	"io"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/debugmcp/devproxy/internal/cli"
)

// table is rows under a heading. Its cells are made fit for a terminal, each in
// its line.
type table struct {
	heading []string
	rows    [][]string
	// style is that of a cell; nil leaves all as they are.
	style func(row, column int) lipgloss.Style
}

func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = cli.PrintableLine(strings.ReplaceAll(cell, "\n", " "))
	}
	t.rows = append(t.rows, cells)
}

// gap stands between two columns.
const gap = "  "

// minLast is how many columns of a terminal the last column needs to be read
// beside the others.
const minLast = 28

// print writes the table. If width is not 0 the last column is wrapped to end
// there, and goes below the others where they leave too little of it.
func (t *table) print(out io.Writer, width int) error {
	widths := make([]int, len(t.heading))
	for _, row := range append([][]string{t.heading}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	last := len(widths) - 1
	indent := 0
	for _, used := range widths[:last] {
		indent += used + len(gap)
	}
	below := width > 0 && indent+min(minLast, widths[last]) > width
	if below {
		indent = len(gap)
	}
	var text strings.Builder
	line := func(cells []string, style func(column int) lipgloss.Style) {
		var b strings.Builder
		for i, cell := range cells[:last] {
			cell += strings.Repeat(" ", widths[i]-lipgloss.Width(cell)) + gap
			b.WriteString(style(i).Render(cell))
		}
		rest := cells[last]
		if width-indent >= minText {
			rest = lipgloss.Wrap(rest, width-indent, " ")
		}
		if below && rest != "" {
			text.WriteString(strings.TrimRight(b.String(), " ") + "\n")
			b.Reset()
			b.WriteString(gap)
		}
		for i, part := range strings.Split(rest, "\n") {
			if i > 0 {
				text.WriteString(strings.TrimRight(b.String(), " ") + "\n")
				b.Reset()
				b.WriteString(strings.Repeat(" ", indent))
			}
			b.WriteString(style(last).Render(strings.TrimRight(part, " ")))
		}
		text.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	line(t.heading, func(int) lipgloss.Style { return faint })
	for i, row := range t.rows {
		line(row, func(column int) lipgloss.Style {
			if t.style == nil {
				return lipgloss.NewStyle()
			}
			return t.style(i, column)
		})
	}
	return write(out, text.String())
}

// shorten cuts a text to so many columns, and shows that it did.
func shorten(text string, columns int) string {
	if lipgloss.Width(text) <= columns {
		return text
	}
	used := lipgloss.Width("…")
	for i, r := range text {
		if used += lipgloss.Width(string(r)); used > columns {
			return strings.TrimRight(text[:i], " ") + "…"
		}
	}
	return text
}
