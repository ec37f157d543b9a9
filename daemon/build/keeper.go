package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/internal/process"
)

const (
	// firstPause is what follows the first end of a watcher: long enough to let go
	// of what it held, and hardly noticed.
	firstPause = 500 * time.Millisecond
	// longestPause is what many ends in a row lead to: a fault that a person mends
	// is tried again before he wonders, and until then costs next to nothing.
	longestPause = time.Minute
	// steadyAfter is how long a watcher has to run until its earlier ends are
	// forgiven.
	steadyAfter = time.Minute
)

// ErrNoWatcher is what [KeeperConfig].Spec returns where no watcher is wanted.
var ErrNoWatcher = errors.New("there is no build watcher")

// errReplaced ends a watcher that is no longer the one that is wanted.
var errReplaced = errors.New("another command is to be run")

// Ledger remembers whom a later daemon has to end if this one is killed.
type Ledger interface {
	Read() (process.Identity, bool)
	Write(process.Identity) error
	Remove() error
}

// KeeperConfig is what a Keeper needs. All of it must be set.
type KeeperConfig struct {
	// Spec says what to run, without a Timeout; it is asked anew at each start, and
	// by Refresh. ErrNoWatcher: nothing.
	Spec   func() (Spec, error)
	Ledger Ledger
	// Output takes every line of the output. It must not block.
	Output func(line string)
	Logger *slog.Logger
}

// KeeperStatus is what a Keeper knows at one moment.
type KeeperStatus struct {
	// Command is what is to run, in words; empty for nothing.
	Command string
	// PID is that of the leader, 0 while none runs.
	PID       int
	StartedAt time.Time
	// Restarts is how often it ended by itself and was started again.
	Restarts int
	// Message says what is wrong and what comes next; empty while it runs.
	Message string
	// Tail is the end of its output, at most 100 lines and 32 KiB of it.
	Tail []string
}

// Keeper keeps a build watcher running: a command that builds whenever a source
// changes, such as "tsc --watch". When it ends by itself it is started again,
// after a pause that grows. Its standard input stays open, because many watchers
// end with it, and ends with this process.
//
// Its state belongs to the goroutine in Run.
type Keeper struct {
	config  KeeperConfig
	refresh chan struct{} // buffer 1: one is as good as many
	running atomic.Bool

	mu     sync.Mutex
	status KeeperStatus
	end    tail
}

// NewKeeper returns a Keeper that does nothing before Run.
func NewKeeper(config KeeperConfig) *Keeper {
	return &Keeper{config: config, refresh: make(chan struct{}, 1)}
}

// Refresh asks whether what runs is still wanted, and replaces it if not; where
// one waits to be started again, that is done now. It never blocks.
func (k *Keeper) Refresh() {
	select {
	case k.refresh <- struct{}{}:
	default:
	}
}

// Status returns the state of this moment.
func (k *Keeper) Status() KeeperStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	status := k.status
	status.Tail = slices.Clone(k.end.lines)
	return status
}

func (k *Keeper) change(change func(*KeeperStatus)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.status)
}

// Run ends what an earlier daemon left, and keeps the watcher running until ctx
// ends. It returns when the whole group is gone; an error means that processes
// have outlived the stop ladder. It is called once.
func (k *Keeper) Run(ctx context.Context) error {
	if k.running.Swap(true) {
		return errors.New("keeping the build watcher: Run was called before")
	}
	if err := k.endOrphan(ctx); err != nil {
		k.config.Logger.Warn("ending the build watcher that an earlier daemon left", "error", err)
	}
	ends := 0 // in a row, without a long life between them
	for ctx.Err() == nil {
		spec, err := k.config.Spec()
		if errors.Is(err, ErrNoWatcher) {
			k.change(func(s *KeeperStatus) { *s = KeeperStatus{} })
			ends = 0
			k.await(ctx, nil)
			continue
		}
		began := time.Now()
		if err == nil {
			k.change(func(s *KeeperStatus) { s.Command = spec.String() })
			err = k.live(ctx, spec)
		}
		if survivors, ok := errors.AsType[*process.SurvivorsError](err); ok {
			if ctx.Err() != nil {
				return fmt.Errorf("ending the build watcher: %w", survivors)
			}
			k.config.Logger.Warn("the build watcher has left processes behind", "error", survivors)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errReplaced):
			k.change(func(s *KeeperStatus) { s.Restarts = 0 })
			ends = 0
			continue
		case time.Since(began) >= steadyAfter:
			ends = 0
		}
		ends++
		pause := pauseAfter(ends)
		k.change(func(s *KeeperStatus) {
			s.Message = fmt.Sprintf("%v; it starts again in %s", err, words(pause))
		})
		k.config.Logger.Warn("the build watcher ended", "exit", err, "retry_in", pause)
		if k.await(ctx, time.After(pause)) {
			ends = 0 // somebody has asked for it, and may have mended it
		}
		k.change(func(s *KeeperStatus) { s.Restarts++ })
	}
	return nil
}

