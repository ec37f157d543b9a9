package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// Router joins the clients and the backend. Make one with New, start Run, and
// then use it from anywhere: its methods only post.
type Router struct {
	config Config
	log    *slog.Logger
	tools  devTools

	// The border: everything here may be used by any goroutine.
	clients    chan frameEvent // unbuffered, so that a frame handed over is a frame in the loop
	mail       *mailbox
	stopped    chan struct{}
	sessionIDs atomic.Uint64
	attached   atomic.Int64
	published  atomic.Pointer[[]*Session]
	greeting   atomic.Pointer[era.Peer]

	// Everything below belongs to the goroutine in Run.

	sessions map[*Session]*client
	order    []*client // as attached
	agenda   agenda
	workers  sync.WaitGroup // openings, closings and dev tools in progress
	lastID   int64          // of our ids towards the backend, of all generations
	lastKey  uint64         // of our names towards clients

	backend backendState
	held    holding
	shared  *link
	links   map[*link]struct{}

	starter era.Peer // whose request started the backend last
	closing error    // ErrShutdown or ErrRestart once the daemon is ending
	work    context.Context
}

// New returns a router that does nothing until Run.
func New(config Config) *Router {
	if config.RequestWait <= 0 {
		config.RequestWait = DefaultRequestWait
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Router{
		config:   config,
		log:      config.Logger,
		clients:  make(chan frameEvent),
		mail:     newMailbox(),
		stopped:  make(chan struct{}),
		sessions: make(map[*Session]*client),
		links:    make(map[*link]struct{}),
	}
}
