package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Headers of Streamable HTTP.
const (
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerSession   = "Mcp-Session-Id"
	headerLastEvent = "Last-Event-Id"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

const (
	// maxErrorBody is how much of an HTTP error is read: room for a JSON-RPC error with data.
	maxErrorBody = 256 << 10
	// maxErrorText is how much of one that is no JSON-RPC is shown.
	maxErrorText = 512
	// lingerTime and lingerBytes bound what is read behind an answer for the sake of reusing the connection.
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 64 << 10
	// maxCutToken is how far before the end of a cut text the scanner may stop: at "fals", "\u12c", or half a character.
	maxCutToken = len(`\u12c`)
)

// messageHeader are the headers of every POST.
func messageHeader() http.Header {
	return http.Header{
		"Accept":       {typeJSON + ", " + typeEvents},
		"Content-Type": {typeJSON},
		"User-Agent":   {userAgent},
	}
}

const userAgent = "devproxy"

// roundTrip makes one HTTP request. The caller closes the response's body.
func (h *Host) roundTrip(
	ctx context.Context, method string, target *url.URL, header http.Header, body []byte,
) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), reader)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header = header
	resp, err := h.client.Do(req)
	if err == nil {
		return resp, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // it names the URL, which is always the same
	}
	return nil, err
}

// position is how far an event stream was read.
type position struct {
	id    string        // of the last event, "" if the server gives none
	retry time.Duration // that the server asked for, 0 if it did not
}

func mediaType(resp *http.Response) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" if there is none worth knowing
	return kind
}

func isEventStream(resp *http.Response) bool {
	return resp.StatusCode == http.StatusOK && mediaType(resp) == typeEvents
}

// statusError is a response that should have been something else.
func statusError(resp *http.Response, body []byte) *StatusError {
	return &StatusError{
		Status: resp.StatusCode, Type: mediaType(resp), Body: cut(bytes.TrimSpace(body), maxErrorText),
	}
}

// beginning is what there is of a body, up to the limit.
func beginning(body io.Reader, limit int64) []byte {
	text, _ := io.ReadAll(io.LimitReader(body, limit)) // what was read before an error is all that is wanted
	return text
}

// readMessages hands the messages of a response to each, in order, until it returns false. It returns nil when the
// response has ended, a *[StatusError] if it was no JSON-RPC, and an *[answerError] for an answer that could not be
// read.
func (h *Host) readMessages(resp *http.Response, pos *position, each func(wire.Message) bool) error {
	switch kind := mediaType(resp); {
	case resp.StatusCode/100 != 2:
		return readErrorBody(resp, each)
	case kind == typeEvents:
		return h.readEvents(resp, pos, each)
	case kind == typeJSON:
		return h.readBody(resp, each)
	default:
		return readOther(resp)
	}
}

// readErrorBody takes JSON-RPC whatever the status and the type: modern servers answer errors with 400 and 404.
func readErrorBody(resp *http.Response, each func(wire.Message) bool) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("reading HTTP status %d: %w", resp.StatusCode, err)
	}
	messages, err := parseBody(body)
	if err != nil {
		return statusError(resp, body)
	}
	handOut(messages, each)
	return nil
}

// readOther takes an answer of no type that means anything: 202 Accepted has no body.
func readOther(resp *http.Response) error {
	if other := statusError(resp, beginning(resp.Body, maxErrorText+1)); other.Body != "" {
		return other
	}
	return nil
}

func (h *Host) readBody(resp *http.Response, each func(wire.Message) bool) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(h.o.MaxReply)+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the backend's answer: %w", err)
	case len(text) > h.o.MaxReply:
		return &TooLargeError{Size: int64(len(text)), Limit: h.o.MaxReply, Which: replyLimit}
	case len(bytes.TrimSpace(text)) == 0:
		return nil
	}
	messages, err := parseBody(text)
	if err != nil {
		return unreadable(resp, text, err)
	}
	handOut(messages, each)
	return nil
}

// unreadable says what is wrong with a body or an event. One that stops too soon, with nothing but the end of the
// connection behind it, was cut off by the end of the server.
func unreadable(resp *http.Response, text []byte, err error) error {
	syntax, ok := errors.AsType[*wire.SyntaxError](err)
	endsWithConnection := resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
	if ok && endsWithConnection && syntax.Offset >= len(text)-maxCutToken {
		return fmt.Errorf("reading the backend's answer: %w", io.ErrUnexpectedEOF)
	}
	return unreadableAnswer(err)
}

