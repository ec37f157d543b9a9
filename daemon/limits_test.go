package daemon_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/internal/config"
)

// limit is a row of docs/limits.md. Its value is that of the constants in the
// code, or of the key's default.
type limit struct {
	what string
	// from are the constants, as "package.name"; several are several bounds of
	// one thing, in the words of unit.
	from []string
	unit string // of each, with %s for the value
	key  string // in devproxy.toml
	then string // what happens
	// test holds it, by name.
	test string
}

type limitGroup struct {
	title  string
	limits []limit
}

const byteSize = "%s"

func limits() []limitGroup {
	return []limitGroup{
		{"Messages", []limit{
			{
				"a message towards a client", nil, byteSize, "proxy.max_message",
				"a result becomes the error `message-too-large`, which names the size and the key; a notification is dropped and logged; a request of the server gets an error",
				"TestMaxMessage TestMaxMessageExact TestLargeInputs",
			},
			{
				"a message towards a `stdio` server", nil, byteSize, "proxy.max_request",
				"the request gets `over-limit`, which names the size and the key", "TestMaxRequest",
			},
			{
				"a line of a client, as its shim takes it", []string{"shim.maxLine"}, byteSize, "",
				"`line-too-long`; the rest of the line is skipped", "TestLineThatIsTooLong",
			},
			{
				"a message of a client, as the daemon takes it", []string{"daemon.maxClientMessage"}, byteSize, "",
				"JSON-RPC error -32600 that names the limit", "TestAssemblyIsBounded TestTooLong",
			},
			{
				"a message of the server, on stdout, in a body or in an event", []string{"daemon/backend/link.DefaultMaxReply"}, byteSize, "",
				"the request gets `over-limit`; what belongs to none is dropped and logged", "TestOversizedLines TestAnswersInEveryShape TestEventReader",
			},
			{
				"a message of the daemon, as a shim takes it", []string{"shim.maxMessage"}, byteSize, "",
				"the shim leaves the daemon, and attaches again", "TestWhatIsOpenIsBounded",
			},
			{
				"the depth of a message", []string{"internal/wire.MaxNesting"}, "%s", "",
				"it counts as no JSON", "TestNesting",
			},
			{
				"the messages of a batch", []string{"daemon/relay.maxOpen", "shim.maxCalls"}, "%s; %s without a daemon", "",
				"one error for all of it, `too-many-open` or `too-many-requests`", "TestLimits TestBatchIsBounded",
			},
			{
				"the headers of an HTTP answer", []string{"daemon/backend/link.maxHeaders"}, byteSize, "",
				"the request is lost: `request-lost`, which names the limit", "TestHTTPLimits",
			},
			{
				"what is read and shown of an HTTP error", []string{"daemon/backend/link.maxErrorBody", "daemon/backend/link.maxErrorText"}, "%s; %s", "",
				"it is cut", "TestHTTPLimits",
			},
		}},
		{"Clients", []limit{
			{
				"attached clients", []string{"daemon/relay.MaxSessions"}, "%s", "",
				"the shim answers `daemon-refused` and tries again after a while", "TestLimits TestTooManyClients",
			},
			{
				"calls on one connection to the daemon", []string{"daemon.maxStreams"}, "%s", "",
				"more wait for one to end", "TestCallsOnOneConnection",
			},
			{
				"open requests of one client", []string{"daemon/relay.maxOpen", "daemon/relay.maxOpenBytes"}, "%s; %s", "",
				"`too-many-open`", "TestLimits",
			},
			{
				"open requests of all clients", []string{"daemon/relay.maxAllOpenBytes"}, byteSize, "",
				"`too-many-open`", "TestLimits",
			},
			{
				"what one client subscribes to: resources, and listens", []string{"daemon/relay.maxTopics", "daemon/relay.maxTopicBytes"}, "%s; %s of URIs", "",
				"`too-many-subscriptions`", "TestLimits",
			},
			{
				"requests that were answered with `input_required` and that the client has not come back to", []string{"daemon/relay.maxUnfinished"}, "%s", "",
				"`too-many-open`", "TestLimits",
			},
			{
				"`clientInfo` and capabilities of a client", []string{"daemon/relay.maxPeerBytes"}, byteSize, "",
				"JSON-RPC error -32602 that names the limit", "TestLimits",
			},
			{
				"what waits for a client that does not read (the outbox)", []string{"daemon/relay.outboxLimit", "daemon/relay.outboxCap"},
				"%s for 30 s; %s for one that reads too slowly", "",
				"it is closed, its shim ends with exit code 1 and says so on stderr; nobody else is delayed", "TestSlowConsumer TestOutboxCap TestPausedClient",
			},
			{
				"log lines and progress among it, and for all clients together", []string{"daemon/relay.chatterCap", "daemon/relay.allOutCap"}, "%s; %s", "",
				"more are left out, and the log says so and how many", "TestLogLinesBeyondTheOutbox",
			},
			{
				"the same in its shim", []string{"shim.maxOut"}, byteSize, "",
				"likewise", "TestSlowConsumer",
			},
			{
				"changes that come before a listen is acknowledged", []string{"daemon/relay.maxLateBytes"}, byteSize, "",
				"the rest is dropped and logged", "TestLimits",
			},
		}},
		{"Waiting", []limit{
			{
				"requests that wait for the server", []string{"daemon/relay.maxHeld", "daemon/relay.maxHeldBytes"}, "%s; %s", "",
				"`too-many-held`", "TestLimits",
			},
			{
				"how long each waits", nil, "%s", "proxy.request_wait",
				"`request-wait`, which names the key", "TestConversations",
			},
			{
				"messages that wait for the daemon in one shim, and notifications among them",
				[]string{"shim.maxHeld", "shim.maxHeldBytes", "shim.maxHeldNotes"}, "%s; %s; %s", "",
				"`too-many-requests`; a notification is dropped, and a line on stderr says so", "TestWhatWaitsIsBounded TestWhatIsOpenIsBounded",
			},
			{
				"open requests in one shim", []string{"shim.maxCalls"}, "%s", "",
				"`too-many-requests`", "TestWhatIsOpenIsBounded",
			},
			{
				"what a shim keeps of a request, and of all of them, to send them again when the daemon is lost",
				[]string{"shim.maxKeptBody", "shim.maxKept"}, "%s; %s", "",
				"more is answered with `daemon-lost` instead", "TestWhatIsOpenIsBounded",
			},
			{
				"subscriptions that a shim keeps for the next daemon", []string{"shim.maxSubscriptions", "shim.maxSubscribed"}, "%s; %s", "",
				"more do not outlive the daemon, and a line on stderr says so", "TestLedgerOfSubscriptionsIsBounded",
			},
		}},
		{"The server", []limit{
			{
				"what waits to be sent to it", []string{"daemon/backend/link.HighWater", "daemon/backend/link.maxQueue"}, "%s; %s", "",
				"above the first its clients are not read; above the second a request is refused, and answers and notifications are dropped and logged",
				"TestBackpressure TestHTTPBackpressure TestQueueFull TestUnreadAnswers",
			},
			{
				"what waits to be read from it", []string{"daemon/relay.mailboxLimit"}, byteSize, "",
				"it is not read until that is done", "TestMailboxBound",
			},
			{
				"messages that come before a client is there", []string{"daemon/backend/link.maxEarly", "daemon/backend/link.maxEarlyBytes"}, "%s; %s", "",
				"more are dropped, requests among them refused", "TestUnbound",
			},
			{
				"requests, and answers to its own, that an HTTP server has at a time", []string{"daemon/backend/link.maxPosts"}, "%s of each", "",
				"more wait", "TestManyRequests TestAnswersAreBounded",
			},
			{
				"its open questions to clients (sampling, elicitation, roots)", []string{"daemon/relay.maxAsks", "daemon/relay.maxAskBytes"}, "%s; %s", "",
				"JSON-RPC error -32603 that names the limit, to the server", "TestQuestionLimits",
			},
			{
				"those of one call, and the inputs and pages that it may ask for at once", []string{"daemon/relay.maxQuestions"}, "%s", "",
				"likewise, or the call gets an error that says so", "TestQuestionLimits TestDialogueBound",
			},
			{
				"how often it may ask for more input in one call", []string{"daemon/relay.maxRounds"}, "%s", "",
				"the call gets an error that says so", "TestConversations TestRound",
			},
			{
				"redirects, and pages of its tools", []string{"daemon/backend/link.maxRedirects", "daemon/backend/link.maxToolPages"}, "%s; %s", "",
				"the redirect itself is the answer; further pages are not read", "TestHTTPLimits",
			},
			{
				"crashes within 5 minutes", []string{"daemon/backend.crashLimit"}, "%s", "",
				"`crash-loop`: it is started again when the build output changes, or by you", "TestCrashesGrowTheDelayUntilTheLimit",
			},
			{
				"names and values of environment overrides", []string{"daemon.maxOverrides"}, byteSize, "",
				"nothing is restarted, and the error names the limit", "TestCheckOverrides",
			},
			{
				"what is kept on disk of a handshake, of commands, and of handshakes for each",
				[]string{"daemon/backend.maxHandshakeBytes", "daemon/backend.maxCommands", "daemon/backend.maxHandshakes"}, "%s; %s; %s", "",
				"a larger one is known to the running daemon only; the oldest is forgotten", "TestSnapshotsAreBounded",
			},
		}},
		{"Output and logs", []limit{
			{
				"a line of the server's output, and one on stdout that is no message", []string{"daemon/backend.maxLine", "daemon/backend/link.maxNoise"}, "%s; %s", "",
				"it is cut, and says so", "TestLinesHoldsNoMoreThanItsLimit TestStdoutNoise",
			},
			{
				"a line of a build's output", []string{"daemon/build.maxLine"}, byteSize, "",
				"likewise", "TestLinesHoldsNoMoreThanItsLimit",
			},
			{
				"traces (`devproxyctl trace`) at a time", []string{"daemon/traffic.maxTracers"}, "%s", "",
				"one more is refused, and told why", "TestTap",
			},
			{
				"messages that wait for a trace that does not keep up", []string{"daemon/traffic.maxQueued", "daemon/traffic.maxQueuedBytes"}, "%s; %s", "",
				"more are left out of the trace, which says how many; nothing else is delayed", "TestTap",
			},
			{
				"requests of which a trace remembers when they came", []string{"daemon/traffic.maxAsked"}, "%s", "",
				"responses to more are shown without their method and time", "TestMatcherIsBounded",
			},
			{
				"lines that are kept for `devproxyctl logs` and `dev_logs`, and the length of each",
				[]string{"daemon/logs.defaultLines", "daemon/logs.defaultBytes", "daemon/logs.maxText"}, "%s; %s; %s", "",
				"the oldest are forgotten; a longer line is cut, and says so", "TestTail TestByteLimit TestClean",
			},
			{
				"an answer of `dev_logs`", []string{"daemon/devtools.maxLogLines", "daemon/devtools.maxLogBytes"}, "%s lines; %s", "",
				"more lines are an error that names the limit; longer ones are left out, and it says so", "TestLogs",
			},
			{
				"progress of a dev tool, such as the lines of a build", []string{"daemon/relay.fullProgress"}, "%s steps, then one each 100 ms", "",
				"the others are in the log", "TestProgressIsBounded",
			},
			{
				"last lines of the server in a failure and in `status`", []string{"daemon/backend.outputTail"}, "%s", "",
				"earlier ones are in the log", "TestTailKeepsTheLastLines",
			},
			{
				"generations in `devproxyctl status` and `top`", []string{"daemon/backend.historyLimit"}, "%s", "",
				"the oldest is forgotten", "TestHistoryTellsTheLastGenerations",
			},
			{
				"last lines of a build", []string{"daemon/build.tailLines", "daemon/build.tailBytes", "daemon/backend.buildTail"}, "%s; %s; %s in `status`", "",
				"likewise", "TestTailIsBounded",
			},
			{
				"the file `daemon.log` and its predecessors", []string{"daemon/logs.fileMegabytes", "daemon/logs.fileBackups"}, "%s MiB each; %s", "",
				"it is begun anew, and the oldest is removed", "TestFileRotates",
			},
			{
				"the file `start.log`, and its end in an error", []string{"api/client.maxStartLog", "api/client.maxTail"}, "%s; %s", "",
				"it is begun anew", "TestStartLogAndTailAreBounded",
			},
			{
				"a name or version in `status`, of a client or a server", []string{"daemon/relay.maxShown", "daemon.maxName"}, "%s; %s", "",
				"it is cut", "TestLimits TestStatusFitsIntoOneCall",
			},
			{
				"any other text in `status`", []string{"daemon.maxText"}, byteSize, "",
				"it is cut", "TestStatusFitsIntoOneCall",
			},
			{
				"environments whose secrets are hidden in the log", []string{"daemon.maxPast"}, "%s", "",
				"the oldest is forgotten", "TestSecretsStayHidden",
			},
		}},
		{"Files", []limit{
			{
				"`devproxy.toml`", []string{"internal/config.maxConfig"}, byteSize, "",
				"an error that names the file and the limit", "TestFileLimits",
			},
			{
				"`env_file`", []string{"internal/config.maxEnvFile"}, byteSize, "",
				"likewise", "TestFileLimits",
			},
			{
				"a file of an earlier daemon", []string{"daemon/backend.maxStateFile"}, byteSize, "",
				"it is not read, and logged", "TestSnapshotsAreBounded",
			},
			{
				"watched files, and directories", []string{"watch.maxFiles", "watch.maxDirectories"}, "%s; %s", "watch.paths",
				"more files are not looked at, more directories are polled; `status` says so and names the largest", "TestFileLimit TestManyDirectories",
			},
			{
				"a watched file whose content is compared", []string{"watch.maxHashed"}, byteSize, "",
				"of a larger one size and time count", "TestHugeFile",
			},
			{
				"the path of the socket", []string{"internal/project.maxSocketPath"}, "%s bytes on Linux", "",
				"the socket goes to `/tmp/devproxy-<uid>`; one that you chose is an error that names the limit", "TestDeepHomeGetsAShortSocket TestSocketOverride",
			},
		}},
	}
}

