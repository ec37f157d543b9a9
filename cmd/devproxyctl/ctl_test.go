//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/project"
)

// fakeDaemon answers what the test says.
type fakeDaemon struct {
	devproxyv1.UnimplementedControlServiceServer

	status  *client.Status
	steps   []*client.Step
	entries []*client.LogEntry
	traffic []*devproxyv1.StreamTrafficResponse
	states  []*client.Status
	ends    chan struct{} // nil for a daemon that does not end

	mu       sync.Mutex
	restarts []*devproxyv1.RestartRequest
	logs     []*devproxyv1.StreamLogsRequest
	traces   []*devproxyv1.StreamTrafficRequest
}

func (d *fakeDaemon) GetStatus(context.Context, *devproxyv1.GetStatusRequest) (*devproxyv1.GetStatusResponse, error) {
	return &devproxyv1.GetStatusResponse{Status: d.status}, nil
}

func (d *fakeDaemon) Restart(r *devproxyv1.RestartRequest, stream grpc.ServerStreamingServer[devproxyv1.RestartResponse]) error {
	d.mu.Lock()
	d.restarts = append(d.restarts, r)
	d.mu.Unlock()
	for _, step := range d.steps {
		if err := stream.Send(&devproxyv1.RestartResponse{Step: step}); err != nil {
			return err
		}
	}
	return nil
}

func (d *fakeDaemon) StreamLogs(r *devproxyv1.StreamLogsRequest, stream grpc.ServerStreamingServer[devproxyv1.StreamLogsResponse]) error {
	d.mu.Lock()
	d.logs = append(d.logs, r)
	d.mu.Unlock()
	if r.GetPattern() == "(" {
		return status.Error(codes.InvalidArgument, "the pattern is none")
	}
	for _, e := range d.entries {
		if err := stream.Send(&devproxyv1.StreamLogsResponse{Entry: e}); err != nil {
			return err
		}
	}
	if r.GetFollow() {
		select {
		case <-d.ends:
		case <-stream.Context().Done():
		}
	}
	return nil
}

func (d *fakeDaemon) StreamTraffic(r *devproxyv1.StreamTrafficRequest, stream grpc.ServerStreamingServer[devproxyv1.StreamTrafficResponse]) error {
	if d.traffic == nil {
		return d.UnimplementedControlServiceServer.StreamTraffic(r, stream)
	}
	d.mu.Lock()
	d.traces = append(d.traces, r)
	d.mu.Unlock()
	for _, response := range append([]*devproxyv1.StreamTrafficResponse{{}}, d.traffic...) {
		if err := stream.Send(response); err != nil {
			return err
		}
	}
	select {
	case <-d.ends:
	case <-stream.Context().Done():
	}
	return nil
}

