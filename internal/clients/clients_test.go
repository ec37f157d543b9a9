package clients

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/edits/*.out and *.back anew")

var shim = Shim("my-server", "/opt/devproxy/bin/devproxy-shim", "/home/me/work/my-server")

func lookup(t testing.TB, id string) Client {
	t.Helper()
	client, err := Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Every file NAME.in of testdata/edits, which a client of that name keeps,
// becomes NAME.out with the entry, and with the entry taken out again what it
// was, or NAME.back.
func TestEdits(t *testing.T) {
	inputs, err := filepath.Glob("testdata/edits/*.in")
	if err != nil || len(inputs) == 0 {
		t.Fatal(inputs, err)
	}
	for _, path := range inputs {
		name := strings.TrimSuffix(path, ".in")
		t.Run(filepath.Base(name), func(t *testing.T) {
			id, _, _ := strings.Cut(filepath.Base(name), "_")
			client := lookup(t, id)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			after, outcome, err := client.Register(before, shim, false)
			if err != nil || outcome != Added {
				t.Fatalf("Register = %v, %v", outcome, err)
			}
			golden(t, name+".out", after)
			again, outcome, err := client.Register(after, shim, true)
			if err != nil || outcome != Already || string(again) != string(after) {
				t.Errorf("registering again: %v, %v\n%s", outcome, err, again)
			}
			back, removed, err := client.Unregister(after, []string{shim.Name, "nobody"})
			if err != nil || !cmp.Equal(removed, []string{shim.Name}) {
				t.Fatalf("Unregister = %v, %v", removed, err)
			}
			if string(back) != string(before) {
				golden(t, name+".back", back)
			}
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// An entry in the middle goes, and takes nothing along.
func TestRemoveFromTheMiddle(t *testing.T) {
	for _, test := range []struct{ name, id, before, after string }{
		{
			"first", "vscode",
			"{\"servers\": {\n  // ours\n  \"m\": {\"command\": \"x\"},\n  // theirs\n  \"a\": {}\n}}",
			"{\"servers\": {\n  // ours\n  // theirs\n  \"a\": {}\n}}",
		},
		{
			"comment behind", "vscode",
			"{\"servers\": {\n  \"a\": {},\n  \"m\": {}, // for work\n  \"b\": {}\n}}",
			"{\"servers\": {\n  \"a\": {},\n   // for work\n  \"b\": {}\n}}",
		},
		{
			"comment before, brace behind", "vscode",
			"{\"servers\": {\"a\": {}, // a\n  \"m\": {} }}",
			"{\"servers\": {\"a\": {} // a\n   }}",
		},
		{
			"one line", "vscode",
			`{"servers": {"a": {}, "m": {}, "b": {}}}`,
			`{"servers": {"a": {}, "b": {}}}`,
		},
		{
			"last of one line", "vscode",
			`{"servers": {"a": {}, "m": {}}}`,
			`{"servers": {"a": {}}}`,
		},
		{
			"trailing comma", "vscode",
			"{\"servers\": {\n  \"a\": {},\n  \"m\": {},\n}}",
			"{\"servers\": {\n  \"a\": {},\n}}",
		},
		{
			"comment left alone", "vscode",
			"{\"servers\": {\n  // ours\n  \"m\": {}\n}}",
			"{\"servers\": {\n  // ours\n}}",
		},
		{
			"table", "codex",
			"[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.m] # ours\ncommand = \"x\"\n# a comment in it\nargs = [\n]\n\n# about b\n[mcp_servers.b]\ncommand = \"b\"\n",
			"[mcp_servers.a]\ncommand = \"a\"\n\n# about b\n[mcp_servers.b]\ncommand = \"b\"\n",
		},
		{
			"tables apart", "codex",
			"[mcp_servers.m]\ncommand = \"x\"\n[tui]\na = 1\n\n[mcp_servers.m.env]\nA = \"1\"\n[x]\n",
			"[tui]\na = 1\n[x]\n",
		},
		{
			"quoted name", "codex",
			"[\"mcp_servers\".'m']\ncommand = \"x\"\n",
			"",
		},
		{
			"inline", "codex",
			"[mcp_servers]\na = { command = \"a\" }\nm = { command = \"x\", args = [] } # ours\n\nb.command = \"b\"\n",
			"[mcp_servers]\na = { command = \"a\" }\n\nb.command = \"b\"\n",
		},
		{
			"dotted", "codex",
			"mcp_servers.m.command = \"x\"\nmcp_servers.m.args = []\nmodel = \"y\"\n",
			"model = \"y\"\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			after, removed, err := lookup(t, test.id).Unregister([]byte(test.before), []string{"m"})
			if err != nil || len(removed) != 1 {
				t.Fatalf("Unregister = %v, %v", removed, err)
			}
			if diff := cmp.Diff(test.after, string(after)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// An entry that is ours but for the path of the shim keeps what a person added.
func TestShimThatMoved(t *testing.T) {
	for id, before := range map[string]string{
		"claude-code": `{"mcpServers": {"my-server": {"command": "devproxy-shim", /* mine */ "args": ["--no-autostart", "-project=/home/me/work/my-server/"], "env": {"A": "1"}}}}`,
		"opencode":    `{"mcp": {"my-server": {"type": "local", "command": ["devproxy-shim", "--project", "/home/me/work/my-server"], "enabled": false}}}`,
		"codex":       "[mcp_servers.my-server]\ncommand = 'devproxy-shim' # mine\nargs = [\"--project\", \"/home/me/work/my-server\"]\n",
		"vscode":      `{"servers": {"my-server": {"command": "C:\\bin\\devproxy-shim.EXE", "args": ["--project", "${workspaceFolder}"]}}}`,
	} {
		after, outcome, err := lookup(t, id).Register([]byte(before), shim, false)
		if err != nil || outcome != Updated {
			t.Errorf("%s: %v, %v", id, outcome, err)
		}
		want := before
		for _, old := range []string{`'devproxy-shim'`, `"devproxy-shim"`, `"C:\\bin\\devproxy-shim.EXE"`} {
			want = strings.ReplaceAll(want, old, `"/opt/devproxy/bin/devproxy-shim"`)
		}
		if diff := cmp.Diff(want, string(after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	inline := "mcp_servers = { my-server = { command = \"devproxy-shim\", args = [\"--project\", \"/home/me/work/my-server\"] } }\n"
	after, outcome, err := lookup(t, "codex").Register([]byte(inline), shim, false)
	if err != nil || outcome != Updated || !strings.Contains(string(after), `command = "/opt/devproxy/bin/devproxy-shim"`) {
		t.Errorf("inline: %v, %v\n%s", outcome, err, after)
	}
}

func TestNameThatIsTaken(t *testing.T) {
	for name, test := range map[string]struct{ id, before, says string }{
		"another program": {"claude-code", `{"mcpServers": {"my-server": {"command": "node", "args": ["dist/index.js"]}, "b": {}}}`, "node dist/index.js"},
		"another project": {"claude-code", `{"mcpServers": {"my-server": {"command": "devproxy-shim", "args": ["--project", "/else"]}}}`, "/else"},
		"no project":      {"claude-code", `{"mcpServers": {"my-server": {"command": "devproxy-shim"}}}`, "devproxy-shim"},
		"URL":             {"vscode", `{"servers": {"my-server": {"type": "http", "url": "http://localhost:3001/mcp"}}}`, "http://localhost:3001/mcp"},
		"nonsense":        {"vscode", `{"servers": {"my-server": 7}}`, "my-server"},
		"table":           {"codex", "[mcp_servers.my-server]\ncommand = \"node\"\nargs = [\"x.js\"]\n[mcp_servers.my-server.env]\nA = \"1\"\n", "node x.js"},
	} {
		t.Run(name, func(t *testing.T) {
			client := lookup(t, test.id)
			_, _, err := client.Register([]byte(test.before), shim, false)
			taken, ok := errors.AsType[*TakenError](err)
			if !ok || taken.Name != shim.Name || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Register = %v", err)
			}
			after, outcome, err := client.Register([]byte(test.before), shim, true)
			if err != nil || outcome != Replaced {
				t.Fatalf("with force: %v, %v", outcome, err)
			}
			servers, err := client.Servers(after)
			if err != nil || !servers[len(servers)-1].Serves("/home/me/work/my-server") {
				t.Errorf("there are %+v, %v", servers, err)
			}
			if strings.Contains(string(after), test.says) && test.says != shim.Name && test.says != ShimName {
				t.Errorf("the old entry is there:\n%s", after)
			}
		})
	}
}

// A file that is not what the client could read is left alone, and the error
// names the line.
func TestFilesThatDoNotParse(t *testing.T) {
	for name, test := range map[string]struct {
		id, content string
		line        int
		says        string
	}{
		"no JSON":          {"cursor", "{\n  \"a\": 1,\n  b\n}", 3, "no valid JSON"},
		"cut short":        {"cursor", "{\n  \"mcpServers\": {\n", 2, "no valid JSON"},
		"two values":       {"cursor", "{}\n{}", 2, "no valid JSON"},
		"comment alone":    {"vscode", "// nothing\n", 1, "no valid JSON"},
		"array":            {"cursor", "\n[]", 2, "must hold an object"},
		"null":             {"cursor", "null", 1, "must hold an object"},
		"servers no table": {"cursor", "{\n\"mcpServers\": []}", 2, "mcpServers must be an object"},
		"servers twice":    {"cursor", "{\n\"mcpServers\": {},\n\"mcpServers\": {}}", 3, `"mcpServers" is there twice`},
		"entry twice":      {"cursor", "{\"mcpServers\": {\"a\": {},\n\"a\": {}}}", 2, `"a" is there twice`},
		"no TOML":          {"codex", "a = 1\n[b\n", 2, "no valid TOML"},
		"table twice":      {"codex", "[a]\n[b]\n[a]\n", 3, "no valid TOML"},
		"servers a value":  {"codex", "mcp_servers = 3\n", 0, "mcp_servers must be a table"},
	} {
		t.Run(name, func(t *testing.T) {
			client := lookup(t, test.id)
			for _, do := range []func() error{
				func() error { _, _, err := client.Register([]byte(test.content), shim, true); return err },
				func() error { _, _, err := client.Unregister([]byte(test.content), []string{"a"}); return err },
				func() error { _, err := client.Servers([]byte(test.content)); return err },
			} {
				err := do()
				syntax, ok := errors.AsType[*SyntaxError](err)
				if !ok || syntax.Line != test.line || !strings.Contains(err.Error(), test.says) {
					t.Errorf("the error is %v, want line %d and %q", err, test.line, test.says)
				}
			}
		})
	}
	for _, before := range []string{"mcp_servers = {}\n", "mcp_servers = { a = { command = \"a\" } }\n"} {
		if _, _, err := lookup(t, "codex").Register([]byte(before), shim, false); !errors.Is(err, errInline) {
			t.Errorf("an inline table gives %v", err)
		}
	}
	if _, _, err := lookup(t, "codex").Register(nil, Shim("a", "/\xff/devproxy-shim", "/r"), false); err == nil {
		t.Error("a path that is no text was written down")
	}
}

// An edit that would change anything but the entry is not made.
func TestProof(t *testing.T) {
	for _, test := range []struct {
		id, before, after string
		passes            bool
	}{
		{"claude-code", `{"a": 1}`, `{"a": 1, "mcpServers": {"m": {"command": "x"}}}`, true},
		{"claude-code", `{"a": 1, "mcpServers": {"b": {}, "m": {}}}`, `{"a": 1, "mcpServers": {"b": {}}}`, true},
		{"claude-code", `{"a": 1, "b": [1.50, null]}`, `{"a": 1, "b": [1.5, null]}`, false},
		{"claude-code", `{"a": 1}`, `{"a": 1, "b": 2}`, false},
		{"claude-code", `{"a": {"b": [1, 2]}}`, `{"a": {"b": [1]}}`, false},
		{"claude-code", `{"mcpServers": {"b": {}, "m": {}}}`, `{"mcpServers": {"m": {}}}`, false},
		{"claude-code", `{"a": 1}`, `{"a": 1`, false},
		{"codex", "a = [nan, 1.5]\nt = 2026-01-01T00:00:00Z\n", "a = [nan, 1.5]\nt = 2026-01-01T01:00:00+01:00\n", true},
		{"codex", "a = 1979-05-27\n", "a = 1979-05-28\n", false},
		{"codex", "a = 1\n", "a = 1.0\n", false},
		{"codex", "a = \"1\"\n", "a = 1\n", false},
	} {
		_, _, err := lookup(t, test.id).proven([]byte(test.before), []byte(test.after), Added, nil, "m")
		if (err == nil) != test.passes || err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("%s -> %s: %v", test.before, test.after, err)
		}
	}
}

// Whatever a path has in it, the client reads what was meant.
func TestOddPaths(t *testing.T) {
	for _, root := range []string{`C:\Users\me\it's "here"`, `C:\work`, "/a b/<&>/ü\u2028", "/tab\tand\x7f", `/it's`, `/"`} {
		for _, client := range All() {
			e := Shim("m", root+"/devproxy-shim", root)
			content, err := client.Snippet(e)
			if err != nil {
				t.Fatalf("%s: %q: %v", client.ID, root, err)
			}
			servers, err := client.Servers([]byte(content))
			if err != nil || len(servers) != 1 || servers[0].Command != e.Command || !cmp.Equal(servers[0].Args, e.Args) {
				t.Errorf("%s: %q comes back as %+v, %v", client.ID, root, servers, err)
			}
		}
	}
}

