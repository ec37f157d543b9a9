package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLargeStartLogIsBegunAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "start.log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", maxStartLog+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A daemon that started before may have it open still.
	earlier, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = earlier.Close() }()
	log, err := openStartLog(path, []string{"devproxyd", "run"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.file.Close() }()
	if _, err := log.file.WriteString("new\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := earlier.WriteString("old\n"); err != nil {
		t.Fatal(err)
	}
	if got := log.tail(); got != "new\nold" {
		t.Errorf("the tail is %q", got)
	}
	content, err := os.ReadFile(path)
	if err != nil || len(content) > 200 || !strings.Contains(string(content), "starts devproxyd run") {
		t.Errorf("%d bytes, %v: %.100q", len(content), err, content)
	}
}
