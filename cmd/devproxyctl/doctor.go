package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/doctor"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/shim"
)

func newDoctor(target *cli.Target) *cobra.Command {
	var asJSON, start bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for everything that can be wrong, and say what to do",
		Long: `Look at everything that can keep the project from working: devproxy.toml and the
files and programs it names, the port, file events, the state folder and the
socket, the programs' versions, the clients' files, the daemon, what an earlier
one left, and the backend. Each line says how it is, and below it what to do.

It works without a daemon, without a devproxy.toml and with a broken state folder,
and it starts nothing and changes nothing. A backend that runs is spoken to as a
client does; --start starts it for that, and the daemon too.

Exit codes: 0 no problem, though there may be warnings; 1 a problem; 2 wrong usage;
130 interrupted.`,
		Example: `  devproxyctl doctor
  devproxyctl doctor --start
  devproxyctl doctor --json | jq '.checks[] | select(.state == "problem")'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := target.Project()
			if err == nil && target.Dir != "" {
				err = p.HasConfig()
			}
			host, hostErr := hostOf(p)
			if hostErr != nil {
				return hostErr
			}
			var startErr error
			if start && err == nil {
				startErr = startBackend(cmd, target)
			}
			looked := cli.Waiting(cmd, "what does not answer")
			findings := doctor.Examine(cmd.Context(), doctor.Patient{
				Project: p, ProjectErr: err, Socket: target.SocketPath,
				Program: cli.OwnBuild(cmd),
				Environ: os.Environ(), Host: host, Started: start,
				Handshake: func(ctx context.Context) (string, error) {
					if startErr != nil {
						return "", startErr
					}
					return shakeHands(ctx, cmd, target, p)
				},
			})
			looked()
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			out := cmd.OutOrStdout()
			if asJSON {
				err = printFindingsJSON(out, p.Root, findings)
			} else {
				err = printFindings(out, findings, terminalWidth(out))
			}
			if err == nil && tally(findings)[doctor.Problem] > 0 {
				err = cli.Told(cli.ExitFailed)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&start, "start", false, "start what does not run, and speak to the backend")
	return cmd
}

// startBackend starts what does not run.
func startBackend(cmd *cobra.Command, target *cli.Target) error {
	c, err := dialStarting(cmd, target)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "starting the backend, if it does not run")
	return c.Start(cmd.Context(), func(*client.Step) {})
}

// shakeHands speaks to the backend as a client does, and tells what it is.
func shakeHands(ctx context.Context, cmd *cobra.Command, target *cli.Target, p project.Project) (string, error) {
	began := time.Now()
	s, err := attach(ctx, cmd, p, shim.Config{Socket: target.SocketPath, NoAutostart: true}, nil, nil)
	if err != nil {
		return "", err
	}
	defer s.close()
	raw, err := s.tools(ctx)
	if err != nil {
		return "", err
	}
	if why := s.down(ctx, things(raw)); why != "" {
		return "", errors.New(why)
	}
	took := time.Since(began)
	own := 0
	for _, t := range things(raw) {
		if s.mark(t.Name) == "" {
			own++
		}
	}
	said := s.session.InitializeResult()
	name := "the server"
	if said.ServerInfo != nil {
		name = strings.TrimSpace(said.ServerInfo.Name + " " + said.ServerInfo.Version)
	}
	tools := "tools"
	if own == 1 {
		tools = "tool"
	}
	return fmt.Sprintf("%s answers, with %d %s of its own, in %s", name, own, tools, short(took)), nil
}

func tally(findings []doctor.Finding) map[doctor.State]int {
	counts := map[doctor.State]int{}
	for _, f := range findings {
		counts[f.State]++
	}
	return counts
}

func printFindingsJSON(out io.Writer, root string, findings []doctor.Finding) error {
	counts := tally(findings)
	return writeJSON(out, struct {
		Version  int              `json:"version"`
		OK       bool             `json:"ok"`
		Project  string           `json:"projectRoot,omitempty"`
		Problems int              `json:"problems"`
		Warnings int              `json:"warnings"`
		Checks   []doctor.Finding `json:"checks"`
	}{jsonVersion, counts[doctor.Problem] == 0, root, counts[doctor.Problem], counts[doctor.Warning], findings})
}

// findingStyles are how the states look on a terminal.
var findingStyles = map[doctor.State]lipgloss.Style{
	doctor.OK: green, doctor.Warning: amber, doctor.Problem: red, doctor.Skipped: faint,
}

// printFindings writes a line for each check, what is to say of it below, and a
// summary. Lines are wrapped at width, unless that is 0.
func printFindings(out io.Writer, findings []doctor.Finding, width int) error {
	checkColumns := 0
	for _, f := range findings {
		checkColumns = max(checkColumns, lipgloss.Width(f.Check))
	}
	const stateColumns = len("problem")
	head := stateColumns + checkColumns + 2*len(gap)
	var text strings.Builder
	put := func(state, check, line string) {
		if room := width - head; room >= minText {
			line = lipgloss.Wrap(line, room, " ")
		}
		for part := range strings.Lines(line) {
			fmt.Fprintf(&text, "%s%s%s%s\n", state, gap, check, gap+strings.TrimRight(part, "\n"))
			state, check = strings.Repeat(" ", stateColumns), strings.Repeat(" ", checkColumns)
		}
	}
	for _, f := range findings {
		style := findingStyles[f.State]
		put(style.Render(fmt.Sprintf("%-*s", stateColumns, f.State)), fmt.Sprintf("%-*s", checkColumns, f.Check), cli.PrintableLine(cli.ForPerson(f.Summary)))
		blank, below := strings.Repeat(" ", stateColumns), strings.Repeat(" ", checkColumns)
		for _, detail := range f.Details {
			put(blank, below, faint.Render(cli.PrintableLine(detail)))
		}
		if f.Remedy != "" {
			put(blank, below, bold.Render("→ "+cli.PrintableLine(f.Remedy)))
		}
	}
	fmt.Fprintf(&text, "\n%s\n", summary(tally(findings)))
	return write(out, text.String())
}

// summary counts the findings in words, the worst first.
func summary(counts map[doctor.State]int) string {
	var parts []string
	for _, kind := range []struct {
		state     doctor.State
		one, many string
	}{
		{doctor.Problem, "problem", "problems"}, {doctor.Warning, "warning", "warnings"}, {doctor.OK, "ok", "ok"}, {doctor.Skipped, "skipped", "skipped"},
	} {
		switch n := counts[kind.state]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+kind.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.many))
		}
	}
	return strings.Join(parts, ", ")
}
