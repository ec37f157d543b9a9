package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/debugmcp/devproxy/internal/process"
)

// stepTimeout bounds one step. The slowest, the first start of the backend,
// takes well under a second on a small machine.
const stepTimeout = 30 * time.Second

var errStepTimeout = fmt.Errorf("not done after %s", stepTimeout)

// Config says where the programs are and where to tell what happens.
type Config struct {
	// Devproxyd, Devproxyctl and Shim are the paths of the three programs.
	Devproxyd, Devproxyctl, Shim string
	Out                          io.Writer
}

// Run plays the main job against the real programs in a temporary project and
// a temporary home, tells each step and its outcome, and returns an error if
// any outcome was not the promised one. It leaves nothing behind.
func Run(ctx context.Context, config Config) (err error) {
	d := &demo{Config: config, changed: make(chan struct{}, 1)}
	if err := d.lay(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	defer func() {
		// A step that failed leaves the daemon running; the last step proved it gone.
		stopCtx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTimeout, errStepTimeout)
		defer cancel()
		_, stopErr := d.command(stopCtx, d.Devproxyd, "stop")
		err = errors.Join(err, stopErr)
	}()
	d.tell("devproxy demo: a project in %s", d.project)
	steps := []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"start the daemon", d.startDaemon},
		{"a client's probe sibling asks server/discover and is killed", d.probe},
		{"an SDK client connects through the shim", d.connect},
		{"no backend runs yet", d.noBackend},
		{"the first tools/list starts it", d.firstList},
		{"a call", d.call},
		{"a rebuild adds a tool; the same session hears of it", d.rebuild},
		{"the backend crashes in the middle of a call", d.crash},
		{"the next call finds it recovered", d.recovered},
		{"devproxyctl status", d.status},
		{"a clean stop", d.stop},
	}
	for i, step := range steps {
		began := time.Now()
		stepCtx, cancel := context.WithTimeoutCause(ctx, stepTimeout, errStepTimeout)
		outcome, err := step.run(stepCtx)
		cancel()
		if err != nil {
			d.tell("  ✗ %d. %s\n       %v", i+1, step.name, err)
			return fmt.Errorf("%s: %w", step.name, err)
		}
		d.tell("  ✓ %d. %s (%s)\n       %s", i+1, step.name, time.Since(began).Round(time.Millisecond),
			strings.ReplaceAll(strings.TrimRight(outcome, "\n"), "\n", "\n       "))
	}
	d.tell("All %d steps did what they promise.", len(steps))
	return nil
}

type demo struct {
	Config
	dir, project, home string
	session            *mcp.ClientSession
	changed            chan struct{} // a tools/list_changed arrived; buffer 1
	pid                int64         // of the backend's current generation
}

func (d *demo) tell(format string, args ...any) { _, _ = fmt.Fprintf(d.Out, format+"\n", args...) }

// lay writes the project. The home is temporary too, so that the demo meets
// nothing of the person's own daemons.
func (d *demo) lay() error {
	dir, err := os.MkdirTemp("", "devproxy-demo-")
	if err != nil {
		return fmt.Errorf("making a project: %w", err)
	}
	d.dir, d.project, d.home = dir, filepath.Join(dir, "project"), filepath.Join(dir, "home")
	if err := errors.Join(os.MkdirAll(filepath.Join(d.project, "dist"), 0o755), os.Mkdir(d.home, 0o700)); err != nil {
		return fmt.Errorf("making a project: %w", err)
	}
	command, err := json.Marshal([]string{d.Devproxyd, "example-backend", "dist/tools.json", "--port", "{port}"})
	if err != nil {
		return fmt.Errorf("making a project: %w", err)
	}
	configuration := fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"http\"\nhealth = \"/health\"\n\n[watch]\npaths = [\"dist\"]\n", command)
	if err := os.WriteFile(filepath.Join(d.project, "devproxy.toml"), []byte(configuration), 0o600); err != nil {
		return fmt.Errorf("making a project: %w", err)
	}
	return d.build("echo")
}

