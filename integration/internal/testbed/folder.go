package testbed

import (
	"os"
	"path/filepath"
)

// ShortTempDir makes a folder whose canonical path is short: /tmp and a short
// name, whatever TMPDIR says, since a socket's path has to fit into some hundred
// bytes. On macOS /tmp is a link, and the daemon speaks of canonical paths.
func ShortTempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("/tmp", prefix)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