func TestServers(t *testing.T) {
	for id, content := range map[string]string{
		"vscode": `{"servers": {"z": {"type": "stdio", "command": "node", "args": ["x.js", "--a"], "env": {"A": "1", "N": 2}, "cwd": "/w"}, "a": {"url": "http://x"}}}`,
		"codex":  "[mcp_servers.z]\ntype = \"stdio\"\ncommand = \"node\"\nargs = [\"x.js\", \"--a\"]\ncwd = \"/w\"\n[mcp_servers.z.env]\nA = \"1\"\nN = 2\n[mcp_servers.a]\nurl = \"http://x\"\n",
		"opencode": `{"mcp": {"z": {"type": "stdio", "command": ["node", "x.js", "--a"], "environment": {"A": "1"}, "cwd": "/w"},
			"a": {"url": "http://x"}}}`,
	} {
		got, err := lookup(t, id).Servers([]byte(content))
		want := []Server{
			{Name: "z", Type: "stdio", Command: "node", Args: []string{"x.js", "--a"}, Env: map[string]string{"A": "1"}, Cwd: "/w"},
			{Name: "a", URL: "http://x"},
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", id, err, diff)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"my-server": "my-server", "@me/my-server": "my-server", "My Server 2!": "My-Server-2", "…": "server", "": "server",
		strings.Repeat("x", 80): strings.Repeat("x", 64), "a_b.c": "a_b-c",
	} {
		if got := NameFor(text); got != want || CheckName(got) != nil {
			t.Errorf("NameFor(%q) = %q, want %q", text, got, want)
		}
	}
	for _, name := range []string{"", "a b", "a.b", "ü", strings.Repeat("x", 65)} {
		if CheckName(name) == nil {
			t.Errorf("%q passes for a name", name)
		}
	}
	if _, err := Lookup("emacs"); err == nil || !strings.Contains(err.Error(), "claude-code, ") {
		t.Errorf("an unknown client gives %v", err)
	}
}

// The paths are those that the documentation of each client names.
func TestPaths(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths below are spelled as on Unix")
	}
	host := func(system string, env map[string]string) Host {
		return Host{
			OS: system, Home: "/h", Root: "/p",
			Getenv: func(name string) string { return env[name] },
			Exists: func(path string) bool { return path == "/p/opencode.jsonc" },
			OnPath: func(program string) bool { return program == "codex" },
		}
	}
	linux, mac, windows := host("linux", nil), host("darwin", nil), host("windows", map[string]string{"APPDATA": "/h/AppData/Roaming"})
	moved := host("linux", map[string]string{
		"CLAUDE_CONFIG_DIR": "/m", "CODEX_HOME": "/m", "GEMINI_CLI_HOME": "/m", "COPILOT_HOME": "/m", "XDG_CONFIG_HOME": "/m", "CLINE_MCP_SETTINGS_PATH": "/m/c.json",
	})
	for _, test := range []struct {
		id    string
		host  Host
		scope Scope
		want  string
	}{
		{"claude-code", linux, Project, "/p/.mcp.json"},
		{"claude-code", linux, User, "/h/.claude.json"},
		{"claude-code", moved, User, "/m/.claude.json"},
		{"claude-desktop", mac, User, "/h/Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", windows, User, "/h/AppData/Roaming/Claude/claude_desktop_config.json"},
		{"claude-desktop", linux, User, ""},
		{"claude-desktop", mac, Project, ""},
		{"codex", linux, Project, "/p/.codex/config.toml"},
		{"codex", linux, User, "/h/.codex/config.toml"},
		{"codex", moved, User, "/m/config.toml"},
		{"cursor", linux, Project, "/p/.cursor/mcp.json"},
		{"cursor", windows, User, "/h/.cursor/mcp.json"},
		{"vscode", linux, Project, "/p/.vscode/mcp.json"},
		{"vscode", linux, User, "/h/.config/Code/User/mcp.json"},
		{"vscode", moved, User, "/m/Code/User/mcp.json"},
		{"vscode", mac, User, "/h/Library/Application Support/Code/User/mcp.json"},
		{"vscode", windows, User, "/h/AppData/Roaming/Code/User/mcp.json"},
		{"gemini", linux, Project, "/p/.gemini/settings.json"},
		{"gemini", linux, User, "/h/.gemini/settings.json"},
		{"gemini", moved, User, "/m/.gemini/settings.json"},
		{"windsurf", linux, User, "/h/.codeium/windsurf/mcp_config.json"},
		{"windsurf", linux, Project, ""},
		{"devin", linux, Project, "/p/.devin/config.local.json"},
		{"devin", moved, User, "/h/.config/devin/config.json"},
		{"devin", windows, User, "/h/AppData/Roaming/devin/config.json"},
		{"zed", linux, Project, "/p/.zed/settings.json"},
		{"zed", mac, User, "/h/.config/zed/settings.json"},
		{"zed", moved, User, "/m/zed/settings.json"},
		{"zed", windows, User, "/h/AppData/Roaming/Zed/settings.json"},
		{"cline", linux, User, "/h/.cline/data/settings/cline_mcp_settings.json"},
		{"cline", moved, User, "/m/c.json"},
		{"opencode", linux, Project, "/p/opencode.jsonc"},
		{"opencode", linux, User, "/h/.config/opencode/opencode.json"},
		{"kiro", linux, Project, "/p/.kiro/settings/mcp.json"},
		{"kiro", linux, User, "/h/.kiro/settings/mcp.json"},
		{"copilot", linux, Project, "/p/.mcp.json"},
		{"copilot", moved, User, "/m/mcp-config.json"},
	} {
		if got := lookup(t, test.id).Path(test.host, test.scope); got != test.want {
			t.Errorf("%s, %s scope, %s: %q, want %q", test.id, test.scope, test.host.OS, got, test.want)
		}
	}
	for _, client := range All() {
		if got := client.Installed(linux); got != (client.ID == "codex") {
			t.Errorf("%s is installed: %v", client.ID, got)
		}
		for _, scope := range []Scope{Project, User} {
			if (client.Path(mac, scope) == "") != (client.Then(scope) == "") {
				t.Errorf("%s does not say what it needs in %s scope", client.ID, scope)
			}
		}
	}
}

