//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// exitPatience is how long a shim may take to end with its client. The
	// promised bound is much tighter and tested without faults and load.
	exitPatience = 5 * time.Second
	// hearPatience is how long it may take to hear what a shim that is over has said:
	// on a busy machine that takes its time.
	hearPatience = 60 * time.Second
	// writePatience is how long a shim may leave its input unread.
	writePatience = 60 * time.Second
)

// seat is one life of a client: a shim, and what is said through it.
type seat struct {
	world   *world
	client  *client
	name    string
	command *exec.Cmd
	stdin   *os.File
	stderr  *lockedBuffer
	ears    gate
	chores  sync.WaitGroup
	ended   chan struct{} // closed when the shim is gone and all it said was heard

	writing sync.Mutex // held while a line is written

	mu       sync.Mutex // guards what follows
	forsaken bool       // it is our doing that the shim ends
	severed  bool       // it may end in the middle of a line
	eofAt    time.Time  // when its input was ended
	stopped  time.Time  // until when it was stopped, at least
	model    *model
}

// exitWithin is how long a shim has after the end of its input, less what the
// end of a process takes.
const exitWithin = 180 * time.Millisecond

// newSeat starts a shim as a client does.
func (w *world) newSeat(c *client, name string) (*seat, error) {
	stdin, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	s := &seat{
		world: w, client: c, name: name, stdin: feed, stderr: &lockedBuffer{},
		ears: newGate(), ended: make(chan struct{}), model: newModel(),
	}
	s.command = exec.Command(w.program("devproxy-shim"), "--project", w.root)
	s.command.Dir, s.command.Env, s.command.SysProcAttr = "/", w.environment(), credential()
	s.command.Stdin, s.command.Stderr = stdin, s.stderr
	s.command.WaitDelay = time.Second
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, errors.Join(err, feed.Close())
	}
	w.timeline.notef(name, "sits down, shim %d", s.command.Process.Pid)
	go s.listen(bufio.NewReaderSize(stdout, 1<<16))
	return s, nil
}

// listen hears everything to the end.
func (s *seat) listen(stdout *bufio.Reader) {
	defer close(s.ended)
	for {
		s.ears.pass()
		line, err := stdout.ReadBytes('\n')
		if err != nil {
			s.silence(line)
			return
		}
		s.hear(line)
	}
}

// silence takes the end of the shim's output, and rest, which is no line.
func (s *seat) silence(rest []byte) {
	err := s.command.Wait()
	s.mu.Lock()
	forsaken := s.forsaken
	// It exits in time also where the client does not take its last line in time.
	severed := s.severed || !s.eofAt.IsZero() && time.Since(s.eofAt) > exitWithin
	s.mu.Unlock()
	if len(rest) > 0 && !severed {
		s.world.violatef(s.name, "the shim's output ends in the middle of a line: %.200q", rest)
	}
	if !forsaken {
		s.world.violatef(s.name, "the shim ended by itself (%v); it said: %s", err, s.stderr)
	}
	s.world.checkText(s.name+"'s shim", s.stderr.String())
	s.world.timeline.notef(s.name, "the shim has ended: %v", err)
}

func (s *seat) isEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *seat) isForsaken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forsaken
}

// write writes one message as a line.
func (s *seat) write(message object) {
	s.world.timeline.notef(s.name, "> %s", encode(brief(message)))
	s.writeLine(encode(message))
}

// writeBatch writes several messages as one.
func (s *seat) writeBatch(b *batch) {
	for n, message := range b.messages {
		s.world.timeline.notef(s.name, "> %d/%d %s", n+1, len(b.messages), encode(message))
	}
	s.writeLine(encode(b.messages))
}

func (s *seat) writeLine(line []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.stdin.SetWriteDeadline(time.Now().Add(writePatience))
	if err == nil {
		_, err = s.stdin.Write(append(line, '\n'))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.world.violatef(s.name, "the shim did not take a line within %v", writePatience)
	case err != nil && !s.isForsaken() && !errors.Is(err, syscall.EPIPE):
		s.world.violatef(s.name, "writing to the shim: %v", err)
	}
}

func encode(message any) []byte {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err) // only values made here are encoded
	}
	return line
}

// brief leaves out what every modern request says.
func brief(message object) object {
	params, _ := message["params"].(object)
	meta, _ := params["_meta"].(object)
	if meta == nil {
		return message
	}
	meta = maps.Clone(meta)
	for _, key := range []string{metaVersion, metaCapabilities, metaInfo} {
		delete(meta, key)
	}
	message, params = maps.Clone(message), maps.Clone(params)
	message["params"], params["_meta"] = params, meta
	return message
}

