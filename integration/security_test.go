//go:build unix

package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// Nobody but this user's processes can reach the daemon or a shim: neither
// listens on anything that has an address.
func TestNothingListensOnTheNetwork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whose a socket is")
	}
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-http"))
	c := p.raw(t)
	c.initialize(t)
	c.echo(t, 1, "x") // the backend runs, and there is a connection to it
	ours := append(p.daemons(t), p.liveNamed(t, filepath.Join(binDir, "devproxy-shim"))...)
	if len(ours) != 2 {
		t.Fatalf("there are %d processes of ours, want a daemon and a shim", len(ours))
	}
	for _, process := range ours {
		open := networkSockets(t, process.PID)
		for _, socket := range descriptors(t, process.PID) {
			if address, listens := open[socket]; listens {
				t.Errorf("process %d (%s) listens on %s", process.PID, process.Command, address)
			}
		}
	}
}

// networkSockets returns the sockets that a stranger could send to, where a
// process lives: TCP sockets that listen, and all others that are not TCP.
func networkSockets(t testing.TB, pid int) map[string]string {
	t.Helper()
	const listening = "0A"
	found := map[string]string{}
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, protocol))
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6 here
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			const address, state, inode = 1, 3, 9
			fields := strings.Fields(line)
			if len(fields) > inode && (fields[state] == listening || !strings.HasPrefix(protocol, "tcp")) {
				found["socket:["+fields[inode]+"]"] = protocol + " " + fields[address]
			}
		}
	}
	return found
}

// descriptors returns what the open descriptors of a process are.
func descriptors(t testing.TB, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil {
			open = append(open, target)
		}
	}
	return open
}

// A proxy that the environment names has no business between client, daemon and
// backend, whatever it is called.
func TestProxyVariablesDoNotMatter(t *testing.T) {
	t.Parallel()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = proxy.Close() })
	var proxies []string
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "grpc_proxy"} {
		value := "=http://" + proxy.Addr().String()
		proxies = append(proxies, name+value, strings.ToUpper(name)+value)
	}
	p := newProject(t)
	p.use(t, backendNamed(t, "go-http"), `health = "/health"`)
	c := newRawClient(t, append(p.clientEnv(), proxies...), p.shim(t)...)
	c.initialize(t)
	c.echo(t, 1, "x")
	// The daemon has them, and so has its backend.
	if got := c.call(t, 2, "env", `{"name":"GRPC_PROXY"}`); got != "http://"+proxy.Addr().String() {
		t.Errorf("the backend's GRPC_PROXY is %q", got)
	}
	if o := p.runIn(t, p.root, append(p.terminalEnv(), proxies...), "devproxyctl", "restart"); o.code != 0 {
		t.Errorf("devproxyctl restart: %v", o)
	}
	c.echo(t, 3, "x")
	if n := asked.Load(); n != 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

// A project may lie anywhere a file system can have it.
func TestOddProjectPaths(t *testing.T) {
	long := strings.Repeat("p", 200)
	for name, path := range map[string]string{
		"200 characters":  long,
		"1000 characters": strings.Repeat(long+"/", 5),
		"spaces, quotes":  `  two  spaces, 'quotes' and "more" `,
		"unicode":         "ünï 漢字 😀",
		"newline":         "two\nlines\t\x1b[2J",
		"placeholders":    "a{port}b $PORT %PORT% ${HOME} $(touch x) `x`",
		"option":          "--project",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.root = filepath.Join(p.base, path)
			if err := os.MkdirAll(p.root, 0o700); err != nil {
				t.Fatal(err)
			}
			p.use(t, backendNamed(t, "go-http"))
			env := append(p.terminalEnv(), "PWD="+p.root)
			if o := p.runIn(t, p.root, env, "devproxyd", "start"); o.code != 0 || strings.Contains(o.stdout, "\x1b[2J") {
				t.Fatalf("devproxyd start: %v", o)
			}
			c := p.raw(t)
			c.initialize(t)
			c.echo(t, 1, "x")
			if got := c.call(t, 2, "env", `{"name":"PWD"}`); got != p.root {
				t.Errorf("the backend's PWD is %q, want %q", got, p.root)
			}
			if s := p.status(t); s.Daemon.ProjectRoot != p.root || len(s.Sessions) != 1 {
				t.Errorf("the status is %+v", s)
			}
			p.rebuild(t, "fresh")
			p.awaitStarts(t, 2)
			p.awaitState(t, "running")
			c.echo(t, 3, "x")
		})
	}
}

