package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
)

// wantFinding fails the test unless there is a finding of that state whose text,
// details and remedy have all of says.
func wantFinding(t *testing.T, found []Finding, state State, says ...string) {
	t.Helper()
	for _, f := range found {
		text := strings.Join(append([]string{f.Check, f.Summary, f.Remedy}, f.Details...), "\n")
		missing := slices.ContainsFunc(says, func(part string) bool { return !strings.Contains(text, part) })
		if f.State == state && !missing {
			return
		}
	}
	t.Errorf("there is no finding of state %s that says %q in %+v", state, says, found)
}

func TestJudgeEvents(t *testing.T) {
	for name, test := range map[string]struct {
		use   eventUse
		state State
		says  string
	}{
		"room":           {eventUse{maxWatches: 8192, maxInstances: 128, watches: 10, instances: 3, need: 20}, OK, "20 folders to watch"},
		"watches gone":   {eventUse{maxWatches: 100, maxInstances: 128, watches: 90, instances: 3, need: 20}, Problem, "sysctl fs.inotify.max_user_watches=524288"},
		"watches scarce": {eventUse{maxWatches: 8192, maxInstances: 128, watches: 8000, instances: 3, need: 20}, Warning, "max_user_watches"},
		"many already":   {eventUse{maxWatches: 524288, maxInstances: 128, watches: 524288, instances: 3, need: 20}, Problem, "max_user_watches=1048576"},
		"instances gone": {eventUse{maxWatches: 8192, maxInstances: 128, instances: 128, need: 1}, Problem, "sysctl fs.inotify.max_user_instances=512"},
		"ours already":   {eventUse{maxWatches: 100, maxInstances: 128, watches: 85, instances: 3, need: 20, watching: true}, OK, "85 are in use"},
	} {
		t.Run(name, func(t *testing.T) { wantFinding(t, judgeEvents(test.use), test.state, test.says) })
	}
}

func TestWrapper(t *testing.T) {
	read := func(string) ([]byte, error) { return []byte(`{"scripts": {"start": "node dist/index.js"}}`), nil }
	for _, test := range []struct {
		command   string
		transport config.Transport
		hint      string
	}{
		{"node dist/index.js", config.Stdio, ""},
		{"npm start", config.Stdio, "stdout"},
		{"npm run start", config.Stdio, "stdout"},
		{"npm run --silent start", config.Stdio, ""},
		{"npm -s start", config.Stdio, ""},
		{"npm run start", config.HTTP, ""},
		{"npm exec server", config.Stdio, ""},
		{"tsx watch src/index.ts", config.Stdio, "restarts the server itself"},
		{"node --watch dist/index.js", config.HTTP, "restarts the server itself"},
		{"/opt/bin/nodemon dist/index.js", config.HTTP, "behind devproxy's back"},
	} {
		c := &config.Config{Backend: config.Backend{Command: strings.Fields(test.command), Transport: test.transport}}
		hint, remedy := wrapper(c, read)
		if hint == "" != (test.hint == "") || !strings.Contains(hint, test.hint) || hint != "" && remedy == "" {
			t.Errorf("%s: %q, %q", test.command, hint, remedy)
		}
		if test.hint == "stdout" && !strings.HasSuffix(remedy, "runs: node dist/index.js") {
			t.Errorf("%s does not say what the script runs: %q", test.command, remedy)
		}
	}
}

