package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/backend/link"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/watch"
)

func TestAwaitIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var deadline time.Time
		clients := func() int {
			if since := time.Since(began); since >= 10*time.Minute && since < 20*time.Minute {
				if since > 10*time.Minute+idleCheck && !deadline.IsZero() {
					t.Errorf("with a client attached the deadline is %v", deadline)
				}
				return 1
			}
			return 0
		}
		if !awaitIdle(t.Context(), 30*time.Minute, clients, func(at time.Time) { deadline = at }) {
			t.Fatal("it did not wait for want of clients")
		}
		if lasted := time.Since(began); lasted < 50*time.Minute || lasted > 50*time.Minute+2*idleCheck {
			t.Errorf("idle after %v, want 50 minutes", lasted)
		}
		if d := deadline.Sub(began); d < 50*time.Minute || d > 50*time.Minute+idleCheck {
			t.Errorf("the deadline was %v, want 50 minutes", d)
		}
	})
}

func TestAwaitIdleEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errQuit)
		defer cancel()
		if awaitIdle(ctx, time.Hour, func() int { return 0 }, func(time.Time) {}) {
			t.Error("it waited for want of clients")
		}
	})
}

func chunk(data string, last bool) *devproxyv1.Chunk {
	return &devproxyv1.Chunk{Data: []byte(data), Last: last}
}

func TestAssembly(t *testing.T) {
	var a assembly
	for _, message := range [][]string{{"whole"}, {"in ", "three", " parts"}, {"", "", ""}, {"again"}} {
		for i, part := range message {
			frame, long, done := a.add(chunk(part, i == len(message)-1))
			if long != nil || done != (i == len(message)-1) {
				t.Fatalf("part %d of %q: long %v, done %v", i, message, long, done)
			}
			if done && string(frame) != strings.Join(message, "") {
				t.Errorf("%q became %q", message, frame)
			}
		}
	}
}

// However long a message is, no more than the bound is kept of it, and then only
// what may have its id.
func TestAssemblyIsBounded(t *testing.T) {
	const part = 8 << 20
	big := strings.Repeat("x", part)
	var a assembly
	for _, part := range append([]string{`{"id":1,"method":"m"`}, slices.Repeat([]string{big}, 20)...) {
		if _, _, done := a.add(chunk(part, false)); done {
			t.Fatal("done before the last chunk")
		}
	}
	if kept := a.pieces.Take(); len(kept) != 0 || len(a.head) != longHead || cap(a.head) > 2*longHead {
		t.Errorf("of a message that is too long %d bytes are kept, and %d of its head in %d", len(kept), len(a.head), cap(a.head))
	}
	frame, long, done := a.add(chunk("}", true))
	if !done || frame != nil || long == nil || long.Size != 20+20*part+1 || string(long.Tail) != big[:1023]+"}" || long.Limit != maxClientMessage ||
		!strings.HasPrefix(string(long.Head), `{"id":1,"method":"m"xxx`) {
		t.Errorf("done %v, frame of %d bytes, %v", done, len(frame), long)
	}
	if frame, long, done := a.add(chunk("next", true)); string(frame) != "next" || long != nil || !done {
		t.Errorf("the message after it is %q, %v, %v", frame, long, done)
	}
}

func TestDiffering(t *testing.T) {
	digests := map[string][]byte{}
	for name, value := range map[string]string{
		"SAME": "1", "OTHER": "client's", "NEW": "x", "PATH": "/client", "DEVPROXY_SOCKET": "/x", "XDG_RUNTIME_DIR": "/run/1",
	} {
		digests[name] = client.EnvironmentDigest(value)
	}
	own := newEnvironment([]string{"SAME=1", "OTHER=daemon's", "PATH=/daemon", "MORE=1"})
	if got := strings.Join(differing(digests, own), " "); got != "NEW OTHER" {
		t.Errorf("differing = %s, want NEW OTHER", got)
	}
}

func TestErrorsAtTheBorder(t *testing.T) {
	for _, test := range []struct {
		err    error
		code   codes.Code
		reason devproxyv1.CloseReason
	}{
		{relay.ErrEnded, codes.OK, devproxyv1.CloseReason_CLOSE_REASON_DONE},
		{relay.ErrShutdown, codes.Unavailable, devproxyv1.CloseReason_CLOSE_REASON_SHUTDOWN},
		{relay.ErrRestart, codes.Unavailable, devproxyv1.CloseReason_CLOSE_REASON_RESTART},
		{relay.ErrSlowConsumer, codes.ResourceExhausted, devproxyv1.CloseReason_CLOSE_REASON_SLOW_CONSUMER},
		{relay.ErrTooManySessions, codes.ResourceExhausted, devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED},
		{context.Canceled, codes.Canceled, devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED},
		{context.DeadlineExceeded, codes.DeadlineExceeded, devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED},
		{status.Error(codes.Aborted, "as it is"), codes.Aborted, devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED},
		{io.ErrUnexpectedEOF, codes.Internal, devproxyv1.CloseReason_CLOSE_REASON_UNSPECIFIED},
	} {
		if got := status.Code(toStatus(test.err)); got != test.code {
			t.Errorf("the status of %v is %v, want %v", test.err, got, test.code)
		}
		if got := toClosing(test.err); got.GetReason() != test.reason || got.GetMessage() != test.err.Error() {
			t.Errorf("the closing for %v is %v, want %v", test.err, got, test.reason)
		}
	}
	if err := toStatus(nil); err != nil {
		t.Errorf("the status of nil is %v", err)
	}
}

