package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/build"
	"github.com/debugmcp/devproxy/daemon/devtools"
	"github.com/debugmcp/devproxy/daemon/logs"
)

// controller does what people ask for through devproxyctl and models through
// the dev tools, in the same way for both.
type controller struct {
	supervisor *backend.Supervisor
	launcher   *launcher
	buildings  *buildings
	keeper     *build.Keeper
	buffer     *logs.Buffer
	look       func(show bool) view
	// handingOver reports whether the daemon ends because another one follows.
	handingOver func() bool
}

// errReplaced is what becomes of a start or restart of the backend that a
// handover ends. The supervisor does not know that a successor follows.
var errReplaced = errors.New("the daemon was replaced by another one before this was done; ask again")

// start starts the backend if it does not run.
func (c *controller) start(ctx context.Context, step func(backend.Step)) error {
	if c.supervisor.Status().State != backend.Running {
		if _, err := c.launcher.check(); err != nil {
			return fmt.Errorf("nothing was started: %w", err)
		}
	}
	c.keeper.Refresh()
	defer c.buildings.insist()()
	return c.outcome(c.supervisor.Start(ctx, step))
}

func (c *controller) outcome(err error) error {
	if failed, ok := errors.AsType[*backend.Failure](err); ok && failed.Reason == backend.ShuttingDown && c.handingOver() {
		return errReplaced
	}
	return err
}

// restart starts a new generation of the backend, after a build if asked. A
// nil set of overrides keeps the one there is. The set is replaced once nothing
// stands in the way of the restart, and stays if the new generation fails: it is
// what the next try is made with.
func (c *controller) restart(ctx context.Context, rebuild bool, overrides map[string]string, step func(backend.Step)) error {
	if err := c.ready(rebuild, overrides); err != nil {
		return fmt.Errorf("nothing was restarted: %w", err)
	}
	c.keeper.Refresh()
	defer c.buildings.insist()()
	options := backend.RestartOptions{Rebuild: rebuild, Keep: func(cause error) bool { return errors.Is(cause, devtools.ErrStillWorking) }}
	if overrides != nil {
		options.Before = func() error { return c.launcher.setOverrides(overrides) }
	}
	err := c.supervisor.Restart(ctx, options, step)
	if failed, ok := errors.AsType[*backend.Failure](err); ok && failed.Reason == backend.BuildFailed {
		// Who asked has seen the build's output already.
		told := *failed
		told.Tail = nil
		return &told
	}
	return c.outcome(err)
}

// ready reports what stands in the way of a restart, before that gives up a
// backend that runs.
func (c *controller) ready(rebuild bool, overrides map[string]string) error {
	configuration, err := c.launcher.check()
	if err != nil {
		return err
	}
	if rebuild && !configuration.Build.Command.Configured() {
		return errNoBuild
	}
	if err := checkOverrides(overrides); err != nil {
		return err
	}
	if rebuild {
		return nil // the build may make it
	}
	return c.launcher.checkProgram(configuration, overrides)
}

// words tells an error without the secrets in it, and with the names that the
// dev tools have here.
func (c *controller) words(err error) string {
	now := c.look(false)
	return now.mask.text(now.tools.Replace(err.Error()))
}

// toolController is the controller as the dev tools see it.
type toolController struct{ *controller }

// Status implements devtools.Controller.
func (c toolController) Status() devtools.Status { return c.look(false).toDevtools() }

// Restart implements devtools.Controller.
func (c toolController) Restart(ctx context.Context, request devtools.RestartRequest, progress func(string)) error {
	mask := func(text string) string { return c.launcher.mask().Mask(text) } // overrides may bring new secrets
	err := c.restart(ctx, request.Rebuild, request.Overrides, func(step backend.Step) {
		switch {
		case step.Status != nil:
			progress(step.Status.State.String())
		case step.Output != nil:
			progress(mask(*step.Output))
		case step.Build != nil && step.Build.OK:
			progress("built")
		}
	})
	if err != nil {
		return errors.New(c.words(err)) // only the text goes on
	}
	return nil
}

// Logs implements devtools.Controller.
func (c toolController) Logs(n int, source string) []string {
	var filter logs.Filter
	if source != "" {
		filter.Sources = []logs.Source{logs.Source(source)}
	}
	mask := masking{masker: c.launcher.mask()}
	entries := c.buffer.Tail(n, filter)
	lines := make([]string, len(entries))
	for i, e := range entries {
		lines[i] = fmt.Sprintf("%s %s %s", e.Time.Format("15:04:05.000"), label(e), mask.text(e.Text))
	}
	return lines
}

// label says where a line comes from.
func label(e logs.Entry) string {
	if e.Source == logs.Backend {
		return fmt.Sprintf("[backend#%d %s]", e.Generation, e.Stream)
	}
	return fmt.Sprintf("[%s]", e.Source)
}