// newProject is a project with a home of its own, and the working directory.
func newProject(t *testing.T) project.Project {
	t.Helper()
	base, err := os.MkdirTemp("", "ctl") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	t.Setenv("HOME", base)
	t.Setenv("DEVPROXY_SOCKET", "")
	t.Setenv("CLICOLOR_FORCE", "")
	root := filepath.Join(base, "project")
	if err := errors.Join(os.Mkdir(root, 0o700), os.WriteFile(filepath.Join(root, project.ConfigName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (d *fakeDaemon) serve(t *testing.T, p project.Project) {
	t.Helper()
	t.Cleanup(d.start(t, p))
}

// start serves until stop is called.
func (d *fakeDaemon) start(t *testing.T, p project.Project) (stop func()) {
	t.Helper()
	socket, err := p.Socket("")
	if err == nil {
		err = p.EnsureDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	devproxyv1.RegisterControlServiceServer(server, d)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	return func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

type outcome struct {
	code           int
	stdout, stderr string
}

func ctl(args ...string) outcome {
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code := cli.Main(root)
	return outcome{code, stdout.String(), stderr.String()}
}

// ctlUntil runs a command that ends with Ctrl-C, which it gets as soon as it has
// printed text to stdout.
func ctlUntil(text string, args ...string) outcome { return ctlWhen(args, when{text: text}) }

// when says what is done as soon as a text was printed; nil is a person's Ctrl-C.
type when struct {
	text string
	do   func()
}

// ctlWhen runs a command to which things happen, one after the other.
func ctlWhen(args []string, events ...when) outcome {
	var stderr bytes.Buffer
	stdout := eventful{events: events}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code := cli.Main(root)
	return outcome{code, stdout.written.String(), stderr.String()}
}

type eventful struct {
	written strings.Builder
	events  []when
}

func (w *eventful) Write(p []byte) (int, error) {
	w.written.Write(p)
	for len(w.events) > 0 && strings.Contains(w.written.String(), w.events[0].text) {
		do := w.events[0].do
		w.events = w.events[1:]
		if do == nil {
			do = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGINT) }
		}
		do()
	}
	return len(p), nil
}

func TestWithoutDaemon(t *testing.T) {
	p := newProject(t)
	for _, command := range []string{"status", "stop", "logs", "trace"} {
		o := ctl(command)
		if o.code != cli.ExitNoDaemon || o.stdout != "" {
			t.Errorf("%s: %+v", command, o)
		}
		for _, want := range []string{p.Root, p.StateDir, "devproxyd start"} {
			if !strings.Contains(o.stderr, want) {
				t.Errorf("%s does not name %q: %s", command, want, o.stderr)
			}
		}
	}
	if o := ctl("version"); o.code != cli.ExitOK || !strings.HasPrefix(o.stdout, "devproxyctl ") || strings.Contains(o.stdout, "devproxyd") {
		t.Errorf("version: %+v", o)
	}
}

// A person who wants the server to run need not know of the daemon.
func TestStartWithoutDaemon(t *testing.T) {
	p := newProject(t)
	t.Setenv("PATH", "")
	for _, command := range []string{"start", "restart", "tools", "call x"} {
		put(t, p.Config(), "[backend]\ncommand = \"x\"\ntransport = \"stdio\"\n", 0o600)
		if o := ctl(strings.Fields(command)...); o.code != cli.ExitFailed || !strings.Contains(o.stderr, "devproxyd is neither in") {
			t.Errorf("%s does not look for a daemon to start: %+v", command, o)
		}
		// A fault of the file is told the same by all of them.
		put(t, p.Config(), "[backend]\ncomand = \"x\"\n", 0o600)
		if o := ctl(strings.Fields(command)...); o.code != cli.ExitUsage || !strings.HasPrefix(o.stderr, "devproxyctl: devproxy.toml:2: ") {
			t.Errorf("%s with a faulty file: %+v", command, o)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	newProject(t)
	for _, test := range []struct{ args, want string }{
		{"stat", `did you mean "devproxyctl status"`},
		{"nonsense", `unknown command "nonsense"`},
		{"status extra", `devproxyctl status --help`},
		{"status --bad", "there is no flag --bad"},
		{"logs --source mars", "backend, build or daemon"},
		{"logs -n -1", `--lines -1: want a whole number, 0 or more`},
		{"logs --grep (x", `--grep "(x" is no regular expression: missing closing ) in "(x"`},
		{"logs --since yesterday", `--since "yesterday": want a duration such as 10m`},
		{"logs --since -5m", `--since "-5m": want`},
		{"logs --generation 0", `--generation "0": want a number from 1`},
		{"logs --generation first", `--generation "first": want`},
		{"restart --env novalue", "KEY=VALUE"},
		{"restart --env A=1 --clear-env", "exclude each other"},
		{"status --project missing", "missing"},
		{"call x --timeout -1s", "less than 0"},
		{"register curser", "did you mean cursor?"},
		{"help frob", `unknown command "frob"`},
	} {
		o := ctl(strings.Fields(test.args)...)
		if o.code != cli.ExitUsage || !strings.Contains(o.stderr, test.want) || !strings.HasPrefix(o.stderr, "devproxyctl: ") {
			t.Errorf("%s: %+v", test.args, o)
		}
	}
	t.Chdir(t.TempDir())
	if o := ctl("status"); o.code != cli.ExitUsage || !strings.Contains(o.stderr, "--project DIR") {
		t.Errorf("outside of a project: %+v", o)
	}
}

func TestStatusCommand(t *testing.T) {
	p := newProject(t)
	status := statuses()["running"]
	status.Daemon.Version = cli.Version("")
	(&fakeDaemon{status: status}).serve(t, p)
	if o := ctl("status"); o.code != cli.ExitOK || o.stderr != "" || !strings.Contains(o.stdout, "generation 3, pid 4711") {
		t.Errorf("status: %+v", o)
	}
	o := ctl("status", "--json")
	var document struct {
		Version int
		Status  struct {
			Backend struct {
				State           string
				ProtocolVersion string
			}
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &document); err != nil || o.code != cli.ExitOK {
		t.Fatalf("status --json: %+v: %v", o, err)
	}
	if b := document.Status.Backend; document.Version != jsonVersion || b.State != "BACKEND_STATE_RUNNING" || b.ProtocolVersion != "2026-07-28" {
		t.Errorf("status --json: %+v", document)
	}
	if o := ctl("version"); !strings.Contains(o.stdout, "devproxyd "+cli.Version("")+" (pid 100)") {
		t.Errorf("version: %+v", o)
	}
	// A socket named by hand may be another project's.
	socket, _ := p.Socket("")
	if o := ctl("status", "--socket", socket); o.code != cli.ExitUsage || !strings.Contains(o.stderr, "serves "+status.GetDaemon().GetProjectRoot()) {
		t.Errorf("status of another project's daemon: %+v", o)
	}
}

// A daemon of another version is a warning to the person, and one of another
// contract an error that says which side to update. Neither gets into the data.
func TestAnotherVersion(t *testing.T) {
	for name, test := range map[string]struct {
		version  string
		contract *uint32
		code     int
		want     []string
	}{
		"same":    {cli.Version(""), proto.Uint32(client.Contract), cli.ExitOK, nil},
		"earlier": {"v0.1", nil, cli.ExitOK, []string{"talks to the running devproxyd v0.1;", `"devproxyd restart"`}},
		"newer":   {"v9", proto.Uint32(client.Contract + 1), cli.ExitFailed, []string{"v9 speaks 2: update devproxyctl\n"}},
		"older":   {"v0", proto.Uint32(client.Contract - 1), cli.ExitFailed, []string{"v0 speaks 0: update the running devproxyd;", `"devproxyd restart"`}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			d := &fakeDaemon{status: &client.Status{Daemon: &client.Daemon{ProjectRoot: p.Root, Version: test.version, Contract: test.contract}}}
			d.steps = []*client.Step{ending(true, "")}
			d.serve(t, p)
			for _, args := range []string{"status --json", "restart", "logs --json", "version"} {
				o := ctl(strings.Fields(args)...)
				if o.code != test.code || strings.Contains(o.stdout, "update ") || strings.Contains(o.stdout, "talks to") {
					t.Errorf("%s: %+v, want exit code %d", args, o, test.code)
				}
				for _, want := range test.want {
					if !strings.Contains(o.stderr, want) {
						t.Errorf("%s does not say %q: %s", args, want, o.stderr)
					}
				}
				switch {
				case args == "version" && !strings.Contains(o.stdout, "devproxyd "+test.version):
					t.Errorf("%s does not tell the daemon's version: %s", args, o.stdout)
				case args == "status --json" && json.Valid([]byte(o.stdout)) != (test.code == cli.ExitOK):
					t.Errorf("%s prints %s", args, o.stdout)
				}
			}
			if asked := len(d.restarts) > 0; asked != (test.code == cli.ExitOK) {
				t.Errorf("the daemon was asked for a restart: %v", asked)
			}
		})
	}
}

func step(b *client.Backend) *client.Step {
	return &client.Step{Event: &devproxyv1.Step_Backend{Backend: b}}
}

func ending(ok bool, message string) *client.Step {
	return &client.Step{Event: &devproxyv1.Step_Outcome{Outcome: &devproxyv1.Outcome{Ok: ok, Message: message}}}
}

func TestRestartCommand(t *testing.T) {
	p := newProject(t)
	d := &fakeDaemon{status: statuses()["running"]}
	d.status.Daemon.ProjectRoot = p.Root
	d.status.Backend.Warnings = []*client.Warning{{Text: "it is loud", Advice: "hush it"}}
	d.steps = []*client.Step{
		{Event: &devproxyv1.Step_BuildOutput{BuildOutput: "compiling"}},
		{Event: &devproxyv1.Step_Build{Build: &client.BuildRun{Ok: true, Duration: durationpb.New(2 * time.Second)}}},
		step(&client.Backend{State: devproxyv1.BackendState_BACKEND_STATE_STARTING}),
		step(&client.Backend{State: devproxyv1.BackendState_BACKEND_STATE_STARTING}),
		step(&client.Backend{State: devproxyv1.BackendState_BACKEND_STATE_RUNNING, Generation: 3, Pid: 4711, Port: 3001}),
		ending(true, ""),
	}
	d.serve(t, p)
	o := ctl("restart", "--rebuild", "--env", "A=1", "--env", "B=x=y,z")
	if o.code != cli.ExitOK || o.stdout != "running, generation 3, pid 4711, port 3001\n" {
		t.Errorf("restart: %+v", o)
	}
	for _, want := range []string{"  compiling\n", "the build succeeded, after 2s\n", "] starting\n", "warning: it is loud; hush it\n"} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, o.stderr)
		}
	}
	if strings.Contains(o.stderr, "] running") {
		t.Errorf("the end is told twice:\n%s", o.stderr)
	}
	if n := strings.Count(o.stderr, "starting"); n != 1 {
		t.Errorf("a state that stays is told %d times:\n%s", n, o.stderr)
	}
	d.steps = []*client.Step{
		{Event: &devproxyv1.Step_Build{Build: &client.BuildRun{Message: "the build failed: exited with status 2"}}},
		ending(false, "the build failed: exited with status 2; see its output"),
	}
	if o := ctl("restart"); o.code != cli.ExitFailed || o.stdout != "" || strings.Count(o.stderr, "the build failed: exited with status 2") != 1 || strings.Contains(o.stderr, "see its output") {
		t.Errorf("a restart whose build fails: %+v", o)
	}
	d.steps[1] = ending(false, "it crashed")
	if o := ctl("restart"); o.code != cli.ExitFailed || !strings.Contains(o.stderr, "devproxyctl: it crashed\n") {
		t.Errorf("a restart that fails: %+v", o)
	}
	ctl("restart", "--clear-env")
	want := []*devproxyv1.RestartRequest{
		{Rebuild: true, Environment: &devproxyv1.EnvironmentChange{Overrides: map[string]string{"A": "1", "B": "x=y,z"}}},
		{}, {},
		{Environment: &devproxyv1.EnvironmentChange{}},
	}
	if diff := cmp.Diff(want, d.restarts, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// Who waits hears what for, and once.
func TestReassures(t *testing.T) {
	p := newProject(t)
	status := proto.CloneOf(statuses()["running"])
	status.Backend.State, status.Backend.Message = devproxyv1.BackendState_BACKEND_STATE_STARTING, "waiting for port 3001\x1b[2J\nmore"
	(&fakeDaemon{status: status}).serve(t, p)
	socket, _ := p.Socket("")
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("nothing is said"))
	defer cancel()
	out := eventful{events: []when{{"still ", cancel}}}
	tell := teller{out: &out, began: time.Now(), keepsEnd: true}
	tell.step(step(&client.Backend{State: devproxyv1.BackendState_BACKEND_STATE_RUNNING}))
	tell.reassure(ctx, c, 20*time.Millisecond)
	if got := out.written.String(); !strings.Contains(got, `] still starting: waiting for port 3001\x1b[2J`+"\n") || strings.Count(got, "\n") != 2 || !strings.Contains(got, "] running\n") {
		t.Errorf("it says %q", got)
	}
}

func TestLogsCommand(t *testing.T) {
	p := newProject(t)
	d := &fakeDaemon{status: statuses()["running"], entries: []*client.LogEntry{
		{Sequence: 1, Time: timestamppb.New(now), Source: devproxyv1.LogSource_LOG_SOURCE_BACKEND, Stream: "stderr", Generation: 12, Text: "<hello>"},
		{Sequence: 2, Time: timestamppb.New(now), Source: devproxyv1.LogSource_LOG_SOURCE_BUILD, Stream: "output", Text: "\x1b[31mred\x1b[m"},
		{Sequence: 3, Time: timestamppb.New(now), Source: devproxyv1.LogSource_LOG_SOURCE_DAEMON, Stream: "INFO", Text: "100% done"},
		{Sequence: 4, Time: timestamppb.New(now), Source: devproxyv1.LogSource_LOG_SOURCE_BACKEND, Stream: "stdout-noise", Generation: 1, Text: "hi"},
	}}
	d.serve(t, p)
	o := ctlUntil("] hi\n", "logs", "-n", "20", "--source", "backend,build", "--show-secrets", "-f")
	at := now.Local().Format("15:04:05.000")
	want := at + " backend#12 <hello>\n" + at + " build      red\n" + at + " daemon     100% done\n" +
		at + " backend#1  [no protocol, on stdout] hi\n"
	if o.code != cli.ExitOK || o.stdout != want {
		t.Errorf("logs: %+v, want\n%s", o, want)
	}
	status := d.status
	if status.GetBackend().GetGeneration() != 3 {
		t.Fatal("another generation")
	}
	for args, want := range map[string]uint64{"last": 3, "-1": 2, "-2": 1, "7": 7} {
		d.logs = d.logs[:1]
		if o := ctl("logs", "--generation", args, "--grep", "(?i)HELLO", "--since", "2020-11-30T12:00:00Z"); o.code != cli.ExitOK {
			t.Errorf("logs --generation %s: %+v", args, o)
		}
		asked := &devproxyv1.StreamLogsRequest{Tail: 200, Generation: want, Pattern: "(?i)HELLO", Since: timestamppb.New(now.AddDate(-6, 0, 0))}
		if diff := cmp.Diff(asked, d.logs[len(d.logs)-1], protocmp.Transform()); diff != "" {
			t.Errorf("--generation %s (-want +got):\n%s", args, diff)
		}
	}
	if o := ctl("logs", "--generation", "99"); o.code != cli.ExitOK || !strings.Contains(o.stderr, "there is no generation 99; known: 1..3\n") {
		t.Errorf("logs of a generation to come: %+v", o)
	}
	if o := ctl("logs", "--generation", "-3"); o.code != cli.ExitFailed || !strings.Contains(o.stderr, "no generation 3 before the last one, which is number 3") {
		t.Errorf("a generation before the first: %+v", o)
	}
	d.logs = d.logs[:1]
	o = ctl("logs", "--json")
	first, _, _ := strings.Cut(o.stdout, "\n")
	const wantJSON = `{"version":1,"sequence":1,"time":"2026-11-30T12:00:00Z","source":"backend","stream":"stderr","generation":12,"text":"<hello>"}`
	if first != wantJSON {
		t.Errorf("logs --json gives\n%s, want\n%s", first, wantJSON)
	}
	wantRequests := []*devproxyv1.StreamLogsRequest{
		{
			Tail: 20, Follow: true, ShowSecrets: true,
			Sources: []devproxyv1.LogSource{devproxyv1.LogSource_LOG_SOURCE_BACKEND, devproxyv1.LogSource_LOG_SOURCE_BUILD},
		},
		{Tail: 200},
	}
	if diff := cmp.Diff(wantRequests, d.logs, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestParseSince(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	moment := time.Date(2026, 11, 30, 12, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"10m": "2026-11-30T12:20:00+01:00", "0s": "2026-11-30T12:30:00+01:00", "1h30m": "2026-11-30T11:00:00+01:00",
		"12:29": "2026-11-30T12:29:00+01:00", "12:30:00": "2026-11-30T12:30:00+01:00", "12:31": "2026-11-29T12:31:00+01:00", "23:59:59": "2026-11-29T23:59:59+01:00",
		"2026-11-29 08:00:01": "2026-11-29T08:00:01+01:00", "2026-11-29 08:00": "2026-11-29T08:00:00+01:00", "2026-11-29": "2026-11-29T00:00:00+01:00",
		"2026-11-29T08:00:00": "2026-11-29T08:00:00+01:00", "2026-11-29T08:00:00.5Z": "2026-11-29T08:00:00.5Z",
	} {
		if got, err := parseSince(text, moment); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, %v; want %s", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
	for _, text := range []string{"2026-11-30 12:30:01", "2026-12-01", "2027-11-30T12:00:00Z"} {
		if got, err := parseSince(text, moment); err == nil || !strings.Contains(err.Error(), strconv.Quote(text)+": that is yet to come") {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	if got, err := parseSince("", moment); err != nil || !got.IsZero() {
		t.Errorf("nothing is %v, %v", got, err)
	}
}

func TestParseEnv(t *testing.T) {
	for _, test := range []struct {
		assignments []string
		want        map[string]string
		fails       bool
	}{
		{nil, nil, false},
		{[]string{"A=1", "B=", "C=a=b c", "A=2"}, map[string]string{"A": "2", "B": "", "C": "a=b c"}, false},
		{[]string{"A"}, nil, true},
		{[]string{"=1"}, nil, true},
		{[]string{"A B=1"}, nil, true},
	} {
		got, err := parseEnv(test.assignments)
		if (err != nil) != test.fails || !cmp.Equal(got, test.want) {
			t.Errorf("parseEnv(%q) = %v, %v", test.assignments, got, err)
		}
	}
}
