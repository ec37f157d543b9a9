package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
)

// lookDaemon: does one run, and does it answer?
func lookDaemon(_ context.Context, f *facts) []Finding {
	switch err := f.statusErr; {
	case f.away:
		return with(one(Warning, "pid %d runs, but its socket is gone", f.Project.DaemonPID()),
			"it makes a new one within a second, unless it just starts or ends: look again in a moment")
	case errors.Is(err, client.ErrNoDaemon):
		if said := lastWords(f.Project); len(said) > 0 {
			return with(one(Warning, "none runs, and the last one that was started said something"),
				`"devproxyd start" starts one, and says why if it cannot; the whole of it is in `+f.Project.StartLog(), said...)
		}
		return one(OK, `none runs; the first client starts one, or "devproxyctl start"`)
	case errors.Is(err, client.ErrHungUp):
		return with(one(Warning, "it has just ended, or is about to"), "look again in a moment")
	case errors.Is(err, client.ErrNotServing):
		who := "its process"
		if pid := f.Project.DaemonPID(); pid != 0 {
			who = fmt.Sprintf("pid %d", pid)
			if command := process.CommandLine(pid); command != "" {
				who += " (" + command + ")"
			}
		}
		if pid := f.Project.DaemonPID(); pid != 0 && process.Stopped(pid) {
			return with(one(Problem, "%s is stopped, and does not answer", who), fmt.Sprintf("let it go on: kill -CONT %d", pid))
		}
		return with(one(Problem, "%s does not answer within %s", who, checkPatience),
			"it may be stuck: wait for it, or end it with SIGKILL; the next daemon cleans up after it")
	case err != nil:
		return with(one(Problem, "%v", err), "mend that first")
	}
	d := f.status.GetDaemon()
	return one(OK, "%s, pid %d, up %s; environment from %s", d.GetVersion(), d.GetPid(), time.Since(d.GetStartTime().AsTime()).Round(time.Second), d.GetEnvironmentOrigin())
}

// startLine begins what one start writes to the start log.
var startLine = regexp.MustCompile(`(?m)^\S+ process \d+ starts .*$`)

// shownWords are how many lines of what somebody said are shown.
const shownWords = 6

// lastWords are the last lines that the last daemon wrote before it had a log, or as
// it fell. Where the log went on afterwards they are no longer the last.
func lastWords(p project.Project) []string {
	if laterThan(p.DaemonLog(), p.StartLog()) {
		return nil
	}
	text, err := readFile(p.StartLog(), maxState)
	if err != nil {
		return nil
	}
	starts := startLine.FindAllIndex(text, -1)
	if len(starts) > 0 {
		text = text[starts[len(starts)-1][1]:]
	}
	return lastLines(string(text))
}

// laterThan reports that the file a was written to after b.
func laterThan(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && one.ModTime().After(other.ModTime())
}

func lastLines(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-shownWords):]
}

// lookLeftovers: has an earlier daemon left processes?
func lookLeftovers(_ context.Context, f *facts) []Finding {
	if f.away || !errors.Is(f.statusErr, client.ErrNoDaemon) {
		return nil // what there is belongs to the daemon
	}
	var record struct {
		Process    process.Identity
		Generation uint64
	}
	if !readJSON(f.Project.Record(), &record) || record.Process.Marker == "" {
		// On Linux the mark alone finds them, whatever the generation.
		record.Process.Marker = f.Project.Hash + ":0"
	}
	pids, err := process.Orphans(record.Process)
	switch {
	case err != nil:
		return one(Skipped, "%v", err)
	case len(pids) == 0:
		return one(OK, "no process of an earlier daemon is left")
	}
	var named []string
	for _, pid := range pids {
		named = append(named, words(fmt.Sprintf("pid %d", pid), process.CommandLine(pid)))
	}
	return with(one(Warning, "an earlier daemon has left %s", count(len(pids), "process")), `the next daemon ends them: "devproxyd start"`, named...)
}

