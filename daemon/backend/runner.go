package backend

import (
	"context"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
)

// runner does what takes time and touches the world. The real one is processes;
// the loop's tests have one that only pretends.
//
// Its methods run in goroutines of the supervisor and obey their context. Errors
// that wrap a *Failure say what to tell people.
type runner interface {
	// sweep ends what an earlier daemon left behind, if anything.
	sweep(context.Context) error
	// prepare finds out what to start, and that it can be: launch, baseline,
	// orphan, port. Beside an error the plan has the launch, if there was one.
	prepare(context.Context, order) (plan, error)
	// spawn starts and records a process. With an error nothing is left of it.
	spawn(context.Context, plan) (life, error)
}

// life is one process and its group. The supervisor calls ready once and end
// afterwards, again if there were survivors.
type life interface {
	pid() int
	// ready waits until the process serves. It may return a
	// *link.RespawnError. Otherwise its error says what it waited for.
	ready(context.Context) (*Generation, error)
	// exited is closed when the process has ended by itself, or its protocol
	// stream has.
	exited() <-chan struct{}
	// exit says how, in words that follow "the backend", with its last lines on
	// stderr. Before the end it is a guess.
	exit() (status string, tail []string)
	// end goes down the ladder until the whole group is gone, its output is
	// read and its port is free. A Failure with Survivors means it is not gone.
	end(context.Context) error
	// ignoredInput reports whether it did not end as its input did. It is asked
	// after end.
	ignoredInput() bool
}

// order is one attempt to start a generation.
type order struct {
	generation uint64
	// starter is the client whose request starts it; its Era is None if nobody's
	// does.
	starter era.Peer
	// first is the one era to try, after a respawn for it; None for the usual
	// order.
	first era.Era
	// note takes a sentence about what is being waited for.
	note func(string)
}

// plan is an order with everything decided that can be before the spawn.
type plan struct {
	order

	launch Launch
	port   int
	// engine is that of the container which the command runs; nil if it runs
	// none.
	engine *engine
}

const (
	// defaultStartTimeout and defaultStopTimeout are those of devproxy.toml, for
	// a Launch that does not say.
	defaultStartTimeout = 30 * time.Second
	defaultStopTimeout  = 5 * time.Second
)

func (l Launch) withDefaults() Launch {
	if l.Transport == "" {
		l.Transport = HTTP
	}
	if l.StartTimeout <= 0 {
		l.StartTimeout = defaultStartTimeout
	}
	if l.StopTimeout <= 0 {
		l.StopTimeout = defaultStopTimeout
	}
	return l
}
