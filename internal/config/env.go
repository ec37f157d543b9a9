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
	text, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("reading env_file of [backend]: %w", err)
	}
	env, err := godotenv.UnmarshalBytes(text)
	if err != nil {
		return nil, c.envFault(string(text), err)
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
// the rest of the file. All lines before the faulty one parse, so it follows the
// longest run of lines that does.
func (c *Config) envFault(text string, err error) error {
	lines := strings.SplitAfter(text, "\n")
	good := len(lines) - 1
	for good > 0 {
		if _, err := godotenv.Unmarshal(strings.Join(lines[:good], "")); err == nil {
			break
		}
		good--
	}
	msg := "must have the form NAME=value"
	if strings.Contains(err.Error(), "unterminated quoted value") {
		msg = "a quote is opened here and never closed"
	}
	return &Error{File: c.display(c.Backend.EnvFile), Line: good + 1, Key: "backend.env_file", Msg: msg}
}

// display is a path as a person in the project would write it.
func (c *Config) display(path string) string {
	rel, err := filepath.Rel(c.Root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return rel
}
