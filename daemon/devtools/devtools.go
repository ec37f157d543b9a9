package devtools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AnswerWithin bounds how long a tool works before it answers. It stays under
// the 60 s after which the official TypeScript clients give a request up, with
// room for the way back.
const AnswerWithin = 45 * time.Second

// MetaTool is the key in _meta by which a dev tool can be told from a tool of the
// backend that has its name. Its value is the name without the prefix.
const MetaTool = "com.github.debugmcp.devproxy/tool"

const (
	defaultLogLines = 50
	// maxLogLines keeps an answer readable for a model: a line is at most a few
	// hundred bytes, so this is some tens of kilobytes.
	maxLogLines = 500
	// maxLogBytes is for lines that are longer. A model has better use for its
	// context, and a client for its largest message.
	maxLogBytes = 256 << 10
)

// Controller is what the tools need of the daemon. Its methods are safe for
// concurrent use.
type Controller interface {
	// Status reports the state of everything at this moment.
	Status() Status
	// Restart restarts the backend and returns when the next generation is up
	// or has failed. The end of ctx ends the wait, and the build unless its cause is
	// ErrStillWorking, but no restart that has begun.
	Restart(ctx context.Context, request RestartRequest, progress func(message string)) error
	// Logs returns the last n entries of a source, oldest first; all sources
	// when it is empty.
	Logs(n int, source string) []string
}

// RestartRequest is what dev_restart asks for.
type RestartRequest struct {
	// Rebuild runs the build command first; when it fails the backend that runs
	// is left alone.
	Rebuild bool
	// Overrides replaces the set of environment overrides; nil keeps it.
	Overrides map[string]string
}

// Status is what dev_server_status answers. Values that look secret are masked
// before they get here.
type Status struct {
	State      string `json:"state"`
	Message    string `json:"message,omitempty"`
	Generation uint64 `json:"generation"`
	PID        int    `json:"pid,omitempty"`
	Port       int    `json:"port,omitempty"`
	// UptimeSeconds counts from the moment the generation was ready.
	UptimeSeconds int64    `json:"uptimeSeconds,omitempty"`
	Transport     string   `json:"transport"`
	Command       []string `json:"command"`
	// ProtocolEra and ProtocolVersion are null while the backend does not run.
	ProtocolEra     *string           `json:"protocolEra"`
	ProtocolVersion *string           `json:"protocolVersion"`
	Server          string            `json:"server,omitempty"`
	EnvOverrides    map[string]string `json:"envOverrides"`
	Warnings        []string          `json:"warnings,omitempty"`
	LastExit        *Exit             `json:"lastExit,omitempty"`
	LastBuild       *Build            `json:"lastBuild,omitempty"`
	BuildWatch      *BuildWatch       `json:"buildWatch,omitempty"`
	Watch           *Watch            `json:"watch,omitempty"`
	Sessions        []Session         `json:"sessions"`
	Project         string            `json:"project"`
	DaemonPID       int               `json:"daemonPid"`
	DaemonVersion   string            `json:"daemonVersion"`
}

// Exit is how the last generation of the backend ended.
type Exit struct {
	Generation uint64   `json:"generation"`
	Time       string   `json:"time"`
	Status     string   `json:"status"`
	Reason     string   `json:"reason"`
	Stderr     []string `json:"stderr,omitempty"`
}

// Build is the last or running build.
type Build struct {
	Command         string   `json:"command"`
	Running         bool     `json:"running"`
	OK              bool     `json:"ok"`
	Message         string   `json:"message,omitempty"`
	DurationSeconds float64  `json:"durationSeconds"`
	Tail            []string `json:"tail,omitempty"`
}

// BuildWatch is the process that builds continuously.
type BuildWatch struct {
	Command  string   `json:"command"`
	PID      int      `json:"pid,omitempty"`
	Restarts int      `json:"restarts"`
	Message  string   `json:"message,omitempty"`
	Tail     []string `json:"tail,omitempty"`
}

// Watch is what is watched and what changed last.
type Watch struct {
	Paths        []string `json:"paths"`
	Mode         string   `json:"mode"`
	LastChanged  string   `json:"lastChanged,omitempty"`
	EntryMissing string   `json:"entryMissing,omitempty"`
	Problem      string   `json:"problem,omitempty"`
}

