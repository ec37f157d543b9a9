package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// sseLink is a conversation over HTTP+SSE, the transport of 2024-11-05: one event stream brings everything, and each
// message to the backend is a POST to the endpoint that the stream names first. It implements [Link].
type sseLink struct {
	*duplex
	host     *Host
	endpoint chan *url.URL // has room for one
	closing  mark
}

var _ hosted = (*sseLink)(nil)

// newSSE opens the stream and does the handshake, which is always a legacy one.
func (h *Host) newSSE(ctx context.Context, peer era.Peer) (*sseLink, error) {
	o := h.o
	o.MaxRequest = 0 // there are no lines to bound
	l := &sseLink{
		duplex:   newDuplex(o),
		host:     h,
		endpoint: make(chan *url.URL, 1),
		closing:  newMark(),
	}
	named := newMark()
	if err := h.start(ctx, l, func(ctx context.Context) { l.run(ctx, named) }); err != nil {
		return nil, err
	}
	facts, err := l.open(ctx, peer, named)
	if err != nil {
		l.Close()
		return nil, err
	}
	l.facts = facts
	return l, nil
}

func (l *sseLink) open(ctx context.Context, peer era.Peer, named mark) (era.Facts, error) {
	limit := time.NewTimer(endpointLimit)
	defer limit.Stop()
	select {
	case <-named.c:
		return l.initialize(ctx, peer, false)
	case <-l.done:
		return era.Facts{}, l.Err()
	case <-limit.C:
		return era.Facts{}, fmt.Errorf("waiting for the endpoint event of HTTP+SSE: %w", errSilence)
	case <-ctx.Done():
		return era.Facts{}, context.Cause(ctx)
	}
}

func (l *sseLink) share() {}

func (l *sseLink) alive() bool {
	select {
	case <-l.closing.c:
		return false
	default:
		return l.Err() == nil
	}
}

// inFlight is the end of the stream, which brings all answers.
func (l *sseLink) inFlight() []<-chan struct{} { return []<-chan struct{}{l.done} }

// Close implements [Link].
func (l *sseLink) Close() {
	l.out.mute()
	l.box.close()
	l.closing.set()
}

// run receives and sends until the stream ends or the link is closed. named is set when the endpoint is known.
func (l *sseLink) run(ctx context.Context, named mark) {
	ctx, stop := context.WithCancelCause(ctx)
	var pumps sync.WaitGroup
	pumps.Go(func() {
		select {
		case <-l.closing.c:
		case <-ctx.Done():
		}
		stop(ErrClosed)
	})
	pumps.Go(func() {
		select {
		case endpoint := <-l.endpoint:
			named.set()
			l.sendTo(ctx, endpoint)
		case <-ctx.Done():
		}
	})
	l.lose(l.receiveStream(ctx))
	stop(ErrClosed)
	pumps.Wait()
}

// receiveStream returns why the stream ended.
func (l *sseLink) receiveStream(ctx context.Context) error {
	header := http.Header{"Accept": {typeEvents}, "User-Agent": {userAgent}}
	resp, err := l.host.roundTrip(ctx, http.MethodGet, l.host.target, header, nil)
	if err != nil {
		return fmt.Errorf("opening the backend's event stream: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if !isEventStream(resp) {
		return fmt.Errorf("opening the backend's event stream: %w", statusError(resp, beginning(resp.Body, maxErrorText+1)))
	}
	events := newEventReader(resp.Body, l.o.MaxReply)
	for {
		e, err := events.next()
		tooLarge, ok := errors.AsType[*TooLargeError](err)
		switch {
		case ok:
			l.o.Logger.Warn("dropped a message of the backend", "error", err)
			l.failAll(func(bool) error { return tooLarge })
		case err != nil:
			return fmt.Errorf("reading the backend's event stream: %w", err)
		case e.name == "endpoint":
			if err := l.setEndpoint(e.data); err != nil {
				return err
			}
		case e.isMessage():
			l.receiveEvent(e.data)
		}
	}
}

func (l *sseLink) setEndpoint(data []byte) error {
	endpoint, err := l.host.target.Parse(string(bytes.TrimSpace(data)))
	if err == nil {
		_, err = parseTarget(endpoint.String())
	}
	if err != nil {
		return fmt.Errorf("reading the endpoint event: %w", err)
	}
	select {
	case l.endpoint <- endpoint:
	default: // it has one already
	}
	return nil
}

func (l *sseLink) receiveEvent(data []byte) {
	if bytes.ContainsAny(data, "\r\n") {
		if compact, err := wire.Compact(data); err == nil {
			data = compact
		}
	}
	l.receive(data)
}

// sendTo posts what is queued, in order.
func (l *sseLink) sendTo(ctx context.Context, endpoint *url.URL) {
	var posts sync.WaitGroup
	defer posts.Wait()
	slots := make(chan struct{}, maxPosts)
	_ = l.send(func(frame []byte, id int64) error {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		accepted := newMark()
		posts.Go(func() {
			defer func() {
				accepted.set()
				<-slots
			}()
			if err := l.post(ctx, endpoint, frame, id); err != nil {
				l.refused(id, err)
			}
		})
		// Most servers accept before they begin; one that works first must not hold up its own questions' answers.
		pause(ctx, accepted.c, orderLimit)
		return nil
	})
}

func (l *sseLink) post(ctx context.Context, endpoint *url.URL, frame []byte, id int64) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	resp, err := l.host.roundTrip(ctx, http.MethodPost, endpoint, messageHeader(), frame)
	if err != nil {
		return delivery(err)
	}
	defer finish(resp, abort)
	if resp.StatusCode/100 == 2 {
		return nil
	}
	body := beginning(resp.Body, maxErrorBody)
	if isSessionGone(resp.StatusCode, body, id) {
		return &goneError{text: fmt.Sprintf("%v: HTTP status %d", era.ErrSessionLost, resp.StatusCode)}
	}
	return statusError(resp, body)
}

// refused takes a message that the backend did not accept.
func (l *sseLink) refused(id int64, err error) {
	switch {
	case id >= OwnIDs:
		l.dispatchAnswer(wire.NewFailure(wire.IntID(id), &wire.Error{Code: wire.CodeInternal, Message: err.Error()}))
	case id != 0:
		l.fail(id, err)
	default:
		l.o.Logger.Warn("sending to the backend", "error", err)
	}
	if gone, ok := errors.AsType[*goneError](err); ok {
		l.lose(gone)
		l.closing.set()
	}
}
