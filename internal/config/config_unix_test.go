//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Nobody writes to it, so reading it would last for ever.
func TestPipeIsNoFile(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{FileName, ".env"} {
		if err := unix.Mkfifo(filepath.Join(root, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(root); err == nil || !strings.Contains(err.Error(), FileName+" is a pipe or a socket") {
		t.Errorf("%s as a pipe: %v", FileName, err)
	}
	if err := os.Remove(filepath.Join(root, FileName)); err != nil {
		t.Fatal(err)
	}
	c, err := Parse(root, []byte("[backend]\ncommand = \"server\"\ntransport = \"stdio\"\nenv_file = \".env\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.LoadEnv(); err == nil || !strings.Contains(err.Error(), ".env is a pipe or a socket") {
		t.Errorf("env_file as a pipe: %v", err)
	}
}
