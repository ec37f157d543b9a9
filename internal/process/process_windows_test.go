package process

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

func runSystemHelper(mode string, _ []string) { must(errors.New("no such helper: " + mode)) }

// leftProcesses has nothing to find: a job takes everything with it.
func leftProcesses() error { return nil }

func TestJobEndsWithItsDaemon(t *testing.T) {
	daemon, id := startDaemon(t, "release", "tree", "3")
	if !lives(id) {
		t.Fatal("the gate is not there")
	}
	kill(t, daemon)
	await(t, "the job is gone", func() bool { return !lives(id) })
}

func TestEndOrphanSparesStrangers(t *testing.T) {
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	is := p.Identity()
	is.StartTime++
	if ended, err := EndOrphan(t.Context(), is, 0); err != nil || len(ended) > 0 || !lives(p.Identity()) {
		t.Errorf("ended %v, %v", ended, err)
	}
}

func TestBreakComesBeforeTheKill(t *testing.T) {
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil {
		t.Skip("wine has no console without a terminal")
	}
	p := run(t, helper("sleep"))
	nextLine(t, p.Stdout())
	p.stdin.close()
	p.stdin.closedAt = time.Now().Add(-time.Hour)
	terminate(t, p, time.Hour, patience)
	if p.Exit().Code == exitKilled {
		t.Errorf("it %v, want the end by CTRL_BREAK", p.Exit())
	}
}