func TestProgramOf(t *testing.T) {
	for script, want := range map[string]string{
		"npm run build": "npm", "tsc && cp -r a b": "tsc", "NODE_ENV=x tsc -p .": "tsc", "cd web && make": "",
		"(tsc)": "", `"my tool" x`: "", "$TOOL x": "", "./build.sh": "./build.sh", "": "",
	} {
		if got := programOf(config.Command{Script: script}); got != want {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}

func TestCompareBuilds(t *testing.T) {
	build := func(version, revision string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Path: module, Version: version}}
		if revision != "" {
			info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: revision}}
		}
		return info
	}
	for _, test := range []struct {
		ours, theirs *debug.BuildInfo
		want         string
	}{
		{build("v1.0.0", "abc"), build("v1.0.1", "abc"), ""},
		{build("v1.0.0", "abc"), build("v1.0.0", "def"), "of another build, commit def"},
		{build("v1.0.0", ""), build("v1.0.1", ""), "of another build, v1.0.1"},
		{build("(devel)", ""), build("v1.0.1", ""), ""},
	} {
		if got := compareBuilds(test.ours, test.theirs); got != test.want {
			t.Errorf("%v and %v: %q, want %q", test.ours, test.theirs, got, test.want)
		}
	}
}

// A check that hangs or falls is a finding, and keeps nothing back.
func TestACheckThatFails(t *testing.T) {
	f := &facts{}
	hangs := check{name: "disk", patience: time.Millisecond, look: func(context.Context, *facts) []Finding {
		<-t.Context().Done() // until the test ends
		return nil
	}}
	wantFinding(t, hangs.make(t.Context(), f), Problem, "disk", "no answer within 1ms")
	falls := check{name: "nil", look: func(_ context.Context, f *facts) []Finding { return one(OK, "%v", f.config.Backend) }}
	wantFinding(t, falls.make(t.Context(), f), Problem, "nil", "the check itself failed")
}

func TestLookConfig(t *testing.T) {
	p := project.Project{Root: filepath.Join("/", "work", "p")}
	for name, test := range map[string]struct {
		facts facts
		state State
		says  []string
	}{
		"no project": {
			facts{Patient: Patient{ProjectErr: &project.NotFoundError{Dir: "/work", Looked: []string{"/work", "/"}}}}, Problem,
			[]string{"no devproxy.toml in /work", "devproxyctl init"},
		},
		"no file": {facts{Patient: Patient{Project: p}, configErr: os.ErrNotExist}, Problem, []string{p.Root, "devproxyctl init"}},
		"faults": {
			facts{Patient: Patient{Project: p}, configErr: config.Errors{
				{File: "devproxy.toml", Line: 2, Key: "backend.comand", Msg: "unknown key"}, {File: "devproxy.toml", Line: 7, Msg: "x"},
			}},
			Problem, []string{"2 things", "devproxy.toml:2: backend.comand: unknown key", "devproxy.toml:7: x"},
		},
		"valid": {
			facts{Patient: Patient{Project: p}, config: &config.Config{Backend: config.Backend{Command: []string{"node", "x"}, Transport: config.HTTP}}},
			OK, []string{"http, node x"},
		},
	} {
		t.Run(name, func(t *testing.T) { wantFinding(t, lookConfig(t.Context(), &test.facts), test.state, test.says...) })
	}
}

