//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/testbed"
)

// commandPatience bounds a command: more than any of them may take, whatever
// happens to it meanwhile.
const commandPatience = 60 * time.Second

// outcome is what a finished command left.
type outcome struct {
	stdout, stderr string
	code           int
}

func (o outcome) String() string {
	return fmt.Sprintf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
}

// environment is what a terminal or a client starts the programs with.
func (w *world) environment() []string {
	return append([]string{
		"HOME=" + w.home,
		"LOGNAME=tester",
		"PATH=" + os.Getenv("PATH"),
		"SHELL=/bin/sh",
		"TERM=dumb",
		"USER=tester",
		"TMPDIR=" + w.tmp,
	}, testbed.RaceEnv...)
}

// program is where a program under test is installed in this world.
func (w *world) program(name string) string { return filepath.Join(w.bin, name) }

// install installs the programs under test, as links, so that one of them can be
// replaced in this world alone.
func (w *world) install() error {
	if err := os.Mkdir(w.bin, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"devproxyd", "devproxyctl", "devproxy-shim"} {
		if err := os.Link(program(name), w.program(name)); err != nil {
			return err
		}
	}
	return nil
}

// upgrade replaces devproxyd by the version that is not installed, as a package
// manager does: at once, whatever runs.
func (w *world) upgrade() (version string, err error) {
	w.upgrading.Lock()
	defer w.upgrading.Unlock()
	from, version := other(), otherVersion
	if w.upgraded {
		from, version = binDir, "the first version"
	}
	next := w.program("next")
	if err := os.Link(filepath.Join(from, "devproxyd"), next); err != nil {
		return "", err
	}
	w.upgraded = !w.upgraded
	return version, os.Rename(next, w.program("devproxyd"))
}

// command runs one of the programs as from a terminal in the project's folder.
// It has to end, whatever it says.
func (w *world) command(ctx context.Context, actor, name string, args ...string) outcome {
	what := name + " " + strings.Join(args, " ")
	w.timeline.notef(actor, "runs %s", what)
	// Not bound to the storm: what has begun is to come to its end.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), commandPatience, errors.New("it takes too long"))
	defer cancel()
	command := exec.CommandContext(ctx, w.program(name), args...)
	command.Dir, command.Env, command.SysProcAttr = w.root, w.environment(), credential()
	// A detached daemon that kept the pipes would keep Wait from returning.
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	o := outcome{stdout: stdout.String(), stderr: stderr.String(), code: command.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		w.violatef(actor, "%s did not end within %v", what, commandPatience)
	} else if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		w.violatef(actor, "running %s: %v", what, err)
	}
	w.checkText(what, o.stderr)
	if args[0] != "status" || o.code != 0 {
		w.timeline.notef(actor, "%s: %v", what, o)
	}
	return o
}

// stop runs devproxyd stop.
func (w *world) stop(ctx context.Context, actor string) outcome {
	w.stops.Add(1)
	defer w.stops.Add(1)
	return w.command(ctx, actor, "devproxyd", "stop")
}

// disasters are what no program may say, in whatever log.
var disasters = []string{"DATA RACE", "panic:", "fatal error:"}

// checkText looks for disasters in what a program wrote.
func (w *world) checkText(where, text string) {
	for _, disaster := range disasters {
		if at := strings.Index(text, disaster); at >= 0 {
			const context = 4000
			w.violatef("watch", "%s says %s:\n%s", where, disaster, text[max(0, at-context/4):min(len(text), at+context)])
			return
		}
	}
}

// status is what `devproxyctl status --json` says, as far as it is asked here.
type status struct {
	Daemon struct {
		PID     number
		Version string
	}
	Backend struct {
		State   string
		PID     number
		Message string
	}
	Sessions []struct{ ID number }
}

// number is an integer of any size.
type number int64

// state returns the backend's state by its short name, such as "running".
func (s status) state() string {
	return strings.ToLower(strings.TrimPrefix(s.Backend.State, "BACKEND_STATE_"))
}

// status asks devproxyctl; false means that it got no answer.
func (w *world) status(ctx context.Context, actor string) (status, bool) {
	var document struct{ Status status }
	o := w.command(ctx, actor, "devproxyctl", "status", "--json")
	if o.code != 0 {
		return status{}, false
	}
	if err := json.Unmarshal([]byte(o.stdout), &document); err != nil {
		w.violatef(actor, "devproxyctl status --json: %v\n%s", err, o.stdout)
		return status{}, false
	}
	return document.Status, true
}

// await calls check until it returns true, and reports whether it did in time.
func await(ctx context.Context, patience time.Duration, check func() bool) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("patience is over"))
	defer cancel()
	for !check() {
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
	}
	return true
}

// pause waits and reports whether ctx lasted as long.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
