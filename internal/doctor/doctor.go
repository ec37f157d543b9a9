// Package doctor looks at everything that can keep a project from working behind
// devproxy, and says of each thing what to do about it. It starts nothing and
// changes nothing; where a daemon runs it asks that.
//
// It is there for when something is broken. So no check relies on another one's
// success, each has a deadline, and one that itself fails is a finding like any
// other.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/internal/clients"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
)

// State is what a check came to.
type State string

// The states of a finding.
const (
	// OK: it is as it should be.
	OK State = "ok"
	// Warning: it works, but not as somebody would want it to.
	Warning State = "warning"
	// Problem: something does not work, or would not.
	Problem State = "problem"
	// Skipped: it does not matter here, or could not be looked at.
	Skipped State = "skipped"
)

// Finding is what one check came to.
type Finding struct {
	// Check is what was looked at.
	Check string `json:"check"`
	State State  `json:"state"`
	// Summary says how it is, in one line.
	Summary string `json:"summary"`
	// Details say more, each in a line.
	Details []string `json:"details,omitempty"`
	// Remedy says what to do; empty where nothing is to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Patient is what is examined.
type Patient struct {
	// Project is the one that is meant, or else ProjectErr says why there is none.
	Project    project.Project
	ProjectErr error
	// Socket is the path that a person named; empty for the project's own.
	Socket string
	// Program is the build of the caller, for comparisons.
	Program client.Build
	// Environ is the environment of the caller.
	Environ []string
	// Host is where clients are looked for.
	Host clients.Host
	// Handshake speaks to the backend as a client does and tells what it said. It is
	// called where the backend runs, or always with Started: somebody wanted it to.
	Handshake func(ctx context.Context) (string, error)
	Started   bool
}

const (
	// checkPatience bounds each check. What it asks the system takes milliseconds; a
	// disk that does not answer must not keep the other findings back.
	checkPatience = 3 * time.Second
	// handshakePatience bounds the conversation with a backend that runs.
	handshakePatience = 10 * time.Second
)

// facts are what several checks go by.
type facts struct {
	Patient

	// config is nil where there is none that is valid; configErr says why.
	config    *config.Config
	configErr error
	// status is nil where no daemon answers; statusErr says why.
	status    *client.Status
	statusErr error
	// away: a daemon runs, but nobody listens at its socket.
	away bool
	kept kept
}

// check is one thing to look at. It may have several findings, or none where it
// is of no concern.
type check struct {
	name string
	// needsProject and needsConfig skip it where there is none.
	needsProject, needsConfig bool
	patience                  time.Duration
	look                      func(ctx context.Context, f *facts) []Finding
}

// checks are in the order in which a person would look: first what is written
// down, then what is on this machine, then what runs.
func checks() []check {
	return []check{
		{name: configCheck, look: lookConfig},
		{name: "command", needsConfig: true, look: lookCommand},
		{name: "cwd", needsConfig: true, look: lookCwd},
		{name: "env_file", needsConfig: true, look: lookEnvFile},
		{name: "build", needsConfig: true, look: lookBuild},
		{name: "entry", needsConfig: true, look: lookEntry},
		{name: "watch", needsConfig: true, look: lookWatch},
		{name: "file events", needsConfig: true, look: lookEvents},
		{name: "port", needsConfig: true, look: lookPort},
		{name: "programs", look: lookPrograms},
		{name: "state folder", needsProject: true, look: lookState},
		{name: "socket", needsProject: true, look: lookSocket},
		{name: "clients", needsProject: true, look: lookClients},
		{name: "daemon", needsProject: true, look: lookDaemon},
		{name: "leftovers", needsProject: true, look: lookLeftovers},
		{name: "backend", needsProject: true, look: lookBackend},
		{name: "handshake", needsProject: true, patience: handshakePatience, look: lookHandshake},
	}
}

// Examine makes all checks. The findings are in the order of the checks.
func Examine(ctx context.Context, p Patient) []Finding {
	f := &facts{Patient: p}
	f.gather(ctx)
	all := checks()
	if f.ProjectErr != nil {
		all = slices.DeleteFunc(all, func(c check) bool { return c.needsProject || c.needsConfig })
	}
	found := make([][]Finding, len(all))
	var looking sync.WaitGroup
	for i, c := range all {
		looking.Go(func() { found[i] = c.make(ctx, f) })
	}
	looking.Wait()
	var findings []Finding
	for _, some := range found {
		findings = append(findings, some...)
	}
	f.hide(ctx, findings)
	if f.ProjectErr != nil {
		findings = append(findings, Finding{Check: "the rest", State: Skipped, Summary: "there is no project to look at"})
	}
	return findings
}

// hide takes secrets out of what is told, as the daemon does: it is likely to be
// shown to others.
func (f *facts) hide(ctx context.Context, findings []Finding) {
	// A file of variables that does not answer has told nobody its secrets.
	secrets, _ := within(ctx, checkPatience, func(context.Context) []map[string]string { return f.secrets() })
	masker := logs.NewMasker(append(secrets, f.kept.overrides)...)
	for i := range findings {
		told := &findings[i]
		told.Summary, told.Remedy = masker.Mask(told.Summary), masker.Mask(told.Remedy)
		for n, detail := range told.Details {
			told.Details[n] = masker.Mask(detail)
		}
	}
}

func (c check) make(ctx context.Context, f *facts) []Finding {
	if c.needsConfig && f.config == nil {
		return []Finding{{Check: c.name, State: Skipped, Summary: "it needs a valid " + project.ConfigName}}
	}
	patience := c.patience
	if patience == 0 {
		patience = checkPatience
	}
	findings, err := within(ctx, patience, func(ctx context.Context) []Finding { return c.look(ctx, f) })
	if err != nil {
		return []Finding{{
			Check: c.name, State: Problem, Summary: err.Error(),
			Remedy: "look whether a disk or a network mount does not answer",
		}}
	}
	for i := range findings {
		if findings[i].Check == "" {
			findings[i].Check = c.name
		}
	}
	return findings
}

// gather asks what several checks want to know.
func (f *facts) gather(ctx context.Context) {
	if f.ProjectErr != nil {
		f.configErr, f.statusErr = f.ProjectErr, f.ProjectErr
		return
	}
	type loaded struct {
		config *config.Config
		err    error
	}
	type answered struct {
		status *client.Status
		err    error
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		l, err := within(ctx, checkPatience, func(context.Context) loaded {
			c, err := config.Load(f.Project.Root)
			return loaded{c, err}
		})
		f.config, f.configErr = l.config, errors.Join(err, l.err)
	})
	asking.Go(func() {
		a, err := within(ctx, checkPatience, func(ctx context.Context) answered {
			status, err := f.ask(ctx)
			return answered{status, err}
		})
		f.status, f.statusErr = a.status, a.err
		if err != nil {
			f.statusErr = fmt.Errorf("%w: %w", client.ErrNotServing, err)
		}
		f.away = errors.Is(f.statusErr, client.ErrNoDaemon) && client.Held(f.Project)
	})
	asking.Go(func() {
		f.kept, _ = within(ctx, checkPatience, func(context.Context) kept { return readKept(f.Project) })
	})
	asking.Wait()
}

