package backend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

const (
	// snapshotFormat is the version of the file; one of another is not read.
	snapshotFormat = 1
	// maxCommands bounds the commands that are remembered: those that a person
	// switches between, such as http and stdio, and not everything ever tried.
	maxCommands = 8
	// maxHandshakes bounds the handshakes kept for each: one for each protocol
	// version that we speak.
	maxHandshakes = 8
	// maxHandshakeBytes bounds each on disk, of which a part is there twice: room
	// for long instructions and some icons. A larger one lasts as long as the
	// daemon.
	maxHandshakeBytes = 512 << 10
)

// snapshots is what backends said of themselves, by command, era and version. It
// answers clients before the backend runs, and remembers what a handshake need
// not try again. Reading takes no lock; writing is for the goroutine of a start.
type snapshots struct {
	path string // "" keeps them in memory
	log  *slog.Logger

	mu      sync.Mutex // held by writers
	current atomic.Pointer[catalog]
}

// catalog is one state of the snapshots. It is never changed.
type catalog struct {
	// command is the one that is configured or was started last.
	command  []string
	commands []commandSnapshot // the one used last comes first
}

type commandSnapshot struct {
	Command []string `json:"command"`
	// Handshakes, the newest first.
	Handshakes []handshake `json:"handshakes"`
	// Spoils is the era whose handshake this backend's process does not
	// outlive, or "".
	Spoils string `json:"spoils,omitempty"`
	// Union are the client capabilities of its last shared handshake.
	Union json.RawMessage `json:"union,omitempty"`
}