// FuzzJSON and FuzzTOML hold that an edit of whatever parses leaves everything
// else as it was, and that taking the entry out again does too.
func FuzzJSON(f *testing.F) {
	seed(f, "claude-code", "cursor", "gemini", "zed", "vscode", "opencode", "copilot")
	clients := []Client{lookup(f, "claude-code"), lookup(f, "vscode"), lookup(f, "opencode")}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, client := range clients {
			checkEdits(t, client, content)
		}
	})
}

func FuzzTOML(f *testing.F) {
	seed(f, "codex")
	client := lookup(f, "codex")
	f.Fuzz(func(t *testing.T, content []byte) { checkEdits(t, client, content) })
}

func seed(f *testing.F, ids ...string) {
	f.Helper()
	for _, id := range ids {
		for _, suffix := range []string{"in", "out"} {
			paths, err := filepath.Glob("testdata/edits/" + id + "_*." + suffix)
			if err != nil {
				f.Fatal(err)
			}
			for _, path := range paths {
				content, err := os.ReadFile(path)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(content)
			}
		}
	}
}

func checkEdits(t *testing.T, client Client, content []byte) {
	t.Helper()
	servers, err := client.Servers(content)
	if err != nil {
		return
	}
	after, _, err := client.Register(content, shim, true)
	if errors.Is(err, errInline) {
		return
	}
	if err != nil {
		t.Fatalf("%s: %v\n%q", client.ID, err, content)
	}
	var others []Server
	for _, server := range servers {
		if server.Name != shim.Name {
			others = append(others, server)
		}
	}
	checkServers(t, client, after, append(others, Server{}))
	back, _, err := client.Unregister(after, []string{shim.Name})
	if err != nil {
		t.Fatalf("%s: %v\n%q", client.ID, err, after)
	}
	checkServers(t, client, back, others)
	// Each of the others can go too.
	for _, server := range others {
		if _, removed, err := client.Unregister(after, []string{server.Name}); err != nil && !errors.Is(err, errInline) || err == nil && len(removed) != 1 {
			t.Fatalf("%s: removing %q: %v, %v\n%q", client.ID, server.Name, removed, err, after)
		}
	}
}

