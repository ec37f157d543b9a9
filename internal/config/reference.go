package config

import (
	"fmt"
	"strings"
)

// Reference is the description of all keys in Markdown: a section for each
// table of the file, and a table row for each key.
func Reference() string {
	var b strings.Builder
	table := ""
	for _, key := range Keys() {
		if key.Table != table {
			table = key.Table
			fmt.Fprintf(&b, "%s## `[%s]`\n\n%s.\n\n", blankLine(&b), table, tableDoc(table))
			b.WriteString("| key | type | default | meaning |\n| --- | --- | --- | --- |\n")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s. |\n", key.Name, typeCell(key.Type),
			defaultCell(key.Default), strings.ReplaceAll(key.Doc, "|", `\|`))
	}
	b.WriteString("\nDurations are strings such as `\"300ms\"`, `\"15s\"`, `\"2m\"` or `\"1h30m\"`. Sizes are strings such " +
		"as `\"10112KiB\"` or `\"10MiB\"`\n(units B, KB, MB, GB, KiB, MiB, GiB) or plain numbers of bytes. Relative paths " +
		"start at the project's root.\n")
	return b.String()
}

func blankLine(b *strings.Builder) string {
	if b.Len() == 0 {
		return ""
	}
	return "\n"
}

func typeCell(words string) string {
	if !strings.HasPrefix(words, `"`) {
		return words
	}
	return "one of `" + strings.ReplaceAll(words, ", ", "`, `") + "`"
}

func defaultCell(text string) string {
	if text == "" {
		return "see text"
	}
	return "`" + text + "`"
}

func tableDoc(table string) string {
	switch table {
	case "backend":
		return "How your MCP server is started and spoken to"
	case "build":
		return "How your MCP server is built"
	case "watch":
		return "What is watched for new build output"
	case "proxy":
		return "How devproxy behaves towards clients"
	}
	return table
}

// tables are the names of the file's tables in the order of the reference.
func tables() []string {
	var names []string
	for _, key := range Keys() {
		if len(names) == 0 || names[len(names)-1] != key.Table {
			names = append(names, key.Table)
		}
	}
	return names
}
