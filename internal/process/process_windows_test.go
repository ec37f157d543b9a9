package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/windows"
)

func runSystemHelper(mode string, args []string) {
	switch mode {
	case "arguments":
		must(json.NewEncoder(os.Stdout).Encode(args))
	case "variable":
		fmt.Println(os.Getenv(args[0]))
	case "break-away":
		command := exec.Command(os.Args[0], "helper", "sleep-quietly")
		command.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_BREAKAWAY_FROM_JOB}
		fmt.Println(errors.Is(command.Start(), windows.ERROR_ACCESS_DENIED))
	default:
		must(errors.New("no such helper: " + mode))
	}
}

// leftProcesses has nothing to find: a job takes everything with it.
func leftProcesses() error { return nil }

// A suspended process has not run an instruction yet.
func TestProcessIsBornInItsJob(t *testing.T) {
	g, err := newGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	handle := windows.Handle(null.Fd())
	born, err := birth{
		path: os.Args[0], args: []string{os.Args[0], "helper", "sleep-quietly"}, env: os.Environ(),
		std: [3]windows.Handle{handle, handle, handle}, flags: windows.CREATE_SUSPENDED, job: g.job,
	}.start()
	if err != nil {
		t.Fatal(err)
	}
	if members, err := g.members(); err != nil || !slices.Equal(members, []int{born.Pid}) {
		t.Errorf("members %v, %v, want %d", members, err, born.Pid)
	}
	if err := g.kill(); err != nil {
		t.Fatal(err)
	}
	if state, err := born.Wait(); err != nil || state.ExitCode() != exitKilled {
		t.Errorf("it ended with %v, %v", state, err)
	}
}

func TestJobEndsWithItsDaemon(t *testing.T) {
	daemon, id := startDaemon(t, "release", "tree", "3")
	if !lives(id) {
		t.Fatal("the gate is not there")
	}
	kill(t, daemon)
	await(t, "the job is gone", func() bool { return !lives(id) })
}

func TestNothingBreaksAwayFromItsJob(t *testing.T) {
	p := run(t, helper("break-away"))
	if got := nextLine(t, p.Stdout()); got != "true" {
		t.Error("a process has left the job")
	}
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
	if onWine() {
		t.Skip("wine knows CTRL_C only: its server answers CTRL_BREAK with STATUS_NOT_IMPLEMENTED")
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

func onWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

func TestEnvironmentReachesTheCommand(t *testing.T) {
	spec := helper("variable", "DEVPROXY_TEST")
	spec.Env = append(spec.Env, "DEVPROXY_TEST=Zürich = 東京 \U0001F600")
	p := run(t, spec)
	if got := nextLine(t, p.Stdout()); got != "Zürich = 東京 \U0001F600" {
		t.Errorf("the command sees %q", got)
	}
}

func TestBatchFileGetsItsArguments(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder & more")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tool.cmd")
	if err := os.WriteFile(file, []byte("@\""+os.Args[0]+"\" helper arguments %*\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := []string{
		"plain", "", "a b", "a&b", "a|b>c<d^e", "(x)", "a,b;c=d", `C:\dir\`, `C:\my dir\`, "!x!", "https://x/?a=1&b=2", "ö",
	}
	if !onWine() { // whose cmd knows no pieces of variables
		arguments = append(arguments, "%PATH%", "100%", "%%")
	}
	p := run(t, Spec{Path: file, Args: arguments, Env: os.Environ()})
	var got []string
	if err := json.Unmarshal([]byte(nextLine(t, p.Stdout())), &got); err != nil || !slices.Equal(got, arguments) {
		t.Errorf("arguments %q, %v, want %q", got, err, arguments)
	}
	awaitDone(t, p)
	if !p.Exit().Success() {
		t.Errorf("it %v", p.Exit())
	}

	for path, arguments := range map[string][]string{filepath.Join(dir, "none.cmd"): nil, file: {"two\nlines"}} {
		p := start(t, Spec{Path: path, Args: arguments, Env: os.Environ()})
		if _, ok := errors.AsType[*ExecError](p.Release()); !ok {
			t.Errorf("%s with %q runs", path, arguments)
		}
	}
}

func TestBatchWord(t *testing.T) {
	for argument, want := range map[string]string{
		"plain-1.2/x:y": "plain-1.2/x:y",
		"":              `""`,
		"a b":           `"a b"`,
		"a&b":           `"a&b"`,
		`a"b`:           `"a""b"`,
		`a\"b`:          `"a\\""b"`,
		`a b\`:          `"a b\\"`,
		`a\b c`:         `"a\b c"`,
		"%PATH%":        `"%%cd:~,%PATH%%cd:~,%"`,
	} {
		if got, err := batchWord(argument); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", argument, got, err, want)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tool.cmd", "tool.exe", "script.js", "data", "python3.11.exe", "npx", "npx.cmd"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := t.TempDir()
	path := strings.Join([]string{elsewhere, `"` + dir + `"`}, string(filepath.ListSeparator))
	for name, want := range map[string]string{
		"tool": "tool.exe", "tool.cmd": "tool.cmd", "TOOL": "tool.exe", "python3.11": "python3.11.exe",
		"npx":                      "npx.cmd", // the file without an extension is the shell script that npm lays beside it
		filepath.Join(dir, "tool"): "tool.exe", `.\tool`: "tool.exe", "./tool": "tool.exe",
	} {
		got, err := LookPath(name, path, dir)
		if err != nil || !strings.EqualFold(got, filepath.Join(dir, want)) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	for name, want := range map[string]error{"script.js": fs.ErrPermission, "data": fs.ErrPermission, "none": fs.ErrNotExist} {
		if got, err := LookPath(name, path, dir); !errors.Is(err, want) {
			t.Errorf("%s: %s, %v, want %v", name, got, err, want)
		}
	}
}

func TestSearchPath(t *testing.T) {
	if got := SearchPath([]string{"X=1", `Path=C:\a;C:\b`, `PATH=C:\c`}); got != `C:\a;C:\b` {
		t.Errorf("PATH %q", got)
	}
}
