package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DeriveEntry is the file without which the backend is not started: the one
// that [watch] entry names, else the first word of the command that lies inside
// the watched paths, else "". The file need not exist.
func (c *Config) DeriveEntry() string {
	if c.Watch.Entry != "" {
		return c.Watch.Entry
	}
	for i, word := range c.Backend.Command {
		if i == 0 && !strings.ContainsAny(word, `/\`) {
			continue // looked up in PATH
		}
		if path, ok := c.entryCandidate(word); ok {
			return path
		}
	}
	return ""
}

// fileLike are words that look like a file's name rather than a subcommand or
// an address: a separator, or an extension that begins with a letter.
var fileLike = regexp.MustCompile(`[/\\]|\.[A-Za-z][A-Za-z0-9]*$`)

func (c *Config) entryCandidate(word string) (string, bool) {
	if word == "" || strings.HasPrefix(word, "-") || strings.Contains(word, "://") ||
		strings.Contains(word, portPlaceholder) {
		return "", false
	}
	path := filepath.FromSlash(word)
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Backend.Cwd, path)
	}
	if !c.insideWatched(path) {
		return "", false
	}
	info, err := os.Stat(path)
	if err == nil {
		return path, info.Mode().IsRegular()
	}
	return path, fileLike.MatchString(word)
}

func (c *Config) insideWatched(path string) bool {
	for _, root := range c.Watch.Paths {
		rel, err := filepath.Rel(root, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if rel != "." {
			return true
		}
		// The watched path itself: a file that is watched alone, not a directory.
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}
