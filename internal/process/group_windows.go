package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

const (
	// exitKilled is the exit code of processes that are ended with the job, as shells have it
	// for SIGKILL.
	exitKilled = 137

	// maxListed bounds the process list of a job. A larger job is ended just the same, and its
	// list is cut.
	maxListed = 1024
)

// jobProcesses is JOBOBJECT_BASIC_PROCESS_ID_LIST with room for maxListed.
type jobProcesses struct {
	assigned uint32
	listed   uint32
	pids     [maxListed]uintptr
}

// group is what has to be gone: a job object. The gate is born in it, all that descends from the
// gate is in it too and cannot leave, and the system ends it with its last handle, which only this
// process has.
type group struct {
	leader Identity
	gate   *os.File // carries the request to end to the gate, which is in the command's console

	mu   sync.Mutex
	job  windows.Handle // 0: closed, or an orphan, whose job died with its daemon
	lone windows.Handle // an orphaned leader that was in no job; 0: none
}

// newGroup makes an empty job for a gate to be born in. Without one of the two limits for breaking
// away, no process of it can start another outside of it.
func newGroup() (*group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("creating job object: %w", err)
	}
	g := &group{job: job}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		g.close()
		return nil, fmt.Errorf("configuring job object: %w", err)
	}
	return g, nil
}

// follow notes who the gate is.
func (g *group) follow(leader Identity, gate *os.File) error {
	g.leader, g.gate = leader, gate
	return nil
}

// orphanedGroup finds the recorded leader of an earlier daemon. It should be gone: its job ended
// with that daemon.
func orphanedGroup(leader Identity) (*group, error) {
	g := &group{leader: leader}
	if leader.PID <= 0 || leader.PID == os.Getpid() || leader.PID == os.Getppid() {
		return g, nil
	}
	const access = windows.PROCESS_TERMINATE | windows.SYNCHRONIZE | windows.PROCESS_QUERY_LIMITED_INFORMATION
	handle, err := windows.OpenProcess(access, false, uint32(leader.PID))
	if err != nil {
		return g, nil //nolint:nilerr // gone, or a stranger's, whom we may not open
	}
	now, err := identifyHandle(handle, leader.PID)
	if err != nil || !now.same(leader) {
		_ = windows.CloseHandle(handle)
		return g, nil
	}
	g.lone = handle
	return g, nil
}

// leaderReaped has nothing to note: a job has no number that could come to mean another.
func (g *group) leaderReaped() {}

// members lists the processes of the job.
func (g *group) members() ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lone != 0 {
		if event, err := windows.WaitForSingleObject(g.lone, 0); err == nil && event == windows.WAIT_OBJECT_0 {
			return nil, nil
		}
		return []int{g.leader.PID}, nil
	}
	if g.job == 0 {
		return nil, nil
	}
	var list jobProcesses
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return nil, fmt.Errorf("listing the processes of a job: %w", err)
	}
	var pids []int
	for _, pid := range list.pids[:min(list.listed, maxListed)] {
		pids = append(pids, int(pid))
	}
	return pids, nil
}

// gone reports whether the job is empty.
func (g *group) gone() (bool, error) {
	members, err := g.members()
	return err == nil && len(members) == 0, err
}

// terminate asks the gate to send CTRL_BREAK in its console, which is the command's too.
func (g *group) terminate() error {
	if g.gate == nil {
		return nil
	}
	_, err := g.gate.Write([]byte{breakRequest})
	return err
}

// kill ends every process of the job at once.
func (g *group) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lone != 0 {
		return windows.TerminateProcess(g.lone, exitKilled)
	}
	if g.job == 0 {
		return nil
	}
	return windows.TerminateJobObject(g.job, exitKilled)
}

// close gives the handles back.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, handle := range []*windows.Handle{&g.job, &g.lone} {
		if *handle != 0 {
			_ = windows.CloseHandle(*handle)
			*handle = 0
		}
	}
}
