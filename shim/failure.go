package shim

import (
	"errors"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/internal/wire"
)

// FailureRow is one line of the table of what the shim answers by itself.
type FailureRow struct {
	// Reason is data.reason of the JSON-RPC error.
	Reason string
	// Code is the JSON-RPC error code. It stays outside -32768..-32000, which
	// JSON-RPC and MCP share between them, and apart from the daemon's.
	Code int64
	// Message says what happened; a detail may follow it.
	Message string
	// Hint says what to do.
	Hint string
}

// The reasons of the shim's own answers.
const (
	ReasonDaemonLost      = "daemon-lost"
	ReasonDaemonRestarted = "daemon-restarted"
	ReasonUnavailable     = "daemon-unavailable"
	ReasonStopped         = "daemon-stopped"
	ReasonStartFailed     = "daemon-start-failed"
	ReasonNoProject       = "project-not-found"
	ReasonIncompatible    = "daemon-incompatible"
	ReasonRefused         = "daemon-refused"
	ReasonTooManyRequests = "too-many-requests"
	ReasonLineTooLong     = "line-too-long"
)

// Failures returns the table of what the shim answers in place of the daemon,
// for the code, the documentation and the tests alike. A failed tools/call gets
// it as a result with isError, so that the model reads it, every other request
// as a JSON-RPC error.
func Failures() []FailureRow {
	return []FailureRow{
		{ReasonDaemonLost, -31950, "the devproxy daemon ended while it worked on this request",
			"the request may have had effects; check before calling again"},
		{ReasonUnavailable, -31951, "the devproxy daemon cannot be reached",
			"see `devproxyctl status`, or start it with `devproxyd start`"},
		{ReasonStopped, -31952, "the devproxy daemon was stopped",
			"start it with `devproxyd start` in the project"},
		{ReasonStartFailed, -31953, "the devproxy daemon could not be started",
			"correct what it says; the next request tries again"},
		{ReasonNoProject, -31954, "this is no devproxy project",
			"create a devproxy.toml there, or give devproxy-shim --project DIR"},
		{ReasonIncompatible, -31955, "devproxy-shim and devproxyd do not fit together",
			"update the older one, then restart the daemon or the client"},
		{ReasonRefused, -31956, "the devproxy daemon refused this client", "see `devproxyctl logs --source daemon`"},
		{ReasonTooManyRequests, -31957, "too many requests of this client are open",
			"wait for some of them to be answered"},
		{ReasonDaemonRestarted, -31959, "the devproxy daemon was restarted before it could work on this request",
			"call again; the request had no effects"},
		{ReasonLineTooLong, -31958, "the message is longer than devproxy-shim takes", "send less"},
	}
}

// failure is one of these with what is known of the case at hand.
type failure struct {
	row    FailureRow
	detail string
}

func failureOf(reason, detail string) failure {
	for _, row := range Failures() {
		if row.Reason == reason {
			return failure{row: row, detail: detail}
		}
	}
	return failure{row: FailureRow{Reason: reason, Code: wire.CodeInternal, Message: reason}, detail: detail}
}

// failureFrom tells why there is no daemon, by the error of the last attempt to
// get one; nil means that the attempt still lasts.
func failureFrom(err error) failure {
	if err == nil {
		return failureOf(ReasonUnavailable, "it starts, or does not answer")
	}
	reason := ReasonUnavailable
	_, startFailed := errors.AsType[*client.StartError](err)
	_, refused := errors.AsType[*refusedError](err)
	switch {
	case errors.Is(err, errStopped):
		return failureOf(ReasonStopped, "")
	case errors.Is(err, project.ErrNotFound):
		reason = ReasonNoProject
	case errors.Is(err, client.ErrIncompatible):
		reason = ReasonIncompatible
	case refused:
		reason = ReasonRefused
	case startFailed:
		reason = ReasonStartFailed
	}
	return failureOf(reason, err.Error())
}

func (f failure) message() string {
	if f.detail == "" {
		return f.row.Message
	}
	return f.row.Message + ": " + f.detail
}

// error is the failure as a JSON-RPC error.
func (f failure) error() *wire.Error {
	data := []byte(`{"reason":`)
	data = append(data, wire.Quote(f.row.Reason)...)
	data = append(data, `,"hint":`...)
	data = append(data, wire.Quote(f.row.Hint)...)
	return &wire.Error{Code: f.row.Code, Message: f.message(), Data: append(data, '}')}
}

// answer is the response that c gets for the failure.
func (f failure) answer(c *call) []byte {
	if c.method != methodToolsCall {
		return wire.NewFailure(c.id, f.error()).Bytes()
	}
	result := []byte(`{`)
	if c.modern {
		result = append(result, `"resultType":"complete",`...)
	}
	result = append(result, `"content":[{"type":"text","text":`...)
	result = append(result, wire.Quote(f.message()+". What to do: "+f.row.Hint+".")...)
	return wire.NewResponse(c.id, append(result, `}],"isError":true}`...)).Bytes()
}

// errStopped says that the daemon was stopped on purpose.
var errStopped = errors.New("the daemon was stopped")

// refusedError says that a daemon does not want this client.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

// lasting reports whether waiting alone does not help against err, so that
// requests are answered with it at once.
func lasting(err error) bool {
	return !errors.Is(err, client.ErrNoDaemon) && !errors.Is(err, client.ErrNotServing)
}

// pause is how long to wait before the attempt after failures ones.
func pause(first, most time.Duration, failures int) time.Duration {
	d := first
	for range failures {
		if d >= most {
			break
		}
		d *= 2
	}
	return min(d, most)
}
