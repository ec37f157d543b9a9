package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// maxSilence is how long a handshake waits for an answer: what the TypeScript client waits, because package
	// runners such as npx need that long before the server even starts.
	maxSilence = 60 * time.Second
	// maxQuiet is the same, counted from the last time that the process wrote something else to stdout: it is up
	// then, and has nothing to say to the handshake.
	maxQuiet = 10 * time.Second
)

var errSilence = errors.New("the backend did not answer in time")

// refusal is a backend's error answer to a handshake.
type refusal struct {
	method string
	err    *wire.Error
	status int // of HTTP, else 0
}

func (e *refusal) Error() string { return fmt.Sprintf("the backend refused %s: %v", e.method, e.err) }
func (e *refusal) Unwrap() error { return e.err }

// offersModern reports whether the refusal is a -32022 that names a modern version of ours.
func (e *refusal) offersModern() bool {
	_, ok := era.Mutual(era.SupportedVersions(e.err), era.Modern)
	return ok
}

// negotiate finds the era that this process is spoken to in.
//
//	discover first                                 initialize first
//	  a result with a modern version    modern       a result                 legacy
//	  -32022 with a modern version      ask again    -32022                   discover on the same pipe
//	  any other error                   initialize   anything else, the end   a fresh process, discover
//	    on the same pipe                             or silence
//	  a result without one, the end     a fresh process, initialize
//	    or silence
//
// The two requests never run side by side: after a successful discover the Go SDK refuses initialize for good, and
// servers are known that end on any request before initialize.
func (d *duplex) negotiate(ctx context.Context, greeting era.Peer, order []era.Era) (era.Facts, error) {
	order, err := eras(order, greeting.Era, d.o.Choice)
	if err != nil {
		return era.Facts{}, err
	}
	first := order[0]
	facts, usable, err := d.attempt(ctx, first, greeting, len(order) > 1)
	switch {
	case err == nil:
		return facts, nil
	case ctx.Err() != nil:
		return era.Facts{}, fmt.Errorf("waiting for the backend's handshake: %w", context.Cause(ctx))
	case len(order) == 1:
		return era.Facts{}, fmt.Errorf("%s handshake: %w", first, err)
	case !usable:
		return era.Facts{}, &RespawnError{Next: order[1], Reason: err}
	}
	second := order[1]
	facts, _, err2 := d.attempt(ctx, second, greeting, false)
	switch {
	case err2 == nil:
		return facts, nil
	case ctx.Err() != nil:
		return era.Facts{}, fmt.Errorf("waiting for the backend's handshake: %w", context.Cause(ctx))
	default:
		return era.Facts{}, &RespawnError{Next: second, Reason: errors.Join(err, err2)}
	}
}

// eras is the order to try: the caller's, else the greeting's era and then the other, as far as the choice allows.
func eras(order []era.Era, first era.Era, choice Choice) ([]era.Era, error) {
	if len(order) == 0 {
		order = []era.Era{era.Modern, era.Legacy}
		if first == era.Legacy {
			slices.Reverse(order)
		}
	}
	allowed := slices.DeleteFunc(slices.Clone(order), func(e era.Era) bool { return !choice.allows(e) })
	if len(allowed) == 0 {
		return nil, fmt.Errorf("the backend may be spoken to in %s only, but was found not to speak it", choice)
	}
	return allowed[:min(len(allowed), 2)], nil
}

// attempt does the handshake of one era. Beside an error, usable says that the other era may be tried on the same
// pipe. fallback says that there is another era to try, which the time must suffice for.
func (d *duplex) attempt(
	ctx context.Context, e era.Era, greeting era.Peer, fallback bool,
) (facts era.Facts, usable bool, err error) {
	if e == era.Legacy {
		facts, err = d.initialize(ctx, greeting, fallback)
		refused, ok := errors.AsType[*refusal](err)
		return facts, ok && refused.err.Code == era.CodeUnsupportedVersion, err
	}
	facts, err = d.discover(ctx, greeting, fallback)
	if refused, ok := errors.AsType[*refusal](err); ok && refused.offersModern() {
		facts, err = d.discover(ctx, greeting, fallback)
	}
	_, refused := errors.AsType[*refusal](err)
	return facts, refused, err
}

func (d *duplex) initialize(ctx context.Context, greeting era.Peer, fallback bool) (era.Facts, error) {
	facts, err := d.shake(ctx, era.Legacy, greeting, fallback)
	if err != nil {
		return era.Facts{}, err
	}
	if ready, ok := era.BackOf(era.Legacy).Ready(); ok {
		d.box.put(item{m: ready})
	}
	return facts, nil
}

func (d *duplex) discover(ctx context.Context, greeting era.Peer, fallback bool) (era.Facts, error) {
	return d.shake(ctx, era.Modern, greeting, fallback)
}

// shake asks once and reads the answer.
func (d *duplex) shake(ctx context.Context, e era.Era, greeting era.Peer, fallback bool) (era.Facts, error) {
	method, params := era.BackOf(e).HandshakeRequest(greeting)
	m, err := d.ask(ctx, method, params, patience(ctx, fallback))
	if err != nil {
		return era.Facts{}, fmt.Errorf("waiting for the answer to %s: %w", method, err)
	}
	return readHandshake(e, method, m)
}

// readHandshake makes facts of a backend's answer to the handshake of an era, or a *refusal. With
// [era.ErrVersion] the facts say which versions the backend does speak.
func readHandshake(e era.Era, method string, m wire.Message) (era.Facts, error) {
	if m.Kind == wire.Failure {
		failure, err := wire.ParseError(m.Error)
		if err != nil {
			failure = &wire.Error{Code: wire.CodeInternal, Message: string(m.Error)}
		}
		return era.Facts{}, &refusal{method: method, err: failure}
	}
	facts, err := era.BackOf(e).ParseHandshake(m.Result)
	if err != nil {
		return facts, fmt.Errorf("reading the backend's handshake: %w", err)
	}
	return facts, nil
}

// ask sends one request of ours and waits for its answer: the process's end, ctx's end and silence are errors.
func (d *duplex) ask(ctx context.Context, method string, params []byte, limit time.Duration) (wire.Message, error) {
	d.mu.Lock()
	d.asked++
	id := OwnIDs + d.asked
	d.waiting = id
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.waiting = 0
		d.mu.Unlock()
	}()
	d.box.put(item{m: wire.NewRequest(wire.IntID(id), method, params), id: id})

	latest := time.Now().Add(limit)
	silence := time.NewTimer(limit)
	defer silence.Stop()
	for {
		select {
		case m := <-d.answers:
			return m, nil
		case <-d.stirred:
			silence.Reset(min(maxQuiet, time.Until(latest)))
		case <-silence.C:
			return wire.Message{}, errSilence
		case <-d.done:
			return d.lastAnswer()
		case <-ctx.Done():
			return wire.Message{}, context.Cause(ctx)
		}
	}
}

// lastAnswer is the answer of a process that gave one and ended.
func (d *duplex) lastAnswer() (wire.Message, error) {
	select {
	case m := <-d.answers:
		return m, nil
	default:
		return wire.Message{}, d.Err()
	}
}

// patience is how long to wait for an answer. Where another era can be tried after this one, half of the time that
// ctx leaves is kept for it.
func patience(ctx context.Context, fallback bool) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || !fallback {
		return maxSilence
	}
	return min(maxSilence, time.Until(deadline)/2)
}
