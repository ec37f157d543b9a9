package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, text string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, FileName, text)
	return Load(dir)
}

func mustLoad(t *testing.T, text string) *Config {
	t.Helper()
	c, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c := mustLoad(t, "[backend]\ncommand = [\"node\", \"dist/index.js\", \"--port\", \"{port}\"]\n")
	want := &Config{
		Root: c.Root,
		Backend: Backend{
			Command: []string{"node", "dist/index.js", "--port", "{port}"}, Transport: HTTP, Path: "/mcp",
			Cwd: c.Root, Env: map[string]string{}, Era: EraAuto, Start: OnDemand,
			StartTimeout: 30 * time.Second, StopTimeout: 5 * time.Second, OnCrash: RestartOnCrash,
		},
		Build: Build{Timeout: 2 * time.Minute},
		Watch: Watch{
			Paths: []string{filepath.Join(c.Root, "dist")}, Ignore: []string{"**/*.map"},
			Settle: 300 * time.Millisecond,
		},
		Proxy: Proxy{
			RequestWait: 15 * time.Second, IdleExit: 30 * time.Minute, ToolPrefix: "dev_", Front: FrontBoth,
			MaxMessage: 10112 << 10, MaxRequest: 10112 << 10,
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestEverythingGiven(t *testing.T) {
	c := mustLoad(t, "\ufeff"+strings.ReplaceAll(`
[backend]
command   = "node 'my server.js' http --port {port}"
transport = "sse"
port      = 3001
path      = "/events"
health    = "/health?deep=1"
cwd       = "server"
env       = { LOG_LEVEL = "debug" }
env_file  = "config/.env"
era       = "legacy"
start     = "eager"
start_timeout = "1m"
stop_timeout  = "2s"
drain_timeout = "500ms"
on_crash  = "stay"

[build]
command = "tsc && cp -r assets dist"
watch   = ["npx", "tsc", "--watch"]
timeout = "90s"

[watch]
paths  = ["dist", "packages/core/dist", "/opt/shared"]
ignore = []
settle = "1s"
entry  = "dist/main.js"
poll   = "2s"

[proxy]
request_wait = "20s"
idle_exit    = "0s"
tool_prefix  = "proxy."
front        = "modern"
max_message  = 0
max_request  = "1 MB"
`, "\n", "\r\n"))
	in := func(path string) string { return filepath.Join(c.Root, filepath.FromSlash(path)) }
	want := &Config{
		Root: c.Root,
		Backend: Backend{
			Command: []string{"node", "my server.js", "http", "--port", "{port}"}, Transport: SSE, Port: 3001,
			Path: "/events", Health: "/health?deep=1", Cwd: in("server"),
			Env: map[string]string{"LOG_LEVEL": "debug"}, EnvFile: in("config/.env"), Era: EraLegacy,
			Start: Eager, StartTimeout: time.Minute, StopTimeout: 2 * time.Second,
			DrainTimeout: 500 * time.Millisecond, OnCrash: StayOnCrash,
		},
		Build: Build{
			Command: Command{Script: "tsc && cp -r assets dist"}, Watch: Command{Argv: []string{"npx", "tsc", "--watch"}},
			Timeout: 90 * time.Second,
		},
		Watch: Watch{
			Paths:  []string{in("dist"), in("packages/core/dist"), filepath.FromSlash("/opt/shared")},
			Ignore: []string{}, Settle: time.Second, Entry: in("dist/main.js"), Poll: 2 * time.Second,
		},
		Proxy: Proxy{
			RequestWait: 20 * time.Second, ToolPrefix: "proxy.", Front: FrontModern, MaxRequest: 1e6,
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	for command, words := range map[*Command]string{&c.Build.Command: "tsc && cp -r assets dist", &c.Build.Watch: "npx tsc --watch"} {
		if !command.Configured() || command.String() != words {
			t.Errorf("build: %v %q", command.Configured(), command)
		}
	}
	if (Command{}).Configured() {
		t.Error("no command counts as one")
	}
}

const ok = "[backend]\ncommand = \"node x.js {port}\"\n"

func TestFaults(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown key", "[backend]\ncommand = \"a {port}\"\n\n\n\n\ncomand = 1\n",
			"devproxy.toml:7: backend.comand: unknown key (did you mean command?)"},
		{"key spelled otherwise", ok + "startTimeout = \"1s\"\n",
			"devproxy.toml:3: backend.startTimeout: unknown key (did you mean start_timeout?)"},
		{"key of another table", ok + "settle = \"1s\"\n",
			"devproxy.toml:3: backend.settle: unknown key (it belongs into [watch])"},
		{"strange key", "[build]\ncolour = 1\n" + ok,
			"devproxy.toml:2: build.colour: unknown key ([build] has command, watch, timeout)"},
		{"unknown table", ok + "[biuld]\ncommand = \"x\"\n",
			"devproxy.toml:3: biuld: unknown table (did you mean [build]?)"},
		{"strange table", ok + "[logging.file]\nx = 1\n",
			"devproxy.toml:3: logging: unknown table (there are [backend], [build], [watch], [proxy])"},
		{"key at the top", "command = \"node\"\n" + ok,
			"devproxy.toml:1: command: unknown key at the top of the file (it belongs into [backend])"},
		{"array of tables", ok + "[[watch]]\npaths = []\n",
			"devproxy.toml:3: watch: must be a table: write [watch] on a line of its own"},
		{"no TOML", "[backend]\ncommand = node\n", "devproxy.toml:2: is no valid TOML: expected keyword \"nan\""},
		{"key given twice", ok + "cwd = \"a\"\ncwd = \"b\"\n",
			"devproxy.toml:4: backend.cwd: is no valid TOML: key cwd is already defined"},

		{"no command", "[watch]\npaths = [\"out\"]\n",
			`devproxy.toml: backend.command: is required: the program that starts your server and its arguments, such as ["node", "dist/index.js"]`},
		{"no command in the table", "\n[backend]\ntransport = \"stdio\"\n",
			`devproxy.toml:2: backend.command: is required: the program that starts your server and its arguments, such as ["node", "dist/index.js"]`},
		{"empty file", "", `devproxy.toml: backend.command: is required: the program that starts your server and its arguments, such as ["node", "dist/index.js"]`},
		{"empty command", "[backend]\ncommand = []\n", "devproxy.toml:2: backend.command: must name a program"},
		{"blank command", "[backend]\ncommand = \" \"\n", "devproxy.toml:2: backend.command: must name a program"},
		{"command of numbers", "[backend]\ncommand = [\"node\",\n  \"x\",\n  3]\n",
			"devproxy.toml:4: backend.command[2]: must be a string, not the number 3"},
		{"command a number", "[backend]\ncommand = 3\n",
			"devproxy.toml:2: backend.command: must be a string or an array of strings, not the number 3"},
		{"command with a pipe", "[backend]\ncommand = \"a | b\"\n",
			"devproxy.toml:2: backend.command: `|` is not a valid word: a command given as one string is split into words but not run by a shell; if you need one, write [\"sh\", \"-c\", \"…\"]"},
		{"command with a variable", "[backend]\ncommand = \"$HOME/x\"\n",
			"devproxy.toml:2: backend.command: variables other than $PORT are not expanded: a command given as one string is split into words but not run by a shell; if you need one, write [\"sh\", \"-c\", \"…\"]"},

		{"transport", ok + "transport = \"htpp\"\n",
			`devproxy.toml:3: backend.transport: "htpp" is not one of "http", "stdio", "sse"`},
		{"transport of another type", ok + "transport = true\n",
			`devproxy.toml:3: backend.transport: must be one of "http", "stdio", "sse", not the boolean true`},
		{"no port", "[backend]\ncommand = [\"node\", \"x.js\"]\n",
			`devproxy.toml:1: backend.port: is required with transport = "http", the default (say transport = "stdio" if the server speaks on standard input and output): the port that the server listens on; or put {port} into command; or say port = 0 if the server listens on $PORT`},
		{"no port, transport given", "[backend]\ncommand = [\"node\", \"x.js\"]\ntransport = \"sse\"\n",
			`devproxy.toml:1: backend.port: is required with transport = "sse": the port that the server listens on; or put {port} into command; or say port = 0 if the server listens on $PORT`},
		{"port out of range", ok + "port = 65536\n", "devproxy.toml:3: backend.port: 65536 is not between 0 and 65535"},
		{"port in quotes", ok + "port = \"3001\"\n",
			"devproxy.toml:3: backend.port: must be a whole number, not a string"},
		{"port with stdio", ok + "transport = \"stdio\"\n",
			`devproxy.toml:2: backend.command: {port} has no meaning with transport = "stdio"; say transport = "http" if the server listens on a port`},
		{"port in env", ok + "[backend.env]\nA = \"b\"\nPORT = \"1\"\n",
			"devproxy.toml:5: backend.env.PORT: say it as port in [backend]; it is passed on as $PORT"},
		{"path", ok + "path = \"mcp\"\n",
			`devproxy.toml:3: backend.path: "mcp" must be a path that starts with one slash, such as "/mcp"`},
		{"path empty", ok + "path = \"\"\n",
			`devproxy.toml:3: backend.path: "" must be a path that starts with one slash, such as "/mcp"`},
		{"health with host", ok + "health = \"//evil.example/\"\n",
			`devproxy.toml:3: backend.health: "//evil.example/" must be a path that starts with one slash, such as "/mcp"`},
		{"health with fragment", ok + "health = \"/a#b\"\n", `devproxy.toml:3: backend.health: "/a#b" cannot stand in a URL`},
		{"env", ok + "env = { A = \"x\", N = 3 }\n",
			"devproxy.toml:3: backend.env.N: must be a string: put the value in quotes"},
		{"env name", ok + "env = { \"A B\" = \"x\" }\n",
			"devproxy.toml:3: backend.env.A B: is no name for an environment variable"},
		{"cwd", ok + "cwd = \"\"\n", "devproxy.toml:3: backend.cwd: must not be empty"},
		{"home", ok + "env_file = \"~/.env\"\n",
			`devproxy.toml:3: backend.env_file: "~/.env": ~ is not expanded; write the path from the project's root or from /`},
		{"duration without unit", ok + "start_timeout = \"30\"\n",
			`devproxy.toml:3: backend.start_timeout: "30" is no duration; write it like "300ms", "15s" or "2m"`},
		{"duration a number", ok + "start_timeout = 30\n",
			`devproxy.toml:3: backend.start_timeout: must be a duration in quotes such as "300ms" or "15s", not the number 30`},
		{"no time to start", ok + "start_timeout = \"0s\"\n", "devproxy.toml:3: backend.start_timeout: must be longer than 0s"},
		{"negative", ok + "[proxy]\nrequest_wait = \"-1s\"\n", "devproxy.toml:4: proxy.request_wait: must not be negative"},
		{"poll too often", ok + "[watch]\npoll = \"1ms\"\n", "devproxy.toml:4: watch.poll: must be 0s or at least 100ms"},
		{"build", ok + "[build]\ncommand = \"\"\n",
			"devproxy.toml:4: build.command: must not be empty; leave the key out if there is nothing to run"},
		{"build watcher", ok + "[build]\nwatch = []\n", "devproxy.toml:4: build.watch: must name a program"},
		{"paths", ok + "[watch]\npaths = \"dist\"\n",
			"devproxy.toml:4: watch.paths: must be an array of strings, not a string"},
		{"glob", ok + "[watch]\nignore = [\n  \"*.map\",\n  \"a[\",\n]\n",
			`devproxy.toml:6: watch.ignore[1]: "a[" is no valid pattern`},
		{"size", ok + "[proxy]\nmax_message = \"10 potatoes\"\n",
			`devproxy.toml:4: proxy.max_message: "10 potatoes" is no size; write it like "10112KiB", "10MiB" or 1048576`},
		{"size too small", ok + "[proxy]\nmax_request = 10\n",
			"devproxy.toml:4: proxy.max_request: must be 0 (no limit) or between 1024 and 2147483647 bytes"},
		{"size too large", ok + "[proxy]\nmax_request = \"99999999999GiB\"\n",
			"devproxy.toml:4: proxy.max_request: must be 0 (no limit) or between 1024 and 2147483647 bytes"},
		{"tool prefix", ok + "[proxy]\ntool_prefix = \"a b\"\n",
			`devproxy.toml:4: proxy.tool_prefix: "a b": tool names consist of letters, digits, _, - and ., and a prefix has 32 at most`},
		{"several", "[backend]\ncommand = 1\nera = \"old\"\n[watch]\npath = [\"x\"]\n",
			"devproxy.toml:2: backend.command: must be a string or an array of strings, not the number 1\n" +
				`devproxy.toml:3: backend.era: "old" is not one of "auto", "legacy", "modern"` + "\n" +
				"devproxy.toml:5: watch.path: unknown key (did you mean paths?)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := load(t, test.text)
			if err == nil {
				t.Fatalf("loaded: %+v", c)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%T holds no *Error", err)
			}
		})
	}
}

func TestNoFile(t *testing.T) {
	_, err := Load(t.TempDir())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

// A file of whatever size costs no more than its limit, and no more time than a
// start has.
func TestFileLimits(t *testing.T) {
	_, err := load(t, strings.Repeat("#\n", maxConfig))
	if large, is := errors.AsType[*FileTooLargeError](err); !is || filepath.Base(large.Path) != FileName || large.Limit != maxConfig {
		t.Errorf("a huge configuration: %v", err)
	}
	if _, err := load(t, ok+strings.Repeat("#", maxConfig-len(ok))); err != nil {
		t.Errorf("one as large as allowed: %v", err)
	}
	const faults = 10_000
	if _, err := load(t, ok+strings.Repeat("[[a]]\n", faults)); err == nil || !strings.HasPrefix(err.Error(), FileName+":3: a:") {
		t.Errorf("one with %d faults: %.200v", faults, err)
	}

	c := mustLoad(t, ok+"env_file = \".env\"\n")
	write(t, c.Root, ".env", "A=1\n"+strings.Repeat("#\n", maxEnvFile))
	_, err = c.LoadEnv()
	if large, is := errors.AsType[*FileTooLargeError](err); !is || filepath.Base(large.Path) != ".env" || !strings.Contains(err.Error(), "env_file of [backend]") {
		t.Errorf("a huge env_file: %v", err)
	}
	// The one at the start is the worst for who looks for it from the end.
	write(t, c.Root, ".env", "A=\"x\ny\"\nno value\n"+strings.Repeat("A=1\n", maxEnvFile/5))
	if _, err := c.LoadEnv(); err == nil || !strings.HasPrefix(err.Error(), ".env:3: ") {
		t.Errorf("one with a fault: %v", err)
	}
}

func TestPortDefaults(t *testing.T) {
	for _, text := range []string{
		"command = [\"node\", \"--port={port}\"]",
		"command = [\"sh\", \"-c\", \"exec node --port $PORT\"]",
		"command = [\"sh\", \"-c\", \"exec node --port ${PORT:-1}\"]",
		"command = \"node --port $PORT\"",
		"command = \"node x.js\"\nenv = { LISTEN = \"127.0.0.1:{port}\" }",
		"command = \"node x.js\"\nport = 0",
		"command = \"node x.js\"\ntransport = \"stdio\"",
	} {
		c, err := load(t, "[backend]\n"+text+"\n")
		if err != nil || c.Backend.Port != 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
	c := mustLoad(t, "[backend]\ncommand = \"node\"\nport = 80\ntransport = \"sse\"\n")
	if c.Backend.Path != "/sse" {
		t.Errorf("endpoint of sse: %q", c.Backend.Path)
	}
}

func TestSplitWords(t *testing.T) {
	tests := []struct {
		line string
		want []string
	}{
		{`node dist/index.js`, []string{"node", "dist/index.js"}},
		{`node "a b" 'c d' e\ f ""`, []string{"node", "a b", "c d", "e f", ""}},
		{`a"b"'c'd`, []string{"abcd"}},
		{`"\n \" \\ \$x"`, []string{`\n " \ $x`}},
		{`'\n'`, []string{`\n`}},
		{`x --port $PORT "--p=${PORT}" {port}`, []string{"x", "--port", "{port}", "--p={port}", "{port}"}},
		{`x {a,b} *.js a~b '{"k":[1]}' --x=1 # note`, []string{"x", "{a,b}", "*.js", "a~b", `{"k":[1]}`, "--x=1"}},
		{"a\\\nb", []string{"ab"}},
	}
	for _, test := range tests {
		got, err := SplitWords(test.line)
		if err != nil {
			t.Errorf("%s: %v", test.line, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.line, diff)
		}
	}
	for _, line := range []string{
		`a $(b)`, "a `b`", `a; b`, `a && b`, `a > b`, `a 'b`, `a "b`, `~/x`, `$HOME`, `${PORT:-3}`, `${#PORT}`,
		`"$(x)"`, `$((1))`, `$'a'`, `a &`, `${!PORT}`, `${PORT[0]}`,
	} {
		if got, err := SplitWords(line); err == nil {
			t.Errorf("%s: %q, want an error", line, got)
		}
	}
}

// A variable in front of the command is named, with where it belongs.
func TestAssignmentInFront(t *testing.T) {
	for line, want := range map[string]string{"PORT=$PORT node x.js": "PORT=… in front", "FOO='1 2' node": "say FOO in [backend.env]"} {
		if got, err := SplitCommand(line); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "{port}") {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}

func TestLoadEnv(t *testing.T) {
	c := mustLoad(t, ok+"env_file = \".env\"\n")
	if _, err := c.LoadEnv(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "env_file") {
		t.Errorf("no file: %v", err)
	}

	write(t, c.Root, ".env", "# keys\nexport A='x y'\nB=\"l1\nl2\"\nC=${A}z\n")
	env, err := c.LoadEnv()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A": "x y", "B": "l1\nl2", "C": "x yz"}, env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}

	tests := []struct{ text, want string }{
		{"A=1\nB=\"x\ny\"\nno value\nC=hunter2\n", ".env:4: backend.env_file: must have the form NAME=value"},
		{"A=1\nSECRET=\"hunter2\n", ".env:2: backend.env_file: a quote is opened here and never closed"},
		{"A='1\n2\\'\n3' # x\r\nB: \"x\"\nSECRET='hunter2\nC=\"1\"\n", ".env:5: backend.env_file: a quote is opened here and never closed"},
		{"A=1\nhunter2", ".env: backend.env_file: \"\" is no name for an environment variable, or its value no text"},
		{"A B=hunter2\n", `.env: backend.env_file: "A B" is no name for an environment variable, or its value no text`},
	}
	for _, test := range tests {
		write(t, c.Root, ".env", test.text)
		_, err := c.LoadEnv()
		if err == nil || err.Error() != test.want {
			t.Errorf("%q: %v, want %s", test.text, err, test.want)
		}
	}

	if env, err := mustLoad(t, ok).LoadEnv(); env != nil || err != nil {
		t.Errorf("without env_file: %v %v", env, err)
	}
}

func TestDeriveEntry(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"argument", `command = ["node", "dist/index.js", "dist/other.js", "{port}"]`, "dist/index.js"},
		{"program", `command = ["./dist/server", "{port}"]`, "dist/server"},
		{"without extension", `command = ["node", "dist/cli", "{port}"]`, "dist/cli"},
		{"relative to cwd", "command = [\"node\", \"../dist/a.js\", \"{port}\"]\ncwd = \"server\"", "dist/a.js"},
		{"outside", `command = ["node", "src/index.js", "{port}"]`, ""},
		{"climbing out", `command = ["node", "dist/../src/index.js", "{port}"]`, ""},
		{"sibling with the same beginning", `command = ["node", "dist2/index.js", "{port}"]`, ""},
		{"explicit", "command = [\"node\", \"dist/index.js\", \"{port}\"]\n[watch]\nentry = \"build/ready\"", "build/ready"},
		{"explicit, nothing else", "command = [\"npm\", \"start\", \"$PORT\"]\n[watch]\nentry = \"dist/x.js\"", "dist/x.js"},
		{"whole project: subcommand", "command = [\"npm\", \"run\", \"dev\", \"{port}\"]\n[watch]\npaths = [\".\"]", ""},
		{"whole project: file", "command = [\"node\", \"--inspect\", \"main.mjs\", \"{port}\"]\n[watch]\npaths = [\".\"]", "main.mjs"},
		{"whole project: address", "command = [\"serve\", \"127.0.0.1:{port}\", \"http://x/a.js\", \"127.0.0.1:80\"]\n[watch]\npaths = [\".\"]", ""},
		{"whole project: directory", "command = [\"go\", \"run\", \"./cmd/server\", \"{port}\"]\n[watch]\npaths = [\".\"]", ""},
		{"whole project: script without extension", "command = [\"ruby\", \"serve\", \"{port}\"]\n[watch]\npaths = [\".\"]", "serve"},
		{"one watched file", "command = [\"node\", \"bundle.js\", \"{port}\"]\n[watch]\npaths = [\"bundle.js\"]", "bundle.js"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "cmd/server/main.go", "package main")
			write(t, dir, "serve", "#!/usr/bin/ruby")
			write(t, dir, "bundle.js", "x")
			write(t, dir, FileName, "[backend]\n"+test.text+"\n")
			c, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if test.want != "" {
				want = filepath.Join(c.Root, filepath.FromSlash(test.want))
			}
			if got := c.DeriveEntry(); got != want {
				t.Errorf("entry %q, want %q", got, want)
			}
		})
	}
}

// TestKeysCoverFields holds the table and the structs together: each key has a
// field, each field a key, and setting a key changes its field and no other.
func TestKeysCoverFields(t *testing.T) {
	samples := map[string]any{
		typeString: "/sample", typeDuration: "7s", typeSize: int64(4096), typePort: int64(7),
		typeStrings: []any{"a"}, typeCommand: []any{"a"}, typeEnv: map[string]any{"A": "b"},
	}
	keys := map[string]Key{}
	for _, key := range Keys() {
		keys[key.FullName()] = key
	}
	fields := map[string]bool{}
	for _, section := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		table := section.Tag.Get("toml")
		if table == "" {
			continue
		}
		for _, field := range reflect.VisibleFields(section.Type) {
			full := table + "." + field.Tag.Get("toml")
			fields[full] = true
			key, ok := keys[full]
			if !ok {
				t.Errorf("%s.%s: no key %s", section.Name, field.Name, full)
				continue
			}
			sample, ok := samples[key.Type]
			if !ok {
				sample = lastChoice(key.Type)
			}
			if key.Name == "tool_prefix" {
				sample = "sample"
			}
			got, want := &Config{}, &Config{}
			if err := key.set(got, sample); err != nil {
				t.Errorf("%s: %v", full, err)
			}
			value := reflect.ValueOf(got).Elem().FieldByIndex(section.Index).FieldByIndex(field.Index)
			if value.IsZero() {
				t.Errorf("%s: setting it left %s.%s untouched", full, section.Name, field.Name)
			}
			reflect.ValueOf(want).Elem().FieldByIndex(section.Index).FieldByIndex(field.Index).Set(value)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: setting it changed more than its field (-want +got):\n%s", full, diff)
			}
		}
	}
	for full := range keys {
		if !fields[full] {
			t.Errorf("key %s has no field", full)
		}
	}
}

