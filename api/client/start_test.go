package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/debugmcp/devproxy/internal/project"
)

// A client that is stopped in the middle of a start keeps its lock. Others leave
// it the time that a start takes, and then start a daemon themselves.
func TestStartLockThatIsNotGivenBack(t *testing.T) {
	p := project.Project{StateDir: t.TempDir()}
	stopped := flock.New(p.StartLock())
	if held, err := stopped.TryLock(); !held || err != nil {
		t.Fatalf("%v, %v", held, err)
	}
	for _, test := range []struct {
		waited time.Duration
		want   bool
	}{{0, false}, {startLockPatience / 2, false}, {startLockPatience + time.Second, true}} {
		s := starter{began: time.Now().Add(-test.waited), lock: flock.New(p.StartLock())}
		if got := s.mayStart(); got != test.want {
			t.Errorf("after %v it may start a daemon: %v", test.waited, got)
		}
		s.unlock()
	}
	if err := stopped.Unlock(); err != nil {
		t.Fatal(err)
	}
	s := starter{began: time.Now(), lock: flock.New(p.StartLock())}
	defer s.unlock()
	if !s.mayStart() {
		t.Error("a lock that was given back keeps it from starting a daemon")
	}
}

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
