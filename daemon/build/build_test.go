//go:build unix

package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/debugmcp/devproxy/internal/process"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	process.Main()
	goleak.VerifyTestMain(m)
}

// patience is only ever waited out by a failing test.
const patience = 20 * time.Second

// shell is the Spec of a shell command in a folder of its own.
func shell(t *testing.T, command string) Spec {
	t.Helper()
	return Spec{
		Command: command, Dir: t.TempDir(), Env: os.Environ(), Timeout: patience,
		Marker: fmt.Sprintf("buildtest%d:build", os.Getpid()),
	}
}

// collect builds and keeps the output.
func collect(t *testing.T, spec Spec) (Result, []string) {
	t.Helper()
	var lines []string
	result := Run(t.Context(), spec, func(line string) { lines = append(lines, line) })
	return result, lines
}

func TestRunStreamsInOrder(t *testing.T) {
	result, lines := collect(t, shell(t, `for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done; printf end`))
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprint("out ", i+1), fmt.Sprint("err ", i+1))
	}
	want = append(want, "end")
	if result.Err != nil || !slices.Equal(lines, want) || !slices.Equal(result.Tail, want) {
		t.Errorf("%v: %q and the tail %q, want %q", result.Err, lines, result.Tail, want)
	}
	if result.Duration <= 0 {
		t.Errorf("took %v", result.Duration)
	}
}

func TestRunGivesDirectoryEnvironmentAndNoInput(t *testing.T) {
	spec := shell(t, `read line && echo "$line"; pwd -P; echo "$WHAT"; echo "$DEVPROXY_BACKEND"`)
	spec.Env = append(spec.Env, "WHAT=that")
	result, lines := collect(t, spec)
	dir, err := filepath.EvalSymlinks(spec.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{dir, "that", spec.Marker}; result.Err != nil || !slices.Equal(lines, want) {
		t.Errorf("%v: %q, want %q", result.Err, lines, want)
	}
}

func TestRunWithArgv(t *testing.T) {
	spec := shell(t, "")
	program := filepath.Join(spec.Dir, "bin", "compile")
	if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/echo", program); err != nil {
		t.Fatal(err)
	}
	spec.Argv, spec.Env = []string{"compile", "$HOME", "a  b"}, []string{"PATH=/nowhere:bin"}
	result, lines := collect(t, spec)
	if want := []string{"$HOME a  b"}; result.Err != nil || !slices.Equal(lines, want) {
		t.Errorf("%v: %q, want %q", result.Err, lines, want)
	}
}

func TestRunReportsFailure(t *testing.T) {
	tests := []struct {
		name string
		spec func(*Spec)
		want string
	}{
		{"status", func(s *Spec) { s.Command = "exit 3" }, "exited with status 3"},
		{"signal", func(s *Spec) { s.Command = "kill -9 $$" }, "ended by SIGKILL"},
		{"unknown to the shell", func(s *Spec) { s.Command = "no-such-tool" }, "exited with status 127"},
		{"nothing", func(s *Spec) { s.Command = "  " }, "no build command given"},
		{"unknown", func(s *Spec) { s.Argv, s.Env = []string{"no-such-tool"}, []string{"PATH=/a:/b"} },
			`command "no-such-tool" not found; PATH searched: /a:/b`},
		{"no folder", func(s *Spec) { s.Dir = "/no/such/folder" },
			"entering directory /no/such/folder: no such file or directory"},
		{"timeout", func(s *Spec) { s.Command, s.Timeout = "sleep 1000", 10*time.Millisecond },
			"not finished after 10ms (build.timeout)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spec := shell(t, "true")
			test.spec(&spec)
			result, _ := collect(t, spec)
			if result.Err == nil || result.Err.Error() != test.want {
				t.Errorf("error %v, want %s", result.Err, test.want)
			}
		})
	}
}

