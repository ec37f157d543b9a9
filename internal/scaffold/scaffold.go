package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/config"
)

// Source is what a configuration is made from.
type Source struct {
	// Files is the project's folder.
	Files fs.FS
	// Root is its path, as it may stand in a client's configuration.
	Root string
	// OS is runtime.GOOS.
	OS string
	// Getenv gives the value of an environment variable.
	Getenv func(string) string
	// Command is the command that a person gave; empty if none was given.
	Command string
}

// program is the name of the file of a program.
func (s Source) program(name string) string {
	if s.OS == "windows" {
		return name + ".exe"
	}
	return name
}

// Fact is something that was found.
type Fact struct{ Where, What string }

// Choice is something that was decided.
type Choice struct{ Key, Value, Why string }

// Step is something to do next.
type Step struct{ Command, Why string }

// Variable is an environment variable of the server.
type Variable struct{ Name, Value string }

// Plan is a configuration in the making.
type Plan struct {
	// Found, Checks and Next are for a person: what was found, what to look at,
	// and what to do next.
	Found  []Fact
	Checks []string
	Next   []Step
	// Replaces is the entry of a client that starts the server itself, and which
	// the shim is to replace. Its Client is empty if there is none.
	Replaces struct{ Client, Name string }

	launch
	// fromClient is the entry that the command was taken from; empty if none was.
	fromClient   string
	transportWhy string
	portWhy      string
	buildWhy     string
}

// launch is a way to start the server, and what comes with it.
type launch struct {
	command []string
	why     string
	// others are the commands of what could have been taken as well, and otherwise
	// says what that is.
	others    []string
	otherwise string
	// script is the name of the script that the command comes from.
	script    string
	cwd       string
	env       []Variable
	transport config.Transport
	// port is 0 where a free one will do; portGiven says that it has to be said.
	port         int
	portGiven    bool
	path, health string
	build        string
	buildTimeout string
	// builder is a command that builds continuously, for a comment.
	builder string
	// watch is what to watch, where the command alone does not say it.
	watch       []string
	watchWhy    string
	entry       string
	requestWait string
}

// NothingError says that nothing was recognised.
type NothingError struct {
	// Looked says what was looked for and what came of it.
	Looked []Fact
}

func (e *NothingError) Error() string {
	return "nothing here says how the server is started"
}

// errCommand marks a command that a person gave and that is none.
var errCommand = errors.New("--command")

// Make decides on a configuration. The error is a *NothingError if the project
// does not say how its server is started.
func Make(src Source) (*Plan, error) {
	look := survey(src)
	p := &Plan{Found: look.found()}
	chosen, err := p.choose(src, look)
	if err != nil {
		return nil, err
	}
	if chosen == nil {
		return nil, &NothingError{Looked: look.looked()}
	}
	p.launch = *chosen
	if len(p.others) > 0 {
		p.check("there is more than one %s, and one was taken: for another say --command %q", p.otherwise, strings.Join(p.others, `" or "`))
	}
	p.decideTransport(src, look)
	target := look.target(src, p.command, p.cwd)
	p.decideBuild(src, look, target)
	p.decideWatch(src, target)
	p.decideNext(src, look, target)
	return p, nil
}

// choose weighs what there is to start the server with.
func (p *Plan) choose(src Source, look *findings) (*launch, error) {
	if src.Command != "" {
		words, err := config.SplitCommand(src.Command)
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", errCommand, src.Command, err)
		}
		if len(words) == 0 {
			return nil, fmt.Errorf("%w is empty", errCommand)
		}
		return &launch{command: words, why: "as you said"}, nil
	}
	if l := p.fromDevProxy(src, look); l != nil {
		return l, nil
	}
	if l := p.fromClients(src, look); l != nil {
		return l, nil
	}
	return p.fromProject(src, look), nil
}