// build writes the project's build output: the tools named and the one that crashes.
func (d *demo) build(names ...string) error {
	tools := []exampleTool{{Name: crashTool, Description: "Ends the backend in the middle of the call."}}
	for _, name := range names {
		tools = append(tools, exampleTool{Name: name, Description: "Answers with its argument.", Reply: name + ": {text}"})
	}
	raw, err := json.MarshalIndent(tools, "", "  ")
	if err != nil {
		return fmt.Errorf("building: %w", err)
	}
	if err := os.WriteFile(filepath.Join(d.project, "dist", "tools.json"), raw, 0o600); err != nil {
		return fmt.Errorf("building: %w", err)
	}
	return nil
}

// environment is what an SDK client passes to a server it spawns, with a home
// of our own. Windows programs need more than that to run.
func (d *demo) environment() []string {
	env := map[string]string{"HOME": d.home, "USERPROFILE": d.home, "LOCALAPPDATA": d.home}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		keep := slices.Contains([]string{"LOGNAME", "PATH", "SHELL", "TERM", "USER"}, name) || runtime.GOOS == "windows"
		if _, set := env[name]; keep && !set {
			env[name] = value
		}
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, name+"="+env[name])
	}
	return pairs
}

func (d *demo) prepare(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:forbidigo // the demo plays the person and the client
	cmd.Dir, cmd.Env = d.project, d.environment()
	return cmd
}

func (d *demo) command(ctx context.Context, program string, args ...string) (string, error) {
	cmd := d.prepare(ctx, program, append(args, "--project", d.project)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(stdout), nil
}

// backendStatus is the part of "devproxyctl status --json" that the demo checks.
type backendStatus struct {
	State      string `json:"state"`
	Generation uint64 `json:"generation"`
	PID        int64  `json:"pid"`
}

func (d *demo) backend(ctx context.Context) (backendStatus, error) {
	out, err := d.command(ctx, d.Devproxyctl, "status", "--json")
	if err != nil {
		return backendStatus{}, err
	}
	var document struct {
		Status struct {
			Backend backendStatus `json:"backend"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		return backendStatus{}, fmt.Errorf("reading the status: %w", err)
	}
	return document.Status.Backend, nil
}

func (d *demo) startDaemon(ctx context.Context) (string, error) {
	out, err := d.command(ctx, d.Devproxyd, "start")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(out), nil
}

func (d *demo) probe(ctx context.Context) (string, error) {
	// What the TypeScript SDK does before it connects: a sibling of the server
	// that is asked one question and then killed.
	cmd := d.prepare(ctx, d.Shim, "--project", d.project)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", fmt.Errorf("starting the sibling: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("starting the sibling: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting the sibling: %w", err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	const question = `{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"demo","version":"1.0.0"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	if _, err := io.WriteString(stdin, question); err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	var answer struct {
		Result struct {
			SupportedVersions []string `json:"supportedVersions"`
		} `json:"result"`
	}
	if err := json.NewDecoder(stdout).Decode(&answer); err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	if len(answer.Result.SupportedVersions) == 0 {
		return "", errors.New("the answer names no protocol version")
	}
	return "answered: " + strings.Join(answer.Result.SupportedVersions, ", "), nil
}

func (d *demo) connect(ctx context.Context) (string, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "devproxy-demo", Version: "1.0.0"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case d.changed <- struct{}{}:
			default:
			}
		},
	})
	// The session outlives this step, and so must the shim.
	cmd := d.prepare(context.WithoutCancel(ctx), d.Shim, "--project", d.project)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return "", fmt.Errorf("connecting: %w", err)
	}
	d.session = session
	return "protocol version " + session.InitializeResult().ProtocolVersion, nil
}

func (d *demo) noBackend(ctx context.Context) (string, error) {
	backend, err := d.backend(ctx)
	if err != nil {
		return "", err
	}
	if backend.State != "BACKEND_STATE_IDLE" || backend.Generation != 0 {
		return "", fmt.Errorf("the backend is in state %s, generation %d", backend.State, backend.Generation)
	}
	return "two shims came, the backend is idle", nil
}

// running checks that the backend serves in that generation, and notes its pid.
func (d *demo) running(ctx context.Context, generation uint64) error {
	backend, err := d.backend(ctx)
	if err != nil {
		return err
	}
	if backend.State != "BACKEND_STATE_RUNNING" || backend.Generation != generation {
		return fmt.Errorf("the backend is in state %s, generation %d, want running, generation %d", backend.State, backend.Generation, generation)
	}
	d.pid = backend.PID
	return nil
}