// Every state and source has a value of the contract's own, and none has two names.
func TestStatesAndSources(t *testing.T) {
	seen := map[devproxyv1.BackendState]bool{}
	for s := backend.Idle; s <= backend.Failed; s++ {
		value := toState(s)
		if value == devproxyv1.BackendState_BACKEND_STATE_UNSPECIFIED || seen[value] || client.StateName(value) != s.String() {
			t.Errorf("%v becomes %v", s, value)
		}
		seen[value] = true
	}
	if len(seen) != len(devproxyv1.BackendState_name)-1 {
		t.Errorf("%d states of %d are used", len(seen), len(devproxyv1.BackendState_name)-1)
	}
	if got := toState(backend.Failed + 1); got != devproxyv1.BackendState_BACKEND_STATE_UNSPECIFIED {
		t.Errorf("a state that is none becomes %v", got)
	}
	for _, s := range []logs.Source{logs.Backend, logs.Build, logs.Daemon} {
		value := toSource(s)
		back := fromSources([]devproxyv1.LogSource{devproxyv1.LogSource_LOG_SOURCE_UNSPECIFIED, value})
		if len(back) != 1 || back[0] != s || client.SourceName(value) != string(s) {
			t.Errorf("%s becomes %v and then %v", s, value, back)
		}
	}
}

func TestEras(t *testing.T) {
	for want, facts := range map[string]*era.Facts{
		"":              nil,
		"legacy":        {Era: era.Legacy},
		"modern+legacy": {Era: era.Modern, Eras: []era.Era{era.Modern, era.Legacy}},
	} {
		if got := eras(facts); got != want {
			t.Errorf("eras(%+v) = %q, want %q", facts, got, want)
		}
	}
}

func TestViewMessage(t *testing.T) {
	v := view{tools: toolNames("my_"), mask: masking{masker: logs.NewMasker(map[string]string{"API_TOKEN": "hush-hush"})}}
	v.backend.Message = "it said hush-hush; see dev_server_status, dev_logs, dev_restart or dev_rebuild_and_restart"
	const want = "it said ***; see my_server_status, my_logs, my_restart or my_rebuild_and_restart"
	if got := v.message(); got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
	v.notice = "devproxy.toml:3: port: hush-hush"
	if got := v.message(); !strings.HasPrefix(got, want+"\n") || !strings.HasSuffix(got, "devproxy.toml:3: port: ***") {
		t.Errorf("with a notice it is %q", got)
	}
	v.mask.show = true
	if got := v.message(); !strings.Contains(got, "hush-hush") {
		t.Errorf("whoever asks for secrets gets %q", got)
	}
}

func TestViewOfTheWatcherAndTheSessions(t *testing.T) {
	v := view{tools: toolNames("dev_"), watch: watch.Status{Mode: watch.Polling, Files: 3, Overflows: 2}}
	if w := v.toProto().GetWatch(); w.GetMode() != "poll" || w.GetFiles() != 3 || w.GetOverflows() != 2 {
		t.Errorf("the watcher is shown as %v", w)
	}
	attached := time.Unix(1, 0)
	sessions := sessionsToProto([]relay.SessionStatus{{ID: 7, Attached: attached, Listed: 3}})
	if s := sessions[0]; s.GetId() != 7 || !s.GetAttachTime().AsTime().Equal(attached) || s.GetListedGeneration() != 3 {
		t.Errorf("a session is shown as %v", s)
	}
}

func TestViewPrefersWhatWasLaunched(t *testing.T) {
	v := view{command: []string{"configured", "--token", "abcdefgh"}, transport: "http", tools: toolNames("dev_")}
	v.daemon.root = "/project"
	b := v.backendToProto()
	if b.GetTransport() != "http" || strings.Join(b.GetCommand(), " ") != "configured --token ***" {
		t.Errorf("before the first launch: %v", b)
	}
	v.backend.Command, v.backend.Transport = []string{"launched"}, backend.Stdio
	b = v.backendToProto()
	if b.GetTransport() != "stdio" || strings.Join(b.GetCommand(), " ") != "launched" {
		t.Errorf("after it: %v", b)
	}
	for path, want := range map[string]string{"/project/dist/a.js": "dist/a.js", "/elsewhere/b": "/elsewhere/b", "": "", "/project": "."} {
		if got := v.relative(path); got != want {
			t.Errorf("relative(%q) = %q, want %q", path, got, want)
		}
	}
}