// fromProject takes what the project's own files say; one that depends on an MCP
// SDK comes first.
func (p *Plan) fromProject(src Source, look *findings) *launch {
	wantHTTP := look.url != nil
	type candidate struct {
		launch *launch
		sdk    bool
	}
	var candidates []candidate
	add := func(l *launch, sdk bool) {
		if l != nil {
			candidates = append(candidates, candidate{l, sdk})
		}
	}
	if look.node != nil {
		add(look.node.launch(src, wantHTTP), look.node.sdk())
	}
	if look.python != nil {
		add(look.python.launch(src), look.python.sdk)
	}
	if look.golang != nil {
		add(look.golang.launch(src), look.golang.sdk)
	}
	if look.cargo != nil {
		add(look.cargo.launch(src), look.cargo.sdk)
	}
	if len(candidates) == 0 {
		return nil
	}
	best := max(0, slices.IndexFunc(candidates, func(c candidate) bool { return c.sdk }))
	if !candidates[best].sdk {
		p.check("nothing here depends on an MCP SDK: is this the server?")
	}
	return candidates[best].launch
}

func (p *Plan) check(format string, args ...any) {
	p.Checks = append(p.Checks, fmt.Sprintf(format, args...))
}

// decideTransport looks for what says that the server listens on a port; where
// nothing does, it speaks on standard input and output.
func (p *Plan) decideTransport(src Source, look *findings) {
	evidence := evidenceOf(p.command, p.script, p.env)
	switch {
	case p.transport != "":
		p.transportWhy = p.why
	case evidence.transport != "":
		p.transport, p.transportWhy = evidence.transport, evidence.why
	case p.fromClient != "":
		p.transport, p.transportWhy = config.Stdio, "so the client speaks with "+p.fromClient
	case look.url != nil:
		p.transport = look.url.transport
		if p.Replaces.Client == "" {
			p.replaces(look.url.client, look.url.name)
		}
		p.transportWhy = fmt.Sprintf("entry %q of %s is a URL", look.url.name, look.url.file)
		p.check("transport and port are those of entry %q of %s: if that is another server, say transport = \"stdio\"", look.url.name, look.url.file)
		if len(look.otherURLs) > 0 {
			p.check("there are other servers on this machine, and the first was taken: %s", strings.Join(look.otherURLs, ", "))
		}
	default:
		p.transportOf(look.signs(src, p.command, p.cwd))
	}
	if p.transport == config.Stdio {
		return
	}
	if look.url != nil && p.path == "" {
		p.path = look.url.path
	}
	p.decidePort(look)
}

// transportOf goes by what the server's sources have. One that can do both speaks on
// standard input and output unless it is told.
func (p *Plan) transportOf(found signs) {
	listens, transport := found.http, config.HTTP
	if listens.What == "" {
		listens, transport = found.sse, config.SSE
	}
	switch stdio := found.stdio; {
	case listens.What == "":
		p.transport, p.transportWhy = config.Stdio, "nothing says that it listens on a port"
	case stdio.What != "":
		p.transport, p.transportWhy = config.Stdio, fmt.Sprintf("%s has %s", stdio.Where, stdio.What)
		p.check("%s has %s too: if the command starts that, say transport = %q", listens.Where, listens.What, transport)
	default:
		p.transport, p.transportWhy = transport, fmt.Sprintf("%s has %s", listens.Where, listens.What)
	}
}

// decidePort has devproxy choose a port at each start where the server can be
// told one: so nobody has to fight for it.
func (p *Plan) decidePort(look *findings) {
	literal := takePort(p.command)
	mentioned := slices.ContainsFunc(p.command, func(word string) bool {
		return strings.Contains(word, "{port}") || strings.Contains(word, "$PORT") || strings.Contains(word, "${PORT")
	})
	variable := slices.IndexFunc(p.env, func(v Variable) bool { return v.Name == "PORT" })
	if variable >= 0 {
		// Said as port in [backend], which passes it on.
		p.env = slices.Delete(slices.Clone(p.env), variable, variable+1)
	}
	switch {
	case p.portGiven:
	case look.url != nil:
		p.port, p.portGiven = look.url.port, true
		p.portWhy = fmt.Sprintf("that of entry %q of %s", look.url.name, look.url.file)
	case literal != 0 || mentioned:
		p.portWhy = "a free one at each start, in place of {port}"
	case variable >= 0 || look.readsPort(p.command):
		p.port, p.portGiven = 0, true
		p.portWhy = "a free one at each start, as $PORT"
	default:
		p.port, p.portGiven = look.listensOn(p.command), true
		p.portWhy = "the server's sources listen on it"
		if p.port == 0 {
			p.port, p.portWhy = 3000, "a guess"
			p.check("port = 3000 in [backend] is a guess: say the port that your server listens on, or put {port} into command")
		}
	}
}

