//go:build unix

package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/internal/process"
)

// memory is a ledger.
type memory struct {
	mu       sync.Mutex
	identity process.Identity
	found    bool
	err      error
}

func (m *memory) Read() (process.Identity, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identity, m.found
}

func (m *memory) Write(identity process.Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity, m.found = identity, true
	return m.err
}

func (m *memory) Remove() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.found = false
	return nil
}

// kept is a Keeper that runs, and what it is to run.
type kept struct {
	*Keeper
	ledger *memory
	end    func() error // ends it and returns what Run did

	mu   sync.Mutex
	spec Spec
	err  error
}

func (k *kept) want(spec Spec, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spec, k.err = spec, err
}

func keep(t *testing.T, spec Spec, ledger *memory) *kept {
	t.Helper()
	k := &kept{ledger: ledger, spec: spec}
	k.Keeper = NewKeeper(KeeperConfig{
		Spec: func() (Spec, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.spec, k.err
		},
		Ledger: ledger, Output: func(string) {}, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	k.end = sync.OnceValue(func() error {
		cancel(errors.New("the test is over"))
		return <-done
	})
	t.Cleanup(func() { _ = k.end() })
	return k
}

func (k *kept) await(t *testing.T, what string, holds func(KeeperStatus) bool) KeeperStatus {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.After(patience); ; {
		status := k.Status()
		if holds(status) {
			return status
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("not within %v: %s; it is %+v", patience, what, status)
		}
	}
}

func running(s KeeperStatus) bool { return s.PID != 0 && len(s.Tail) > 0 }

func gone(pid int) bool { return !process.Alive(pid) }

func TestKeeperEndsTheWholeGroup(t *testing.T) {
	spec := shell(t, `(trap "" TERM; exec sh -c 'echo $$; exec sleep 1000') & while read line; do :; done`)
	k := keep(t, spec, new(memory))
	status := k.await(t, "it runs", running)
	if status.Command != spec.Command || status.Message != "" || status.StartedAt.IsZero() || status.Restarts != 0 {
		t.Errorf("it is %+v", status)
	}
	if identity, found := k.ledger.Read(); !found || identity.PID != status.PID {
		t.Errorf("the ledger has %v, %v", identity, found)
	}
	if err := k.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if child, err := strconv.Atoi(status.Tail[0]); err != nil || process.Alive(child) || process.Alive(status.PID) {
		t.Errorf("its group outlived it: %q, %v", status.Tail, err)
	}
	if _, found := k.ledger.Read(); found {
		t.Error("the ledger still has it")
	}
	if err := k.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
}

func TestKeeperStartsAgain(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	k := keep(t, shell(t, "echo x >> "+count+"; exit 3"), new(memory))
	k.await(t, "the first end", func(s KeeperStatus) bool {
		return s.PID == 0 && s.Message == "exited with status 3; it starts again in 500ms"
	})
	k.await(t, "the second end", func(s KeeperStatus) bool {
		return s.Restarts == 1 && s.Message == "exited with status 3; it starts again in 1s"
	})
	// Whoever has mended it need not wait, and a pause begins anew.
	asked := time.Now()
	k.Refresh()
	k.await(t, "an end after that", func(s KeeperStatus) bool { return s.Restarts == 2 && strings.HasSuffix(s.Message, "500ms") })
	if time.Since(asked) > 900*time.Millisecond {
		t.Errorf("it waited for %v", time.Since(asked))
	}
	if content, err := os.ReadFile(count); err != nil || string(content) != "x\nx\nx\n" {
		t.Errorf("it was started %q, %v", content, err)
	}
	k.want(Spec{}, errors.New("the file is faulty"))
	k.await(t, "a fault of the file", func(s KeeperStatus) bool {
		return strings.Contains(s.Message, "the file is faulty; it starts again in")
	})
}

func TestPauses(t *testing.T) {
	var got []string
	for n := range 10 {
		got = append(got, fmt.Sprint(pauseAfter(n+1)))
	}
	if want := "500ms 1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s"; strings.Join(got, " ") != want {
		t.Errorf("the pauses are %v, want %s", got, want)
	}
}

func TestKeeperReplaces(t *testing.T) {
	spec := shell(t, "echo first; exec sleep 1000")
	k := keep(t, spec, new(memory))
	first := k.await(t, "it runs", running)
	k.Refresh() // for nothing
	k.want(Spec{}, errors.New("the file is faulty"))
	k.Refresh() // and nothing that is known
	spec.Command = "echo second; exec sleep 1000"
	k.want(spec, nil)
	if now := k.Status(); now.PID != first.PID {
		t.Errorf("it is another one without being asked: %+v", now)
	}
	k.Refresh()
	second := k.await(t, "the other one", func(s KeeperStatus) bool { return running(s) && s.PID != first.PID })
	if !gone(first.PID) || second.Tail[0] != "second" || second.Restarts != 0 {
		t.Errorf("the first is gone: %v; the second is %+v", gone(first.PID), second)
	}
	k.want(Spec{}, ErrNoWatcher)
	k.Refresh()
	k.await(t, "none", func(s KeeperStatus) bool { return s.Command == "" && s.PID == 0 })
	if !gone(second.PID) {
		t.Error("the second is not gone")
	}
	k.want(spec, nil)
	k.Refresh()
	k.await(t, "it runs again", running)
}

func TestKeeperThatCannotBeRecorded(t *testing.T) {
	said := filepath.Join(t.TempDir(), "said")
	k := keep(t, shell(t, "echo x > "+said), &memory{err: errors.New("the disk is full")})
	k.await(t, "the fault", func(s KeeperStatus) bool { return strings.Contains(s.Message, "the disk is full") })
	if err := k.end(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(said); err == nil {
		t.Error("it ran without a record")
	}
}

// Whoever has the pid of what an earlier daemon left is not ended for it. (That the
// orphan itself is takes a daemon that is killed.)
func TestKeeperSparesAStranger(t *testing.T) {
	earlier := new(memory)
	first := keep(t, shell(t, "echo earlier; exec sleep 1000"), earlier)
	first.await(t, "it runs", running)
	identity, _ := earlier.Read()

	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	other := identity
	other.PID, other.Marker = stranger.Process.Pid, ""
	k := keep(t, shell(t, "echo later; exec sleep 1000"), &memory{identity: other, found: true})
	k.await(t, "it runs", running)
	if gone(stranger.Process.Pid) {
		t.Error("a stranger was ended")
	}
}