func TestFailuresHaveTypes(t *testing.T) {
	failed, _ := collect(t, shell(t, "exit 3"))
	if exit, ok := errors.AsType[*ExitError](failed.Err); !ok || exit.Exit.Code != 3 {
		t.Errorf("%#v is no exit with status 3", failed.Err)
	}
	spec := shell(t, "sleep 1000")
	spec.Timeout = time.Millisecond
	late, _ := collect(t, spec)
	if timeout, ok := errors.AsType[*TimeoutError](late.Err); !ok || timeout.After != time.Millisecond {
		t.Errorf("%#v is no timeout", late.Err)
	}
	spec.Dir = filepath.Join(spec.Dir, "missing")
	spec.Timeout = patience
	lost, _ := collect(t, spec)
	if _, ok := errors.AsType[*process.ExecError](lost.Err); !ok || !errors.Is(lost.Err, fs.ErrNotExist) {
		t.Errorf("%#v is no missing folder", lost.Err)
	}
}

func TestCancelEndsTheWholeGroup(t *testing.T) {
	stopped := errors.New("restart asked for")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var pids []int
	began := time.Now()
	// One that stays in the group and one that leaves it; both ignore a polite request.
	spec := shell(t, `trap "" TERM; setsid sleep 1000 & echo $!; sleep 1000 & echo $!; echo $$; wait`)
	result := Run(ctx, spec, func(line string) {
		if pid, err := strconv.Atoi(line); err == nil {
			pids = append(pids, pid)
		}
		if len(pids) == 3 {
			cancel(stopped)
		}
	})
	if !errors.Is(result.Err, stopped) {
		t.Errorf("error %v, want the cause %v", result.Err, stopped)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %v", took)
	}
	mustBeGone(t, pids)
}

func TestWhatABuildLeavesBehindEnds(t *testing.T) {
	// It holds the output too, which must not hold up the result.
	result, lines := collect(t, shell(t, `sleep 1000 & echo $!`))
	if result.Err != nil || len(lines) != 1 {
		t.Fatalf("%v: %q", result.Err, lines)
	}
	pid, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, []int{pid})
}

func mustBeGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if process.Alive(pid) {
			t.Errorf("process %d is still there: %s", pid, process.CommandLine(pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestDoneContextRunsNothing(t *testing.T) {
	stopped := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	spec := shell(t, "touch ran")
	result := Run(ctx, spec, func(string) {})
	if !errors.Is(result.Err, stopped) {
		t.Errorf("error %v, want %v", result.Err, stopped)
	}
	if _, err := os.Stat(filepath.Join(spec.Dir, "ran")); err == nil {
		t.Error("the build ran")
	}
}

func TestTailIsBounded(t *testing.T) {
	spec := shell(t, `i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done`)
	result, lines := collect(t, spec)
	if result.Err != nil || len(lines) != 1000 {
		t.Fatalf("%v: %d lines", result.Err, len(lines))
	}
	if !slices.Equal(result.Tail, lines[1000-tailLines:]) {
		t.Errorf("the tail has %d lines from %q on", len(result.Tail), result.Tail[0])
	}

	spec.Command = `x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10; do x=$x$x; done; for i in 1 2 3 4; do echo $x$x; done`
	result, lines = collect(t, spec)
	if result.Err != nil || len(lines) != 4 || len(strings.Join(result.Tail, "")) > tailBytes || len(result.Tail) == 0 {
		t.Errorf("%v: %d lines, the tail has %d", result.Err, len(lines), len(result.Tail))
	}
	if !strings.HasSuffix(lines[0], "… [line cut: 32768 bytes]") {
		t.Errorf("a long line ends in %q", lines[0][max(0, len(lines[0])-40):])
	}
}

func TestTimeoutInWords(t *testing.T) {
	for want, after := range map[string]time.Duration{
		"not finished after 2m (build.timeout)":        2 * time.Minute,
		"not finished after 1h (build.timeout)":        time.Hour,
		"not finished after 1h30m (build.timeout)":     90 * time.Minute,
		"not finished after 1m30s (build.timeout)":     90 * time.Second,
		"not finished after 1h0m1s (build.timeout)":    time.Hour + time.Second,
		"not finished after 10m (build.timeout)":       10 * time.Minute,
		"not finished after 500ms (build.timeout)":     500 * time.Millisecond,
		"not finished after 10h10m10s (build.timeout)": 10*time.Hour + 10*time.Minute + 10*time.Second,
	} {
		if got := (&TimeoutError{After: after}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
