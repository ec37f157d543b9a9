package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func setCommand(to *[]string, v any) error {
	text, ok := v.(string)
	if !ok {
		return setArgv(to, v)
	}
	if strings.ContainsRune(text, 0) {
		return errors.New("must not contain a NUL character")
	}
	argv, err := SplitCommand(text)
	if err != nil {
		return err
	}
	return takeArgv(to, argv)
}

// SplitWords splits a command line into words as a shell does, with its quotes
// and backslashes, and refuses what only a shell could do: the backend is
// started without one, so that its process is the one that is stopped. $PORT is
// the exception, since people write it: it becomes {port}.
func SplitWords(line string) ([]string, error) {
	var argv []string
	parser := syntax.NewParser()
	for word, err := range parser.WordsSeq(strings.NewReader(line)) {
		if err != nil {
			return nil, needsShell(parseFault(err))
		}
		text, err := wordText(line, word.Parts, false)
		if err != nil {
			return nil, err
		}
		argv = append(argv, text)
	}
	return argv, nil
}

// SplitCommand is SplitWords of a line that starts with the program to run.
func SplitCommand(line string) ([]string, error) {
	argv, err := SplitWords(line)
	if err == nil && len(argv) > 0 && assigned.MatchString(argv[0]) {
		name, _, _ := strings.Cut(argv[0], "=")
		return nil, assignmentFault(name)
	}
	return argv, err
}

// assigned is how a shell knows that a word in front of a command sets a variable.
var assigned = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

func assignmentFault(name string) error {
	if name == "PORT" {
		return errors.New("PORT=… in front of a command is for a shell; leave it out: the backend gets [backend] port as $PORT anyway")
	}
	return fmt.Errorf("%s=… in front of a command is for a shell; leave it out, and say %s in [backend.env]", name, name)
}

func parseFault(err error) string {
	if at, ok := errors.AsType[syntax.ParseError](err); ok {
		return at.Text
	}
	return err.Error()
}

func needsShell(what string) error {
	return fmt.Errorf("%s: a command given as one string is split into words but not run by a shell; "+
		`if you need one, write ["sh", "-c", "…"]`, what)
}

// wordText is what the parts of a word of line mean.
func wordText(line string, parts []syntax.WordPart, quoted bool) (string, error) {
	var b strings.Builder
	for i, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if !quoted && i == 0 && strings.HasPrefix(part.Value, "~") {
				return "", needsShell("~ is not expanded")
			}
			b.WriteString(unescape(part.Value, quoted))
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", needsShell("$'…' is not understood")
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			text, err := wordText(line, part.Parts, true)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		case *syntax.ParamExp:
			if source := line[part.Pos().Offset():part.End().Offset()]; source != "$PORT" && source != "${PORT}" {
				return "", needsShell("variables other than $PORT are not expanded")
			}
			b.WriteString(portPlaceholder)
		default:
			return "", needsShell("substitutions are not made")
		}
	}
	return b.String(), nil
}

// unescape removes the backslashes that the parser leaves in place. Between
// double quotes only four characters and the line end can be escaped.
func unescape(text string, quoted bool) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		next := text[i+1]
		switch {
		case next == '\n':
			i++
		case !quoted || strings.IndexByte("$`\"\\", next) >= 0:
			b.WriteByte(next)
			i++
		default:
			b.WriteByte('\\')
		}
	}
	return b.String()
}
