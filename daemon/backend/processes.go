package backend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/process"
)

const (
	// portPlaceholder stands for the port in the command and the environment.
	portPlaceholder = "{port}"
	// exitOnStdinClose asks an http server to end when its stdin does, which is
	// the one sign on every system that the daemon has died.
	exitOnStdinClose = "MCP_EXIT_ON_STDIN_CLOSE=1"
)

// processes is the runner that really starts something.
//
// A container that a `docker run` command starts is no process of its group and
// outlives it. So container.go has what differs for it, each called from one
// place: labels in the arguments (spawn), an owner of the port that is the
// engine's proxy (processLife.ownership), and the removal by label, at the end of
// the generation (processLife.end) and before the next start, of what an earlier
// daemon left (endOrphan) and of what came too late for the end (prepare).
type processes struct {
	config    Config
	snapshots *snapshots
	log       *slog.Logger
	// engineWait bounds what is asked of a container engine at one time.
	engineWait time.Duration

	// sweeping holds one token; whoever has it may sweep, and owns swept.
	sweeping chan struct{}
	swept    bool
}

func newProcesses(config Config, shots *snapshots, log *slog.Logger) *processes {
	r := &processes{
		config: config, snapshots: shots, log: log, engineWait: defaultEngineWait, sweeping: make(chan struct{}, 1),
	}
	r.sweeping <- struct{}{}
	return r
}

