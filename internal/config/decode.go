package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// decoder fills a Config from a parsed document and collects what is wrong.
type decoder struct {
	config *Config
	lines  map[string]int
	given  map[string]bool
	faults Errors
}

// partError is a fault in a part of a value: Part is "[1]" or ".NAME".
type partError struct {
	part, msg string
}

func (e *partError) Error() string { return e.msg }

func (d *decoder) applyDefaults() {
	for _, key := range Keys() {
		if key.Default == "" {
			continue
		}
		// A default is TOML, read as if it stood in the file. It cannot
		// fail, which a test holds.
		var doc map[string]any
		err := toml.Unmarshal([]byte("value = "+key.Default), &doc)
		if err == nil {
			err = key.set(d.config, doc["value"])
		}
		if err != nil {
			d.faultAt(key.FullName(), "default: "+err.Error())
		}
	}
}

func (d *decoder) decode(doc map[string]any) {
	known := map[string]Key{}
	for _, key := range Keys() {
		known[key.FullName()] = key
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		if !slices.Contains(tables(), name) {
			d.faultAt(name, unknownTable(name, doc[name]))
			continue
		}
		table, ok := doc[name].(map[string]any)
		if !ok {
			d.faultAt(name, "must be a table: write ["+name+"] on a line of its own")
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			d.decodeKey(known, name, key, table[key])
		}
	}
}

func (d *decoder) decodeKey(known map[string]Key, table, name string, value any) {
	full := table + "." + name
	key, ok := known[full]
	if !ok {
		d.faultAt(full, unknownKey(table, name))
		return
	}
	d.given[full] = true
	err := key.set(d.config, value)
	if err == nil {
		return
	}
	if part, ok := errors.AsType[*partError](err); ok {
		d.faultAt(full+part.part, part.msg)
		return
	}
	d.faultAt(full, err.Error())
}

// faultAt records a fault. A key that is not in the file is told with the line
// of the nearest thing around it that is.
func (d *decoder) faultAt(key, msg string) {
	line, at := 0, key
	for line == 0 && at != "" {
		line = d.lines[at]
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	d.faults = append(d.faults, &Error{File: FileName, Line: line, Key: key, Msg: msg})
}

func unknownTable(name string, value any) string {
	if _, isTable := value.(map[string]any); !isTable {
		for _, key := range Keys() {
			if key.Name == name {
				return fmt.Sprintf("unknown key at the top of the file (it belongs into [%s])", key.Table)
			}
		}
		return "unknown key at the top of the file (every key belongs into a table such as [backend])"
	}
	if near := Nearest(name, tables()); near != "" {
		return fmt.Sprintf("unknown table (did you mean [%s]?)", near)
	}
	return "unknown table (there are [" + strings.Join(tables(), "], [") + "])"
}

func unknownKey(table, name string) string {
	var here []string
	elsewhere := ""
	for _, key := range Keys() {
		if key.Table == table {
			here = append(here, key.Name)
		} else if key.Name == name {
			elsewhere = key.Table
		}
	}
	if near := Nearest(name, here); near != "" {
		return fmt.Sprintf("unknown key (did you mean %s?)", near)
	}
	if elsewhere != "" {
		return fmt.Sprintf("unknown key (it belongs into [%s])", elsewhere)
	}
	return fmt.Sprintf("unknown key ([%s] has %s)", table, strings.Join(here, ", "))
}