func TestLookDaemonAndBackend(t *testing.T) {
	p := project.Project{Root: t.TempDir(), StateDir: t.TempDir()}
	at := &facts{Patient: Patient{Project: p}, statusErr: client.ErrNoDaemon}
	wantFinding(t, lookDaemon(t.Context(), at), OK, "none runs")
	wantFinding(t, lookBackend(t.Context(), at), Skipped)
	const log = "2026-11-30T12:00:00Z process 1 starts devproxyd run\nold words\n2026-11-30T12:00:01Z process 2 starts devproxyd run\npanic: oh\n"
	if err := os.WriteFile(p.StartLog(), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	found := lookDaemon(t.Context(), at)
	wantFinding(t, found, Warning, "panic: oh", p.StartLog())
	if slices.Contains(found[0].Details, "old words") {
		t.Error("it repeats what an earlier daemon said")
	}
	put := os.WriteFile(p.DaemonLog(), []byte("a daemon that served\n"), 0o600)
	later := time.Now().Add(time.Second)
	if err := errors.Join(put, os.Chtimes(p.DaemonLog(), later, later)); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, lookDaemon(t.Context(), at), OK, "none runs")
	// More than any system numbers its processes with.
	if err := os.WriteFile(p.PIDFile(), []byte("1073741824\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at.away = true
	wantFinding(t, lookDaemon(t.Context(), at), Warning, "pid 1073741824 runs, but its socket is gone", "look again")
	wantFinding(t, lookBackend(t.Context(), at), Skipped, "cannot be asked")
	if found := lookLeftovers(t.Context(), at); found != nil {
		t.Errorf("what the daemon has counts as left behind: %+v", found)
	}
	at.away = false
	at.statusErr = errors.Join(client.ErrNotServing)
	wantFinding(t, lookDaemon(t.Context(), at), Problem, "pid 1073741824 does not answer", "SIGKILL")

	at.statusErr = nil
	at.status = &client.Status{Daemon: &client.Daemon{Version: "v1", Pid: 7}, Backend: &client.Backend{
		State: devproxyv1.BackendState_BACKEND_STATE_FAILED, Generation: 3, Message: "the backend crashed too often",
		LastExit: &devproxyv1.Exit{Generation: 3, Status: "exit status 1", Reason: "crashed", StderrTail: []string{"TypeError: x"}},
	}}
	wantFinding(t, lookDaemon(t.Context(), at), OK, "v1", "pid 7")
	wantFinding(t, lookBackend(t.Context(), at), Problem, "failed, generation 3: the backend crashed too often", "TypeError: x", "devproxyctl logs")
	at.status.Backend.State = devproxyv1.BackendState_BACKEND_STATE_RUNNING
	at.status.Backend.Message = ""
	wantFinding(t, lookBackend(t.Context(), at), OK, "running", "exit status 1")
	at.status.Build = &client.BuildRun{Message: "the build failed: exit status 2", Tail: []string{"TS2322"}}
	wantFinding(t, lookBackend(t.Context(), at), Warning, "the last build failed: exit status 2", "TS2322", "devproxyctl logs --source build")
	at.status.Build.ByPerson = true
	wantFinding(t, lookBackend(t.Context(), at), Warning, "the last build failed: exit status 2", "the terminal where it ran")
	at.status.Build, at.status.Backend.Warnings = nil, []*client.Warning{{Text: "it is loud", Advice: "hush it"}}
	wantFinding(t, lookBackend(t.Context(), at), OK, "running")
	wantFinding(t, lookBackend(t.Context(), at), Warning, "it is loud", "hush it")
	// What an earlier generation printed is none of a start's that came to nothing.
	b := at.status.GetBackend()
	b.State, b.NeverRan, b.Message, b.Command = devproxyv1.BackendState_BACKEND_STATE_FAILED, true, "exec format error", []string{"./broken"}
	found = lookBackend(t.Context(), at)
	wantFinding(t, found, Problem, "came to no process", "exec format error", "./broken")
	if text := found[0].Summary + strings.Join(found[0].Details, "\n"); strings.Contains(text, "TypeError") || strings.Contains(text, "failed, generation 3") {
		t.Errorf("it tells of an earlier generation: %s", text)
	}
}

func TestLookHandshake(t *testing.T) {
	running := &client.Status{Backend: &client.Backend{State: devproxyv1.BackendState_BACKEND_STATE_RUNNING}}
	for name, test := range map[string]struct {
		status  *client.Status
		started bool
		err     error
		state   State
		says    string
	}{
		"idle":           {&client.Status{}, false, nil, Skipped, "--start"},
		"running":        {running, false, nil, OK, "hello"},
		"does not speak": {running, false, errors.New("mute"), Problem, "mute"},
		"did not start":  {nil, true, errors.New("no daemon"), Problem, "no daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &facts{Patient: Patient{Started: test.started}, status: test.status}
			f.Handshake = func(context.Context) (string, error) { return "hello", test.err }
			wantFinding(t, lookHandshake(t.Context(), f), test.state, test.says)
		})
	}
}
