package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/internal/port"
	"github.com/debugmcp/devproxy/internal/process"
)

const (
	// projectLabel and backendLabel are put on every container, with the marker
	// of the project and of the generation. By the first it is removed, also when
	// nobody knows its generation any more.
	projectLabel = "devproxy.project"
	backendLabel = "devproxy.backend"

	// defaultEngineWait bounds what is asked of an engine at one time: a removal
	// takes about a second, and up to several on a machine that is busy.
	defaultEngineWait = 10 * time.Second
	// enginePoll is the pause before an engine that has not removed a container
	// is asked again.
	enginePoll = 100 * time.Millisecond
	// engineRung is how long what an engine's CLI has started, such as ssh, gets
	// to end after it.
	engineRung = time.Second
	// maxEngineOutput bounds what is read of an answer: the description of a
	// container takes some 10 KiB.
	maxEngineOutput = 1 << 20
	// engineTail is how many last lines of an engine's stderr an error has, and
	// engineLine the limit of each: its errors are sentences.
	engineTail = 3
	engineLine = 1 << 10
)

// engine is the way to the container engine of a `docker run` command: the same
// program with the same global options, in the same folder and environment. So
// it reaches the engine that the command reaches.
type engine struct {
	// name is how the command names program and options, argv the file that the
	// name resolved to, with them.
	name, argv []string
	dir        string
	env        []string
	// project is the marker of the project.
	project string
	wait    time.Duration
}

// engineOf returns the engine of a command that runs a container, and nil for
// any other.
func (r *processes) engineOf(l Launch) *engine {
	globals, _, ok := findRun(l.Command)
	if !ok {
		return nil
	}
	return &engine{
		name: l.Command[:globals], argv: append([]string{l.Path}, l.Command[1:globals]...),
		dir: l.Dir, env: l.Env, project: r.config.Marker, wait: r.engineWait,
	}
}

// valueOptions are the global options of docker and podman that take the next
// word as their value. None of them is a switch of the other program.
var valueOptions = []string{
	"--config", "--context", "--host", "--log-level", "--tlscacert", "--tlscert", "--tlskey",
	"--cdi-spec-dir", "--cgroup-manager", "--cni-config-dir", "--conmon", "--connection", "--events-backend",
	"--hooks-dir", "--identity", "--imagestore", "--module", "--namespace", "--network-cmd-path",
	"--network-config-dir", "--out", "--root", "--runroot", "--runtime", "--runtime-flag", "--ssh",
	"--storage-driver", "--storage-opt", "--tls-ca", "--tls-cert", "--tls-key", "--tmpdir", "--url", "--volumepath",
}

// shortValueOptions are those of one letter: context or connection, host, and
// log-level.
const shortValueOptions = "cHl"

// findRun looks for `docker run` or `docker container run`, the same of podman,
// with global options before it. globals is where these end, run where "run" is.
func findRun(command []string) (globals, run int, ok bool) {
	if len(command) == 0 {
		return 0, 0, false
	}
	switch strings.TrimSuffix(filepath.Base(command[0]), ".exe") {
	case "docker", "podman":
	default:
		return 0, 0, false
	}
	globals = 1
	for globals < len(command) && strings.HasPrefix(command[globals], "-") {
		if takesNextWord(command[globals]) {
			globals++
		}
		globals++
	}
	run = globals
	if run < len(command) && command[run] == "container" {
		run++
	}
	return globals, run, run < len(command) && command[run] == "run"
}

func takesNextWord(option string) bool {
	if strings.HasPrefix(option, "--") {
		return slices.Contains(valueOptions, option)
	}
	// Of letters in one word the first that takes a value takes the rest.
	return strings.IndexAny(option, shortValueOptions) == len(option)-1
}

// labelled puts our labels into a command that runs a container. They come first
// among its options, as nothing tells where these end.
func labelled(command []string, project, generation string) []string {
	_, run, ok := findRun(command)
	if !ok {
		return command
	}
	return slices.Insert(slices.Clone(command), run+1,
		"--label", projectLabel+"="+project, "--label", backendLabel+"="+generation)
}

// checkLabels refuses a command that sets one of our labels itself: the engine
// would take the last one, and we could not find the container again.
func checkLabels(command []string) error {
	for i, word := range command {
		label, joined := strings.CutPrefix(word, "--label=")
		if !joined && i > 0 && (command[i-1] == "--label" || command[i-1] == "-l") {
			label, joined = word, true
		}
		key, _, _ := strings.Cut(label, "=")
		if joined && (key == projectLabel || key == backendLabel) {
			return fail(ConfigInvalid, fmt.Sprintf("[backend] command sets the label %s, which is devproxy's own", key))
		}
	}
	return nil
}

