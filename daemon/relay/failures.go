package relay

import (
	"fmt"
	"strconv"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Failure is something devproxy itself answers in place of the backend. Reason
// is a row of Failures, or a reason of the supervisor's that has none, which
// then gets the code of ReasonUnavailable.
type Failure struct {
	Reason string
	// State is the backend's state as status shows it.
	State string
	// Generation is the one it is about, 0 for none.
	Generation uint64
	// Exit is how the backend ended, in words; empty if it did not.
	Exit string
	// Message says what happened and Hint what to do about it. Where empty those
	// of the table are taken.
	Message string
	Hint    string
	// Waiting says that the backend may come up without anybody's doing (it
	// backs off, or its entry file is still missing): held requests go on
	// waiting, and get this failure only when their time is up.
	Waiting bool
}

// The reasons of the router's own failures. Those that a supervisor gives stand
// in the table as well, under its names.
const (
	ReasonUnavailable   = "backend-unavailable"
	ReasonWaited        = "request-wait"
	ReasonLost          = "backend-lost"
	ReasonRestarted     = "backend-restarted"
	ReasonLinkFailed    = "link-failed"
	ReasonRequestLost   = "request-lost"
	ReasonTooManyHeld   = "too-many-held"
	ReasonTooManyOpen   = "too-many-open"
	ReasonTooManyTopics = "too-many-subscriptions"
	ReasonTooLarge      = "message-too-large"
	ReasonOverLimit     = "over-limit"
	ReasonShuttingDown  = "shutting-down"

	// reasonStopped: somebody stopped the backend, so that nothing but a new
	// request may start it again.
	reasonStopped = "stopped"
)

// FailureRow is one line of the table of failures.
type FailureRow struct {
	Reason string
	// Code is the JSON-RPC error code. It stays outside -32768..-32000, which
	// JSON-RPC and MCP share between them.
	Code    int64
	Message string
	Hint    string
}

// Failures returns the table of everything that devproxy answers in place of the
// backend, for the code, the documentation and the tests alike. A failed
// tools/call gets it as a result with isError, so that the model reads it, every
// other request as a JSON-RPC error.
func Failures() []FailureRow {
	// The hints of the supervisor's reasons are its own; a test holds the two
	// tables together.
	const (
		look    = "see its output with dev_logs or `devproxyctl logs`"
		restart = "dev_restart or `devproxyctl restart`"
		itself  = "it starts again when the build output changes, or with " + restart
		again   = "the request may have had effects; check before calling again"
	)
	return []FailureRow{
		{
			ReasonUnavailable, -31900,
			"the backend is not available",
			"see dev_server_status or `devproxyctl status`",
		},
		{
			"start-failed", -31901,
			"the backend did not start",
			look + "; then restart it with " + restart,
		},
		{
			"exited-at-start", -31902,
			"the backend ended before it was ready",
			"fix what its output says; " + itself,
		},
		{
			"start-timeout", -31903,
			"the backend was not ready within [backend] start_timeout",
			look + "; raise [backend] start_timeout in devproxy.toml if it needs longer",
		},
		{
			"handshake-failed", -31904,
			"the backend does not speak MCP as configured",
			"check [backend] transport, path and era in devproxy.toml, and its output with dev_logs or `devproxyctl logs`",
		},
		{
			"crash-loop", -31905,
			"the backend crashed too often and is not started again by itself",
			look + "; " + itself,
		},
		{
			"crashed", -31906,
			"the backend crashed, and [backend] on_crash is \"stay\"",
			"on_crash is \"stay\" in devproxy.toml: " + itself,
		},
		{
			"entry-missing", -31907,
			"the backend's entry file is missing or empty",
			"build the project, with dev_rebuild_and_restart or `devproxyctl restart --rebuild`; it starts when the file is there",
		},
		{
			"port-in-use", -31908,
			"the backend's port is in use by another program",
			"end that process, or choose another [backend] port in devproxy.toml (0 takes a free one); then restart with " + restart,
		},
		{
			"command-not-found", -31909,
			"the backend's command was not found",
			"check [backend] command in devproxy.toml; `devproxyd restart` from a terminal makes the daemon use that terminal's PATH",
		},
		{
			"config-invalid", -31910,
			"the configuration does not say how to start the backend",
			"correct devproxy.toml; then restart with " + restart,
		},
		{
			"build-failed", -31911,
			"the build failed",
			"see its output with dev_logs or `devproxyctl logs --source build`",
		},
		{
			"survivors", -31912,
			"processes of the last backend could not be ended",
			"end these processes by hand; then restart with " + restart,
		},
		{
			"backend-retrying", -31913,
			"the backend crashed and is started again after a pause",
			"it starts again by itself; see dev_server_status",
		},
		{
			reasonStopped, -31914,
			"the backend was stopped",
			"it starts again on the next request that needs it",
		},
		{
			ReasonLost, -31915,
			"the backend ended while it worked on this request",
			again,
		},
		{
			ReasonRestarted, -31916,
			"the backend was restarted while it worked on this request",
			again,
		},
		{
			ReasonWaited, -31917,
			"the backend was not ready within [proxy] request_wait",
			"try again; see dev_server_status",
		},
		{
			ReasonLinkFailed, -31918,
			"no connection to the backend could be made",
			"try again; see dev_logs",
		},
		{
			ReasonRequestLost, -31919,
			"the connection broke before the backend answered",
			again,
		},
		{
			ReasonTooManyHeld, -31920,
			"too many requests wait for the backend",
			"try again when it is up; see dev_server_status",
		},
		{
			ReasonTooManyOpen, -31921,
			"too many requests of this client are open",
			"wait for some of them to be answered",
		},
		{
			ReasonTooLarge, -31922,
			"the message is larger than [proxy] max_message allows",
			"ask for less, or raise max_message if the client can read it",
		},
		{
			ReasonShuttingDown, -31923,
			"devproxy is shutting down",
			"",
		},
		{
			ReasonOverLimit, -31924,
			"a message to or from the backend is larger than devproxy passes on",
			"send or ask for less, or raise the limit if the message names a key of devproxy.toml",
		},
		{
			ReasonTooManyTopics, -31925,
			"this client subscribes to too much",
			"unsubscribe from something, or end a listen, first",
		},
	}
}

// tooLargeFailure names the size of a message and the key that bounds it.
func tooLargeFailure(size, limit int) Failure {
	return Failure{
		Reason:  ReasonTooLarge,
		Message: fmt.Sprintf("the result has %d bytes, and [proxy] max_message allows %d", size, limit),
	}
}

func rowOf(reason string) FailureRow {
	rows := Failures()
	for _, row := range rows {
		if row.Reason == reason {
			return row
		}
	}
	row := rows[0]
	row.Reason = reason
	return row
}

// Error returns the failure as JSON-RPC error: code and message of its row, and
// data {reason, state, generation, exit, hint} with what is known.
func (f Failure) Error() *wire.Error {
	row := rowOf(f.Reason)
	return &wire.Error{Code: row.Code, Message: f.message(row), Data: f.data(row)}
}

// Text returns the failure in words for a model or a person.
func (f Failure) Text() string {
	row := rowOf(f.Reason)
	text := f.message(row)
	if hint := f.hint(row); hint != "" {
		text += " — " + hint
	}
	return text
}

func (f Failure) message(row FailureRow) string {
	if f.Message != "" {
		return f.Message
	}
	return row.Message
}

func (f Failure) hint(row FailureRow) string {
	if f.Hint != "" {
		return f.Hint
	}
	return row.Hint
}

func (f Failure) data(row FailureRow) []byte {
	data := new(wire.Object)
	data.Set("reason", wire.Quote(row.Reason))
	if f.State != "" {
		data.Set("state", wire.Quote(f.State))
	}
	if f.Generation != 0 {
		data.Set("generation", strconv.AppendUint(nil, f.Generation, 10))
	}
	if f.Exit != "" {
		data.Set("exit", wire.Quote(f.Exit))
	}
	if hint := f.hint(row); hint != "" {
		data.Set("hint", wire.Quote(hint))
	}
	return data.Bytes()
}
