package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// FileName is the configuration's name in the project's root.
const FileName = "devproxy.toml"

const (
	// maxConfig bounds devproxy.toml: some hundred times of what people write, and
	// what can still be read in a moment.
	maxConfig = 256 << 10
	// maxEnvFile bounds an env_file, which may hold keys and certificates, and is
	// far below what would hurt when a wrong name leads to something else.
	maxEnvFile = 1 << 20
)

// FileTooLargeError says that a file is not read because it is too large.
type FileTooLargeError struct {
	// Path is the file, and Limit how many bytes it may have.
	Path  string
	Limit int
}

// Error names the file and the limit.
func (e *FileTooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %d bytes", e.Path, e.Limit)
}

// Config is devproxy.toml with every default filled in and every path made
// absolute.
type Config struct {
	// Root is the absolute path of the project.
	Root string

	Backend Backend `toml:"backend"`
	Build   Build   `toml:"build"`
	Watch   Watch   `toml:"watch"`
	Proxy   Proxy   `toml:"proxy"`
}

// Backend is how the MCP server under development is started and spoken to.
type Backend struct {
	// Command is the program and its arguments; "{port}" in an argument
	// stands for the port. Never empty.
	Command   []string  `toml:"command"`
	Transport Transport `toml:"transport"`
	// Port is 0 for a free one at each start.
	Port int `toml:"port"`
	// Path is the endpoint of an http or sse backend; starts with a slash.
	Path string `toml:"path"`
	// Health is the path of a GET to wait for; empty for none.
	Health string            `toml:"health"`
	Cwd    string            `toml:"cwd"`
	Env    map[string]string `toml:"env"`
	// EnvFile is absolute; empty for none. LoadEnv reads it.
	EnvFile      string        `toml:"env_file"`
	Era          Era           `toml:"era"`
	Start        Start         `toml:"start"`
	StartTimeout time.Duration `toml:"start_timeout"`
	// StopTimeout is for each rung of the stop ladder.
	StopTimeout  time.Duration `toml:"stop_timeout"`
	DrainTimeout time.Duration `toml:"drain_timeout"`
	OnCrash      OnCrash       `toml:"on_crash"`
}

// Build is what makes what the backend runs from.
type Build struct {
	// Command builds once.
	Command Command `toml:"command"`
	// Watch builds for as long as it runs, whenever a source has changed.
	Watch   Command       `toml:"watch"`
	Timeout time.Duration `toml:"timeout"`
}

// Command is a command of [build]. Argv and Script are two ways to say it; both
// are empty where there is none.
type Command struct {
	// Argv is a command given as an array, to be run as it is.
	Argv []string
	// Script is a command given as one string, to be run by the shell, since
	// people write "tsc && cp -r assets dist" there.
	Script string
}

// Configured reports whether there is a command.
func (c Command) Configured() bool { return len(c.Argv) > 0 || c.Script != "" }

// String is the command as a person reads it.
func (c Command) String() string {
	if c.Script != "" {
		return c.Script
	}
	return strings.Join(c.Argv, " ")
}

// Watch is what is watched for new build output.
type Watch struct {
	// Paths are absolute. They need not exist. None means that nothing is watched.
	Paths []string `toml:"paths"`
	// Ignore are valid doublestar patterns.
	Ignore []string      `toml:"ignore"`
	Settle time.Duration `toml:"settle"`
	// Entry is absolute, or empty where the file does not say it;
	// DeriveEntry has the last word.
	Entry string `toml:"entry"`
	// Poll is 0 where file events are used.
	Poll time.Duration `toml:"poll"`
}

// Proxy is how devproxy behaves towards the clients.
type Proxy struct {
	RequestWait time.Duration `toml:"request_wait"`
	// IdleExit is 0 for never.
	IdleExit   time.Duration `toml:"idle_exit"`
	ToolPrefix string        `toml:"tool_prefix"`
	Front      Front         `toml:"front"`
	// MaxMessage and MaxRequest are in bytes, newline included; 0 = no limit.
	MaxMessage int `toml:"max_message"`
	MaxRequest int `toml:"max_request"`
}

// Transport is how the backend speaks MCP.
type Transport string

// The transports of a backend: Streamable HTTP, standard input and output, and
// the HTTP+SSE of protocol version 2024-11-05.
const (
	HTTP  Transport = "http"
	Stdio Transport = "stdio"
	SSE   Transport = "sse"
)

// Era is which era of the protocol is spoken to the backend.
type Era string

// The choices of [backend] era.
const (
	EraAuto   Era = "auto"
	EraLegacy Era = "legacy"
	EraModern Era = "modern"
)

// Start is when the backend is started.
type Start string

