//go:build unix

package integration

import (
	"testing"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// process is a live process, as far as the system tells.
type process = testbed.Process

// processes returns the live processes that keep matches.
func processes(t testing.TB, keep func(process) bool) []process {
	t.Helper()
	all, err := testbed.Processes()
	if err != nil {
		t.Fatalf("listing processes: %v", err)
	}
	var kept []process
	for _, p := range all {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// alive says whether a process exists that is no zombie.
func alive(t testing.TB, pid int) bool {
	t.Helper()
	return len(processes(t, func(p process) bool { return p.PID == pid })) > 0
}
