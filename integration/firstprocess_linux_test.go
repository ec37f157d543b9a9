package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// In a container the daemon may be the first process, to which every orphan of
// the backend falls and which no signal ends that it does not expect.
func TestDaemonAsTheFirstProcess(t *testing.T) {
	t.Parallel()
	alone := []string{"--fork", "--pid", "--mount-proc", "--kill-child"}
	if output, err := exec.Command("unshare", append(alone, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no process namespace can be made here: %v: %s", err, output)
	}
	p := newProject(t)
	const orphans = 20
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do (true &); i=$((i+1)); done; exec %s stdio none.json", orphans, fixture(t, "goserver"))
	p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\n", tomlStrings([]string{"/bin/sh", "-c", script})))
	daemon := p.inForeground(t, append(append([]string{"unshare"}, alone...), program(t, "devproxyd"), "run")...)
	if pid := p.status(t).Daemon.PID; pid != 1 {
		t.Fatalf("the daemon is process %d of its container", pid)
	}
	c := p.raw(t)
	c.initialize(t)
	for id := range 2 { // the second generation follows the end of the first
		c.echo(t, id, "hi")
		p.ctl(t, "restart")
	}
	// What unshare has started is the daemon, as it is known outside.
	children, err := childrenOf(daemon.command.Process.Pid)
	if err != nil || len(children) != 1 {
		t.Fatalf("unshare has the children %v, %v", children, err)
	}
	await(t, "the orphans to be reaped", func() (bool, string) {
		var zombies []string
		all, err := childrenOf(children[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range all {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
				zombies = append(zombies, string(stat))
			}
		}
		return len(zombies) == 0, fmt.Sprint(zombies)
	})
	if err := syscall.Kill(children[0], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	daemon.awaitEnd(t)
}

// childrenOf lists the children of a process, whichever thread made them.
func childrenOf(pid int) (pids []int, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(list)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err != nil {
				return nil, err
			}
			pids = append(pids, child)
		}
	}
	return pids, nil
}