// pauseAfter returns how long to wait after the nth end in a row, n counting from 1.
func pauseAfter(n int) time.Duration {
	pause := firstPause
	for range n - 1 {
		if pause >= longestPause {
			return longestPause
		}
		pause *= 2
	}
	return min(pause, longestPause)
}

// await returns when the time has come, somebody has asked to look again, which
// it reports, or ctx ends.
func (k *Keeper) await(ctx context.Context, due <-chan time.Time) (asked bool) {
	select {
	case <-due:
	case <-k.refresh:
		return true
	case <-ctx.Done():
	}
	return false
}

func (k *Keeper) endOrphan(ctx context.Context) error {
	old, found := k.config.Ledger.Read()
	if !found {
		return nil
	}
	ended, err := process.EndOrphan(context.WithoutCancel(ctx), old, stopRung)
	if len(ended) > 0 {
		k.config.Logger.Warn("ended a build watcher that an earlier daemon left", "pids", ended)
	}
	if err != nil {
		return err
	}
	return k.config.Ledger.Remove()
}

// live runs the watcher from its start to the end of its group, and returns why
// it ended, which is never nil.
func (k *Keeper) live(ctx context.Context, spec Spec) error {
	command, err := spec.process()
	if err != nil {
		return err
	}
	p, err := process.Start(command)
	if err != nil {
		return err
	}
	printed := make(chan error, 1)
	go func() { printed <- process.Lines(p.Stdout(), maxLine, k.line) }()
	err = k.follow(ctx, p, spec)
	_ = p.Stdin().Close()
	_ = p.Interrupt() // it has nothing to save, as a build has not
	gone := p.Terminate(context.WithoutCancel(ctx), stopRung)
	k.change(func(s *KeeperStatus) { s.PID = 0 })
	if gone == nil {
		gone = k.config.Ledger.Remove()
	}
	return errors.Join(err, gone, <-printed)
}

// follow lets the watcher begin once it is on record, and returns why it is over.
func (k *Keeper) follow(ctx context.Context, p *process.Process, spec Spec) error {
	if err := k.config.Ledger.Write(p.Identity()); err != nil {
		return fmt.Errorf("keeping the record of the build watcher: %w", err)
	}
	k.mu.Lock()
	k.end = tail{}
	k.mu.Unlock()
	released := make(chan error, 1)
	go func() { released <- p.Release() }()
	select {
	case err := <-released:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		// The end of the group ends the wait at its gate too.
		_ = p.Kill()
		<-released //nolint:errcheck // it has just been killed
		return context.Cause(ctx)
	}
	k.change(func(s *KeeperStatus) { s.PID, s.StartedAt, s.Message = p.PID(), time.Now(), "" })
	k.config.Logger.Info("the build watcher runs", "pid", p.PID(), "command", spec.String())
	for {
		select {
		case <-p.Done():
			return &ExitError{Exit: p.Exit()}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.refresh:
		}
		// What cannot be read now has stopped nothing; who asked hears of it.
		if now, err := k.config.Spec(); errors.Is(err, ErrNoWatcher) || err == nil && !now.sameCommand(spec) {
			k.config.Logger.Info("the build watcher is ended for another command")
			return errReplaced
		}
	}
}

func (k *Keeper) line(text string) {
	k.mu.Lock()
	k.end.add(text)
	k.mu.Unlock()
	k.config.Output(text)
}

// String is the command as a person reads it.
func (s Spec) String() string {
	if len(s.Argv) == 0 {
		return s.Command
	}
	return strings.Join(s.Argv, " ")
}

func (s Spec) sameCommand(other Spec) bool {
	return s.Command == other.Command && slices.Equal(s.Argv, other.Argv)
}