// checkServers wants those entries in a file; the last may be any if it has no
// name.
func checkServers(t *testing.T, client Client, content []byte, want []Server) {
	t.Helper()
	got, err := client.Servers(content)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%s: there are %+v, %v; want %+v\n%q", client.ID, got, err, want, content)
	}
	for i, server := range want {
		if server.Name == "" {
			continue
		}
		if diff := cmp.Diff(server, got[i]); diff != "" {
			t.Fatalf("%s: an entry changed:\n%s\n%q", client.ID, diff, content)
		}
	}
}

// What is empty goes, and only that.
func TestTidy(t *testing.T) {
	for name, test := range map[string]struct {
		client, before, after string
		empty                 bool
	}{
		"made by us":     {"cursor", "{\n  \"mcpServers\": {}\n}\n", "{}\n", true},
		"others":         {"cursor", "{\n  \"a\": 1,\n  \"mcpServers\": {}\n}\n", "{\n  \"a\": 1\n}\n", false},
		"a comment":      {"cursor", "{\"mcpServers\": { /* none */ }}", "{\"mcpServers\": { /* none */ }}", false},
		"another server": {"cursor", `{"mcpServers": {"x": {}}}`, `{"mcpServers": {"x": {}}}`, false},
		"nested":         {"opencode", `{"mcp": {"servers": {}}}`, "{}", true},
		"TOML":           {"codex", "\n", "\n", true},
		"TOML of others": {"codex", "model = \"x\"\n", "model = \"x\"\n", false},
	} {
		c, err := Lookup(test.client)
		if err != nil {
			t.Fatal(err)
		}
		got, empty, err := c.Tidy([]byte(test.before))
		if err != nil || string(got) != test.after || empty != test.empty {
			t.Errorf("%s: %q, %v, %v; want %q, %v", name, got, empty, err, test.after, test.empty)
		}
	}
}