// run runs a command of the engine and returns what it printed.
func (e *engine) run(ctx context.Context, args ...string) (string, error) {
	output, err := e.execute(ctx, args)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", strings.Join(e.name, " "), args[0], err)
	}
	return output, nil
}

func (e *engine) execute(ctx context.Context, args []string) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	proc, err := process.Start(process.Spec{
		Path: e.argv[0], Args: slices.Concat(e.argv[1:], args), Dir: e.dir, Env: e.env,
		// Should this daemon be killed now, the next one ends the command too.
		Marker: e.project + ":engine",
	})
	if err != nil {
		return "", err
	}
	_ = proc.Stdin().Close()
	var output strings.Builder
	said := tail{limit: engineTail}
	var reading sync.WaitGroup
	reading.Go(func() {
		_, _ = io.Copy(&output, io.LimitReader(proc.Stdout(), maxEngineOutput))
		_, _ = io.Copy(io.Discard, proc.Stdout())
	})
	reading.Go(func() { _ = process.Lines(proc.Stderr(), engineLine, said.add) })
	err = awaitEnd(ctx, proc)
	gone := proc.Terminate(ctx, engineRung)
	reading.Wait()
	if err != nil && len(said.lines()) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.Join(said.lines(), "; "))
	}
	return output.String(), errors.Join(err, gone)
}

// awaitEnd waits until the command has ended, or ctx.
func awaitEnd(ctx context.Context, proc *process.Process) error {
	// It also ends a gate that does not open.
	stop := context.AfterFunc(ctx, func() { _ = proc.Kill() })
	defer stop()
	err := proc.Release()
	if err == nil {
		select {
		case <-proc.Done():
		case <-ctx.Done():
		}
	}
	switch exit := proc.Exit(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case !exit.Success():
		return errors.New(exit.String())
	}
	return nil
}

// patient returns a context that ends with a cause when the engine has had its
// time.
func (e *engine) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, e.wait, fmt.Errorf("no answer within %s", e.wait))
}

// list returns the ids of the containers with that label, running or not.
func (e *engine) list(ctx context.Context, key, value string) ([]string, error) {
	output, err := e.run(ctx, "ps", "--all", "--quiet", "--filter", "label="+key+"="+value)
	return strings.Fields(output), err
}

// containersError says that containers are left, or may be.
type containersError struct {
	ids []string // empty if they are not known
	err error    // what the engine says
}

func (e *containersError) Error() string {
	if len(e.ids) == 0 {
		return fmt.Sprintf("whether containers are left is not known: %v", e.err)
	}
	return fmt.Sprintf("not removed: %s: %v", strings.Join(e.ids, ", "), e.err)
}

func (e *containersError) Unwrap() error { return e.err }

// remove removes the containers of the project, and returns which there were,
// when the engine lists none any more. Not the answer to the removal counts: an
// engine refuses to remove what it is removing already, as it does by itself
// with a container of --rm that ends.
func (e *engine) remove(ctx context.Context) (removed []string, err error) {
	ctx, cancel := e.patient(ctx)
	defer cancel()
	var refusal error
	for {
		left, err := e.list(ctx, projectLabel, e.project)
		switch {
		case err != nil && len(removed) == 0:
			return nil, &containersError{err: err}
		case err != nil:
			return nil, &containersError{ids: removed, err: cmp.Or(refusal, err)}
		case len(left) == 0:
			return removed, nil
		}
		removed = left
		if _, err := e.run(ctx, append([]string{"rm", "--force", "--volumes"}, left...)...); err != nil && (refusal == nil || ctx.Err() == nil) {
			refusal = err
		}
		select {
		case <-time.After(enginePoll):
		case <-ctx.Done():
			return nil, &containersError{ids: left, err: cmp.Or(refusal, context.Cause(ctx))}
		}
	}
}

// removeContainers removes what is left of the project's containers. Its error
// is a *containersError.
func (r *processes) removeContainers(ctx context.Context, e *engine) error {
	removed, err := e.remove(ctx)
	if len(removed) > 0 {
		r.log.Info("removed containers of the backend", slog.Any("containers", removed))
	}
	return err
}