// The choices of [backend] start.
const (
	OnDemand Start = "on-demand"
	Eager    Start = "eager"
)

// OnCrash is what follows a crash of the backend.
type OnCrash string

// The choices of [backend] on_crash.
const (
	RestartOnCrash OnCrash = "restart"
	StayOnCrash    OnCrash = "stay"
)

// Front is which eras clients are offered.
type Front string

// The choices of [proxy] front.
const (
	FrontBoth   Front = "both"
	FrontLegacy Front = "legacy"
	FrontModern Front = "modern"
)

// Load reads devproxy.toml in root. A faulty file gives an [*Error], or
// [Errors] where there are several; a file that cannot be read gives the
// operating system's error, wrapped.
func Load(root string) (*Config, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", FileName, err)
	}
	text, err := readBounded(filepath.Join(root, FileName), maxConfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", FileName, err)
	}
	return Parse(root, text)
}

// Parse is Load for the text of a file that was read already.
func Parse(root string, text []byte) (*Config, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))

	var doc map[string]any
	if err := toml.Unmarshal(text, &doc); err != nil {
		return nil, syntaxError(text, err)
	}
	d := decoder{config: &Config{Root: root}, lines: indexLines(text).lines, given: map[string]bool{}}
	d.applyDefaults()
	d.decode(doc)
	if len(d.faults) == 0 {
		d.checkTogether()
	}
	switch len(d.faults) {
	case 0:
		d.resolvePaths()
		return d.config, nil
	case 1:
		return nil, d.faults[0]
	}
	slices.SortStableFunc(d.faults, func(a, b *Error) int { return a.Line - b.Line })
	return nil, d.faults
}

func syntaxError(text []byte, err error) error {
	fault := &Error{File: FileName, Msg: "is no valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
	if at, ok := errors.AsType[*toml.DecodeError](err); ok {
		fault.Line, _ = at.Position()
		fault.Key = indexLines(text).keys[fault.Line]
	}
	return fault
}

// checkTogether holds the rules that concern more than one key.
func (d *decoder) checkTogether() {
	b := &d.config.Backend
	if len(b.Command) == 0 {
		d.faultAt("backend.command", "is required: the program that starts your server and its "+
			`arguments, such as ["node", "dist/index.js"]`)
		return
	}
	if b.Transport == Stdio {
		if strings.Contains(strings.Join(b.Command, "\x00"), portPlaceholder) {
			d.faultAt("backend.command", portPlaceholder+" has no meaning with transport = \"stdio\"; "+
				"say transport = \"http\" if the server listens on a port")
		}
		return
	}
	if _, set := b.Env["PORT"]; set {
		d.faultAt("backend.env.PORT", "say it as port in [backend]; it is passed on as $PORT")
		return
	}
	if !d.given["backend.port"] && !b.mentionsPort() {
		given := ""
		if !d.given["backend.transport"] {
			given = `, the default (say transport = "stdio" if the server speaks on standard input and output)`
		}
		d.faultAt("backend.port", fmt.Sprintf("is required with transport = %q%s: the port that the "+
			"server listens on; or put %s into command; or say port = 0 if the server listens on $PORT",
			b.Transport, given, portPlaceholder))
	}
	if b.Transport == SSE && !d.given["backend.path"] {
		b.Path = defaultSSEPath
	}
}

// portPlaceholder is what stands for the port in a command.
const portPlaceholder = "{port}"

// defaultSSEPath is where the servers of the old transport have their stream
// by convention.
const defaultSSEPath = "/sse"

// mentionsPort reports whether the command or the environment takes the port
// as it is given, so that a free one can be chosen.
func (b *Backend) mentionsPort() bool {
	texts := slices.Clone(b.Command)
	for _, value := range b.Env {
		texts = append(texts, value)
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(text, portPlaceholder) || strings.Contains(text, "$PORT") ||
			strings.Contains(text, "${PORT") || strings.Contains(text, "%PORT%")
	})
}

func (d *decoder) resolvePaths() {
	c := d.config
	c.Backend.Cwd = c.abs(c.Backend.Cwd)
	if c.Backend.EnvFile != "" {
		c.Backend.EnvFile = c.abs(c.Backend.EnvFile)
	}
	for i, path := range c.Watch.Paths {
		c.Watch.Paths[i] = c.abs(path)
	}
	if c.Watch.Entry != "" {
		c.Watch.Entry = c.abs(c.Watch.Entry)
	}
}

func (c *Config) abs(path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.Root, path)
}

// readBounded reads a whole file of at most limit bytes. It refuses what would have
// it wait for a writer.
func readBounded(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		return nil, fmt.Errorf("%s is a pipe or a socket, not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, &FileTooLargeError{Path: path, Limit: limit}
	}
	return text, nil
}