// inner are bounds that nobody meets: of steps within the programs, and of what
// the programs say to each other.
var inner = map[string]string{
	"api/client.MaxCallMessage":       "a gRPC message between our own programs, whose parts are bounded apart",
	"daemon/backend.maxEngineOutput":  "what a container engine says of containers of ours",
	"daemon/backend.engineTail":       "lines of it in an error",
	"daemon/backend.maxSteps":         "what waits for devproxyctl of a restart's output, which is in the log as well",
	"daemon/backend/link.maxCutToken": "characters of a word that a cut may split",
	"daemon/backend/link.maxIdle":     "connections that are kept for reuse",
	"daemon/backend/link.maxResumes":  "attempts to continue a stream",
	"daemon/era.maxHeaderDepth":       "how deep schemas are searched for headers",
	"daemon/relay.maxOwned":           "tasks and pages whose client is remembered",
	"daemon/relay.maxOwnedName":       "and their names",
	"internal/process.maxCommandLine": "what is shown of a stranger's command line",
	"internal/process.maxEnviron":     "what is read of a process's environment in /proc",
	"internal/process.maxMessage":     "what a gate is told, by its own daemon",
	"internal/wire.maxExact":          "integers that a float holds",
	"shim.maxNotes":                   "lines for a stderr that nobody reads",
	"shim.outHighWater":               "when the shim stops receiving",
	"shim.queueHighWater":             "when the shim stops reading",
	"watch.maxHashers":                "files that are read at once",
	"watch.maxLinks":                  "links on the way to one path",
	"watch.maxNamed":                  "paths in a line of the log",
	"watch.maxSilent":                 "changes without an event before polling",
}

