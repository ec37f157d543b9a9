package link

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// readyLimit is how long the server may take to accept notifications/initialized.
	readyLimit = 5 * time.Second
	// listenLimit is how long the first messages of a session wait for its GET stream. Most servers open it in a
	// millisecond; some send its headers with the first event only.
	listenLimit = 300 * time.Millisecond
	// cancelGrace is how long the answer to a cancelled request may still come. The Go SDK gives one, TypeScript
	// never ends the stream.
	cancelGrace = 2 * time.Second
	// deleteLimit is how long the end of a session may take. It comes when the backend is about to be ended, so
	// nobody should wait long for it.
	deleteLimit = 500 * time.Millisecond
	// resumeFirst and resumeLast bound the pause before a stream is continued, where the server names none; resumeFactor
	// is by how much it grows. These are the values of the TypeScript client.
	resumeFirst  = time.Second
	resumeLast   = 30 * time.Second
	resumeFactor = 1.5
	// maxResumes is how often in a row a stream is continued without learning anything, as often as the Go SDK.
	maxResumes = 5
)

// newSession does the legacy handshake and starts the link.
func (h *Host) newSession(ctx context.Context, peer era.Peer) (*httpLink, error) {
	facts, session, err := h.shake(ctx, era.Legacy, peer)
	if err != nil {
		return nil, err
	}
	if known, ok := h.FactsOf(era.Legacy); ok {
		facts.Eras, facts.Versions = known.Eras, known.Versions
	}
	l := newHTTPLink(h, facts, session)
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	return l, h.start(ctx, l, l.run)
}

// ready ends the handshake. Nothing else may be sent before.
func (l *httpLink) ready(ctx context.Context) error {
	note, ok := era.BackOf(era.Legacy).Ready()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, errSilence)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	resp, err := l.host.roundTrip(ctx, http.MethodPost, l.host.target, l.legacyHeader(), note.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", note.Method, err)
	}
	finish(resp, abort)
	if resp.StatusCode/100 != 2 {
		l.host.o.Logger.Warn("the backend refused the end of the handshake", "status", resp.StatusCode)
	}
	return nil
}

// legacyHeader are the headers of every POST of the session.
func (l *httpLink) legacyHeader() http.Header { return l.sessionHeader(messageHeader()) }

func (l *httpLink) sessionHeader(header http.Header) http.Header {
	header.Set(headerVersion, l.facts.Version)
	if l.session != "" {
		header.Set(headerSession, l.session)
	}
	return header
}

// streamHeader are the headers of a GET, which continues behind an event if there is one.
func (l *httpLink) streamHeader(lastEvent string) http.Header {
	header := l.sessionHeader(http.Header{"Accept": {typeEvents}, "User-Agent": {userAgent}})
	if lastEvent != "" {
		header.Set(headerLastEvent, lastEvent)
	}
	return header
}

// exchangeLegacy makes the POST, and continues its stream as long as the server lets it be continued.
func (l *httpLink) exchangeLegacy(ctx context.Context, c *call, it item) (reply, error) {
	pos := &position{}
	r, err := l.attempt(ctx, c, l.legacyHeader(), it.m.Bytes(), pos)
	for tries := 0; err != nil && tries < maxResumes && l.canResume(ctx, err, pos); tries++ {
		pause(ctx, nil, resumePause(pos, tries))
		before := pos.id
		r, err = l.resume(ctx, c, pos)
		if pos.id != before {
			tries = -1
		}
	}
	return r, err
}

// canResume reports whether an error is the end of a stream that has a position. A legacy server may also end one on
// purpose, to be asked again.
func (l *httpLink) canResume(ctx context.Context, err error, pos *position) bool {
	if ctx.Err() != nil || pos.id == "" || errors.Is(err, era.ErrSessionLost) {
		return false
	}
	_, isAnswer := errors.AsType[interface {
		error
		Answer() *wire.Error
	}](err)
	return !isAnswer
}

func resumePause(pos *position, tries int) time.Duration {
	base := resumeFirst
	if pos.retry > 0 {
		base = pos.retry
	}
	for range tries {
		base = time.Duration(float64(base) * resumeFactor)
	}
	return min(base, max(resumeLast, pos.retry))
}

// resume continues the stream of a request behind the last event.
func (l *httpLink) resume(ctx context.Context, c *call, pos *position) (reply, error) {
	resp, err := l.host.roundTrip(ctx, http.MethodGet, l.host.target, l.streamHeader(pos.id), nil)
	if err != nil {
		return reply{}, fmt.Errorf("continuing the response stream: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return reply{}, &answerError{fmt.Errorf("%w, and could not be continued: HTTP status %d",
			ErrStreamEnded, resp.StatusCode)}
	}
	return l.read(ctx, resp, c, pos)
}

// listen keeps the GET stream open, which brings what belongs to no request. It is the server's to offer; that it
// fails means nothing for anything else.
func (l *httpLink) listen(ctx context.Context) {
	defer l.listening.set()
	pos := &position{}
	for tries := 0; ctx.Err() == nil; tries++ {
		before := pos.id
		opened, again := l.listenOnce(ctx, pos)
		if !again {
			return
		}
		if opened && pos.id != before {
			tries = 0
		}
		pause(ctx, nil, resumePause(pos, min(tries, maxResumes)))
	}
}

// listenOnce reads the stream to its end. again says that it is worth another try.
func (l *httpLink) listenOnce(ctx context.Context, pos *position) (opened, again bool) {
	log := l.host.o.Logger
	resp, err := l.host.roundTrip(ctx, http.MethodGet, l.host.target, l.streamHeader(pos.id), nil)
	if err != nil {
		log.Debug("opening the backend's GET stream", "error", err)
		return false, ctx.Err() == nil
	}
	defer func() { _ = resp.Body.Close() }()
	l.listening.set()
	switch {
	case resp.StatusCode == http.StatusConflict, resp.StatusCode >= http.StatusInternalServerError:
		// 409: the server has not noticed yet that the last one is closed.
		return false, true
	case !isEventStream(resp):
		log.Debug("the backend has no GET stream", "status", resp.StatusCode)
		return false, false
	}
	err = l.host.readMessages(resp, pos, func(m wire.Message) bool {
		l.inbound(m, 0)
		return true
	})
	log.Debug("the backend's GET stream ended", "error", err)
	return true, true
}

// cancelLegacy tells the server that nobody waits for a request, not before it has that request.
func (l *httpLink) cancelLegacy(ctx context.Context, it item) {
	c := l.callOf(it.id)
	if c == nil {
		return
	}
	select {
	case <-c.written.c:
	case <-ctx.Done():
		return
	}
	select {
	case <-c.ended.c:
		return
	default:
	}
	l.post(ctx, it)
	pause(ctx, c.ended.c, cancelGrace)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.abort(ErrCancelled)
}

// deleteSession ends a session at the server, which may refuse that or be gone.
func (h *Host) deleteSession(ctx context.Context, session, version string) {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteLimit, errSilence)
	defer cancel()
	resp, err := h.roundTrip(ctx, http.MethodDelete, h.target, http.Header{
		headerSession: {session},
		headerVersion: {version},
		"User-Agent":  {userAgent},
	}, nil)
	if err != nil {
		h.o.Logger.Debug("ending the backend's session", "error", err)
		return
	}
	_ = resp.Body.Close()
}