func (p *Plan) decideBuild(src Source, look *findings, file string) {
	switch {
	case p.build != "":
		p.buildWhy = p.why
	case isSource(file):
		p.buildWhy = "none: " + file + " runs as it is"
	case look.node != nil && look.node.buildCommand() != "" && look.node.usedBy(p.command) && !strings.HasPrefix(file, "src/"):
		p.build, p.buildWhy = look.node.buildCommand(), look.node.buildWhy()
	case look.golang != nil && len(look.golang.mains) > 0 && file != "" && file == inside(src.Root, p.command[0]):
		p.build, p.buildWhy = "go build -o "+file+" "+look.golang.called(file).argument(), "it makes "+file
	case look.cargo != nil && strings.HasPrefix(file, "target/"):
		p.build, p.buildWhy = "cargo build", "it makes "+file
		if strings.HasPrefix(file, "target/release/") {
			p.build += " --release"
		}
	default:
		p.buildWhy = "none: nothing says how it is built"
	}
	if p.build != "" && look.node != nil && look.node.usedBy(p.command) {
		p.builder = look.node.watchCommand()
	}
}

// decideWatch has devproxy watch what the server runs from.
func (p *Plan) decideWatch(src Source, file string) {
	if p.watch != nil {
		if len(p.watch) == 0 {
			p.check("[watch] paths is empty: say where the server's sources are")
		}
		return
	}
	if file == "" {
		p.watch = []string{}
		p.watchWhy = "nothing, for no file of the project is run"
		p.check("[watch] paths is empty, for the command runs no file of the project: restart with \"devproxyctl restart\", or say what to watch")
		return
	}
	p.watch, p.watchWhy = watchFor(src, file), "the server runs "+file
	if len(p.watch) == 1 && p.watch[0] == file && !exists(src.Files, file) {
		p.entry = file
	}
}

func (p *Plan) decideNext(src Source, look *findings, file string) {
	if look.node != nil && look.node.usedBy(p.command) && !exists(src.Files, "node_modules") && look.node.dependencies() {
		p.Next = append(p.Next, Step{look.node.pm + " install", "there is no node_modules yet"})
	}
	switch {
	case p.build != "" && file != "" && !exists(src.Files, file):
		p.Next = append(p.Next, Step{p.build, file + " is not there yet"})
	case file != "" && !exists(src.Files, file):
		p.check("%s, which the command runs, is not there", file)
	}
	register := "devproxyctl register"
	why := "lists the clients; name yours to have it start the shim"
	if p.Replaces.Client != "" {
		register = fmt.Sprintf("devproxyctl register %s --name %s --force", p.Replaces.Client, p.Replaces.Name)
		why = "has the client start the shim in place of the server; without a client it lists them"
	}
	p.Next = append(p.Next, Step{register, why})
	p.Next = append(p.Next, Step{"devproxyd start", "with this terminal's environment; or let the client's shim start it"})
}

// Choices are the decisions, for a person.
func (p *Plan) Choices() []Choice {
	choices := []Choice{
		{"command", strings.Join(p.command, " "), p.why},
		{"transport", string(p.transport), p.transportWhy},
	}
	if p.transport != config.Stdio {
		port := "free"
		if p.portGiven && p.port != 0 {
			port = fmt.Sprint(p.port)
		}
		choices = append(choices, Choice{"port", port, p.portWhy})
	}
	build := p.build
	if build == "" {
		build = "–"
	}
	watch := strings.Join(p.watch, ", ")
	if watch == "" {
		watch = "–"
	}
	return append(choices, Choice{"build", build, p.buildWhy}, Choice{"watch", watch, p.watchWhy})
}
