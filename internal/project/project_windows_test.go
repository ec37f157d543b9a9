package project

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A client that dials reads the records that a daemon which starts is writing.
func TestWriteFileWaitsForReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	closed := time.AfterFunc(50*time.Millisecond, func() { _ = reader.Close() })
	defer closed.Stop()
	if err := WriteFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "new" {
		t.Errorf("%q, %v", content, err)
	}
}
