//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
)

// run runs a program with one command, do.
func run(do func(*cobra.Command) error, args ...string) (code int, stderr string) {
	var out bytes.Buffer
	root := &cobra.Command{Use: "program", Args: Group, RunE: func(*cobra.Command, []string) error { return nil }}
	command := &cobra.Command{
		Use: "do", Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd) },
	}
	command.Flags().Uint32P("lines", "n", 0, "")
	command.Flags().Int("count", 0, "")
	command.Flags().Duration("wait", 0, "")
	command.Flags().Bool("really", false, "")
	root.AddCommand(command)
	root.SetArgs(args)
	root.SetErr(&out)
	root.SetOut(&out)
	return Main(root), out.String()
}

func TestExitCodes(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		args   string
		code   int
		stderr string
	}{
		"done":               {nil, "do", ExitOK, ""},
		"failed":             {errors.New("it broke\n"), "do", ExitFailed, "program: it broke\n"},
		"usage":              {Usage(errors.New("bad")), "do", ExitUsage, "program: bad\n"},
		"wrapped usage":      {fmt.Errorf("reading: %w", Usage(errors.New("bad"))), "do", ExitUsage, "program: reading: bad\n"},
		"no error of usage":  {Usage(nil), "do", ExitOK, ""},
		"no daemon":          {fmt.Errorf("%w for x", client.ErrNoDaemon), "do", ExitNoDaemon, "program: no daemon is running for x\n"},
		"own code":           {WithCode(Usage(errors.New("other")), 75), "do", 75, "program: other\n"},
		"too many arguments": {nil, "do this", ExitUsage, `program: program do takes no arguments, and got "this"; see "program do --help"` + "\n"},
		"unknown flag":       {nil, "do --fast", ExitUsage, `program: there is no flag --fast; see "program do --help"` + "\n"},
		"a value":            {nil, "do -n -1", ExitUsage, `program: --lines -1: want a whole number, 0 or more; see "program do --help"` + "\n"},
		"too large a value":  {nil, "do -n 4294967296", ExitUsage, `program: --lines 4294967296: that is out of range; see "program do --help"` + "\n"},
		"no number":          {nil, "do --count x", ExitUsage, `program: --count x: want a whole number; see "program do --help"` + "\n"},
		"no duration":        {nil, "do --wait 5", ExitUsage, `program: --wait 5: want a duration, such as 90s or 10m; see "program do --help"` + "\n"},
		"no truth":           {nil, "do --really=maybe", ExitUsage, `program: --really maybe: want true or false; see "program do --help"` + "\n"},
		"no value":           {nil, "do --count", ExitUsage, `program: --count needs a value, int; see "program do --help"` + "\n"},
		"unknown command":    {nil, "walk", ExitUsage, `program: unknown command "walk"; see "program --help"` + "\n"},
		"slip of a flag":     {nil, "do --cuont 1", ExitUsage, `program: there is no flag --cuont; did you mean --count?` + "\n"},
		"no such letter":     {nil, "do -x", ExitUsage, `program: there is no flag -x; see "program do --help"` + "\n"},
		"no flag":            {nil, "do --=x", ExitUsage, `program: --=x is no flag; see "program do --help"` + "\n"},
		"help of nothing":    {nil, "help frob", ExitUsage, `program: unknown command "frob"; see "program --help"` + "\n"},
		"slip in help":       {nil, "help dp", ExitUsage, `program: unknown command "dp"; did you mean "program do"?` + "\n"},
		"slip":               {nil, "dp", ExitUsage, `program: unknown command "dp"; did you mean "program do"?` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stderr := run(func(*cobra.Command) error { return test.err }, strings.Fields(test.args)...)
			if code != test.code || stderr != test.stderr {
				t.Errorf("exit code %d, stderr %q; want %d, %q", code, stderr, test.code, test.stderr)
			}
		})
	}
}

// Of several commands that a slip could have been, the nearest one is meant.
func TestNearestCommand(t *testing.T) {
	root := &cobra.Command{Use: "program", SuggestionsMinimumDistance: suggested}
	for _, name := range []string{"start", "status"} {
		root.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	for slip, want := range map[string]string{"stats": "status", "satrt": "start", "sta": "start", "statsu": "status"} {
		if err := Group(root, []string{slip}); err == nil || !strings.Contains(err.Error(), `did you mean "program `+want+`"?`) {
			t.Errorf("%s: %v", slip, err)
		}
	}
}

// A signal ends the command's context. What the command makes of it counts: an
// orderly end is none, and an error is not worth a word.
func TestSignals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		for want, outcome := range map[int]error{ExitOK: nil, ExitInterrupted: errors.New("cut short")} {
			code, stderr := run(func(cmd *cobra.Command) error {
				if err := syscall.Kill(os.Getpid(), signal); err != nil {
					return err
				}
				<-cmd.Context().Done()
				return outcome
			}, "do")
			if code != want || stderr != "" {
				t.Errorf("%v: exit code %d, stderr %q; want %d and nothing", signal, code, stderr, want)
			}
		}
	}
}

