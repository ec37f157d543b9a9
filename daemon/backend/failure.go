package backend

import (
	"slices"
	"strings"
)

// Reason is why the backend does not serve. The values are shown to people and
// sent to clients in the data of errors: they only ever grow in number.
type Reason string

// The reasons. The last five are not failures of the backend but say why a
// generation went down.
const (
	// StartFailed: the process could not be created or released.
	StartFailed Reason = "start-failed"
	// ExitedAtStart: it ended before it was ready.
	ExitedAtStart Reason = "exited-at-start"
	// StartTimeout: it was not ready within start_timeout.
	StartTimeout Reason = "start-timeout"
	// HandshakeFailed: it is there but does not speak MCP as configured.
	HandshakeFailed Reason = "handshake-failed"
	// CrashLoop: it crashed too often in a short time.
	CrashLoop Reason = "crash-loop"
	// Crashed: it crashed, and on_crash = "stay".
	Crashed Reason = "crashed"
	// EntryMissing: the file it would run is missing or empty.
	EntryMissing Reason = "entry-missing"
	// PortInUse: somebody else listens on its port.
	PortInUse Reason = "port-in-use"
	// CommandNotFound: there is no such program.
	CommandNotFound Reason = "command-not-found"
	// ConfigInvalid: the configuration does not say how to start it.
	ConfigInvalid Reason = "config-invalid"
	// BuildFailed: the build that was asked for failed.
	BuildFailed Reason = "build-failed"
	// Survivors: processes of the last generation are still there after
	// SIGKILL, or its container is or may be, so that no other may start.
	Survivors Reason = "survivors"

	// Lost: the generation ended by itself.
	Lost Reason = "backend-lost"
	// Retrying: it crashed and starts again after a delay.
	Retrying Reason = "backend-retrying"
	// Restarted: it is stopped to start anew.
	Restarted Reason = "backend-restarted"
	// Stopped: somebody stopped it.
	Stopped Reason = "stopped"
	// ShuttingDown: the daemon ends.
	ShuttingDown Reason = "shutting-down"
)

// Reasons returns all reasons, in the order of the documentation.
func Reasons() []Reason {
	reasons := make([]Reason, 0, len(reasonTable))
	for _, row := range reasonTable {
		reasons = append(reasons, row.reason)
	}
	return reasons
}

// reasonTable is read-only. retry says whether a start that failed for the
// reason while the supervisor was recovering from a crash counts as one more
// crash: the others do not go away by themselves.
var reasonTable = [...]struct {
	reason Reason
	retry  bool
	hint   string
}{
	{StartFailed, false, "see its output with dev_logs or `devproxyctl logs`; then restart it with dev_restart or `devproxyctl restart`"},
	{ExitedAtStart, true, "fix what its output says; it starts again when the build output changes, or with dev_restart or `devproxyctl restart`"},
	{StartTimeout, true, "see its output with dev_logs or `devproxyctl logs`; raise [backend] start_timeout in devproxy.toml if it needs longer"},
	{HandshakeFailed, true, "check [backend] transport, path and era in devproxy.toml, and its output with dev_logs or `devproxyctl logs`"},
	{CrashLoop, false, "see its output with dev_logs or `devproxyctl logs`; it starts again when the build output changes, or with dev_restart or `devproxyctl restart`"},
	{Crashed, false, "on_crash is \"stay\" in devproxy.toml: it starts again when the build output changes, or with dev_restart or `devproxyctl restart`"},
	{EntryMissing, false, "build the project, with dev_rebuild_and_restart or `devproxyctl restart --rebuild`; it starts when the file is there"},
	{PortInUse, false, "end that process, or choose another [backend] port in devproxy.toml (0 takes a free one); then restart with dev_restart or `devproxyctl restart`"},
	{CommandNotFound, false, "check [backend] command in devproxy.toml; `devproxyd restart` from a terminal makes the daemon use that terminal's PATH"},
	{ConfigInvalid, false, "correct devproxy.toml; then restart with dev_restart or `devproxyctl restart`"},
	{BuildFailed, false, "see its output with dev_logs or `devproxyctl logs --source build`"},
	{Survivors, false, "end these processes by hand; then restart with dev_restart or `devproxyctl restart`"},
	{Lost, false, "the request may have had effects; check before calling again"},
	{Retrying, false, "it starts again by itself; see dev_server_status"},
	{Restarted, false, "the request may have had effects; check before calling again"},
	{Stopped, false, "it starts again on the next request that needs it"},
	{ShuttingDown, false, ""},
}

// Hint returns what to do about a failure for that reason; empty if nothing.
func (r Reason) Hint() string {
	for _, row := range reasonTable {
		if row.reason == r {
			return row.hint
		}
	}
	return ""
}

// retryable reports whether a start that failed for the reason may succeed when
// it is merely tried again.
func (r Reason) retryable() bool {
	for _, row := range reasonTable {
		if row.reason == r {
			return row.retry
		}
	}
	return false
}

// Failure is why the backend does not serve, for answers to clients, for
// status, and as the error of Start, Stop and Restart.
//
//nolint:errname // it is data for answers first and an error second
type Failure struct {
	Reason Reason
	// State is the supervisor's after the failure.
	State State
	// Generation is the one it is about, 0 for none.
	Generation uint64
	// Exit is how the process ended, in words; empty if it did not.
	Exit string
	// Message says what happened, Hint what to do about it; Hint may be empty.
	Message string
	Hint    string
	// Tail are the last lines on stderr (of the build: of its output) where
	// they explain the failure. They are not masked.
	Tail []string
	// Waiting says that the backend may come up without anybody's doing: held
	// requests may go on waiting.
	Waiting bool
}

// fail returns a failure with the hint of its reason.
func fail(reason Reason, message string) *Failure {
	return &Failure{Reason: reason, Message: message, Hint: reason.Hint()}
}

// Error is what happened, the lines that explain it, and what to do.
func (f *Failure) Error() string {
	if len(f.Tail) == 0 {
		return f.summary()
	}
	text := f.Message + "; its last lines:\n  " + strings.Join(f.Tail, "\n  ")
	if f.Hint != "" {
		text += "\n" + f.Hint
	}
	return text
}

// summary is what happened and what to do, in one line.
func (f *Failure) summary() string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + "; " + f.Hint
}

// clone returns a copy that shares nothing with f.
func (f *Failure) clone() *Failure {
	if f == nil {
		return nil
	}
	c := *f
	c.Tail = slices.Clone(f.Tail)
	return &c
}