func (d *demo) tools(ctx context.Context) ([]string, error) {
	result, err := d.session.ListTools(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("listing the tools: %w", err)
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (d *demo) firstList(ctx context.Context) (string, error) {
	d.forgetChanges()
	names, err := d.tools(ctx)
	if err != nil {
		return "", err
	}
	for _, want := range []string{"echo", crashTool, "dev_server_status", "dev_restart"} {
		if !slices.Contains(names, want) {
			return "", fmt.Errorf("tools are %s, want %s among them", strings.Join(names, ", "), want)
		}
	}
	if err := d.running(ctx, 1); err != nil {
		return "", err
	}
	return fmt.Sprintf("generation 1, pid %d; tools: %s", d.pid, strings.Join(names, ", ")), d.awaitChange(ctx)
}

func (d *demo) forgetChanges() {
	select {
	case <-d.changed:
	default:
	}
}

func (d *demo) awaitChange(ctx context.Context) error {
	select {
	case <-d.changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for tools/list_changed: %w", context.Cause(ctx))
	}
}

// echo calls a tool with a text and returns what it answered.
func (d *demo) echo(ctx context.Context, tool, text string) (answer string, isError bool, err error) {
	result, err := d.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: textArgument{Text: text}})
	if err != nil {
		return "", false, fmt.Errorf("calling %s: %w", tool, err)
	}
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			answer += text.Text
		}
	}
	return answer, result.IsError, nil
}

func (d *demo) expectEcho(ctx context.Context, tool, text string) (string, error) {
	answer, isError, err := d.echo(ctx, tool, text)
	if err != nil {
		return "", err
	}
	if isError || answer != tool+": "+text {
		return "", fmt.Errorf("%s answered %q", tool, answer)
	}
	return fmt.Sprintf("%s answered %q", tool, answer), nil
}

func (d *demo) call(ctx context.Context) (string, error) { return d.expectEcho(ctx, "echo", "hello") }

func (d *demo) rebuild(ctx context.Context) (string, error) {
	old := d.pid
	d.forgetChanges()
	if err := d.build("echo", "greet"); err != nil {
		return "", err
	}
	if err := d.awaitChange(ctx); err != nil {
		return "", err
	}
	names, err := d.tools(ctx)
	if err != nil {
		return "", err
	}
	if !slices.Contains(names, "greet") {
		return "", fmt.Errorf("tools are %s, want greet among them", strings.Join(names, ", "))
	}
	if err := d.running(ctx, 2); err != nil {
		return "", err
	}
	answer, err := d.expectEcho(ctx, "greet", "you")
	return fmt.Sprintf("generation 2, pid %d took over from pid %d; %s", d.pid, old, answer), err
}

func (d *demo) crash(ctx context.Context) (string, error) {
	d.forgetChanges()
	answer, isError, err := d.echo(ctx, crashTool, "")
	if err != nil {
		return "", err
	}
	if !isError {
		return "", fmt.Errorf("the call that crashed the backend succeeded: %q", answer)
	}
	return "the call was answered: " + answer, nil
}

func (d *demo) recovered(ctx context.Context) (string, error) {
	answer, err := d.expectEcho(ctx, "echo", "still here")
	if err != nil {
		return "", err
	}
	if err := d.running(ctx, 3); err != nil {
		return "", err
	}
	return fmt.Sprintf("generation 3, pid %d; %s", d.pid, answer), nil
}

func (d *demo) status(ctx context.Context) (string, error) {
	return d.command(ctx, d.Devproxyctl, "status")
}

func (d *demo) stop(ctx context.Context) (string, error) {
	if err := d.session.Close(); err != nil {
		return "", fmt.Errorf("closing the session: %w", err)
	}
	if _, err := d.command(ctx, d.Devproxyd, "stop"); err != nil {
		return "", err
	}
	if process.Alive(int(d.pid)) {
		return "", fmt.Errorf("the backend, pid %d, outlived the daemon", d.pid)
	}
	return "daemon and backend are gone", nil
}