// failure is what a removal that failed means to people. reason is for when
// nobody knows whether there is a container.
func (e *engine) failure(err error, reason Reason) *Failure {
	name, ids := strings.Join(e.name, " "), ""
	if left, ok := errors.AsType[*containersError](err); ok && len(left.ids) > 0 {
		reason, ids = Survivors, strings.Join(left.ids, " ")
	}
	f := fail(reason, fmt.Sprintf("removing the backend's containers: %v", err))
	f.Hint = fmt.Sprintf("see why `%s ps` fails", name)
	if ids != "" {
		f.Hint = fmt.Sprintf("remove them with `%s rm --force %s`", name, ids)
	}
	f.Hint += "; then restart with dev_restart or `devproxyctl restart`"
	return f
}

// clear removes what may be left of an earlier container of the project before
// the next is started: what a daemon left without a record, or what an engine has
// made of a request after its CLI was gone.
func (r *processes) clear(ctx context.Context, p plan) error {
	if err := checkLabels(p.launch.Command); err != nil {
		return err
	}
	p.note("looking for earlier containers")
	if err := r.removeContainers(ctx, p.engine); err != nil {
		return p.engine.failure(err, StartFailed)
	}
	return nil
}

// removeOrphans removes the containers that an earlier daemon left, with the
// engine that its record names.
func (r *processes) removeOrphans(ctx context.Context, old record) error {
	if len(old.Engine) == 0 {
		return nil
	}
	l, err := r.config.Launch(ctx)
	if err != nil {
		return fmt.Errorf("looking for the environment of %s: %w", old.Engine[0], err)
	}
	e := &engine{
		name: old.Engine, argv: old.Engine, dir: l.Dir, env: l.Env, project: r.config.Marker, wait: r.engineWait,
	}
	err = r.removeContainers(ctx, e)
	if errors.Is(err, fs.ErrNotExist) {
		// A daemon that refused every start because of a program that is gone for
		// good would help nobody. A command that still needs it is refused anyway.
		r.log.Warn("containers of an earlier backend may be left, their engine's program is gone",
			slog.Any("error", err), slog.String("label", projectLabel+"="+r.config.Marker))
		return nil
	}
	if err != nil {
		return e.failure(err, Survivors)
	}
	return nil
}

// container is what we ask about one, by the names that docker and podman have
// for it in the output of inspect.
type container struct {
	State           struct{ Pid int }
	HostConfig      struct{ NetworkMode string }
	NetworkSettings struct{ Ports map[string][]published }
}

// published is one port of the host that leads to a container.
type published struct{ HostIP, HostPort string }

// serves reports whether a connection to the address would meet the container:
// because the engine listens there for it, or, on the host's network, the
// container itself.
func (c container) serves(address netip.AddrPort) bool {
	if c.State.Pid == 0 {
		return false
	}
	for inside, ways := range c.NetworkSettings.Ports {
		if strings.HasSuffix(inside, "/tcp") && slices.ContainsFunc(ways, func(p published) bool { return p.covers(address) }) {
			return true
		}
	}
	if c.HostConfig.NetworkMode != "host" {
		return false
	}
	all, err := port.Listeners(int(address.Port()))
	return err != nil || !slices.ContainsFunc(port.ReachedAt(address.Addr(), all), func(l port.Listener) bool {
		return !l.MayBelongTo(c.State.Pid)
	})
}

func (p published) covers(address netip.AddrPort) bool {
	if p.HostPort != strconv.Itoa(int(address.Port())) {
		return false
	}
	host, err := netip.ParseAddr(p.HostIP)
	return p.HostIP == "" || err == nil && (host.IsUnspecified() || host == address.Addr())
}

// serves reports whether a connection to the address would meet a container of
// that generation.
func (e *engine) serves(ctx context.Context, generation string, address netip.AddrPort) (bool, error) {
	ctx, cancel := e.patient(ctx)
	defer cancel()
	ids, err := e.list(ctx, backendLabel, generation)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	output, err := e.run(ctx, append([]string{"inspect"}, ids...)...)
	if err != nil {
		return false, err
	}
	var containers []container
	if err := json.Unmarshal([]byte(output), &containers); err != nil {
		return false, fmt.Errorf("reading what %s inspect says: %w", e.name[0], err)
	}
	return slices.ContainsFunc(containers, func(c container) bool { return c.serves(address) }), nil
}