// Session is one attached client.
type Session struct {
	ID              uint64 `json:"id"`
	Client          string `json:"client,omitempty"`
	ProtocolEra     string `json:"protocolEra,omitempty"`
	ProtocolVersion string `json:"protocolVersion,omitempty"`
	InFlight        int    `json:"inFlight"`
}

// Answer is the outcome of a tool.
type Answer struct {
	Text string
	// Structured is a JSON object for structuredContent, or nil.
	Structured []byte
	IsError    bool
}

// Tools are the dev tools under one name prefix.
type Tools struct {
	controller Controller
	tools      []tool
}

type tool struct {
	name       string
	aliases    []string
	definition []byte
	call       func(ctx context.Context, arguments []byte, progress func(string)) Answer
}

// New returns the tools. prefix is the start of their names, "dev_" by default.
func New(prefix string, controller Controller) *Tools {
	t := &Tools{controller: controller}
	t.add(prefix, "server_status", nil, "Status of the MCP server under development: state, generation, pid, port, uptime, protocol, last exit, last build. Answers even when the server is down and does not start it.",
		`{"type":"object","properties":{},"additionalProperties":false}`, true, t.status)
	t.add(prefix, "restart", []string{prefix + "restart_debugger"}, "Restart the MCP server under development. Your connection stays; tool lists may change. Returns when the new process is ready or says why it is not.",
		`{"type":"object","properties":{`+
			`"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Environment overrides for the server. Given: replaces the set of overrides; {} clears it; omitted: keeps it."},`+
			`"rebuild":{"type":"boolean","description":"Run the build command first. If it fails the running server is left alone."}},"additionalProperties":false}`, false, t.restart)
	t.add(prefix, "rebuild_and_restart", nil, "Run the project's build command, then restart the MCP server under development. If the build fails the running server is left alone and the end of the build's output is returned.",
		`{"type":"object","properties":{`+
			`"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Environment overrides for the server, as for restart."}},"additionalProperties":false}`, false, t.rebuild)
	t.add(prefix, "logs", nil, "Recent output of the MCP server under development (stderr, and stdout lines that are no protocol), of its build, or of the devproxy daemon.",
		fmt.Sprintf(`{"type":"object","properties":{`+
			`"lines":{"type":"integer","minimum":1,"maximum":%d,"description":"How many of the last lines; %d when omitted."},`+
			`"source":{"type":"string","enum":["backend","build","daemon"],"description":"Whose output; all when omitted."}},"additionalProperties":false}`, maxLogLines, defaultLogLines), true, t.logs)
	return t
}

func (t *Tools) add(prefix, role string, aliases []string, description, schema string, readOnly bool, call func(context.Context, []byte, func(string)) Answer) {
	name := prefix + role
	definition := struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations struct {
			ReadOnlyHint  bool `json:"readOnlyHint"`
			OpenWorldHint bool `json:"openWorldHint"`
		} `json:"annotations"`
		Meta map[string]string `json:"_meta"`
	}{Name: name, Description: description, InputSchema: json.RawMessage(schema)}
	definition.Annotations.ReadOnlyHint = readOnly
	definition.Meta = map[string]string{MetaTool: role}
	t.tools = append(t.tools, tool{name: name, aliases: aliases, definition: mustMarshal(definition), call: call})
}

// Definitions returns the tools as they stand in a tools/list result, one JSON
// object each.
func (t *Tools) Definitions() [][]byte {
	definitions := make([][]byte, len(t.tools))
	for i, tool := range t.tools {
		definitions[i] = tool.definition
	}
	return definitions
}

// Has reports whether a tool, or an older name of one, is called name.
func (t *Tools) Has(name string) bool { return t.find(name) != nil }

func (t *Tools) find(name string) *tool {
	for i := range t.tools {
		if t.tools[i].name == name || slices.Contains(t.tools[i].aliases, name) {
			return &t.tools[i]
		}
	}
	return nil
}

// Call runs a tool with its raw arguments object, which may be nil. progress
// is called with a sentence for each step that a person would want to see.
func (t *Tools) Call(ctx context.Context, name string, arguments []byte, progress func(message string)) Answer {
	tool := t.find(name)
	if tool == nil {
		return failed("unknown tool %s", name)
	}
	return tool.call(ctx, arguments, progress)
}

func (t *Tools) status(_ context.Context, arguments []byte, _ func(string)) Answer {
	if err := decode(arguments, &struct{}{}); err != nil {
		return failed("%v", err)
	}
	structured := mustMarshal(t.controller.Status())
	var text bytes.Buffer
	// Indent cannot fail on what Marshal wrote.
	_ = json.Indent(&text, structured, "", "  ")
	return Answer{Text: text.String(), Structured: structured}
}

