//go:build unix

package doctor

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/clients"
	"github.com/debugmcp/devproxy/internal/project"
)

// newPatient is a project on a machine of its own.
func newPatient(t *testing.T, configuration string) Patient {
	t.Helper()
	base, err := os.MkdirTemp("", "doc") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	t.Setenv("HOME", base)
	root := filepath.Join(base, "project")
	put(t, filepath.Join(root, project.ConfigName), configuration, 0o600)
	put(t, filepath.Join(base, "bin", "node"), "#!/bin/sh\n", 0o755)
	put(t, filepath.Join(base, "bin", "devproxy-shim"), "#!/bin/sh\n", 0o755)
	put(t, filepath.Join(base, "bin", "devproxyd"), "#!/bin/sh\n", 0o755)
	p, err := project.At(root)
	if err != nil {
		t.Fatal(err)
	}
	return Patient{
		Project: p, Environ: []string{"PATH=" + filepath.Join(base, "bin")}, Program: client.Build{Program: "devproxyctl", Version: "v1", Contract: client.Contract},
		Host: clients.Host{
			OS: "linux", Home: base, Root: p.Root, Getenv: func(string) string { return "" },
			Exists: func(path string) bool { _, err := os.Stat(path); return err == nil }, OnPath: func(string) bool { return false },
		},
	}
}

func put(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

const sound = "[backend]\ncommand = [\"node\", \"dist/index.js\"]\ntransport = \"stdio\"\n[build]\ncommand = \"node build.js\"\n[watch]\npaths = [\"dist\"]\n"

func TestASoundProject(t *testing.T) {
	p := newPatient(t, sound)
	put(t, filepath.Join(p.Project.Root, "dist", "index.js"), "x", 0o600)
	put(t, filepath.Join(p.Project.Root, ".mcp.json"), fmt.Sprintf(`{"mcpServers": {"p": {"command": %q, "args": ["--project", %q]}}}`,
		filepath.Join(p.Host.Home, "bin", "devproxy-shim"), p.Project.Root), 0o600)
	for _, f := range Examine(t.Context(), p) {
		if f.State == Problem || f.State == Warning {
			t.Errorf("%+v", f)
		}
	}
	if _, err := os.Stat(p.Project.StateDir); err == nil {
		t.Error("it made the state folder")
	}
}

// Each of these is one thing that is wrong.
func TestWhatIsWrong(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, taken, _ := net.SplitHostPort(listener.Addr().String())
	for name, test := range map[string]struct {
		configuration string
		spoil         func(t *testing.T, p *Patient)
		state         State
		says          []string
	}{
		"unknown key": {"[backend]\ncomand = \"x\"\n", nil, Problem, []string{"devproxy.toml:2", "did you mean"}},
		"no program":  {strings.Replace(sound, `"node", "dist`, `"nod", "dist`, 1), nil, Problem, []string{`command "nod" not found`, "this terminal's PATH"}},
		"no mode x": {strings.Replace(sound, `"node", "dist`, `"./server.sh", "dist`, 1), func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Project.Root, "server.sh"), "#!/bin/sh\n", 0o600)
		}, Problem, []string{"server.sh is not an executable file", "chmod +x "}},
		"no build tool":   {strings.Replace(sound, "node build.js", "tsc -p .", 1), nil, Problem, []string{`command "tsc" not found`, "[build]"}},
		"no dist":         {sound, nil, Problem, []string{"entry", "dist/index.js is missing", "build first: node build.js"}},
		"no watched path": {sound, nil, Warning, []string{"watch", "dist is not there yet", "build first"}},
		"empty entry": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Project.Root, "dist", "index.js"), "", 0o600)
		}, Problem, []string{"dist/index.js is empty"}},
		"missing file": {strings.Replace(sound, `paths = ["dist"]`, `paths = ["src"]`, 1), nil, Warning, []string{"dist/index.js, which the command names, is not there"}},
		"cwd":          {strings.Replace(sound, "[build]", "cwd = \"server\"\n[build]", 1), nil, Problem, []string{"cwd", "there is no folder"}},
		"env_file":     {strings.Replace(sound, "[build]", "env_file = \".env\"\n[build]", 1), nil, Problem, []string{"env_file", ".env"}},
		"port":         {"[backend]\ncommand = [\"node\"]\nport = " + taken + "\n", nil, Problem, []string{"port " + taken + " is in use by ", "port = 0"}},
		"PATH of a client": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, p.Project.Environment(), `{"terminal": false, "variables": ["PATH=/nowhere"]}`, 0o600)
		}, Problem, []string{`"node" not found; PATH searched: /nowhere`, "the client that started the daemon first", "in this terminal's PATH it is", "devproxyd restart"}},
		"open state folder": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, p.Project.Lock(), "", 0o600)
			if err := os.Chmod(p.Project.StateDir, 0o755); err != nil {
				t.Fatal(err)
			}
		}, Problem, []string{"state folder", "its mode is 0755", "chmod 700"}},
		"state that is a file": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, p.Project.StateDir, "", 0o600)
		}, Problem, []string{"a plain file, not a folder"}},
		"stale socket": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, p.Project.Lock(), "", 0o600)
			socket, err := p.Project.Socket("")
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			_ = l.Close()
			_ = os.Chmod(socket, 0o755)
		}, Warning, []string{"daemon.sock was left behind"}},
		"no socket": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			socket, _ := p.Project.Socket("")
			put(t, socket, "", 0o600)
		}, Problem, []string{"a plain file, not a socket"}},
		"long socket":      {sound, func(_ *testing.T, p *Patient) { p.Socket = "/" + strings.Repeat("long/", 40) }, Problem, []string{"socket path", "--socket"}},
		"nobody registers": {sound, nil, Warning, []string{"no client starts", "devproxyctl register"}},
		"broken client": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Project.Root, ".cursor", "mcp.json"), "{\n oops", 0o600)
		}, Problem, []string{"cursor", "line 2", "mend the file"}},
		"shim that is gone": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Host.Home, ".codex", "config.toml"), fmt.Sprintf("[mcp_servers.p]\ncommand = \"/old/devproxy-shim\"\nargs = [\"--project\", %q]\n", p.Project.Root), 0o600)
		}, Problem, []string{"codex", "/old/devproxy-shim, which is not there", "devproxyctl register codex --scope user --name p"}},
		"shim by its name": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Project.Root, ".mcp.json"), fmt.Sprintf(`{"mcpServers": {"p": {"command": "devproxy-shim", "args": ["--project", %q]}}}`, p.Project.Root), 0o600)
		}, OK, []string{`entry "p"`, "may be shorter"}},
		"no folder": {sound, func(_ *testing.T, p *Patient) {
			p.ProjectErr = &project.NotFoundError{Dir: "/gone", Missing: fs.ErrNotExist}
		}, Problem, []string{"there is no folder /gone", "check --project"}},
		"another project's shim": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Project.Root, ".mcp.json"), `{"mcpServers": {"p": {"command": "devproxy-shim", "args": ["--project", "/elsewhere"]}}}`, 0o600)
		}, Warning, []string{"claude-code, copilot", "starts the shim of /elsewhere"}},
		"past devproxy": {sound, func(t *testing.T, p *Patient) {
			t.Helper()
			put(t, filepath.Join(p.Project.Root, ".mcp.json"), `{"mcpServers": {"w": {"command": "node", "args": ["dist/index.js"]}}}`, 0o600)
		}, Warning, []string{`entry "w"`, "starts the server itself, past devproxy", "--name w --force"}},
		"no daemon program": {sound, func(_ *testing.T, p *Patient) { p.Environ = nil }, Problem, []string{"programs", "devproxyd is neither in"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t, test.configuration)
			if test.spoil != nil {
				test.spoil(t, &p)
			}
			wantFinding(t, Examine(t.Context(), p), test.state, test.says...)
		})
	}
}

