package daemon

import (
	"context"
	"strings"

	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/devtools"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/watch"
)

// observer tells the router what the supervisor says. The two do not know each
// other: this file is where their vocabularies meet.
type observer struct {
	router  *relay.Router
	watcher *watch.Watcher
	mask    func() *logs.Masker
}

func (o observer) Starting(generation uint64)    { o.router.Starting(generation) }
func (o observer) Draining(generation uint64)    { o.router.Draining(generation) }
func (o observer) Unavailable(f backend.Failure) { o.router.Unavailable(o.failure(f)) }

// Up also has the watcher look again: what was built while the backend started
// is not in it.
func (o observer) Up(g *backend.Generation) {
	o.router.Up(generation{g})
	o.watcher.Recheck()
}

func (o observer) Down(generation uint64, why backend.Failure) {
	o.router.Down(generation, o.failure(why))
}

// toolNames puts the names that the dev tools have in this project into words
// of the backend and the router, who know their usual ones.
func toolNames(prefix string) *strings.Replacer {
	var pairs []string
	for _, name := range []string{"server_status", "rebuild_and_restart", "restart", "logs"} {
		pairs = append(pairs, "dev_"+name, prefix+name)
	}
	return strings.NewReplacer(pairs...)
}

// failure words a failure for clients: with the lines that explain it, and
// without the secrets in them.
func (o observer) failure(f backend.Failure) relay.Failure {
	message := f.Message
	if len(f.Tail) > 0 {
		message += "; its last lines:\n" + strings.Join(f.Tail, "\n") + "\n"
	}
	return relay.Failure{
		Reason: string(f.Reason), State: f.State.String(), Generation: f.Generation, Exit: f.Exit,
		Message: o.mask().Mask(message), Hint: f.Hint, Waiting: f.Waiting,
	}
}

// generation is a backend's generation as the router sees it.
type generation struct{ *backend.Generation }

func (g generation) Open(ctx context.Context, peer era.Peer, sink relay.Sink) (relay.Link, error) {
	return g.Generation.Open(ctx, peer, sink)
}

// toolbox is the dev tools as the router sees them.
type toolbox struct{ *devtools.Tools }

func (t toolbox) Call(ctx context.Context, name string, arguments []byte, progress func(string)) relay.ToolAnswer {
	return relay.ToolAnswer(t.Tools.Call(ctx, name, arguments, progress))
}
