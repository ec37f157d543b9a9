package watch

import (
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// filter knows what does not count.
type filter struct {
	root     string
	patterns []string
}

func newFilter(config Config) filter {
	f := filter{root: config.Root}
	for _, pattern := range config.Ignore {
		pattern = strings.TrimPrefix(filepath.ToSlash(pattern), "./")
		// "logs/" is how .gitignore says that a directory is meant.
		f.patterns = append(f.patterns, strings.TrimSuffix(pattern, "/"))
	}
	return f
}

// skips reports whether a directory of that name is never looked into: what it
// holds is not the build's work, is huge, or is written by the backend as it runs.
func skips(name string) bool {
	switch name {
	case "node_modules", ".git", ".hg", ".svn", "__pycache__":
		return true
	}
	return false
}

// ignored reports whether path, which lies below the watched path, is named by
// a pattern.
func (f filter) ignored(path, watched string) bool {
	if len(f.patterns) == 0 {
		return false
	}
	inProject, inWatched := slashRel(f.root, path), slashRel(watched, path)
	name := filepath.Base(path)
	for _, pattern := range f.patterns {
		if doublestar.MatchUnvalidated(pattern, inProject) || doublestar.MatchUnvalidated(pattern, inWatched) ||
			!strings.Contains(pattern, "/") && doublestar.MatchUnvalidated(pattern, name) {
			return true
		}
	}
	return false
}

// slashRel is path as seen from base, or path itself where it lies elsewhere.
func slashRel(base, path string) string {
	if rest, ok := strings.CutPrefix(path, base); ok && rest != "" && isSeparator(rest[0]) {
		return filepath.ToSlash(rest[1:])
	}
	return filepath.ToSlash(path)
}

func isSeparator(b byte) bool { return b == '/' || b == filepath.Separator }

// within reports whether path is base or lies below it. Both are clean.
func within(base, path string) bool {
	rest, ok := strings.CutPrefix(path, base)
	return ok && (rest == "" || isSeparator(rest[0]) || isSeparator(base[len(base)-1]))
}
