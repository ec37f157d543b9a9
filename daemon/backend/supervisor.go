package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/debugmcp/devproxy/daemon/era"
)

// Supervisor keeps the one backend. See the package comment.
//
// Its fields are set by New and read-only afterwards; what changes belongs to
// the loop of Run. Every method may be called from any goroutine.
type Supervisor struct {
	config    Config
	log       *slog.Logger
	observer  Observer
	runner    runner
	snapshots *snapshots
	inbox     *mailbox
	published atomic.Pointer[publication]
}

// publication is what is published of one moment.
type publication struct {
	status Status
	// up is the generation that serves, nil for none.
	up *Generation
	// replaced is closed when a later one is published.
	replaced chan struct{}
}

// New returns a supervisor in Idle. It does nothing before Run; what is asked
// of it earlier waits for that.
func New(config Config) *Supervisor {
	log := config.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	shots := loadSnapshots(config.SnapshotFile, config.Command, log)
	return newSupervisor(config, newProcesses(config, shots, log), shots, log)
}

func newSupervisor(config Config, r runner, shots *snapshots, log *slog.Logger) *Supervisor {
	s := &Supervisor{
		config:    config,
		log:       log,
		observer:  config.Observer,
		runner:    r,
		snapshots: shots,
		inbox:     newMailbox(),
	}
	if s.observer == nil {
		s.observer = nobody{}
	}
	var initial scene
	s.published.Store(&publication{status: initial.status(state{}), replaced: make(chan struct{})})
	return s
}

// Run keeps the backend until ctx ends, then stops it and returns when its
// whole group is gone. An error means that processes have outlived the stop
// ladder. It also ends what an earlier daemon left behind. It is called once.
func (s *Supervisor) Run(ctx context.Context) error {
	l := &loop{Supervisor: s}
	l.run(ctx)
	if l.state.undead {
		return l.state.failure
	}
	return nil
}

// Need says that a request of this client needs the backend: it starts unless
// it runs, is on its way, or is given up. It never blocks.
func (s *Supervisor) Need(starter era.Peer) {
	s.inbox.put(item{event: event{kind: needed, starter: starter}})
}

// Changed says that the build output has settled on new content: what runs is
// restarted, what failed is tried again, and an idle backend stays idle. number
// tells the change from those before and after it; 0 is always a new one. It never
// blocks.
func (s *Supervisor) Changed(number uint64) {
	s.inbox.put(item{event: event{kind: outputChanged, change: number}})
}

// FollowChange is Changed for who waits for what comes of it. It returns nil when a
// generation is up that was started after the call or from that change, or when
// nothing runs. Calls for one change count as one. Errors and step are as for Start.
func (s *Supervisor) FollowChange(ctx context.Context, number uint64, step func(Step)) error {
	return s.ask(ctx, &request{kind: outputChanged, change: number}, step)
}

// Drained says that nothing is in flight on the generation any more. It never
// blocks.
func (s *Supervisor) Drained(generation uint64) {
	s.inbox.put(item{event: event{kind: drained, generation: generation}})
}

// Start starts the backend unless it runs, and returns when it is up. The
// error is a *Failure, or the cause of ctx; the end of ctx ends the wait, not
// the start. step, which may be nil, is called in this goroutine.
func (s *Supervisor) Start(ctx context.Context, step func(Step)) error {
	return s.ask(ctx, &request{kind: startAsked}, step)
}

// Stop stops the backend and returns when its group is gone. The next request
// that needs it starts it again. Errors and step are as for Start.
func (s *Supervisor) Stop(ctx context.Context, step func(Step)) error {
	return s.ask(ctx, &request{kind: stopAsked}, step)
}

// Restart returns when a generation is up that was started after the call, and
// after a successful build if one was asked for. Restarts that meet before the
// new start become one. When the build or o.Before fails the backend is left
// alone; whoever leaves during the build takes it along, see o.Keep. Errors and step
// are as for Start; the error of o.Before is wrapped.
func (s *Supervisor) Restart(ctx context.Context, o RestartOptions, step func(Step)) error {
	if !o.Rebuild {
		if err := runBefore(o.Before); err != nil {
			return err
		}
		return s.ask(ctx, &request{kind: restartAsked}, step)
	}
	if s.config.Build == nil {
		f := fail(ConfigInvalid, "there is no build command")
		f.Hint = "set [build] command in devproxy.toml"
		return f
	}
	return s.ask(ctx, &request{kind: rebuildAsked, building: true, before: o.Before, keep: o.Keep}, step)
}

func runBefore(before func() error) error {
	if before == nil {
		return nil
	}
	if err := before(); err != nil {
		return fmt.Errorf("preparing the restart: %w", err)
	}
	return nil
}

// Status returns the state of this moment.
func (s *Supervisor) Status() Status { return s.published.Load().current() }

// Subscribe returns the state of this moment and a channel that is closed as
// soon as it is no longer the current one; to follow the changes, subscribe
// again then. Nothing can be missed but what was replaced meanwhile.
func (s *Supervisor) Subscribe() (Status, <-chan struct{}) {
	p := s.published.Load()
	return p.current(), p.replaced
}

// current is the status with what a generation may have learnt meanwhile.
func (p *publication) current() Status {
	status := p.status
	status.Shared = p.up != nil && p.up.Shared()
	return status
}

// Facts returns what the backend says of itself: that of the running one, else
// what an earlier one said, preferably in that era. It reports false before the
// first handshake ever.
func (s *Supervisor) Facts(e era.Era) (era.Facts, bool) {
	if up := s.published.Load().up; up != nil {
		return up.FactsOf(e), true
	}
	return s.snapshots.facts(e)
}

// nobody is the observer of a Config without one.
type nobody struct{}

func (nobody) Starting(uint64)      {}
func (nobody) Up(*Generation)       {}
func (nobody) Draining(uint64)      {}
func (nobody) Down(uint64, Failure) {}
func (nobody) Unavailable(Failure)  {}

// failureOf returns what an error says to people.
func failureOf(err error, otherwise Reason) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.clone()
	}
	return fail(otherwise, err.Error())
}