// The name of a file may be any bytes, and must not cost the status.
func TestViewOfNamesThatAreNoText(t *testing.T) {
	v := view{tools: toolNames("dev_")}
	v.daemon.root = "/pro\xffject"
	v.watch = watch.Status{Paths: []string{"/pro\xffject/di\xffst"}, LastChanged: "/pro\xffject/dist/\xff.js", Problem: "\xff"}
	v.backend.Message, v.backend.LastExit = "no \xff", &backend.Exit{StderrTail: []string{"\xff"}}
	shown := v.toProto()
	if _, err := proto.Marshal(shown); err != nil {
		t.Fatal(err)
	}
	if got := shown.GetWatch().GetLastChanged() + " " + shown.GetWatch().GetPaths()[0] + " " + shown.GetBackend().GetMessage(); got !=
		"dist/\uFFFD.js di\uFFFDst no \uFFFD" {
		t.Errorf("it says %q", got)
	}
}

// However much everybody says of himself, the status fits into one call.
func TestStatusFitsIntoOneCall(t *testing.T) {
	long := strings.Repeat("ä", maxText)
	v := view{tools: toolNames("dev_"), command: []string{long}, transport: "http"}
	v.backend.Message, v.backend.Facts = long, &era.Facts{Info: []byte(`{"name":"` + long + `","version":"` + long + `"}`)}
	v.backend.LastExit = &backend.Exit{Status: long, StderrTail: slices.Repeat([]string{long}, 20)}
	name := strings.Repeat("x", 256) // of the router's own cutting
	v.sessions = slices.Repeat([]relay.SessionStatus{{
		Shim: relay.Shim{Version: name}, ClientName: name, ClientVersion: name, Version: name, LastMethod: name,
	}}, relay.MaxSessions)
	shown := v.toProto()
	if size := proto.Size(shown); size > client.MaxCallMessage/2 {
		t.Errorf("it has %d bytes", size)
	}
	if got := shown.GetBackend().GetServerName(); len(got) > maxName || !strings.HasSuffix(got, "ä…") {
		t.Errorf("the server's name is %q", got)
	}
	if got := shown.GetBackend().GetMessage(); len(got) > maxText || !strings.HasSuffix(got, "ä…") {
		t.Errorf("the message has %d bytes", len(got))
	}
}

// What a daemon on a terminal prints has no secrets in it, wherever they stand.
func TestMaskingHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(maskingHandler{
		next: slog.NewTextHandler(&out, nil),
		mask: func(text string) string { return strings.ReplaceAll(text, "hush", "***") },
	})
	log.Debug("not wanted")
	log.With("with", "hush").WithGroup("g").Info("message hush", "error", errors.New("it said hush"),
		slog.Group("inner", "deep", "hush", "n", 7), "took", time.Second)
	got := out.String()
	for _, want := range []string{`msg="message ***"`, "with=***", `g.error="it said ***"`, "g.inner.deep=***", "g.inner.n=7", "g.took=1s"} {
		if !strings.Contains(got, want) {
			t.Errorf("the line lacks %s: %s", want, got)
		}
	}
	if strings.Contains(got, "hush") || strings.Contains(got, "not wanted") {
		t.Errorf("it says too much: %s", got)
	}
}

func TestFailureInWords(t *testing.T) {
	o := observer{mask: func() *logs.Masker { return logs.NewMasker(map[string]string{"API_TOKEN": "hush-hush"}) }}
	got := o.failure(backend.Failure{
		Reason: backend.ExitedAtStart, State: backend.Failed, Generation: 3, Exit: "exited with status 1",
		Message: "it ended", Hint: "fix it", Tail: []string{"line one", "my token is hush-hush"}, Waiting: true,
	})
	want := relay.Failure{
		Reason: "exited-at-start", State: "failed", Generation: 3, Exit: "exited with status 1",
		Message: "it ended; its last lines:\nline one\nmy token is ***\n", Hint: "fix it", Waiting: true,
	}
	if got != want {
		t.Errorf("failure = %+v, want %+v", got, want)
	}
}

// The router knows a link's error by this method alone, since the two packages
// do not know each other.
func TestLimitsOfLinksAreKnownToTheRouter(t *testing.T) {
	var err error = &link.TooLargeError{Size: 2, Limit: 1, Which: "[proxy] max_request"}
	if _, ok := err.(interface{ OverLimit() }); !ok {
		t.Error("the router takes the error of a link for the backend's answer")
	}
}