// handshake is era.Facts as it is kept on disk.
type handshake struct {
	Era          string          `json:"era"`
	Version      string          `json:"version"`
	Eras         []string        `json:"eras,omitempty"`
	Versions     []string        `json:"versions,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Info         json.RawMessage `json:"info,omitempty"`
	Instructions json.RawMessage `json:"instructions,omitempty"`
	Raw          json.RawMessage `json:"raw,omitempty"`
}

type snapshotFile struct {
	Format   int               `json:"format"`
	Commands []commandSnapshot `json:"commands"`
}

// loadSnapshots reads the file. One that cannot be read costs what it held and
// nothing else.
func loadSnapshots(path string, command []string, log *slog.Logger) *snapshots {
	s := &snapshots{path: path, log: log}
	c := &catalog{command: command}
	if path != "" {
		commands, err := readSnapshots(path)
		if err != nil {
			log.Warn("ignoring the snapshot of earlier handshakes", slog.Any("error", err))
		}
		c.commands = commands
	}
	s.current.Store(c)
	return s
}

func readSnapshots(path string) ([]commandSnapshot, error) {
	content, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	var file snapshotFile
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if file.Format != snapshotFormat {
		return nil, fmt.Errorf("reading %s: format %d is not %d", path, file.Format, snapshotFormat)
	}
	for _, c := range file.Commands {
		for _, h := range c.Handshakes {
			if err := h.check(); err != nil {
				return nil, fmt.Errorf("reading %s: %w", path, err)
			}
		}
	}
	return file.Commands, nil
}

// check finds what would make the answer of an initialize invalid.
func (h handshake) check() error {
	if parseEra(h.Era) == era.None {
		return fmt.Errorf("unknown era %q", h.Era)
	}
	for _, raw := range []json.RawMessage{h.Capabilities, h.Info, h.Raw} {
		if raw == nil {
			continue
		}
		if _, err := wire.ParseObject(raw); err != nil {
			return fmt.Errorf("handshake of %s: %w", h.Version, err)
		}
	}
	if h.Instructions != nil {
		if _, ok := wire.String(h.Instructions); !ok {
			return fmt.Errorf("handshake of %s: instructions are no string", h.Version)
		}
	}
	return nil
}

// facts returns what the current command's backend said in that era, else what
// it said last, and whether it ever said anything.
func (s *snapshots) facts(e era.Era) (era.Facts, bool) {
	known := s.current.Load().of(nil).Handshakes
	if len(known) == 0 {
		return era.Facts{}, false
	}
	for _, h := range known {
		if h.Era == e.String() {
			return h.facts(), true
		}
	}
	return known[0].facts(), true
}

// lastEra returns the era of the command's last handshake.
func (s *snapshots) lastEra(command []string) era.Era {
	known := s.current.Load().of(command).Handshakes
	if len(known) == 0 {
		return era.None
	}
	return parseEra(known[0].Era)
}

// spoils returns the era whose handshake the command's process does not outlive.
func (s *snapshots) spoils(command []string) era.Era {
	return parseEra(s.current.Load().of(command).Spoils)
}

// union returns the client capabilities of the command's last shared handshake.
func (s *snapshots) union(command []string) []byte {
	return s.current.Load().of(command).Union
}

// of returns what is known of a command; nil means the current one.
func (c *catalog) of(command []string) commandSnapshot {
	if command == nil {
		command = c.command
	}
	if command == nil && len(c.commands) > 0 {
		return c.commands[0]
	}
	for _, known := range c.commands {
		if slices.Equal(known.Command, command) {
			return known
		}
	}
	return commandSnapshot{Command: command}
}

// choose makes a command the current one.
func (s *snapshots) choose(command []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := *s.current.Load()
	c.command = command
	s.current.Store(&c)
}

// remember keeps the outcome of a successful start: the handshakes, the best
// last, and for a shared link what it declared and which era spoils a process.
func (s *snapshots) remember(command []string, facts []era.Facts, spoils era.Era, union []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current.Load()
	known := old.of(command)
	known.Handshakes = slices.Clone(known.Handshakes)
	for _, f := range facts {
		known.add(keep(f))
		if known.Spoils == f.Era.String() {
			known.Spoils = ""
		}
	}
	if spoils != era.None {
		known.Spoils = spoils.String()
	}
	if union != nil {
		known.Union = union
	}
	c := &catalog{command: command, commands: []commandSnapshot{known}}
	for _, other := range old.commands {
		if !slices.Equal(other.Command, command) && len(c.commands) < maxCommands {
			c.commands = append(c.commands, other)
		}
	}
	s.current.Store(c)
	if err := s.write(c); err != nil {
		s.log.Warn("keeping the snapshot of the handshake", slog.Any("error", err))
	}
}

// add puts a handshake first, in place of the one of the same era and version.
func (c *commandSnapshot) add(h handshake) {
	others := slices.DeleteFunc(c.Handshakes, func(o handshake) bool {
		return o.Era == h.Era && o.Version == h.Version
	})
	c.Handshakes = append([]handshake{h}, others[:min(len(others), maxHandshakes-1)]...)
}

func (s *snapshots) write(c *catalog) error {
	if s.path == "" {
		return nil
	}
	var content bytes.Buffer
	// Without escaping, the raw members stay as the backend wrote them.
	enc := json.NewEncoder(&content)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(snapshotFile{Format: snapshotFormat, Commands: c.kept()}); err != nil {
		return fmt.Errorf("encoding snapshot: %w", err)
	}
	return replaceFile(s.path, content.Bytes())
}

// kept are the commands without what is too large for a file.
func (c *catalog) kept() []commandSnapshot {
	commands := slices.Clone(c.commands)
	for i, command := range commands {
		commands[i].Handshakes = slices.DeleteFunc(slices.Clone(command.Handshakes), handshake.tooLarge)
		if len(command.Union) > maxHandshakeBytes {
			commands[i].Union = nil
		}
	}
	return commands
}

func (h handshake) tooLarge() bool {
	size := len(h.Capabilities) + len(h.Info) + len(h.Instructions) + len(h.Raw)
	for _, version := range h.Versions {
		size += len(version)
	}
	return size > maxHandshakeBytes
}

func keep(f era.Facts) handshake {
	h := handshake{
		Era: f.Era.String(), Version: f.Version, Versions: f.Versions,
		Capabilities: f.Capabilities, Info: f.Info, Instructions: f.Instructions, Raw: f.Raw,
	}
	for _, e := range f.Eras {
		h.Eras = append(h.Eras, e.String())
	}
	return h
}

func (h handshake) facts() era.Facts {
	f := era.Facts{
		Era: parseEra(h.Era), Version: h.Version, Versions: h.Versions,
		Capabilities: h.Capabilities, Info: h.Info, Instructions: h.Instructions, Raw: h.Raw,
	}
	for _, e := range h.Eras {
		f.Eras = append(f.Eras, parseEra(e))
	}
	return f
}

func parseEra(name string) era.Era {
	for _, e := range []era.Era{era.Legacy, era.Modern} {
		if e.String() == name {
			return e
		}
	}
	return era.None
}