func limitsPage(t *testing.T) string {
	t.Helper()
	s := newSources(t)
	var page strings.Builder
	page.WriteString(generated + `# Limits

Nothing that a client, a server or a build does makes devproxy keep more than this. Whoever meets a limit is told which one: by an
error of the table in [failures.md](failures.md), by a line in the log, or by the text that was cut. Times are in
[configuration.md](configuration.md); sizes are in bytes (KiB = 1024). What can be changed has a key.
`)
	for _, group := range limits() {
		fmt.Fprintf(&page, "\n## %s\n\n| what | at most | key | then |\n| --- | --- | --- | --- |\n", group.title)
		for _, l := range group.limits {
			key := ""
			if table, name, has := strings.Cut(l.key, "."); has {
				key = fmt.Sprintf("`%s` of `[%s]`", name, table)
			}
			fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", l.what, s.values(l), key, l.then)
		}
	}
	return page.String()
}

// values are those of a limit, in words.
func (s *sources) values(l limit) string {
	if len(l.from) == 0 {
		for _, key := range config.Keys() {
			if key.FullName() == l.key {
				return "`" + key.Default + "`"
			}
		}
		s.t.Errorf("%s: there is no key %s", l.what, l.key)
	}
	var words []any
	for _, from := range l.from {
		words = append(words, inWords(from, s.constant(from)))
	}
	return fmt.Sprintf(l.unit, words...)
}

