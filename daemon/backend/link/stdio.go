package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// lastWords is how long the answers that a backend wrote before it closed its stdin may take to be read.
const lastWords = 300 * time.Millisecond

// ErrStdin is why a conversation is over whose backend closed its stdin.
var ErrStdin = errors.New("the backend takes nothing on its stdin any more")

// Stdio is the one link to a backend that speaks JSON-RPC on its pipes, one message a line. It implements [Link].
//
// A reader goroutine owns stdout and a writer goroutine stdin. The pipes themselves belong to whoever started the
// process: see [Stdio.Wait].
type Stdio struct {
	*duplex
	pumps sync.WaitGroup
}

var _ Link = (*Stdio)(nil)

// OpenStdio does the handshake on the pipes of a process that runs already. order says which eras may be tried on
// this process, the first one first; nil means both, beginning with the greeting's. With a single era its failure
// is final.
//
// It fails with a *[RespawnError], the cause of ctx, or an error that is final. The *Stdio is never nil: beside an
// error, too, its reader drains stdout until the process ends, and can then be joined with [Stdio.Wait].
func OpenStdio(
	ctx context.Context, in io.Writer, out io.Reader, greeting era.Peer, order []era.Era, o Options,
) (*Stdio, error) {
	s := &Stdio{duplex: newDuplex(o)}
	s.pumps.Go(func() { s.read(out) })
	s.pumps.Go(func() { s.write(in) })

	facts, err := s.negotiate(ctx, greeting, order)
	if err != nil {
		s.Close()
		return s, err
	}
	s.facts = facts
	return s, nil
}

// Close implements [Link]. The reader goes on to drain stdout, so that a backend that is still writing can end.
func (s *Stdio) Close() {
	s.out.mute()
	s.box.close()
}

// Wait joins the link's goroutines, which are the process owner's to end: the reader ends at the end of stdout,
// so when every process that holds it is gone or the owner closes the read end; a writer in the middle of a
// message when the backend takes it or is gone; and both only after Close. Without that Wait waits for ever.
func (s *Stdio) Wait() { s.pumps.Wait() }

func (s *Stdio) write(in io.Writer) {
	w := wire.NewWriter(in)
	err := s.send(func(frame []byte, _ int64) error { return w.Write(frame) })
	if err == nil {
		return
	}
	// A backend that died has often answered something before; that is still in the pipe, and must be read first.
	s.box.close()
	patience := time.NewTimer(lastWords)
	defer patience.Stop()
	select {
	case <-s.done:
	case <-patience.C:
		s.lose(fmt.Errorf("%w: %w", ErrStdin, err))
	}
}

func (s *Stdio) read(out io.Reader) {
	r := wire.NewReader(out, s.o.MaxReply)
	for {
		frame, err := r.Next()
		if tooLong, ok := errors.AsType[*wire.TooLongError](err); ok {
			s.oversized(tooLong)
			continue
		}
		if err != nil {
			s.lose(fmt.Errorf("reading the backend's stdout: %w", err))
			return
		}
		s.receive(frame)
	}
}
