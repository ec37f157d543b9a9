package daemon

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/build"
	"github.com/debugmcp/devproxy/daemon/devtools"
	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/daemon/relay"
	"github.com/debugmcp/devproxy/internal/wire"
	"github.com/debugmcp/devproxy/watch"
)

// view is one moment of everything, before it takes the form of an API.
type view struct {
	daemon      daemonView
	backend     backend.Status
	sessions    []relay.SessionStatus
	watch       watch.Status
	command     []string // as configured, when no generation was started yet
	transport   string   // likewise
	build       string   // the build command; empty without one
	buildWatch  build.KeeperStatus
	callerBuild *seenBuild // that of a person; nil if there was none
	startWaits  bool       // for the end of that
	notice      string     // what of the configuration is not in force; empty for nothing
	overrides   map[string]string
	noise       int // lines on stdout that are no protocol, of this generation
	firstNoise  string
	hidden      []string // dev tools whose names the backend has itself
	mask        masking
	tools       *strings.Replacer
}

type daemonView struct {
	version, root, socket, logFile, configFile string
	instance, origin                           string
	pid                                        int
	since                                      time.Time
	idleDeadline                               time.Time
}

// masking hides what looks secret, unless somebody asked to see it.
type masking struct {
	masker *logs.Masker
	show   bool
}

func (m masking) text(s string) string {
	if m.show {
		return s
	}
	return m.masker.Mask(s)
}

func (m masking) texts(all []string) []string {
	masked := make([]string, len(all))
	for i, s := range all {
		masked[i] = m.text(s)
	}
	return masked
}

func (m masking) args(args []string) []string {
	if m.show {
		return slices.Clone(args)
	}
	return m.masker.MaskArgs(args)
}

func (m masking) env(env map[string]string) map[string]string {
	if m.show {
		return maps.Clone(env)
	}
	return m.masker.MaskEnv(env)
}

// message says what the state means to a person.
func (v view) message() string {
	text := v.tools.Replace(v.backend.Message)
	if v.startWaits && v.backend.State == backend.Starting {
		text = "waits for the end of a build that somebody runs: " + v.callerBuild.command
	}
	if text != "" && v.notice != "" {
		text += "\n"
	}
	text += v.notice
	return v.mask.text(text)
}

// transportName is that of the last launch, else the configured one.
func (v view) transportName() string {
	if v.backend.Transport != "" {
		return string(v.backend.Transport)
	}
	return v.transport
}

func (v view) commandLine() []string {
	if len(v.backend.Command) > 0 {
		return v.mask.args(v.backend.Command)
	}
	return v.mask.args(v.command)
}

// eras names the eras that the running backend offers.
func eras(facts *era.Facts) string {
	if facts == nil {
		return ""
	}
	offered := facts.Eras
	if len(offered) == 0 {
		offered = []era.Era{facts.Era}
	}
	names := make([]string, len(offered))
	for i, e := range offered {
		names[i] = e.String()
	}
	return strings.Join(names, "+")
}

const (
	// maxName bounds the name that a server gives itself, and its version.
	maxName = 256
	// maxText bounds every other text of a status, so that no one of them makes
	// it too large for a call. The longest that is of use is a line of output.
	maxText = 64 << 10
)

// implementation reads name and version of what a server says of itself.
func implementation(info []byte) (name, version string) {
	object, err := wire.ParseObject(info)
	if err != nil {
		return "", ""
	}
	name, _ = wire.String(object.Get("name"))
	version, _ = wire.String(object.Get("version"))
	return valid(name, maxName), valid(version, maxName)
}