// ask asks the project's daemon for its status.
func (f *facts) ask(ctx context.Context) (*client.Status, error) {
	c, err := client.EnsureRunning(ctx, client.Options{Project: f.Project, Socket: f.Socket, DialOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.Status(ctx, false)
}

// within does something that may take longer than anybody waits: a call of the
// system cannot be interrupted. What has not come to an end by then is left behind,
// for this program is about to end. A panic is an error.
func within[T any](ctx context.Context, patience time.Duration, do func(ctx context.Context) T) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	type ended struct {
		value T
		err   error
	}
	end := make(chan ended, 1)
	go func() {
		var e ended
		defer func() {
			if r := recover(); r != nil {
				e.err = fmt.Errorf("the check itself failed: %v\n%s", r, debug.Stack())
			}
			end <- e
		}()
		e.value = do(ctx)
	}()
	select {
	case e := <-end:
		return e.value, e.err
	case <-ctx.Done():
	}
	// What watches the context itself has more to say, and says it now.
	const lastWord = 200 * time.Millisecond
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case e := <-end:
		return e.value, e.err
	case <-timer.C:
		var nothing T
		return nothing, context.Cause(ctx)
	}
}

// one is the finding of a check that has one.
func one(state State, summary string, args ...any) []Finding {
	return []Finding{{State: state, Summary: fmt.Sprintf(summary, args...)}}
}

// with adds a remedy and details.
func with(found []Finding, remedy string, details ...string) []Finding {
	found[0].Remedy, found[0].Details = remedy, details
	return found
}