// lookBackend: how does it do?
func lookBackend(_ context.Context, f *facts) []Finding {
	switch {
	case f.away:
		return one(Skipped, "the daemon cannot be asked")
	case errors.Is(f.statusErr, client.ErrNoDaemon):
		return one(Skipped, "no daemon runs that would know")
	case f.status == nil:
		return one(Skipped, "the daemon does not answer")
	}
	b := f.status.GetBackend()
	name := client.StateName(b.GetState())
	summary := name
	switch {
	case b.GetNeverRan():
		summary += ", it came to no process and printed nothing"
	case b.GetGeneration() != 0:
		summary += fmt.Sprintf(", generation %d", b.GetGeneration())
	}
	if b.GetPid() != 0 {
		summary += fmt.Sprintf(", pid %d", b.GetPid())
	}
	if b.GetMessage() != "" {
		first, _, _ := strings.Cut(b.GetMessage(), "\n")
		summary += ": " + first
	}
	var details []string
	if exit := b.GetLastExit(); exit != nil {
		details = append(details, fmt.Sprintf("generation %d ended %s ago: %s (%s)", exit.GetGeneration(),
			time.Since(exit.GetTime().AsTime()).Round(time.Second), exit.GetStatus(), exit.GetReason()))
	}
	switch name {
	case "failed", "backoff":
		tail, remedy := b.GetLastExit().GetStderrTail(), `"devproxyctl logs" has more; mend it, then "devproxyctl restart"`
		if b.GetNeverRan() {
			tail, remedy = nil, `mend it, then "devproxyctl restart"` // what was printed is of another one
			details = append([]string{"the command is " + strings.Join(b.GetCommand(), " ")}, details...)
		}
		for _, line := range tail[max(0, len(tail)-shownWords):] {
			details = append(details, "  "+line)
		}
		return append(with(one(Problem, "%s", summary), remedy, details...), warnings(b.GetWarnings())...)
	case "running":
		if build := f.status.GetBuild(); build != nil && !build.GetOk() && !build.GetRunning() {
			remedy := `"devproxyctl logs --source build" has its output`
			if build.GetByPerson() {
				remedy = "its output is in the terminal where it ran"
			}
			why := strings.TrimPrefix(build.GetMessage(), "the build failed: ")
			return append(with(one(Warning, "%s; but the last build failed: %s", summary, why), remedy, build.GetTail()...), warnings(b.GetWarnings())...)
		}
	}
	return append(with(one(OK, "%s", summary), "", details...), warnings(b.GetWarnings())...)
}

// warnings are a finding each.
func warnings(of []*client.Warning) []Finding {
	var found []Finding
	for _, w := range of {
		found = append(found, with(one(Warning, "%s", w.GetText()), w.GetAdvice())...)
	}
	return found
}

// lookHandshake: does the backend speak to a client?
func lookHandshake(ctx context.Context, f *facts) []Finding {
	runs := client.StateName(f.status.GetBackend().GetState()) == "running"
	switch {
	case f.away, f.statusErr != nil && !errors.Is(f.statusErr, client.ErrNoDaemon):
		return one(Skipped, "the daemon does not answer")
	case f.Handshake == nil || !runs && !f.Started:
		return one(Skipped, "the backend does not run; --start starts it and tries")
	}
	said, err := f.Handshake(ctx)
	if err != nil {
		return with(one(Problem, "%v", err), `"devproxyctl logs" has what the server wrote, "devproxyctl trace" what passes`)
	}
	return append(one(OK, "%s", said), warnings(f.news(ctx))...)
}

// news are the warnings that the conversation itself has brought up.
func (f *facts) news(ctx context.Context) []*client.Warning {
	status, err := f.ask(ctx)
	if err != nil {
		return nil // it was there a moment ago, and is told of then
	}
	return slices.DeleteFunc(status.GetBackend().GetWarnings(), func(w *client.Warning) bool {
		return slices.ContainsFunc(f.status.GetBackend().GetWarnings(), func(known *client.Warning) bool { return known.GetText() == w.GetText() })
	})
}