// valid is a text in valid UTF-8 of no more than limit bytes.
func valid(text string, limit int) string {
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func (v view) toProto() *devproxyv1.Status {
	status := &devproxyv1.Status{
		Daemon: &devproxyv1.Daemon{
			Version: v.daemon.version, Pid: int64(v.daemon.pid), StartTime: toTime(v.daemon.since),
			ProjectRoot: v.daemon.root, Socket: v.daemon.socket, LogFile: v.daemon.logFile,
			Instance: v.daemon.instance, EnvironmentOrigin: v.daemon.origin,
			ConfigFile: v.daemon.configFile, IdleDeadline: toTime(v.daemon.idleDeadline),
			Contract: proto.Uint32(client.Contract),
		},
		Backend:    v.backendToProto(),
		Sessions:   sessionsToProto(v.sessions),
		Build:      v.buildToProto(),
		BuildWatch: v.buildWatchToProto(),
		Watch: &devproxyv1.Watch{
			Paths: v.relativeAll(v.watch.Paths), Mode: string(v.watch.Mode), Files: uint32(v.watch.Files),
			LastChanged: v.relative(v.watch.LastChanged), LastChangeTime: toTime(v.watch.LastChangeAt),
			Entry: v.relative(v.watch.Entry), EntryMissing: v.watch.EntryMissing,
			Overflows: uint32(v.watch.Overflows), Problem: v.watch.Problem,
		},
	}
	makeValid(status.ProtoReflect())
	return status
}

// makeValid replaces what is no UTF-8 in a message's strings, and cuts those that
// are too long. The name of a file may be any bytes, and gRPC sends nothing of a
// message with such a string. Maps are left alone: theirs came as JSON or over
// gRPC.
func makeValid(m protoreflect.Message) {
	client.MapStrings(m, func(field protoreflect.FieldDescriptor, text string) string {
		if field.IsMap() {
			return text
		}
		return valid(text, maxText)
	})
}

func (v view) backendToProto() *devproxyv1.Backend {
	b := v.backend
	proto := &devproxyv1.Backend{
		State: toState(b.State), Generation: b.Generation, Pid: int64(b.PID), Port: uint32(b.Port),
		ReadyTime: toTime(b.ReadyAt), Transport: v.transportName(), Command: v.commandLine(),
		ProtocolEra: eras(b.Facts), EnvironmentOverrides: v.mask.env(v.overrides),
		Message: v.message(), Crashes: uint32(b.Crashes), RetryTime: toTime(b.RetryAt), SharedLink: b.Shared,
	}
	if b.Facts != nil {
		proto.ProtocolVersion = b.Facts.Version
		proto.ServerName, proto.ServerVersion = implementation(b.Facts.Info)
	}
	for _, w := range v.warnings() {
		proto.Warnings = append(proto.Warnings, &devproxyv1.Warning{Text: w.text, Advice: w.advice})
	}
	proto.NeverRan = b.NeverRan
	proto.LastExit = v.exitToProto(b.LastExit)
	for _, l := range b.History {
		proto.History = append(proto.History, &devproxyv1.Generation{
			Number: l.Generation, Pid: int64(l.PID), StartTime: toTime(l.StartedAt), ReadyTime: toTime(l.ReadyAt), Exit: v.exitToProto(l.Exit),
		})
	}
	return proto
}

func (v view) exitToProto(exit *backend.Exit) *devproxyv1.Exit {
	if exit == nil {
		return nil
	}
	return &devproxyv1.Exit{
		Generation: exit.Generation, Time: toTime(exit.At), Status: exit.Status, Reason: exit.Reason,
		StderrTail: v.mask.texts(exit.StderrTail),
	}
}

func (v view) buildToProto() *devproxyv1.Build {
	b := v.lastBuild()
	if b == nil {
		return nil
	}
	return &devproxyv1.Build{
		Command: v.mask.text(b.command), StartTime: toTime(b.StartedAt), Duration: durationpb.New(b.took()),
		Running: b.Running, Ok: b.OK, Message: v.mask.text(b.Message), Tail: v.mask.texts(b.Tail),
		ByPerson: b.byPerson,
	}
}

func sessionsToProto(sessions []relay.SessionStatus) []*devproxyv1.Session {
	protos := make([]*devproxyv1.Session, len(sessions))
	for i, s := range sessions {
		protos[i] = &devproxyv1.Session{
			Id: s.ID, ClientName: s.ClientName, ClientVersion: s.ClientVersion,
			ProtocolEra: s.Era, ProtocolVersion: s.Version,
			ShimPid: s.Shim.PID, ShimVersion: s.Shim.Version, AttachTime: toTime(s.Attached),
			InFlight: uint32(s.InFlight), LastMethod: s.LastMethod, LastTime: toTime(s.LastTime),
			Stale: s.Stale, Link: s.Link, ListedGeneration: s.Listed,
		}
	}
	return protos
}

// toDevtools is the same for dev_server_status.
func (v view) toDevtools() devtools.Status {
	b := v.backend
	status := devtools.Status{
		State: b.State.String(), Message: v.message(), Generation: b.Generation, PID: b.PID, Port: b.Port,
		Transport: v.transportName(), Command: v.commandLine(), EnvOverrides: v.mask.env(v.overrides),
		Project: v.daemon.root, DaemonPID: v.daemon.pid, DaemonVersion: v.daemon.version,
		Watch: &devtools.Watch{
			Paths: v.relativeAll(v.watch.Paths), Mode: string(v.watch.Mode),
			LastChanged: v.relative(v.watch.LastChanged), Problem: v.watch.Problem,
		},
		Sessions: []devtools.Session{},
	}
	if status.EnvOverrides == nil {
		status.EnvOverrides = map[string]string{}
	}
	if v.watch.EntryMissing {
		status.Watch.EntryMissing = v.relative(v.watch.Entry)
	}
	if !b.ReadyAt.IsZero() {
		status.UptimeSeconds = int64(time.Since(b.ReadyAt).Seconds())
	}
	if b.Facts != nil {
		offered := eras(b.Facts)
		status.ProtocolEra, status.ProtocolVersion = &offered, &b.Facts.Version
		name, version := implementation(b.Facts.Info)
		status.Server = strings.TrimSpace(name + " " + version)
	}
	for _, w := range v.warnings() {
		status.Warnings = append(status.Warnings, w.text+"; "+w.advice)
	}
	if exit := b.LastExit; exit != nil {
		status.LastExit = &devtools.Exit{
			Generation: exit.Generation, Time: exit.At.Format(time.RFC3339), Status: exit.Status,
			Reason: exit.Reason, Stderr: v.mask.texts(exit.StderrTail),
		}
	}
	if build := v.lastBuild(); build != nil {
		status.LastBuild = &devtools.Build{
			Command: v.mask.text(build.command), Running: build.Running, OK: build.OK, Message: v.mask.text(build.Message),
			DurationSeconds: build.took().Seconds(), Tail: v.mask.texts(build.Tail),
		}
	}
	status.BuildWatch = v.buildWatchToDevtools()
	for _, s := range v.sessions {
		name := s.ClientName
		if s.ClientVersion != "" {
			name += " " + s.ClientVersion
		}
		status.Sessions = append(status.Sessions, devtools.Session{
			ID: s.ID, Client: name, ProtocolEra: s.Era, ProtocolVersion: s.Version, InFlight: s.InFlight,
		})
	}
	return status
}

// relative shortens a path inside the project to what a person calls it.
func (v view) relative(path string) string {
	short, err := filepath.Rel(v.daemon.root, path)
	if path == "" || err != nil || !filepath.IsLocal(short) {
		return path
	}
	return short
}

func (v view) relativeAll(paths []string) []string {
	short := make([]string, len(paths))
	for i, path := range paths {
		short[i] = v.relative(path)
	}
	return short
}

func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func toState(s backend.State) devproxyv1.BackendState {
	switch s {
	case backend.Idle:
		return devproxyv1.BackendState_BACKEND_STATE_IDLE
	case backend.Building:
		return devproxyv1.BackendState_BACKEND_STATE_BUILDING
	case backend.Starting:
		return devproxyv1.BackendState_BACKEND_STATE_STARTING
	case backend.Running:
		return devproxyv1.BackendState_BACKEND_STATE_RUNNING
	case backend.Draining:
		return devproxyv1.BackendState_BACKEND_STATE_DRAINING
	case backend.Stopping:
		return devproxyv1.BackendState_BACKEND_STATE_STOPPING
	case backend.Backoff:
		return devproxyv1.BackendState_BACKEND_STATE_BACKOFF
	case backend.Failed:
		return devproxyv1.BackendState_BACKEND_STATE_FAILED
	}
	return devproxyv1.BackendState_BACKEND_STATE_UNSPECIFIED
}

func toEntry(e logs.Entry, mask masking) *devproxyv1.LogEntry {
	return &devproxyv1.LogEntry{
		Sequence: e.Sequence, Time: toTime(e.Time), Source: toSource(e.Source), Stream: e.Stream,
		Generation: e.Generation, Text: mask.text(e.Text),
	}
}

// fromLogsRequest is which entries a request wants. Its pattern sees of them what
// is sent, so that it cannot be used to guess at what is masked.
func fromLogsRequest(request *devproxyv1.StreamLogsRequest, mask func() masking) (logs.Filter, error) {
	filter := logs.Filter{Sources: fromSources(request.GetSources()), Generation: request.GetGeneration()}
	if since := request.GetSince(); since != nil {
		filter.Since = since.AsTime()
	}
	if request.GetPattern() != "" {
		pattern, err := regexp.Compile(request.GetPattern())
		if err != nil {
			return logs.Filter{}, fmt.Errorf("the pattern: %w", err)
		}
		filter.Match = func(e logs.Entry) bool { return pattern.MatchString(mask().text(e.Text)) }
	}
	return filter, nil
}

func toSource(s logs.Source) devproxyv1.LogSource {
	switch s {
	case logs.Backend:
		return devproxyv1.LogSource_LOG_SOURCE_BACKEND
	case logs.Build:
		return devproxyv1.LogSource_LOG_SOURCE_BUILD
	case logs.Daemon:
		return devproxyv1.LogSource_LOG_SOURCE_DAEMON
	}
	return devproxyv1.LogSource_LOG_SOURCE_UNSPECIFIED
}

func fromSources(protos []devproxyv1.LogSource) []logs.Source {
	var sources []logs.Source
	for _, s := range protos {
		switch s {
		case devproxyv1.LogSource_LOG_SOURCE_BACKEND:
			sources = append(sources, logs.Backend)
		case devproxyv1.LogSource_LOG_SOURCE_BUILD:
			sources = append(sources, logs.Build)
		case devproxyv1.LogSource_LOG_SOURCE_DAEMON:
			sources = append(sources, logs.Daemon)
		case devproxyv1.LogSource_LOG_SOURCE_UNSPECIFIED:
		}
	}
	return sources
}
