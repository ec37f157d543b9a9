package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/project"
)

// listPatience bounds the wait for each daemon. Whoever does not answer within
// it is stopped or stuck.
const listPatience = 3 * time.Second

func newList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the daemons of all projects",
		Long: `List the daemons of all projects of this user, wherever you are. A daemon that
ended without cleaning up is listed as stale, with what it left; the next daemon
of its project takes care of that. One that does not answer is named as such,
and makes the exit code 1.

A socket that was named with --socket is found by what its daemon wrote down.`,
		Example: `  devproxyctl list
  devproxyctl list --json | jq -r '.daemons[] | select(.state == "running") | .projectRoot'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			projects, err := project.All()
			if err != nil {
				return err
			}
			answered := cli.Waiting(cmd, "all daemons to answer")
			daemons := lookAtAll(cmd.Context(), projects)
			answered()
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			out := cmd.OutOrStdout()
			switch {
			case asJSON:
				err = printListJSON(out, daemons)
			case len(daemons) == 0:
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "no daemon is running")
			default:
				err = printList(out, daemons, time.Now(), terminalWidth(out))
			}
			if err != nil {
				return err
			}
			return silentOnes(daemons)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// The states of a daemon in the list.
const (
	daemonRuns        = "running"
	daemonStale       = "stale"
	daemonUnreachable = "unreachable"
)

// daemon is a line of the list. Its names are those of status --json where that
// has them.
type daemon struct {
	ProjectRoot string `json:"projectRoot"`
	State       string `json:"state"`
	PID         int64  `json:"pid,omitempty"`
	Version     string `json:"version,omitempty"`
	// StartTime is that of the daemon; absent unless it runs.
	StartTime    *time.Time `json:"startTime,omitempty"`
	BackendState string     `json:"backendState,omitempty"`
	Generation   uint64     `json:"generation,omitempty"`
	Clients      *int       `json:"clients,omitempty"`
	Socket       string     `json:"socket,omitempty"`
	// Left are the files of a daemon that is gone.
	Left []string `json:"left,omitempty"`
	// Problem says why an unreachable one is so.
	Problem string `json:"problem,omitempty"`
}

// lookAtAll asks all daemons at once and leaves out projects without one.
func lookAtAll(ctx context.Context, projects []project.Project) []daemon {
	found := make([]*daemon, len(projects))
	var asking sync.WaitGroup
	for i, p := range projects {
		asking.Go(func() { found[i] = lookAt(ctx, p) })
	}
	asking.Wait()
	daemons := []daemon{} // "[]" in JSON
	for _, d := range found {
		if d != nil {
			daemons = append(daemons, *d)
		}
	}
	return daemons
}

// lookAt asks the daemon of a project; nil if there is none, nor a trace of one.
func lookAt(ctx context.Context, p project.Project) *daemon {
	ctx, cancel := context.WithTimeoutCause(ctx, listPatience, fmt.Errorf("no answer within %s", listPatience))
	defer cancel()
	d := &daemon{ProjectRoot: p.Root, State: daemonRuns, Socket: p.RecordedSocket()}
	if d.Socket == "" {
		socket, err := p.Socket("")
		if err != nil {
			return nil
		}
		d.Socket = socket
	}
	status, err := ask(ctx, d.Socket)
	switch {
	case errors.Is(err, client.ErrNoDaemon):
		d.State, d.Left = daemonStale, leftBehind(p, d.Socket)
		if len(d.Left) == 0 {
			return nil
		}
	case err != nil:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		d.State, d.Problem, d.PID = daemonUnreachable, err.Error(), int64(p.DaemonPID())
	default:
		started, clients := status.GetDaemon().GetStartTime().AsTime(), len(status.GetSessions())
		d.PID, d.Version, d.StartTime, d.Clients = status.GetDaemon().GetPid(), status.GetDaemon().GetVersion(), &started, &clients
		d.BackendState, d.Generation = client.StateName(status.GetBackend().GetState()), status.GetBackend().GetGeneration()
	}
	return d
}

func ask(ctx context.Context, socket string) (*client.Status, error) {
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.Status(ctx, false)
}

// leftBehind are the files that a daemon removes at its end, and that are there.
func leftBehind(p project.Project, socket string) []string {
	var left []string
	for _, path := range []string{socket, p.PIDFile(), p.Record(), p.BuildWatchRecord()} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, path)
		}
	}
	return left
}

// silentOnes is the error of a list in which somebody does not answer.
func silentOnes(daemons []daemon) error {
	var errs []error
	for _, d := range daemons {
		if d.State == daemonUnreachable {
			errs = append(errs, fmt.Errorf("the daemon of %s does not answer: %s", d.ProjectRoot, d.Problem))
		}
	}
	return errors.Join(errs...)
}

func printListJSON(out io.Writer, daemons []daemon) error {
	return writeJSON(out, struct {
		Version int      `json:"version"`
		Daemons []daemon `json:"daemons"`
	}{jsonVersion, daemons})
}

// writeJSON prints a value in one line.
func writeJSON(out io.Writer, value any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := out.Write(cli.PrintableJSON([]byte(text.String())))
	return err
}

func printList(out io.Writer, daemons []daemon, now time.Time, width int) error {
	t := table{heading: []string{"PROJECT", "DAEMON", "PID", "UP", "BACKEND", "CLIENTS", "VERSION", "SOCKET"}}
	t.style = func(row, column int) lipgloss.Style {
		switch d := daemons[row]; {
		case column == 0:
			return bold
		case column == 1 && d.State == daemonUnreachable:
			return red
		case column == 1 && d.State == daemonStale:
			return amber
		case column == 4 && d.State == daemonRuns:
			return stateStyle(d.BackendState)
		}
		return lipgloss.NewStyle()
	}
	for _, d := range daemons {
		row := []string{d.ProjectRoot, d.State, "", "", "", "", d.Version, d.Socket}
		if d.PID != 0 {
			row[2] = strconv.FormatInt(d.PID, 10)
		}
		if d.State == daemonRuns {
			row[3], row[5] = short(now.Sub(*d.StartTime)), strconv.Itoa(*d.Clients)
			row[4] = d.BackendState
			if d.Generation != 0 {
				row[4] += fmt.Sprintf(" #%d", d.Generation)
			}
		}
		if d.State == daemonStale {
			row[7] = "left " + strings.Join(d.Left, ", ")
		}
		t.add(row...)
	}
	return t.print(out, width)
}