// newProjects returns the folders of two projects, with a home of their own.
func newProjects(t *testing.T) (one, other project.Project) {
	t.Helper()
	base, err := os.MkdirTemp("", "cli") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	t.Setenv("HOME", base)
	t.Setenv("DEVPROXY_SOCKET", "")
	var both [2]project.Project
	for i, name := range []string{"one", "other"} {
		root := filepath.Join(base, name)
		if err := errors.Join(os.Mkdir(root, 0o700), os.WriteFile(filepath.Join(root, project.ConfigName), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if both[i], err = project.At(root); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1]
}

func TestTargetProject(t *testing.T) {
	one, other := newProjects(t)
	below := filepath.Join(one.Root, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	for dir, want := range map[string]project.Project{"": one, "..": one, other.Root: other} {
		if got, err := (&Target{Dir: dir}).Project(); err != nil || got != want {
			t.Errorf("--project %q is %+v, %v; want %+v", dir, got, err, want)
		}
	}
	t.Chdir(filepath.Dir(one.Root))
	_, err := new(Target).Project()
	if !errors.Is(err, project.ErrNotFound) || exitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--project DIR") {
		t.Errorf("outside of a project: %v", err)
	}
	if _, err := (&Target{Dir: "gone"}).Project(); exitCode(err) != ExitUsage || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestTargetFlags(t *testing.T) {
	t.Setenv("DEVPROXY_SOCKET", "/run/of/environment")
	for args, want := range map[string]Target{
		"":                           {SocketPath: "/run/of/environment"},
		"--socket /x --project /dir": {SocketPath: "/x", Dir: "/dir"},
	} {
		var target Target
		cmd := &cobra.Command{Use: "program"}
		target.AddFlags(cmd)
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil || target != want {
			t.Errorf("%q gives %+v, %v; want %+v", args, target, err, want)
		}
	}
}

// statusOf is a daemon that serves the project of that root.
type statusOf struct {
	devproxyv1.UnimplementedControlServiceServer

	root string
}

func (s statusOf) GetStatus(context.Context, *devproxyv1.GetStatusRequest) (*devproxyv1.GetStatusResponse, error) {
	return &devproxyv1.GetStatusResponse{Status: &client.Status{Daemon: &client.Daemon{ProjectRoot: s.root}}}, nil
}

func serve(t *testing.T, p project.Project, socket string) {
	t.Helper()
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	devproxyv1.RegisterControlServiceServer(server, statusOf{root: p.Root})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDial(t *testing.T) {
	one, other := newProjects(t)
	own, err := one.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	at := func(p project.Project, socket string) error {
		c, got, err := (&Target{Dir: p.Root, SocketPath: socket}).Find(t.Context())
		if got != p {
			t.Errorf("the project is %+v, want %+v", got, p)
		}
		if err == nil {
			err = c.Close()
		}
		return err
	}
	err = at(one, "")
	if exitCode(err) != ExitNoDaemon || !strings.Contains(err.Error(), one.Root) || !strings.Contains(err.Error(), own) {
		t.Errorf("without a daemon: %v", err)
	}
	if !strings.Contains(err.Error(), "devproxyd start") {
		t.Errorf("without a daemon it advises %v", err)
	}
	if err := one.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(one.Lock())
	if held, err := lock.TryLock(); err != nil || !held {
		t.Fatal(held, err)
	}
	if err := at(one, ""); exitCode(err) != ExitNoDaemon || !strings.Contains(err.Error(), "runs, but its socket "+own+" is gone") {
		t.Errorf("with a daemon without a socket: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	none, err := project.At(filepath.Dir(one.Root))
	if err != nil {
		t.Fatal(err)
	}
	if err := at(none, ""); exitCode(err) != ExitNoDaemon || !strings.Contains(err.Error(), "check --project") {
		t.Errorf("without a daemon where no project is: %v", err)
	}
	serve(t, one, own)
	if err := at(one, ""); err != nil {
		t.Errorf("at its own socket: %v", err)
	}
	if err := at(one, own); err != nil {
		t.Errorf("at the socket that was named: %v", err)
	}
	if err := at(other, own); exitCode(err) != ExitUsage || !strings.Contains(err.Error(), one.Root) || !strings.Contains(err.Error(), other.Root) {
		t.Errorf("at the socket of another project: %v", err)
	}
	// A daemon that was told to serve elsewhere wrote down where.
	elsewhere := filepath.Join(filepath.Dir(other.Root), "elsewhere.sock")
	serve(t, other, elsewhere)
	if err := other.RecordSocket(elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := at(other, ""); err != nil {
		t.Errorf("at the recorded socket: %v", err)
	}
	if err := at(one, "/"+strings.Repeat("long/", 50)); exitCode(err) != ExitUsage {
		t.Errorf("at a path that no socket can have: %v", err)
	}
}

func TestVersion(t *testing.T) {
	if got := Version("v1.2.3"); got != "v1.2.3" {
		t.Errorf("Version = %q, want what the linker said", got)
	}
	if got := Version(""); got == "" {
		t.Error("Version is empty without the linker")
	}
}
