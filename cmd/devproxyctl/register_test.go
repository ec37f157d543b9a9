//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/rewrite"
)

// newRegisterable is a project on a machine of its own: no variable of a client
// is set, and the one program in PATH is the shim.
func newRegisterable(t *testing.T) (p project.Project, shim string) {
	t.Helper()
	p = newProject(t)
	for _, name := range []string{
		"XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "CLINE_MCP_SETTINGS_PATH",
		"DEV_PROXY_PORT", "DEV_PROXY_BUILD_CMD", "DEV_PROXY_ROOT", "DEV_PROXY_BACKEND_TRANSPORT", "DEV_PROXY_BACKEND_CMD",
		"DEV_PROXY_DISCOVERY_WAIT_MS", "DEV_PROXY_BUILD_TIMEOUT_MS",
	} {
		t.Setenv(name, "")
	}
	bin := filepath.Join(filepath.Dir(p.Root), "bin")
	shim = filepath.Join(bin, "devproxy-shim")
	put(t, shim, "#!/bin/sh\n", 0o755)
	t.Setenv("PATH", bin)
	return p, shim
}

func put(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func wantOutcome(t *testing.T, o outcome, code int, says ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("%+v; want exit code %d", o, code)
	}
	for _, text := range says {
		if !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("it does not say %q: %+v", text, o)
		}
	}
}

