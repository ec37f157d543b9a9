package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/joho/godotenv"
)

// LoadEnv reads env_file as it is now; nil where none is configured. Faults are
// an [*Error] that names the file and, where its text is at fault, the line, but
// never shows that text: it holds secrets.
func (c *Config) LoadEnv() (map[string]string, error) {
	path := c.Backend.EnvFile
	if path == "" {
		return nil, nil
	}
	text, err := readBounded(path, maxEnvFile)
	if err != nil {
		return nil, fmt.Errorf("reading env_file of [backend]: %w", err)
	}
	env, err := godotenv.UnmarshalBytes(text)
	if err != nil {
		return nil, c.envFault(string(text))
	}
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, " \t\x00") || strings.ContainsRune(value, 0) {
			return nil, &Error{
				File: c.display(path), Key: "backend.env_file",
				Msg: fmt.Sprintf("%q is no name for an environment variable, or its value no text", name),
			}
		}
	}
	return env, nil
}

// envFault finds the line. The parser does not tell it, and its message quotes
// the rest of the file, so the statements are parsed one by one.
func (c *Config) envFault(text string) error {
	fault := func(line int, msg string) error {
		return &Error{File: c.display(c.Backend.EnvFile), Line: line, Key: "backend.env_file", Msg: msg}
	}
	for line := 1; ; {
		end, closed := statementEnd(text)
		if !closed {
			return fault(line, "a quote is opened here and never closed")
		}
		if _, err := godotenv.Unmarshal(text[:end]); err != nil || end == len(text) {
			return fault(line, "must have the form NAME=value")
		}
		line += strings.Count(text[:end], "\n")
		text = text[end:]
	}
}

// statementEnd returns where the line ends with which the statement ends that
// text begins with; false if it has a quote that is never closed.
func statementEnd(text string) (end int, closed bool) {
	end = lineEnd(text, 0)
	if _, err := godotenv.Unmarshal(text[:end]); err == nil || !strings.Contains(err.Error(), "unterminated quoted value") {
		return end, true
	}
	at := strings.IndexAny(text, "=:") + 1
	at += strings.IndexAny(text[at:], `"'`)
	for i := at + 1; i < len(text); i++ {
		if text[i] == text[at] && text[i-1] != '\\' {
			return lineEnd(text, i), true
		}
	}
	return len(text), false
}

// lineEnd returns where the line ends that has the byte at from, its end
// included.
func lineEnd(text string, from int) int {
	if n := strings.IndexByte(text[from:], '\n'); n >= 0 {
		return from + n + 1
	}
	return len(text)
}

// display is a path as a person in the project would write it.
func (c *Config) display(path string) string {
	rel, err := filepath.Rel(c.Root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return rel
}