// sweep ends what an earlier daemon left. It is done once: afterwards this
// daemon ends its own generations. A sweep that has begun is not abandoned with
// ctx, only the wait for another one.
func (r *processes) sweep(ctx context.Context) error {
	select {
	case <-r.sweeping:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { r.sweeping <- struct{}{} }()
	if r.swept {
		return nil
	}
	if err := r.endOrphan(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	r.swept = true
	return nil
}

func (r *processes) endOrphan(ctx context.Context) error {
	old, found, err := readRecord(r.config.RecordFile)
	if err != nil {
		// Without the record there is still the marker.
		r.log.Warn("ignoring the record of an earlier backend", slog.Any("error", err))
	}
	if !found {
		old.Process = process.Identity{Marker: r.marker(0)}
	}
	ended, err := process.EndOrphan(ctx, old.Process, defaultStopTimeout)
	if len(ended) > 0 {
		r.log.Warn("ended processes that an earlier daemon left", slog.Any("pids", ended),
			slog.Any("command", old.Command))
	}
	if err != nil {
		return fail(Survivors, fmt.Sprintf("processes that an earlier daemon left cannot be ended: %v", err))
	}
	if err := r.removeOrphans(ctx, old); err != nil {
		return err
	}
	return removeRecord(r.config.RecordFile)
}

// marker is what the environment of a generation's processes carries.
func (r *processes) marker(generation uint64) string {
	return r.config.Marker + ":" + strconv.FormatUint(generation, 10)
}

func (r *processes) prepare(ctx context.Context, o order) (plan, error) {
	o.note("reading the configuration")
	l, err := r.config.Launch(ctx)
	if err != nil {
		return plan{}, launchFailure(err)
	}
	l = l.withDefaults()
	if l.Path == "" || len(l.Command) == 0 {
		return plan{}, fail(ConfigInvalid, "there is no command to start")
	}
	r.snapshots.choose(l.Command)
	p := plan{order: o, launch: l, engine: r.engineOf(l)}
	o.note("ending what an earlier daemon left")
	if err := r.sweep(ctx); err != nil {
		return p, err
	}
	if p.engine != nil {
		if err := r.clear(ctx, p); err != nil {
			return p, err
		}
	}
	o.note("looking at the watched files")
	if err := r.baseline(ctx); err != nil {
		return p, err
	}
	if l.Transport != Stdio {
		if p.port, err = choosePort(ctx, l.Port); err != nil {
			return p, err
		}
	}
	return p, nil
}

// launchFailure says why there is nothing to start.
func launchFailure(err error) *Failure {
	missing, is := errors.AsType[*process.NotFoundError](err)
	if is || errors.Is(err, exec.ErrNotFound) {
		f := failureOf(err, CommandNotFound)
		if is && missing.Advice() != "" {
			f.Hint = missing.Advice() + ", in [backend] command of devproxy.toml"
		}
		return f
	}
	return failureOf(err, ConfigInvalid)
}

func (r *processes) baseline(ctx context.Context) error {
	if r.config.Baseline == nil {
		return nil
	}
	missing, err := r.config.Baseline(ctx)
	if err != nil {
		return fmt.Errorf("taking the fingerprint of the watched files: %w", err)
	}
	if missing == "" {
		return nil
	}
	f := fail(EntryMissing, missing+" is missing or empty")
	f.Waiting = true
	return f
}

// spawn runs the command once its record is on disk: from then on a later daemon
// can end it.
func (r *processes) spawn(ctx context.Context, p plan) (life, error) {
	p.note("starting the process")
	command, env := p.expand()
	if p.engine != nil {
		command = labelled(command, r.config.Marker, r.marker(p.generation))
	}
	proc, err := process.Start(process.Spec{
		Path: p.launch.Path, Args: command[1:], Dir: p.launch.Dir, Env: env,
		Marker: r.marker(p.generation),
	})
	if err != nil {
		return nil, fail(StartFailed, err.Error())
	}
	l := newProcessLife(r, p, proc)
	if err := l.release(ctx); err != nil {
		if end := l.end(context.WithoutCancel(ctx)); end != nil {
			return nil, end
		}
		return nil, err
	}
	return l, nil
}

// expand puts the port into the command and the environment.
func (p plan) expand() (command, env []string) {
	command, env = slices.Clone(p.launch.Command), slices.Clone(p.launch.Env)
	if p.launch.Transport == Stdio {
		return command, withVariable(env, exitOnStdinClose)
	}
	port := strconv.Itoa(p.port)
	for i, argument := range command {
		command[i] = strings.ReplaceAll(argument, portPlaceholder, port)
	}
	for i, variable := range env {
		if name, value, ok := strings.Cut(variable, "="); ok && slices.Contains(p.launch.PortIn, name) {
			env[i] = name + "=" + strings.ReplaceAll(value, portPlaceholder, port)
		}
	}
	return command, withVariable(withVariable(env, exitOnStdinClose), "PORT="+port)
}

// withVariable returns env with the variable in place of any of that name.
func withVariable(env []string, variable string) []string {
	name, _, _ := strings.Cut(variable, "=")
	others := slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	return append(others, variable)
}

// execFailure says why the process did not become the command.
func execFailure(err error, l Launch) *Failure {
	f := fail(StartFailed, err.Error())
	failed, ok := errors.AsType[*process.ExecError](err)
	if !ok {
		return f
	}
	switch {
	case failed.Path == l.Dir:
		f = fail(ConfigInvalid, err.Error())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		f = fail(CommandNotFound, err.Error())
	default:
		f.Hint = "see to it that it is a program for this machine, or a script whose first line is such as #!/bin/sh; then restart with dev_restart or `devproxyctl restart`"
	}
	return f
}

// greeting is what the handshake of that start says: for whom it is started, and
// what the clients that are there can do, or those of the last time could.
func (r *processes) greeting(p plan) era.Peer {
	var g era.Peer
	if r.config.Greeting != nil {
		g = r.config.Greeting()
	}
	if p.starter.Era != era.None {
		g.Era, g.Version, g.Info = p.starter.Era, p.starter.Version, p.starter.Info
	}
	if g.Era == era.None {
		g.Era = r.snapshots.lastEra(p.launch.Command)
	}
	if len(g.Capabilities) == 0 {
		g.Capabilities = r.snapshots.union(p.launch.Command)
	}
	return g
}

// handshakeOrder returns the eras to try on a stdio backend. After a respawn
// only the one it was for is left; otherwise the client's goes first, unless it
// is known to cost the process.
func (r *processes) handshakeOrder(p plan, greeting era.Peer) []era.Era {
	if p.first != era.None {
		return []era.Era{p.first}
	}
	eras := []era.Era{era.Modern, era.Legacy}
	if greeting.Era == era.Legacy {
		slices.Reverse(eras)
	}
	if eras[0] == r.snapshots.spoils(p.launch.Command) {
		slices.Reverse(eras)
	}
	return eras
}
