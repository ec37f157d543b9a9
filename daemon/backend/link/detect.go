package link

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
)

const (
	// probeLimit is how long a modern backend may take to say whether it takes initialize too. Nothing depends on
	// it but which eras are offered, so a server that keeps silent about the one it does not know must not
	// hold up the start.
	probeLimit = 5 * time.Second
	// endpointLimit is how long a server may take to send the endpoint event, the first thing that HTTP+SSE has.
	endpointLimit = 3 * time.Second
)

// detect does the handshakes that the choice allows, once. The rules are those of the TypeScript client and the
// specification: unlike on stdio, silence and failures of the server itself are no verdict.
//
//	discover answered with a modern version       modern; initialize is then asked for too
//	-32022 with a modern version                  discover once more
//	any other result or JSON-RPC error, any 4xx   legacy: initialize
//	initialize answered 4xx without JSON-RPC      HTTP+SSE, if GET gives an endpoint event
//	401, 403, 5xx, unreadable, no answer          an error
func (h *Host) detect(ctx context.Context, greeting era.Peer) error {
	if h.isSSE() {
		return h.connectSSE(ctx, greeting)
	}
	var refused error
	if h.o.Choice.allows(era.Modern) {
		facts, err := h.discover(ctx, greeting)
		if err == nil {
			h.setFacts(facts)
			if h.o.Choice.allows(era.Legacy) {
				h.probeLegacy(ctx, greeting)
			}
			return nil
		}
		if !isVerdict(err) {
			return err
		}
		refused = err
	}
	if !h.o.Choice.allows(era.Legacy) {
		return fmt.Errorf("the backend does not speak the modern era: %w", refused)
	}
	err := h.connectLegacy(ctx, greeting)
	if _, plain := errors.AsType[*StatusError](err); plain && isVerdict(err) {
		if sseErr := h.connectSSE(ctx, greeting); sseErr != nil {
			return errors.Join(refused, err, sseErr)
		}
		h.mu.Lock()
		h.sse, h.shared = true, true
		h.mu.Unlock()
		return nil
	}
	if err != nil && !notReady(err) {
		return errors.Join(refused, err)
	}
	return err
}

// doubt makes the next Open detect the eras again. What is known of them holds until then.
func (h *Host) doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubted = !h.shared // which is the one link there is, and cannot change
}

func (h *Host) isDoubted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.doubted
}

// redetect does the handshakes anew if the last verdict is in doubt. If that fails it stays so.
func (h *Host) redetect(ctx context.Context) error {
	if !h.isDoubted() {
		return nil
	}
	select {
	case <-h.opening:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { h.opening <- struct{}{} }()
	if !h.isDoubted() {
		return nil // somebody else was faster
	}
	h.mu.Lock()
	greeting, facts, sessions, control := h.greeting, h.facts, h.sessions, h.control
	h.facts, h.sessions, h.control = map[era.Era]era.Facts{}, false, nil
	h.mu.Unlock()
	h.tools.forget()
	err := h.detect(ctx, greeting)
	h.mu.Lock()
	if err != nil {
		h.facts, h.sessions, h.control = facts, sessions, control
	} else {
		h.doubted = false
	}
	h.mu.Unlock()
	if err == nil && control != nil {
		control.Close()
	}
	return err
}

// isVerdict reports whether an error is the server's well-considered no to a handshake.
func isVerdict(err error) bool {
	if errors.Is(err, era.ErrVersion) {
		return true
	}
	switch status := statusOf(err); {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status >= 500:
		return false
	case status >= 400:
		return true
	default:
		_, refused := errors.AsType[*refusal](err)
		return refused
	}
}

// refusesVersion reports whether an error is a handshake's -32022.
func refusesVersion(err error) bool {
	refused, ok := errors.AsType[*refusal](err)
	return ok && refused.err.Code == era.CodeUnsupportedVersion
}

func (h *Host) discover(ctx context.Context, greeting era.Peer) (era.Facts, error) {
	facts, _, err := h.shake(ctx, era.Modern, greeting)
	if refused, ok := errors.AsType[*refusal](err); ok && refused.offersModern() {
		facts, _, err = h.shake(ctx, era.Modern, greeting)
	}
	return facts, err
}

// shake does one handshake, and returns the session that it gave.
func (h *Host) shake(ctx context.Context, e era.Era, greeting era.Peer) (era.Facts, string, error) {
	method, params := era.BackOf(e).HandshakeRequest(greeting)
	header := messageHeader()
	if e == era.Modern {
		header.Set(headerVersion, versionOf(params, era.ModernVersion))
		header.Set(headerMethod, method)
	}
	m, resp, err := h.ask(ctx, header, method, params)
	if err != nil {
		return era.Facts{}, "", err
	}
	facts, err := readHandshake(e, method, m)
	if refused, ok := errors.AsType[*refusal](err); ok {
		refused.status = resp.StatusCode
	}
	return facts, resp.Header.Get(headerSession), err
}

// probeLegacy asks a modern backend whether it takes initialize, and whether that gives a session.
func (h *Host) probeLegacy(ctx context.Context, greeting era.Peer) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, errSilence)
	defer cancel()
	facts, session, err := h.shake(ctx, era.Legacy, greeting)
	if err != nil {
		h.o.Logger.Debug("the backend does not offer the legacy era", "error", err)
		return
	}
	h.setLegacy(facts, session)
	if session != "" {
		h.deleteSession(ctx, session, facts.Version)
	}
}

// connectLegacy makes the control link.
func (h *Host) connectLegacy(ctx context.Context, greeting era.Peer) error {
	l, err := h.newSession(ctx, greeting)
	if err != nil {
		return err
	}
	h.setLegacy(l.facts, l.session)
	h.setControl(l)
	return nil
}

func (h *Host) connectSSE(ctx context.Context, greeting era.Peer) error {
	if !h.o.Choice.allows(era.Legacy) {
		return errors.New("HTTP+SSE knows the legacy era only")
	}
	l, err := h.newSSE(ctx, greeting)
	if err != nil {
		return err
	}
	h.setFacts(l.facts)
	h.setControl(l)
	return nil
}

func (h *Host) isSSE() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sse
}

func (h *Host) setFacts(facts era.Facts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts[facts.Era] = facts
}

// setLegacy notes what the legacy handshake said, and whether it gave a session.
func (h *Host) setLegacy(facts era.Facts, session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts[facts.Era] = facts
	h.sessions = session != ""
}
