package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// indexLines maps every table, key and array element of the document to the
// line it stands on, named as in an Error: "backend", "backend.env.A",
// "watch.paths[1]". The decoder of go-toml forgets positions; its parser,
// though called unstable, is the only thing that has them. A document that does
// not parse gives what comes before the fault.
func indexLines(text []byte) lineIndex {
	x := lineIndex{lines: map[string]int{}, keys: map[int]string{}}
	for i, c := range text {
		if c == '\n' {
			x.ends = append(x.ends, i)
		}
	}
	x.parser.Reset(text)
	table := ""
	for x.parser.NextExpression() {
		node := x.parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = x.key("", node)
		case unstable.KeyValue:
			x.keyValue(table, node)
		default:
		}
	}
	return x
}

type lineIndex struct {
	parser unstable.Parser
	lines  map[string]int
	keys   map[int]string // the last key on each line
	ends   []int          // where each line ends
}

// key records the parts of a dotted key and gives its full name.
func (x *lineIndex) key(prefix string, node *unstable.Node) string {
	name := prefix
	for parts := node.Key(); parts.Next(); {
		part := parts.Node()
		name = strings.TrimPrefix(name+"."+string(part.Data), ".")
		x.note(name, part)
	}
	return name
}

func (x *lineIndex) keyValue(prefix string, node *unstable.Node) {
	name := x.key(prefix, node)
	value := node.Value()
	switch value.Kind {
	case unstable.InlineTable:
		for children := value.Children(); children.Next(); {
			x.keyValue(name, children.Node())
		}
	case unstable.Array:
		i := 0
		for children := value.Children(); children.Next(); {
			x.note(fmt.Sprintf("%s[%d]", name, i), children.Node())
			i++
		}
	default:
	}
}

// note keeps the first line of a name: a table may be spoken of again below.
func (x *lineIndex) note(name string, node *unstable.Node) {
	if node.Raw.Length == 0 {
		return
	}
	before, _ := slices.BinarySearch(x.ends, int(node.Raw.Offset))
	line := before + 1
	x.keys[line] = name
	if _, known := x.lines[name]; !known {
		x.lines[name] = line
	}
}
