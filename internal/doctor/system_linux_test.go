package doctor

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/process"
)

// orphan is a process that has the mark of a backend and no parent of ours.
func orphan(t *testing.T, mark string) int {
	t.Helper()
	shell := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
	shell.Env = []string{"PATH=/usr/bin:/bin", "DEVPROXY_BACKEND=" + mark}
	out, err := shell.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

func TestLeftoversAreNamedAndLeft(t *testing.T) {
	f := &facts{Patient: newPatient(t, sound), statusErr: client.ErrNoDaemon}
	wantFinding(t, lookLeftovers(t.Context(), f), OK)
	pid := orphan(t, f.Project.Hash+":7")
	wantFinding(t, lookLeftovers(t.Context(), f), Warning, "left 1 process", "pid "+strconv.Itoa(pid)+" sleep 60", "devproxyd start")
	orphan(t, f.Project.Hash+":8")
	wantFinding(t, lookLeftovers(t.Context(), f), Warning, "left 2 processes")
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("it was ended: %v", err)
	}
	f.statusErr = client.ErrNotServing
	if found := lookLeftovers(t.Context(), f); len(found) > 0 {
		t.Errorf("what a daemon has is told to be left: %+v", found)
	}
}

func TestStopped(t *testing.T) {
	pid := orphan(t, "nobody:1")
	if process.Stopped(pid) {
		t.Error("a process that sleeps is told to be stopped")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !process.Stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a process that was stopped is not told to be")
		}
	}
}

func TestInotifyUse(t *testing.T) {
	before, known := inotifyUse(t.Context())
	if !known {
		t.Skip("no /proc/sys/fs/inotify")
	}
	fd, err := syscall.InotifyInit()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if _, err := syscall.InotifyAddWatch(fd, t.TempDir(), syscall.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	watches, instances := inotifyOf("/proc/self")
	if watches < 1 || instances < 1 || before.maxWatches < 1 || before.maxInstances < 1 {
		t.Errorf("%d watches, %d instances; limits %+v", watches, instances, before)
	}
}