// readEvents reads an event stream. What is wrong with one event is the result only if the stream then ends by
// itself, without having given each what it waits for.
func (h *Host) readEvents(resp *http.Response, pos *position, each func(wire.Message) bool) error {
	events := newEventReader(resp.Body, h.o.MaxReply)
	events.lastID = pos.id
	var flaw error
	for {
		e, err := events.next()
		if tooLarge, ok := errors.AsType[*TooLargeError](err); ok {
			h.o.Logger.Warn("dropped a message of the backend", "error", err)
			flaw = tooLarge
			continue
		}
		if errors.Is(err, io.EOF) {
			return flaw
		}
		if err != nil {
			return fmt.Errorf("reading the backend's event stream: %w", err)
		}
		pos.id = e.id
		if e.retry > 0 {
			pos.retry = e.retry
		}
		if !e.isMessage() {
			continue
		}
		messages, err := parseBody(e.data)
		if err != nil {
			h.o.Logger.Warn("dropped an unreadable event of the backend", "error", err)
			flaw = unreadable(resp, e.data, err)
			continue
		}
		if !handOut(messages, each) {
			return nil
		}
	}
}

func handOut(messages []wire.Message, each func(wire.Message) bool) bool {
	for _, m := range messages {
		if !each(m) {
			return false
		}
	}
	return true
}

// parseBody reads one message, or the batch that versions before 2025-06-18 allow. HTTP bodies may be
// pretty-printed, but what is taken from them ends up in lines.
func parseBody(text []byte) ([]wire.Message, error) {
	if bytes.ContainsAny(text, "\r\n") {
		compact, err := wire.Compact(text)
		if err != nil {
			return nil, err
		}
		text = compact
	}
	m, err := wire.Parse(text)
	if err == nil {
		return []wire.Message{m}, nil
	}
	if !errors.Is(err, wire.ErrBatch) {
		return nil, err
	}
	elems, err := wire.ParseBatch(text)
	if err != nil {
		return nil, err
	}
	messages := make([]wire.Message, 0, len(elems))
	for _, elem := range elems {
		m, err := wire.Parse(elem)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// answers reports whether m answers the request id, on whose own response it came: errors there often lack the id.
func answers(m wire.Message, id int64) bool {
	if m.Kind == wire.Failure && m.ID == wire.NullID {
		return true
	}
	got, ok := m.ID.Echoed()
	return ok && got == id && (m.Kind == wire.Response || m.Kind == wire.Failure)
}

// finish closes a response whose answer was read, after giving it a moment to end, so that its connection can be
// used again. abort is what unblocks the reading.
func finish(resp *http.Response, abort context.CancelCauseFunc) {
	patience := time.AfterFunc(lingerTime, func() { abort(errLingered) })
	defer patience.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, lingerBytes)
	_ = resp.Body.Close()
}

var errLingered = errors.New("the response went on behind its answer")

// statusOf is the HTTP status that an error comes from, 0 if none.
func statusOf(err error) int {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Status
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	return 0
}

// ask makes a request of ours, for a handshake or the tools cache, and returns its answer and the response.
func (h *Host) ask(
	ctx context.Context, header http.Header, method string, params []byte,
) (wire.Message, *http.Response, error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	id := OwnIDs + h.asked.Add(1)
	resp, err := h.roundTrip(ctx, http.MethodPost, h.target, header,
		wire.NewRequest(wire.IntID(id), method, params).Bytes())
	if err != nil {
		return wire.Message{}, nil, fmt.Errorf("%s: %w", method, err)
	}
	defer finish(resp, abort)
	var answer *wire.Message
	err = h.readMessages(resp, &position{}, func(m wire.Message) bool {
		if answers(m, id) {
			answer = &m
		}
		return answer == nil
	})
	switch {
	case answer != nil:
		return *answer, resp, nil
	case err != nil && ctx.Err() != nil:
		return wire.Message{}, nil, fmt.Errorf("%s: %w", method, context.Cause(ctx))
	case err != nil:
		return wire.Message{}, nil, fmt.Errorf("%s: %w", method, err)
	default:
		return wire.Message{}, nil, fmt.Errorf("%s: %w", method, ErrStreamEnded)
	}
}

// isSessionGone reports whether an error status says that the server does not know the session any more: 404 by the
// specification, the others by servers that were seen. An error for this very request comes from a handler
// that has taken it, whatever its status.
func isSessionGone(status int, body []byte, id int64) bool {
	if messages, err := parseBody(body); err == nil && len(messages) == 1 {
		if got, ok := messages[0].ID.Echoed(); ok && got == id {
			return false
		}
	}
	switch status {
	case http.StatusNotFound:
		return true
	case http.StatusBadRequest, http.StatusGone, http.StatusServiceUnavailable:
		return speaksOfSession(strings.ToLower(string(body)))
	default:
		return false
	}
}

func speaksOfSession(text string) bool {
	if strings.Contains(text, "not initialized") {
		return true
	}
	if !strings.Contains(text, "session") {
		return false
	}
	for _, word := range []string{"not found", "unknown", "expired", "invalid", "no valid", "no such", "closed", "exist"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
