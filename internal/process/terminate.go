package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// firstPoll and maxPoll bound the pause between two looks at a group. No event tells that a
	// group is empty. Most are within the first milliseconds; for those that take longer a
	// twentieth of a second is not felt, and the looks cost little.
	firstPoll = 10 * time.Millisecond
	maxPoll   = 50 * time.Millisecond

	// killWait is how long SIGKILL may take. Only a process inside an uninterruptible system
	// call or one of another user survives it, and neither gets better by waiting longer.
	killWait = 5 * time.Second

	// killAgain is the pause before those that are still there are killed again: a process
	// that left the group may have forked between the look and the signal.
	killAgain = 100 * time.Millisecond

	// outputGrace is how long readers get for what is still in the pipes once the group is
	// gone. A pipe holds 64 KiB, which takes a reader that reads at all a few milliseconds.
	outputGrace = 500 * time.Millisecond
)

// SurvivorsError says that processes are still there after SIGKILL.
type SurvivorsError struct {
	PIDs []int // ascending; empty where the system did not say who

	commands []string // what each of them runs, as far as known
}

func (e *SurvivorsError) Error() string {
	words := make([]string, len(e.PIDs))
	for i, pid := range e.PIDs {
		words[i] = strconv.Itoa(pid)
		if e.commands[i] != "" {
			words[i] += " (" + e.commands[i] + ")"
		}
	}
	return fmt.Sprintf("still alive %v after SIGKILL: %s", killWait, strings.Join(words, ", "))
}

func newSurvivorsError(pids []int) *SurvivorsError {
	slices.Sort(pids)
	e := &SurvivorsError{PIDs: pids}
	for _, pid := range pids {
		e.commands = append(e.commands, CommandLine(pid))
	}
	return e
}

// Terminate ends the whole group and returns when it is gone (nil) or cannot be ended
// ([*SurvivorsError]). The ladder: close stdin, SIGTERM, SIGKILL. Each rung lasts until nothing
// is left, rung at most; the first counts from when stdin was closed, if the caller did that
// earlier. SIGKILL gets 5 s. On Windows the middle rung is CTRL_BREAK, and SIGKILL ends the job.
//
// The end of ctx does not abandon the ladder half way, it hurries it: the patience ends and
// SIGKILL comes at once. Who wants the backend to have its time in spite of a context that is
// done, as in a shutdown, passes [context.WithoutCancel].
//
// When Terminate returns, readers of Stdout and Stderr have met the end or do so at their next
// Read, even if a process that got away still holds the pipe. Terminate may be called at any
// moment, before Release, after Done, and again: a later call waits for the earlier one.
func (p *Process) Terminate(ctx context.Context, rung time.Duration) error {
	p.ending.Lock()
	defer p.ending.Unlock()
	if p.ended.Load() {
		return nil
	}
	if !p.released.Load() {
		_ = p.gate.Close()
	}
	patience := rung - time.Since(p.stdin.close())
	if !p.group.await(ctx, p.done, patience) {
		if err := p.group.end(ctx, p.done, rung); err != nil {
			p.closeOutputs()
			return err
		}
	}
	p.ended.Store(true)
	p.closeOutputs()
	_ = p.gate.Close()
	_ = p.status.Close()
	p.group.close()
	return nil
}

// Interrupt sends SIGTERM to every member, and SIGCONT so that a stopped one hears it, and does
// not wait (CTRL_BREAK on Windows). It is for a Terminate to come that need not begin with the
// end of stdin.
func (p *Process) Interrupt() error {
	if p.ended.Load() {
		return nil
	}
	if err := p.group.terminate(); err != nil {
		return fmt.Errorf("interrupting the group of process %d: %w", p.identity.PID, err)
	}
	return nil
}

// Kill sends SIGKILL to every member (ends the job on Windows) and does not wait. It shortens a
// Terminate under way; it does not replace it.
func (p *Process) Kill() error {
	if p.ended.Load() {
		return nil
	}
	if err := p.group.kill(); err != nil {
		return fmt.Errorf("killing the group of process %d: %w", p.identity.PID, err)
	}
	return nil
}

func (p *Process) closeOutputs() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), outputGrace, errors.New("output grace over"))
	defer cancel()
	p.stdout.close(ctx.Done())
	p.stderr.close(ctx.Done())
}

// EndOrphan ends what an earlier daemon left behind, and returns whom it ended, in ascending
// order. With the recorded leader (same boot, pid and start time) its process group is ended; on
// Linux also every process of this user that is marked for the same project, whatever the
// generation, which needs no more than id.Marker. Anything else is left alone: a stranger who
// has the pid now, ourselves, our ancestors, and whatever descends from us.
//
// The rungs are those of [Process.Terminate] without stdin, whose other end died with the
// daemon; ctx hurries them likewise.
func EndOrphan(ctx context.Context, id Identity, rung time.Duration) (ended []int, err error) {
	g, err := orphanedGroup(id)
	if err != nil {
		return nil, fmt.Errorf("looking for orphan %d: %w", id.PID, err)
	}
	defer g.close()
	before, err := g.members()
	if err != nil {
		return nil, fmt.Errorf("looking for orphan %d: %w", id.PID, err)
	}
	if len(before) == 0 {
		return nil, nil
	}
	err = g.end(ctx, nil, rung)
	if survivors, ok := errors.AsType[*SurvivorsError](err); ok {
		before = slices.DeleteFunc(before, func(pid int) bool { return slices.Contains(survivors.PIDs, pid) })
	}
	slices.Sort(before)
	return before, err
}

// end asks the group to end, then makes it.
func (g *group) end(ctx context.Context, leader <-chan struct{}, rung time.Duration) error {
	// What went wrong with a signal shows in whether anybody is left.
	_ = g.terminate()
	if g.await(ctx, leader, rung) {
		return nil
	}
	// The last rung is the same whether or not ctx has ended: it is short, and it must be climbed.
	ctx = context.WithoutCancel(ctx)
	for deadline := time.Now().Add(killWait); time.Now().Before(deadline); {
		_ = g.kill()
		if g.await(ctx, leader, killAgain) {
			return nil
		}
	}
	members, err := g.members()
	if err != nil {
		return fmt.Errorf("ending process group %d: %w", g.leader.PID, err)
	}
	return newSurvivorsError(members)
}

// await waits until the leader is reaped (nil: it is not ours to reap) and nothing is left of the
// group, for limit at most or until ctx ends. It looks twice: a process that forks and exits
// during one look can hide its child from it.
func (g *group) await(ctx context.Context, leader <-chan struct{}, limit time.Duration) bool {
	timeout := time.NewTimer(max(limit, 0))
	defer timeout.Stop()
	pause := firstPoll
	poll := time.NewTimer(0)
	defer poll.Stop()
	for seenGone := false; ; {
		look := poll.C
		if leader != nil {
			look = nil // no use as long as the leader lives
		}
		select {
		case <-leader:
			leader = nil
		case <-look:
			gone, err := g.gone()
			gone = gone && err == nil
			if gone && seenGone {
				return true
			}
			if seenGone = gone; gone {
				pause = firstPoll
			}
			poll.Reset(pause)
			pause = min(2*pause, maxPoll)
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