// inWords writes a number of bytes with its unit, and any other as it is.
func inWords(name string, n int64) string {
	if !sizes.MatchString(name) {
		text := fmt.Sprint(n)
		if n >= 10_000 {
			text = text[:len(text)-3] + "," + text[len(text)-3:]
		}
		return text
	}
	for _, unit := range []struct {
		name string
		size int64
	}{{"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size && n%unit.size == 0 {
			return fmt.Sprintf("%d %s", n/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// sizes tells the constants that are numbers of bytes.
var sizes = regexp.MustCompile(`(Bytes|Line|Message|Reply|Text|Body|Kept|Out|Subscribed|Queue|HighWater|Noise|Cap|StateFile|Hashed|` +
	`EnvFile|Config|Overrides|StartLog|maxTail|Name|Shown|Headers|outboxLimit|mailboxLimit)$`)

// Every constant that bounds something has a row, a test that exists, and what
// the row refers to.
func TestLimitsAreComplete(t *testing.T) {
	s := newSources(t)
	bounds := regexp.MustCompile(`^[mM]ax[A-Z]|Limit$|Cap$|HighWater$|Tail$`)
	named := map[string]bool{}
	for _, group := range limits() {
		for _, l := range group.limits {
			for _, from := range l.from {
				s.constant(from)
				named[from] = true
			}
			for test := range strings.FieldsSeq(l.test) {
				if !s.tests()[test] {
					t.Errorf("%s: there is no %s", l.what, test)
				}
			}
			if l.test == "" {
				t.Errorf("%s has no test", l.what)
			}
		}
	}
	for name, why := range inner {
		if named[name] || why == "" {
			t.Errorf("%s is both in the page and not, or for no reason", name)
		}
		s.constant(name)
	}
	for _, dir := range s.dirs() {
		for name := range s.constants(dir) {
			full := dir + "." + name
			if bounds.MatchString(name) && !named[full] && inner[full] == "" {
				t.Errorf("%s bounds something and has no row in limits()", full)
			}
		}
	}
}

const modulePath = "github.com/debugmcp/devproxy"

// sources reads the constants of the module's packages, and the names of its
// tests, from their sources as they are on Linux.
type sources struct {
	t        *testing.T
	files    *token.FileSet
	packages map[string]*types.Package
	found    map[string]bool // tests
}

func newSources(t *testing.T) *sources {
	t.Helper()
	return &sources{t: t, files: token.NewFileSet(), packages: map[string]*types.Package{}}
}

// dirs are the packages that a shim and a daemon are made of.
func (s *sources) dirs() []string {
	dirs := map[string]bool{}
	s.walk(func(path string) {
		dir := filepath.ToSlash(filepath.Dir(path))
		top, _, _ := strings.Cut(dir, "/")
		switch {
		case strings.HasSuffix(path, "_test.go"):
		case slices.Contains([]string{"daemon", "shim", "watch"}, top), dir == "api/client",
			slices.Contains([]string{"internal/config", "internal/process", "internal/project", "internal/wire"}, dir):
			dirs[dir] = true
		}
	})
	return slices.Sorted(maps.Keys(dirs))
}

// tests are the names of all tests of the module.
func (s *sources) tests() map[string]bool {
	if s.found != nil {
		return s.found
	}
	s.found = map[string]bool{}
	head := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	s.walk(func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, match := range head.FindAllSubmatch(text, -1) {
			s.found[string(match[1])] = true
		}
	})
	return s.found
}

// walk visits the Go files of the module, by their paths in it.
func (s *sources) walk(visit func(path string)) {
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") && name != ".."):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ".go"):
			visit(strings.TrimPrefix(filepath.ToSlash(path), "../"))
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// constant returns a constant by its package and name.
func (s *sources) constant(full string) int64 {
	at := strings.LastIndexByte(full, '.')
	n, is := s.constants(full[:at])[full[at+1:]]
	if !is {
		s.t.Errorf("there is no constant %s", full)
	}
	return n
}

// constants returns the integer constants of a package, by name.
func (s *sources) constants(dir string) map[string]int64 {
	found := map[string]int64{}
	scope := s.check(dir).Scope()
	for _, name := range scope.Names() {
		c, is := scope.Lookup(name).(*types.Const)
		if !is || c.Val().Kind() != constant.Int || strings.HasSuffix(c.Type().String(), ".Duration") {
			continue
		}
		found[name], _ = constant.Int64Val(c.Val())
	}
	return found
}

func (s *sources) check(dir string) *types.Package {
	if p := s.packages[dir]; p != nil {
		return p
	}
	linux := build.Context{GOOS: "linux", GOARCH: "amd64", Compiler: "gc"}
	found, err := linux.ImportDir(filepath.Join("..", filepath.FromSlash(dir)), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(s.files, filepath.Join(found.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			s.t.Fatal(err)
		}
		files = append(files, file)
	}
	checker := types.Config{
		Importer: s, IgnoreFuncBodies: true,
		Error: func(error) {}, // of what is imported only constants are there
	}
	p, _ := checker.Check(modulePath+"/"+dir, s.files, files, nil)
	s.packages[dir] = p
	return p
}

// Import implements types.Importer. It gives the constants that limits are made
// of: those of the module, and the durations of package time.
func (s *sources) Import(path string) (*types.Package, error) {
	if dir, ours := strings.CutPrefix(path, modulePath+"/"); ours {
		return s.check(dir), nil
	}
	p := types.NewPackage(path, filepath.Base(path))
	if path == "time" {
		name := types.NewTypeName(token.NoPos, p, "Duration", nil)
		duration := types.NewNamed(name, types.Typ[types.Int64], nil)
		p.Scope().Insert(name)
		for name, n := range map[string]int64{"Millisecond": 1e6, "Second": 1e9, "Minute": 60e9, "Hour": 3600e9} {
			p.Scope().Insert(types.NewConst(token.NoPos, p, name, duration, constant.MakeInt64(n)))
		}
	}
	p.MarkComplete()
	return p, nil
}