func TestVersions(t *testing.T) {
	p := newPatient(t, sound)
	newer, older := client.Contract+1, client.Contract-1
	for _, test := range []struct {
		version  string
		contract uint32
		state    State
		says     []string
	}{
		{"v1", client.Contract, OK, nil},
		{"v0.9", client.Contract, Warning, []string{"v0.9", "devproxyd restart"}},
		{"v9", newer, Problem, []string{"update devproxyctl", "install"}},
		{"v0", older, Problem, []string{"update the running devproxyd", "devproxyd restart"}},
	} {
		f := &facts{Patient: p, status: &client.Status{Daemon: &client.Daemon{Version: test.version, Contract: &test.contract}}}
		wantFinding(t, lookPrograms(t.Context(), f), test.state, test.says...)
	}
}

// The port that the backend has is its own.
func TestThePortOfTheBackend(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	number := listener.Addr().(*net.TCPAddr).Port
	f := &facts{Patient: newPatient(t, fmt.Sprintf("[backend]\ncommand = [\"node\"]\nport = %d\n", number))}
	f.gather(t.Context())
	wantFinding(t, lookPort(t.Context(), f), Problem, "is in use by")
	f.status = &client.Status{Backend: &client.Backend{Port: uint32(number), Pid: 5, State: devproxyv1.BackendState_BACKEND_STATE_RUNNING}}
	wantFinding(t, lookPort(t.Context(), f), OK, "the backend has, pid 5")
}

// What is told is likely to be shown to others.
func TestSecretsAreHidden(t *testing.T) {
	p := newPatient(t, strings.Replace(sound, `"dist/index.js"]`, `"dist/index.js", "--api-key", "hush-hush-1", "hush-hush-2"]`, 1))
	p.Environ = append(p.Environ, "MY_SECRET=hush-hush-2")
	for _, f := range Examine(t.Context(), p) {
		if strings.Contains(fmt.Sprint(f), "hush-hush") {
			t.Errorf("it tells a secret: %+v", f)
		}
	}
}