func TestRegisterAndUnregister(t *testing.T) {
	p, shim := newRegisterable(t)
	cursor := filepath.Join(p.Root, ".cursor", "mcp.json")
	before := "{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"a\"} // theirs\n\t}\n}\n"
	put(t, cursor, before, 0o640)
	o := ctl("register", "cursor", "codex", "cursor")
	wantOutcome(t, o, cli.ExitOK, "cursor: added project in "+cursor, "mcp.json.devproxy-backup", "codex: added", "Codex: ", "trust")
	if n := strings.Count(o.stdout, "cursor: added"); n != 1 || o.stderr != "" {
		t.Errorf("register: %+v", o)
	}
	text := content(t, cursor)
	for _, want := range []string{`"a": {"command": "a"}, // theirs`, `"command": "` + shim + `"`, `"args": ["--project", "` + p.Root + `"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", cursor, want, text)
		}
	}
	if got := content(t, cursor+rewrite.BackupSuffix); got != before {
		t.Errorf("the backup holds\n%s", got)
	}
	if info, err := os.Stat(cursor); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	wantOutcome(t, ctl("register", "cursor", "codex"), cli.ExitOK, "cursor: already registered as project", "codex: already registered")
	if content(t, cursor) != text {
		t.Error("a second run changed the file")
	}
	wantOutcome(t, ctl("register"), cli.ExitOK, "CLIENT", "claude-code", ".cursor/mcp.json", "~/.cursor/mcp.json")
	wantOutcome(t, ctl("unregister", "cursor", "codex", "gemini"), cli.ExitOK, "cursor: removed project in "+cursor, "codex: removed", "gemini: not registered")
	if got := content(t, cursor); got != before {
		t.Errorf("afterwards there is\n%s", got)
	}
}

// What --print and --dry-run show is not written.
func TestRegisterShows(t *testing.T) {
	p, shim := newRegisterable(t)
	o := ctl("register", "claude-code", "--print", "--name", "other")
	wantOutcome(t, o, cli.ExitOK, filepath.Join(p.Root, ".mcp.json"))
	want := "{\n  \"mcpServers\": {\n    \"other\": {\n      \"type\": \"stdio\",\n      \"command\": \"" + shim +
		"\",\n      \"args\": [\"--project\", \"" + p.Root + "\"]\n    }\n  }\n}\n"
	if o.stdout != want {
		t.Errorf("it prints\n%s, want\n%s", o.stdout, want)
	}
	home := filepath.Dir(p.Root)
	codex := filepath.Join(home, ".codex", "config.toml")
	put(t, codex, "model = \"x\"\n", 0o600)
	o = ctl("register", "codex", "vscode", "--scope", "user", "--dry-run")
	wantOutcome(t, o, cli.ExitOK, codex+":\n", "  + [mcp_servers.project]\n", filepath.Join("Code", "User", "mcp.json"))
	if strings.Contains(o.stdout, "model") || content(t, codex) != "model = \"x\"\n" {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(home, "Library")); err == nil || runtime.GOOS == "linux" && fileExists(filepath.Join(home, ".config")) || fileExists(filepath.Join(p.Root, ".mcp.json")) {
		t.Error("something was written")
	}
}

// An entry that starts the server past devproxy is told of, with how to replace it.
func TestRegisterBesideTheServer(t *testing.T) {
	p, _ := newRegisterable(t)
	put(t, p.Config(), "[backend]\ncommand = [\"node\", \"server.js\"]\ntransport = \"stdio\"\n", 0o644)
	claude := filepath.Join(p.Root, ".mcp.json")
	put(t, claude, `{"mcpServers": {"my": {"command": "node", "args": ["server.js"]}, "else": {"command": "node", "args": ["other.js"]}}}`, 0o644)
	o := ctl("register", "claude-code")
	wantOutcome(t, o, cli.ExitOK, "claude-code: added project", "keep it out of version control")
	if want := "claude-code: entry \"my\" of " + claude + " starts the server itself, past devproxy; \"devproxyctl register claude-code --name my --force\" puts the shim in its place\n"; o.stderr != want {
		t.Errorf("it says %q, want %q", o.stderr, want)
	}
	o = ctl("register", "claude-code", "--name", "my", "--force")
	wantOutcome(t, o, cli.ExitOK, "claude-code: replaced my")
	if o.stderr != "" {
		t.Errorf("afterwards it says %q", o.stderr)
	}
	if help := ctl("unregister", "--help").stdout; strings.Contains(help, "project's folder") || !strings.Contains(help, "(default: both)") {
		t.Errorf("the help of unregister says\n%s", help)
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A client that fails keeps the others from nothing.
func TestRegisterFails(t *testing.T) {
	p, _ := newRegisterable(t)
	claude, cursor := filepath.Join(p.Root, ".mcp.json"), filepath.Join(p.Root, ".cursor", "mcp.json")
	taken := `{"mcpServers": {"project": {"command": "node", "args": ["x.js"]}}}`
	put(t, claude, taken, 0o644)
	put(t, cursor, "{\n  \"mcpServers\": {\n    oops\n  }\n}\n", 0o644)
	o := ctl("register", "claude-code", "cursor", "gemini")
	wantOutcome(t, o, cli.ExitFailed, "claude-code: "+claude, `"project"`, "node x.js", "--force", "cursor: "+cursor+": line 3", "gemini: added")
	if content(t, claude) != taken || fileExists(claude+rewrite.BackupSuffix) || fileExists(cursor+rewrite.BackupSuffix) {
		t.Error("a file that is left alone was touched")
	}
	wantOutcome(t, ctl("register"), cli.ExitOK, "faulty line 3")
	wantOutcome(t, ctl("unregister", "claude-code"), cli.ExitOK, "claude-code: not registered")
	wantOutcome(t, ctl("unregister", "claude-code", "--name", "project"), cli.ExitFailed, "not ours")
	wantOutcome(t, ctl("register", "claude-code", "--name", "mine"), cli.ExitOK, "added mine")
	wantOutcome(t, ctl("register", "claude-code", "--force"), cli.ExitOK, "claude-code: replaced project")
	wantOutcome(t, ctl("unregister", "claude-code", "--dry-run"), cli.ExitOK, "removed mine, project", "  - ")
	wantOutcome(t, ctl("unregister", "claude-code"), cli.ExitOK, "removed mine, project")
	for _, test := range []struct{ args, want string }{
		{"register emacs", "unknown client"},
		{"register claude-code --scope both", "project or user"},
		{"register windsurf --scope project", "windsurf: Windsurf (Cascade) has no file of project scope"},
		{"register claude-code --name a/b", "letters, digits"},
		{"register claude-code --print --dry-run", "exclude each other"},
		{"unregister", "name a client"},
	} {
		wantOutcome(t, ctl(strings.Fields(test.args)...), cli.ExitUsage, test.want)
	}
	t.Setenv("PATH", "")
	wantOutcome(t, ctl("register", "gemini"), cli.ExitFailed, "devproxy-shim is neither in")
	if err := os.Remove(p.Config()); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, ctl("register", "gemini", "--project", p.Root), cli.ExitUsage, "devproxyctl init")
}

func TestInit(t *testing.T) {
	p, _ := newRegisterable(t)
	if err := os.Remove(p.Config()); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(p.Root, "package.json"),
		`{"name": "weather\u001b[31m", "bin": "dist/index.js", "scripts": {"build": "tsc"}, "dependencies": {"@modelcontextprotocol/sdk": "1"}}`, 0o644)
	dry := ctl("init", "--dry-run")
	wantOutcome(t, dry, cli.ExitOK, "npm run build")
	if fileExists(p.Config()) || !strings.Contains(dry.stderr, "found    package.json: weather") || strings.Contains(dry.stderr, "\x1b[31m") {
		t.Errorf("init --dry-run: %+v", dry)
	}
	o := ctl("init")
	wantOutcome(t, o, cli.ExitOK, "decided  command   node dist/index.js (bin of package.json)", "next     npm install", "devproxyctl register", "wrote "+p.Config())
	if content(t, p.Config()) != dry.stdout || o.stderr != "" {
		t.Errorf("init: %+v", o)
	}
	if cfg, err := config.Load(p.Root); err != nil || cfg.Backend.Transport != config.Stdio || cfg.Build.Command.Script != "npm run build" {
		t.Errorf("it makes %+v, %v", cfg, err)
	}
	put(t, p.Config(), "# mine\n", 0o600)
	wantOutcome(t, ctl("init"), cli.ExitFailed, p.Config(), "--force")
	if content(t, p.Config()) != "# mine\n" {
		t.Error("it was overwritten")
	}
	wantOutcome(t, ctl("init", p.Root, "--force"), cli.ExitOK, "kept the one before as devproxy.toml.devproxy-backup")
	if content(t, p.Config()) != dry.stdout || content(t, p.Config()+rewrite.BackupSuffix) != "# mine\n" {
		t.Error("--force did not replace it and keep it")
	}
}

func TestInitFindsNothing(t *testing.T) {
	p, _ := newRegisterable(t)
	empty := filepath.Join(filepath.Dir(p.Root), "empty")
	put(t, filepath.Join(empty, "README.md"), "", 0o644)
	o := ctl("init", "--project", empty)
	wantOutcome(t, o, cli.ExitFailed, empty, "package.json", "go.mod", "--command", "[backend]")
	if o.stdout != "" || fileExists(filepath.Join(empty, project.ConfigName)) {
		t.Errorf("init: %+v", o)
	}
	wantOutcome(t, ctl("init", empty, "--command", "./server --port {port}"), cli.ExitOK, "transport http", "as you said")
	for args, want := range map[string]string{
		"init a b":                       "takes [DIR], and got",
		"init gone":                      "gone",
		"init . --project .":             "exclude each other",
		"init --force --command a|b":     "not run by a shell",
		"init --force --command $HOME/x": "--command",
	} {
		wantOutcome(t, ctl(strings.Fields(args)...), cli.ExitUsage, want)
	}
	t.Setenv("DEV_PROXY_BACKEND_CMD", "node dist/index.js http --port 3001")
	t.Setenv("DEV_PROXY_ROOT", empty)
	wantOutcome(t, ctl("init", empty, "--force", "--dry-run"), cli.ExitOK, "dev-proxy", `command = ["node", "dist/index.js", "http", "--port", "{port}"]`, `health = "/health"`)
}

// What register made goes with the entry, and nothing else does.
func TestUnregisterTidies(t *testing.T) {
	p, _ := newRegisterable(t)
	cursor := filepath.Join(p.Root, ".cursor", "mcp.json")
	gemini := filepath.Join(p.Root, ".gemini", "settings.json")
	zed := filepath.Join(p.Root, ".zed", "settings.json")
	const settings, empty = "{\n  \"theme\": \"dark\"\n}\n", "{\n  // none yet\n  \"context_servers\": {}\n}\n"
	put(t, gemini, settings, 0o644)
	put(t, zed, empty, 0o644)
	ctl("register", "cursor", "gemini", "zed")
	if list := ctl("register"); strings.Contains(list.stdout, "yes") {
		t.Errorf("a client seems to be installed because of what register made:\n%s", list.stdout)
	}
	wantOutcome(t, ctl("unregister", "cursor", "--dry-run"), cli.ExitOK, "this would have removed project, and "+cursor+" with it")
	wantOutcome(t, ctl("unregister", "cursor", "gemini", "zed"), cli.ExitOK, "cursor: removed project, and "+cursor+" with it, which had nothing else in it", "gemini: removed project in "+gemini)
	if fileExists(filepath.Dir(cursor)) {
		t.Errorf("%s is left, which register made", filepath.Dir(cursor))
	}
	if got := content(t, gemini); got != settings {
		t.Errorf("afterwards there is\n%s", got)
	}
	if got := content(t, zed); got != empty {
		t.Errorf("afterwards there is\n%s", got)
	}
	// In the home too, and also after two names.
	ctl("register", "codex", "cursor", "--scope", "user")
	ctl("register", "cursor", "--scope", "user", "--name", "other")
	if list := ctl("register"); strings.Contains(list.stdout, "yes") {
		t.Errorf("a client seems to be installed because of what register made:\n%s", list.stdout)
	}
	o := ctl("unregister", "codex", "cursor")
	wantOutcome(t, o, cli.ExitOK, "cursor: removed project, other, and ", "; left "+filepath.Join(filepath.Dir(p.Root), ".cursor", "mcp.json")+rewrite.BackupSuffix)
	if fileExists(filepath.Join(filepath.Dir(p.Root), ".codex")) {
		t.Error("~/.codex is left")
	}
	put(t, filepath.Join(filepath.Dir(p.Root), ".codex", "auth.json"), "{}", 0o600)
	ctl("register", "codex", "--scope", "user")
	if list := ctl("register"); strings.Count(list.stdout, "yes") != 1 {
		t.Errorf("codex does not seem to be installed:\n%s", list.stdout)
	}
}

// An entry that was replaced is not lost, and it is said where it is.
func TestUnregisterTellsOfWhatWasReplaced(t *testing.T) {
	p, _ := newRegisterable(t)
	claude := filepath.Join(p.Root, ".mcp.json")
	put(t, claude, `{"mcpServers": {"project": {"command": "node", "args": ["x.js"]}}}`, 0o644)
	wantOutcome(t, ctl("register", "claude-code", "--force"), cli.ExitOK, "and kept the file before, with the entry that was replaced, as .mcp.json"+rewrite.BackupSuffix)
	wantOutcome(t, ctl("unregister", "claude-code"), cli.ExitOK, "removed project in "+claude, "the entry project that it had replaced is in "+claude+rewrite.BackupSuffix)
	if !strings.Contains(content(t, claude), "mcpServers") {
		t.Error("the place of the servers is gone, which was theirs")
	}
}

func TestRegisterListFits(t *testing.T) {
	p, _ := newRegisterable(t)
	ctl("register", "claude-code")
	list := ctl("register").stdout
	if runtime.GOOS == "linux" && !strings.Contains(list, "(there is no Claude Desktop on Linux)") {
		t.Errorf("it does not say what is not on this system:\n%s", list)
	}
	if strings.Contains(list, p.Root) || !strings.Contains(list, "claude-code     –          project     .mcp.json\n") {
		t.Errorf("it says\n%s", list)
	}
	const columns = 80
	for line := range strings.Lines(list) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns && !strings.Contains(line, "cline") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