// later does something after a while, unless the seat has ended by then.
func (s *seat) later(delay time.Duration, do func()) {
	s.chores.Go(func() {
		select {
		case <-time.After(delay):
			do()
		case <-s.ended:
		}
	})
}

// How a client leaves.
const (
	leaveByEOF = syscall.Signal(0)
	leaveTerm  = syscall.SIGTERM
	leaveInt   = syscall.SIGINT
	leaveHup   = syscall.SIGHUP
	leaveKill  = syscall.SIGKILL
)

// leave ends the shim, which has to obey.
func (s *seat) leave(how syscall.Signal) {
	began := time.Now()
	s.mu.Lock()
	s.forsaken = true
	if s.severed = how != leaveByEOF; !s.severed {
		s.eofAt = began
	}
	s.mu.Unlock()
	s.ears.open()
	if how == leaveByEOF {
		s.world.timeline.notef(s.name, "ends its input")
		// A write that is under way holds it up.
		_ = s.stdin.SetWriteDeadline(time.Now())
		s.writing.Lock()
		_ = s.stdin.Close()
		s.writing.Unlock()
	} else {
		s.world.timeline.notef(s.name, "sends its shim %v", how)
		_ = s.command.Process.Signal(how)
	}
	for {
		select {
		case <-s.ended:
			_ = s.stdin.Close()
			s.chores.Wait()
			return
		case <-time.After(50 * time.Millisecond):
		}
		s.mu.Lock()
		since := began
		if s.stopped.After(since) {
			since = s.stopped
		}
		s.mu.Unlock()
		patience := exitPatience
		if hasExited(s.command.Process.Pid) {
			patience = hearPatience
		}
		if time.Since(since) > patience {
			s.world.violatef(s.name, "the shim did not end within %v of its client; it said: %s", patience, s.stderr)
			_ = s.command.Process.Kill()
			<-s.ended
		}
	}
}

// noteStop notes that the shim is stopped for that long.
func (s *seat) noteStop(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(s.stopped) {
		s.stopped = until
	}
}

// hear takes a line of the shim, which has to be one whole message, or a batch of
// them.
func (s *seat) hear(line []byte) {
	if line[0] == '[' && s.client.batches() {
		s.hearArray(line)
		return
	}
	var m message
	s.world.timeline.notef(s.name, "< %s", bytes.TrimSuffix(line, []byte("\n")))
	if err := json.Unmarshal(line, &m); err != nil || line[0] != '{' || !bytes.HasSuffix(line, []byte("}\n")) || !m.whole() {
		s.world.violatef(s.name, "the shim wrote what is no message: %.300q (%v)", line, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method != "" && m.ID != nil:
		s.hearQuestion(m)
	case m.Method != "":
		s.hearNotification(m)
	default:
		s.hearAnswer(m)
	}
}

func (s *seat) hearArray(line []byte) {
	var elements []json.RawMessage
	err := json.Unmarshal(line, &elements)
	messages := make([]message, len(elements))
	whole := err == nil && len(elements) > 0 && bytes.HasSuffix(line, []byte("]\n"))
	for n, element := range elements {
		s.world.timeline.notef(s.name, "< %d/%d %s", n+1, len(elements), element)
		whole = whole && json.Unmarshal(element, &messages[n]) == nil && messages[n].whole()
	}
	if !whole {
		s.world.violatef(s.name, "the shim wrote what is no batch: %.300q (%v)", line, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hearBatch(messages)
}

// message is a JSON-RPC message, to be read.
type message struct {
	JSONRPC string
	ID      json.RawMessage
	Method  string
	Params  json.RawMessage
	Result  json.RawMessage
	Error   *rpcError
}

type rpcError struct {
	Code    int
	Message string
	Data    json.RawMessage
}

func (e *rpcError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// whole reports whether the message has what its kind must have, and no more.
func (m message) whole() bool {
	if m.JSONRPC != "2.0" {
		return false
	}
	if m.Method != "" {
		return m.Result == nil && m.Error == nil
	}
	return m.ID != nil && (m.Result != nil) != (m.Error != nil)
}

// gate can be shut to make what passes it wait.
type gate struct {
	mu    *sync.Mutex
	state *chan struct{} // what it points to is closed while the gate is open
}

func newGate() gate {
	open := make(chan struct{})
	close(open)
	return gate{mu: new(sync.Mutex), state: &open}
}

func (g gate) pass() {
	g.mu.Lock()
	open := *g.state
	g.mu.Unlock()
	<-open
}

func (g gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-*g.state:
		*g.state = make(chan struct{})
	default: // somebody may wait at it already
	}
}

func (g gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-*g.state:
	default:
		close(*g.state)
	}
}

// lockedBuffer is text that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