// Whatever leads to a project's folder leads to its daemon.
func TestPathsToOneProject(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	c := p.raw(t)
	c.initialize(t)
	c.echo(t, 1, "x")
	daemon := p.status(t).Daemon
	link, mount := filepath.Join(p.base, "link"), filepath.Join(p.base, "mount")
	if err := errors.Join(os.Symlink(p.root, link), os.Mkdir(mount, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, link + "/", p.root + "//", p.root + "/dist/..", p.root + "/../p/.", filepath.Join("..", "p")} {
		if got := parseStatus(t, p.ctl(t, "status", "--json", "--project", path)).Daemon; got.PID != daemon.PID {
			t.Errorf("%s leads to %+v, want %+v", path, got, daemon)
		}
		other := newRawClient(t, p.clientEnv(), "/bin/sh", "-c", fmt.Sprintf("cd %s && exec %s --project %s", p.root, program(t, "devproxy-shim"), path))
		other.initialize(t)
		other.echo(t, 1, path)
	}
	// A bind mount is the one that no path leads out of.
	bind := []string{"unshare", "-m", "/bin/sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", p.root, mount}
	if output, err := exec.Command(bind[0], append(bind[1:], "true")...).CombinedOutput(); err != nil {
		t.Logf("no bind mounts here: %v, %s", err, output)
	} else {
		other := newRawClient(t, p.clientEnv(), append(bind, program(t, "devproxy-shim"), "--project", mount)...)
		other.initialize(t)
		other.echo(t, 1, "through a mount")
	}
	p.wantStarts(t, 1)
	if n := len(p.daemons(t)); n != 1 {
		t.Errorf("%d daemons run", n)
	}
}

// What lies in the state folder and could be somebody else's is not used, the
// person is told what is wrong with it, and it stays as it is.
func TestUnsafeStateIsRefused(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	p.startDaemon(t)
	state := filepath.Dir(p.status(t).Daemon.LogFile)
	p.ctl(t, "restart", "--env", "MODE=a")
	p.mustRun(t, "devproxyd", "restart") // which leaves what a successor needs
	p.mustRun(t, "devproxyd", "stop")
	folder := filepath.Join(p.base, "elsewhere")
	file := filepath.Join(folder, "file")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(file, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	inState := func(name string) string { return filepath.Join(state, name) }
	link := func(path, target string) func() error {
		return func() error { return errors.Join(os.Rename(path, path+".real"), os.Symlink(target, path)) }
	}
	unlink := func(path string) func() error {
		return func() error { return errors.Join(os.Remove(path), os.Rename(path+".real", path)) }
	}
	chmod := func(path string, mode os.FileMode) func() error { return func() error { return os.Chmod(path, mode) } }
	chown := func(path string, uid int) func() error { return func() error { return os.Chown(path, uid, -1) } }
	for _, test := range []struct {
		path, reason string
		spoil, mend  func() error
	}{
		{state, "a symbolic link", link(state, folder), unlink(state)},
		{state, "0750", chmod(state, 0o750), chmod(state, 0o700)},
		{state, "uid 65534", chown(state, nobody), chown(state, os.Getuid())},
		{inState("lock"), "a symbolic link", link(inState("lock"), file), unlink(inState("lock"))},
		{inState("daemon.log"), "a symbolic link", link(inState("daemon.log"), file), unlink(inState("daemon.log"))},
		{inState("snapshot.json"), "0644", chmod(inState("snapshot.json"), 0o644), chmod(inState("snapshot.json"), 0o600)},
		{inState("terminal-path.json"), "uid 65534", chown(inState("terminal-path.json"), nobody), chown(inState("terminal-path.json"), os.Getuid())},
	} {
		if strings.HasPrefix(test.reason, "uid") && os.Getuid() != 0 {
			continue // a file can be given away by root alone
		}
		if err := test.spoil(); err != nil {
			t.Fatal(err)
		}
		o := p.run(t, "devproxyd", "start")
		for _, want := range []string{test.path, test.reason, "not safe to use"} {
			if o.code == 0 || !strings.Contains(o.stderr, want) {
				t.Errorf("%s that is %s: %v, want %q in it", test.path, test.reason, o, want)
			}
		}
		c := p.raw(t)
		c.send(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"0"}}}`)
		if answer := c.awaitID(t, "1"); answer.Error == nil || !strings.Contains(answer.Error.Message, test.path) || !strings.Contains(answer.Error.Message, test.reason) {
			t.Errorf("%s that is %s: the client reads %s", test.path, test.reason, answer.line)
		}
		c.endInput(t)
		_ = c.awaitExit(t)
		if err := test.mend(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(folder)
	content, readErr := os.ReadFile(file)
	if err := errors.Join(err, readErr); err != nil || string(content) != "mine" || len(entries) != 1 {
		t.Errorf("behind the links are %v, and %q, %v", entries, content, err)
	}
	p.startDaemon(t)
}

// The secrets of a project stand in its environment, and nowhere that a person
// or a model looks without asking for them.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	secrets := map[string]string{
		"API_TOKEN":     "tok-raw-12345678",
		"DB_PASSWORD":   `p&ss/w+rd "q" 99`,
		"SIGNING_KEY":   "-----BEGIN KEY-----\nMIIEfirstLineOfIt\nMIIEsecondLineOfIt\n-----END KEY-----",
		"OUTER_SECRET":  "inner-and-outer-77",
		"INNER_SECRET":  "inner-and",
		"SESSION_TOKEN": "pa$$ ünï-code-31",
	}
	var file bytes.Buffer
	for name, value := range secrets {
		fmt.Fprintf(&file, "%s='%s'\n", name, value)
	}
	p.write(t, ".env", file.String())
	forms := map[string]bool{"of-the-command-line": true}
	script := ""
	for name, value := range secrets {
		quoted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		all := []string{
			string(quoted[1 : len(quoted)-1]), url.QueryEscape(value), url.PathEscape(value),
			base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
		}
		for line := range strings.SplitSeq(value, "\n") {
			if !strings.HasPrefix(line, "-----") {
				all = append(all, line)
			}
		}
		for _, form := range all {
			forms[form] = true
			script += fmt.Sprintf("printf '%%s\\n' 'said: %s.' >&2\n", strings.ReplaceAll(form, "'", `'\''`))
		}
		script += fmt.Sprintf("printf '%%s\\n' \"%s has $%s.\" >&2\n", name, name)
	}
	p.write(t, "dist/say.sh", script)
	p.configure(t, fmt.Sprintf("[backend]\ncommand = [%q, %q, %q, %q]\ntransport = \"stdio\"\nenv_file = \".env\"\n[build]\ncommand = %q\n",
		"/bin/sh", "dist/fail.sh", "--api-key", "of-the-command-line", "sh dist/say.sh 2>&1; exit 4"))
	p.write(t, "dist/fail.sh", ". dist/say.sh\nexit 3\n")

	c := p.raw(t)
	c.initialize(t)
	seen := map[string]string{}
	c.send(t, `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}`)
	seen["a JSON-RPC error"] = c.awaitID(t, "1").line
	seen["a call"] = c.call(t, 2, "echo", `{"text":"x"}`)
	seen["dev_server_status"] = c.call(t, 3, "dev_server_status", `{}`)
	seen["dev_logs"] = c.call(t, 4, "dev_logs", `{"lines":500}`)
	seen["dev_restart"] = c.call(t, 5, "dev_restart", `{}`)
	seen["dev_rebuild_and_restart"] = c.call(t, 6, "dev_rebuild_and_restart", `{}`)
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"logs"}, {"logs", "--json"}, {"start"}, {"restart", "--rebuild"}} {
		o := p.run(t, "devproxyctl", args...)
		seen["devproxyctl "+strings.Join(args, " ")] = o.stdout + o.stderr
	}
	for path, content := range p.stateFiles(t) {
		// The record names the process with its command line, as the system does.
		if filepath.Base(path) != "snapshot.json" && filepath.Base(path) != "backend.json" {
			seen[path] = content
		}
	}
	for where, text := range seen {
		for form := range forms {
			if form != "" && strings.Contains(text, form) {
				t.Errorf("%s has %q:\n%s", where, form, text)
			}
		}
	}
	for _, where := range []string{"a JSON-RPC error", "a call", "dev_server_status", "dev_logs", "dev_rebuild_and_restart",
		"devproxyctl status --json", "devproxyctl logs", "devproxyctl restart --rebuild"} {
		if !strings.Contains(seen[where], "***") {
			t.Errorf("%s has nothing to mask: %s", where, seen[where])
		}
	}
	// They were said, and who asks for them sees them.
	shown := p.ctl(t, "logs", "-n", "0", "--show-secrets")
	for form := range forms {
		if form != "of-the-command-line" && !strings.Contains(shown, form) {
			t.Errorf("logs --show-secrets lacks %q", form)
		}
	}
	if !slices.ContainsFunc(strings.Split(p.ctl(t, "status", "--show-secrets"), "\n"), func(line string) bool {
		return strings.Contains(line, "of-the-command-line")
	}) {
		t.Error("status --show-secrets lacks the command line")
	}
}
