//go:build linux

package wine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	moduleRoot = "../.."
	// patience bounds one run of a program or of a package's tests.
	patience = 5 * time.Minute
	// endPatience is how long processes of the tests may take to end.
	endPatience = 10 * time.Second
	// noSockets is how Go tells WSAEAFNOSUPPORT where the system has no words for it.
	noSockets = "#10047"
)

// wine is the program, which make gives.
var wine = os.Getenv("WINE")

// lab is where everything is, with a wine prefix of its own. TestMain removes it.
var lab string

func TestMain(m *testing.M) {
	code := m.Run()
	if err := closeLab(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var openLab = sync.OnceValue(func() error {
	var err error
	if lab, err = os.MkdirTemp("/tmp", "dpwine"); err != nil {
		return err
	}
	boot := wineCommand(context.Background(), "wineboot.exe", "--init")
	if output, err := boot.CombinedOutput(); err != nil {
		return fmt.Errorf("making a wine prefix: %w\n%s", err, output)
	}
	return nil
})

// setUp makes the prefix on first use.
func setUp(t *testing.T) {
	t.Helper()
	if wine == "" {
		t.Skip("make wine runs this")
	}
	if err := openLab(); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(lab, "prefix", "drive_c", "windows", "system32", "bcryptprimitives.dll")
	if _, err := os.Stat(library); errors.Is(err, os.ErrNotExist) {
		dll := forwarder(t, "bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036")
		if err := os.WriteFile(library, dll, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// closeLab says what the tests have left running, and ends wine.
func closeLab() error {
	if lab == "" {
		return nil
	}
	var left []string
	for deadline := time.Now().Add(endPatience); ; time.Sleep(50 * time.Millisecond) {
		if left = processes(); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	var err error
	if len(left) > 0 {
		err = fmt.Errorf("left behind: %q", left)
	}
	for _, end := range []string{"-k", "-w"} {
		server := exec.Command("wineserver", end)
		server.Env = environment()
		_ = server.Run() // there is none any more
	}
	return errors.Join(err, os.RemoveAll(lab))
}

// processes lists the command lines of what runs from the lab. Wine's own
// services do not.
func processes() []string {
	var lines []string
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(`\`+filepath.Base(lab)+`\`)) {
			lines = append(lines, string(bytes.ReplaceAll(bytes.Trim(line, "\x00"), []byte{0}, []byte{' '})))
		}
	}
	return lines
}

// environment keeps all of wine's files in the lab: Debian's server leaves a folder
// behind in the one for temporary files.
func environment() []string {
	return append(os.Environ(), "TMPDIR="+lab, "WINEPREFIX="+filepath.Join(lab, "prefix"),
		"WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=")
}

func wineCommand(ctx context.Context, program string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, wine, append([]string{program}, args...)...)
	command.Env = environment()
	command.WaitDelay = endPatience
	return command
}

// outcome is what a program said, and how it ended.
type outcome struct {
	stdout, stderr string
	err            error
}

func (o outcome) String() string { return fmt.Sprintf("%v\n%s\n%s", o.err, o.stdout, o.stderr) }

// play runs a program of the lab in a folder.
func play(t *testing.T, dir, program string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := wineCommand(ctx, windowsPath(filepath.Join(lab, program)), args...)
	var stdout, stderr strings.Builder
	command.Dir, command.Stdout, command.Stderr = dir, &stdout, &stderr
	err := command.Run()
	return outcome{stdout.String(), stderr.String(), err}
}

// windowsPath is a path as wine shows it, on the drive that is the root.
func windowsPath(path string) string { return `Z:` + strings.ReplaceAll(path, "/", `\`) }

func compile(t *testing.T, args ...string) {
	t.Helper()
	command := exec.Command("go", args...)
	command.Dir = moduleRoot
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=windows", "GOARCH=amd64")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

func TestPrograms(t *testing.T) {
	setUp(t)
	compile(t, "build", "-o", lab+"/", "./cmd/devproxyd", "./cmd/devproxyctl", "./cmd/devproxy-shim")
	for program, argument := range map[string]string{
		"devproxyd.exe": "version", "devproxyctl.exe": "version", "devproxy-shim.exe": "--version",
	} {
		if got := play(t, lab, program, argument); got.err != nil || !strings.HasPrefix(got.stdout, strings.TrimSuffix(program, ".exe")+" ") {
			t.Errorf("%s: %v", program, got)
		}
	}

	project := filepath.Join(lab, "project")
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Fatal(err)
	}
	toml := []byte("[backend]\ncommand = [\"node\", \"x.js\"]\ntransport = \"stdio\"\n")
	if err := os.WriteFile(filepath.Join(project, "devproxy.toml"), toml, 0o600); err != nil {
		t.Fatal(err)
	}
	start := play(t, project, "devproxyd.exe", "start")
	if start.err == nil {
		stop := play(t, project, "devproxyd.exe", "stop")
		demo := play(t, project, "devproxyd.exe", "demo")
		if stop.err != nil || demo.err != nil {
			t.Errorf("start: %v\nstop: %v\ndemo: %v", start, stop, demo)
		}
		return
	}
	if !strings.Contains(start.stderr, noSockets) {
		t.Fatalf("devproxyd start: %v", start)
	}
	// The daemon was started detached, and the starter tells its last words.
	for _, text := range []string{"binding the socket: listen unix", `daemon.sock`, `start.log`} {
		if !strings.Contains(start.stderr, text) {
			t.Errorf("devproxyd start does not say %q: %v", text, start)
		}
	}
	if status := play(t, project, "devproxyctl.exe", "status"); status.err == nil || !strings.Contains(status.stderr, "no daemon is running") {
		t.Errorf("devproxyctl status: %v", status)
	}
	shimWithoutDaemon(t, project)
	t.Skip("the rest of the scenario needs unix sockets, which this wine does not have: " + strings.TrimSpace(start.stderr))
}

// shimWithoutDaemon has a client ask through a shim that cannot start a daemon:
// it must tell the client why, stay, and end with the client.
func shimWithoutDaemon(t *testing.T, project string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shim := wineCommand(ctx, windowsPath(filepath.Join(lab, "devproxy-shim.exe")), "--project", windowsPath(project))
	stdin, err := shim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := shim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shim.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(stdout)
	for id := range 2 {
		if _, err := fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", id); err != nil {
			t.Error(err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil || !strings.Contains(answer, fmt.Sprintf(`"id":%d,"error"`, id)) || !strings.Contains(answer, noSockets) {
			t.Errorf("the client hears %q, %v", answer, err)
		}
	}
	if err := errors.Join(stdin.Close(), shim.Wait()); err != nil {
		t.Errorf("the shim ended with %v", err)
	}
}

// windowsTests are the packages whose tests run under wine, and which of them do
// not: the reasons stand in the package comment, or here.
var windowsTests = []struct{ dir, skip string }{
	{"internal/process", ""},
	{"internal/project", "^TestTwoPathsToOneProjectAreOne$"}, // a symbolic link
	{"internal/port", ""},
	{"internal/wire", ""},
	// Its sockets.
	{"api/client", "^TestDial"},
	{"watch", "^(TestRecreation|TestNestedRecreation|TestAppearing|TestAtomicRename|TestLink.*|Test.*LargeTree)$"},
	{"shim", "^TestMissingProjectIsTheAnswer$"}, // looks for a path that JSON writes otherwise
	{"daemon", "^TestView.*$"},                  // look at paths that are absolute on unix alone
	{"daemon/backend", ""},
	{"daemon/backend/link", ""},
	{"daemon/relay", ""},
	{"daemon/logs", ""},
	{"cmd/devproxyctl", ""},
}

func TestPackages(t *testing.T) {
	setUp(t)
	overlay := deletingOverlay(t)
	for _, test := range windowsTests {
		t.Run(test.dir, func(t *testing.T) {
			binary := strings.ReplaceAll(test.dir, "/", "-") + ".test.exe"
			compile(t, "test", "-c", "-overlay", overlay, "-o", filepath.Join(lab, binary), "./"+test.dir)
			args := []string{"-test.short"}
			if test.skip != "" {
				args = append(args, "-test.skip="+test.skip)
			}
			began := time.Now()
			got := play(t, filepath.Join(moduleRoot, test.dir), binary, args...)
			if got.err != nil {
				t.Fatal(got)
			}
			t.Logf("passed in %s, left out: %q", time.Since(began).Round(time.Second), test.skip)
		})
	}
}

// deletingOverlay is the file for go's -overlay that makes os.RemoveAll accept
// wine's way to say that POSIX deletes are not supported.
func deletingOverlay(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(output)), "src/internal/syscall/windows/at_windows.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const known, notImplemented = "case STATUS_INVALID_INFO_CLASS,", "case NTStatus(0xC0000002), STATUS_INVALID_INFO_CLASS,"
	if bytes.Count(source, []byte(known)) != 1 {
		t.Fatalf("%s does not look as it did: see whether wine needs this still", original)
	}
	replacement, overlay := filepath.Join(lab, "at_windows.go"), filepath.Join(lab, "overlay.json")
	content, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(replacement, bytes.Replace(source, []byte(known), []byte(notImplemented), 1), 0o600),
		os.WriteFile(overlay, content, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return overlay
}