func lastChoice(words string) string {
	choices := strings.Split(words, ", ")
	return strings.Trim(choices[len(choices)-1], `"`)
}

func TestReference(t *testing.T) {
	text := Reference()
	for _, key := range Keys() {
		row := "| `" + key.Name + "` | "
		_, section, found := strings.Cut(text, "## `["+key.Table+"]`")
		if !found {
			t.Fatalf("no section for [%s]", key.Table)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		if strings.Count(section, row) != 1 {
			t.Errorf("[%s] has %d rows for %s", key.Table, strings.Count(section, row), key.Name)
		}
		if key.Default != "" && !strings.Contains(section, "`"+key.Default+"`") {
			t.Errorf("%s: default %s is not told", key.FullName(), key.Default)
		}
		if key.Doc == "" || strings.HasSuffix(key.Doc, ".") {
			t.Errorf("%s: doc %q", key.FullName(), key.Doc)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 5 {
			t.Errorf("no row of four cells: %s", line)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ok)
	f.Add("[backend]\ncommand = \"a $PORT 'x\"\nenv = { A = [1, {b = 2}] }\n[[watch]]\n")
	f.Add("a.b.c = 1\n[watch]\npaths = [[\"x\"], 3]\nignore = [\"[\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("/project", []byte(text))
		if err == nil && (len(c.Backend.Command) == 0 || !filepath.IsAbs(c.Backend.Cwd)) {
			t.Errorf("accepted without command or directory: %+v", c)
		}
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%T: %v", err, err)
			}
		}
	})
}