func (t *Tools) restart(ctx context.Context, arguments []byte, progress func(string)) Answer {
	var args struct {
		Env     map[string]string `json:"env"`
		Rebuild bool              `json:"rebuild"`
	}
	if err := decode(arguments, &args); err != nil {
		return failed("%v", err)
	}
	return t.run(ctx, RestartRequest{Rebuild: args.Rebuild, Overrides: args.Env}, progress)
}

func (t *Tools) rebuild(ctx context.Context, arguments []byte, progress func(string)) Answer {
	var args struct {
		Env map[string]string `json:"env"`
	}
	if err := decode(arguments, &args); err != nil {
		return failed("%v", err)
	}
	return t.run(ctx, RestartRequest{Rebuild: true, Overrides: args.Env}, progress)
}

// ErrStillWorking ends the wait for a restart that takes too long for an answer. It
// ends nothing else.
var ErrStillWorking = errors.New("still working")

func (t *Tools) run(ctx context.Context, request RestartRequest, progress func(string)) Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, AnswerWithin, ErrStillWorking)
	defer cancel()
	err := t.controller.Restart(ctx, request, progress)
	switch {
	case err == nil:
		return t.restarted(request)
	case errors.Is(context.Cause(ctx), ErrStillWorking):
		doing := "restarting"
		if request.Rebuild {
			doing = "building"
		}
		return Answer{Text: fmt.Sprintf("still %s after %s; see %s", doing, AnswerWithin, t.tools[0].name)}
	default:
		return t.notRestarted(request, err)
	}
}

func (t *Tools) restarted(request RestartRequest) Answer {
	status := t.controller.Status()
	var text strings.Builder
	if request.Rebuild {
		text.WriteString("built and ")
	}
	fmt.Fprintf(&text, "restarted: generation %d is %s", status.Generation, status.State)
	if status.PID != 0 {
		fmt.Fprintf(&text, ", pid %d", status.PID)
	}
	if status.Port != 0 {
		fmt.Fprintf(&text, ", port %d", status.Port)
	}
	return Answer{Text: text.String()}
}

func (t *Tools) notRestarted(request RestartRequest, err error) Answer {
	text := err.Error()
	if build := t.controller.Status().LastBuild; request.Rebuild && build != nil && !build.OK && len(build.Tail) > 0 {
		text += "\n\n" + strings.Join(build.Tail, "\n")
	}
	return Answer{Text: text, IsError: true}
}

func (t *Tools) logs(_ context.Context, arguments []byte, _ func(string)) Answer {
	args := struct {
		Lines  *int   `json:"lines"`
		Source string `json:"source"`
	}{}
	if err := decode(arguments, &args); err != nil {
		return failed("%v", err)
	}
	n := defaultLogLines
	if args.Lines != nil {
		n = *args.Lines
	}
	if n < 1 || n > maxLogLines {
		return failed("lines is %d, want 1 to %d", n, maxLogLines)
	}
	switch args.Source {
	case "", "backend", "build", "daemon":
	default:
		return failed("source is %q, want backend, build or daemon", args.Source)
	}
	lines := t.controller.Logs(n, args.Source)
	if len(lines) == 0 {
		return Answer{Text: "no output yet"}
	}
	return Answer{Text: strings.Join(last(lines, maxLogBytes), "\n")}
}

// last returns the last lines that fit into that many bytes, and says how many
// came before them.
func last(lines []string, limit int) []string {
	from, size := len(lines), 0
	for from > 0 && size+len(lines[from-1])+1 <= limit {
		from--
		size += len(lines[from]) + 1
	}
	if from == 0 {
		return lines
	}
	note := fmt.Sprintf("[%d lines before these are left out: an answer has %d bytes at most]", from, limit)
	return append([]string{note}, lines[from:]...)
}

func failed(format string, args ...any) Answer {
	return Answer{Text: fmt.Sprintf(format, args...), IsError: true}
}

// decode reads a tool's arguments strictly: a model that misspells an argument
// should hear of it instead of wondering why nothing changed.
func decode(arguments []byte, into any) error {
	if len(arguments) == 0 || string(arguments) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("reading the arguments: %w", err)
	}
	return nil
}

// mustMarshal encodes values of this package's own types, which hold nothing
// that JSON cannot.
func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return raw
}
