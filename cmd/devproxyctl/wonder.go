package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/cli"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/project"
)

const (
	// glance is how often it is looked whether an answer keeps a person waiting.
	glance = 250 * time.Millisecond
	// statusPatience bounds the question to the daemon what is waited for.
	statusPatience = time.Second
)

// errAnswered ends the wondering of a command that has its answer.
var errAnswered = errors.New("there is an answer")

// wonder tells a person what is waited for, as long as that takes longer than a
// moment and nothing else happens; at once where it could take for ever. It is told
// to whoever is there, a terminal or a script's log: both wonder alike. The function
// returned ends it.
func wonder(cmd *cobra.Command, target *cli.Target, p project.Project, pending func() (method string, since time.Time)) (stop func()) {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(glance)
		defer ticker.Stop()
		told, asked := "", time.Time{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			method, since := pending()
			if method == "" || time.Since(asked) < cli.Moment-glance/2 {
				continue
			}
			asked = time.Now()
			reason, hopeless := waitingFor(currentStatus(ctx, target), p)
			if reason == "" {
				reason = "the answer to " + method
			}
			if ctx.Err() == nil && reason != told && (hopeless || time.Since(since) >= cli.Moment) {
				told = reason
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s; Ctrl-C ends it\n", cli.PrintableLine(cli.ForPerson(reason)))
			}
		}
	}()
	return func() {
		cancel(errAnswered)
		<-ended
	}
}

// currentStatus is what the daemon says, nil if it says nothing.
func currentStatus(ctx context.Context, target *cli.Target) *client.Status {
	ctx, cancel := context.WithTimeoutCause(ctx, statusPatience, fmt.Errorf("no status within %s", statusPatience))
	defer cancel()
	c, _, err := target.Find(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }()
	status, err := c.Status(ctx, false)
	if err != nil {
		return nil
	}
	return status
}

// waitingFor says what a request waits for before the backend has it; empty if it
// has. hopeless says that somebody has to do something first.
func waitingFor(status *client.Status, p project.Project) (reason string, hopeless bool) {
	b := status.GetBackend()
	switch state := client.StateName(b.GetState()); {
	case status == nil || state == "running":
		return "", false
	case state == "building" || status.GetBuild().GetRunning():
		return "the build: " + status.GetBuild().GetCommand(), false
	case status.GetWatch().GetEntryMissing() && !isThere(p, status.GetWatch().GetEntry()):
		reason = status.GetWatch().GetEntry() + ", which is missing or empty"
		if c, err := config.Load(p.Root); err == nil && c.Build.Command.Configured() {
			return fmt.Sprintf("%s: build it (%s, or \"devproxyctl restart --rebuild\")", reason, c.Build.Command), true
		}
		return reason + ": build it", true
	default:
		reason, _, _ = strings.Cut(b.GetMessage(), "\n")
		if reason == "" {
			reason = state
		}
		return "the server: " + reason, false
	}
}

// isThere reports whether a file has come that the daemon has not seen yet.
func isThere(p project.Project, entry string) bool {
	if !filepath.IsAbs(entry) {
		entry = filepath.Join(p.Root, entry)
	}
	info, err := os.Stat(entry)
	return err == nil && info.Size() > 0
}
