//go:build unix

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodeClients is the Node process that every client of testdata/node/clients
// lives in: starting Node and loading an SDK costs more than most of what a
// test does with a client. TestMain ends it.
type nodeClients struct {
	mu      sync.Mutex // guards what follows
	process *nodeProcess
}

var theNodeClients nodeClients

// nodeProcess is testdata/node/clients/driver.mjs.
type nodeProcess struct {
	command *exec.Cmd

	mu      sync.Mutex // guards what follows and the writes to stdin
	stdin   io.WriteCloser
	clients map[int]*nodeDriver
	lastID  int

	// ended is closed when the process's output has ended.
	ended chan struct{}
}

// get returns the process, and starts it where none lives.
func (n *nodeClients) get(t testing.TB) *nodeProcess {
	t.Helper()
	dir := nodeDir(t)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		select {
		case <-n.process.ended:
			t.Errorf("the clients' Node process had ended: %v", n.process.command.Wait())
		default:
			return n.process
		}
	}
	command := exec.Command("node", filepath.Join(dir, "clients", "driver.mjs"))
	// Any working directory has to do: nobody promises a client's to be the
	// project's. The environment of a client is that of its test.
	command.Dir, command.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	n.process = &nodeProcess{command: command, stdin: stdin, clients: map[int]*nodeDriver{}, ended: make(chan struct{})}
	go n.process.read(stdout)
	return n.process
}

// end ends the process, if there is one.
func (n *nodeClients) end() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil
	}
	p := n.process
	n.process = nil
	// A process that has died has a pipe that is broken; Wait says so.
	_ = p.stdin.Close()
	kill := time.AfterFunc(closeLimit, func() { _ = p.command.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("the clients' Node process: %w", err)
	}
	return nil
}

// closeLimit is how long the end of a client may take. The SDKs give a server
// two seconds for each rung of their ladder.
const closeLimit = 15 * time.Second

func (p *nodeProcess) read(stdout io.Reader) {
	defer close(p.ended)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var reply nodeReply
		if err := json.Unmarshal(line, &reply); err != nil {
			fmt.Fprintf(os.Stderr, "unreadable line of the Node clients %q: %v\n", line, err)
			continue
		}
		p.mu.Lock()
		d := p.clients[reply.client]
		p.mu.Unlock()
		if d != nil {
			d.deliver(reply)
		}
	}
}

// seat gives a client its number.
func (p *nodeProcess) seat(d *nodeDriver) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	p.clients[p.lastID] = d
	return p.lastID
}

func (p *nodeProcess) leave(number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clients, number)
}

func (p *nodeProcess) write(line object) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err = p.stdin.Write(append(text, '\n'))
	return err
}

// nodeReply is a line about a Node client: of an operation, or an event.
type nodeReply struct {
	client int
	event
	Result json.RawMessage
	Failed *callError
}

func (r *nodeReply) UnmarshalJSON(data []byte) error {
	var answer struct {
		Client int
		ID     int
		Event  string
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	r.client = answer.Client
	if answer.Event != "" {
		return json.Unmarshal(data, &r.event)
	}
	r.ID, r.Result = answer.ID, answer.Result
	if answer.Error != nil {
		r.Failed = &callError{}
		return json.Unmarshal(answer.Error, r.Failed)
	}
	return nil
}

// nodeDriver is a client of testdata/node/clients.
type nodeDriver struct {
	process *nodeProcess
	number  int
	inbox   *inbox

	mu      sync.Mutex // guards what follows
	closed  bool
	nextID  int
	waiting map[int]chan nodeReply

	// left is closed when the client is.
	left chan struct{}
}

// newNodeClient makes a client on an SDK of testdata/node/clients that will
// start server with the environment env.
func newNodeClient(t testing.TB, sdk string, options object, env []string, server ...string) *client {
	t.Helper()
	process := theNodeClients.get(t)
	stderr := stderrFile(filepath.Join(t.TempDir(), "stderr"))
	d := &nodeDriver{
		process: process, inbox: newInbox(), nextID: 1,
		waiting: map[int]chan nodeReply{}, left: make(chan struct{}),
	}
	d.number = process.seat(d)
	name := sdk
	if mode, ok := options["mode"].(string); ok {
		name += " " + mode
	}
	c := &client{driver: d, name: name, inbox: d.inbox, stderr: stderr}
	variables := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	args := object{
		"sdk": sdk, "command": server[0], "args": server[1:], "cwd": "/", "env": variables, "stderr": string(stderr),
	}
	maps.Copy(args, options)
	must[object](t, c, "new", args)
	t.Cleanup(func() { endClient(t, c) })
	return c
}

// endClient closes a client that the test may have closed already, and looks
// at what its children said.
func endClient(t testing.TB, c *client) {
	t.Helper()
	if err := c.close(); err != nil {
		t.Errorf("closing %s: %v", c.name, err)
	}
	checkRaces(t, c.name, c.stderr.String())
	if t.Failed() {
		t.Logf("%s heard %v\nstderr: %s", c.name, c.inbox.pending(), c.stderr)
	}
}

func (d *nodeDriver) deliver(reply nodeReply) {
	if reply.Event != "" {
		d.inbox.put(reply.event)
		return
	}
	d.mu.Lock()
	waiter := d.waiting[reply.ID]
	delete(d.waiting, reply.ID)
	d.mu.Unlock()
	if waiter != nil {
		waiter <- reply
	}
}

// send writes one operation and returns its number and where its reply goes.
func (d *nodeDriver) send(op string, args object) (int, <-chan nodeReply, error) {
	d.mu.Lock()
	id, reply := d.nextID, make(chan nodeReply, 1)
	d.nextID++
	d.waiting[id] = reply
	d.mu.Unlock()
	line := object{"client": d.number, "id": id, "op": op}
	maps.Copy(line, args)
	return id, reply, d.process.write(line)
}

func (d *nodeDriver) do(ctx context.Context, op string, args object) (json.RawMessage, error) {
	id, replies, err := d.send(op, args)
	if err != nil {
		return nil, err
	}
	aborted := ctx.Done()
	for {
		select {
		case reply := <-replies:
			if reply.Failed != nil {
				return nil, reply.Failed
			}
			return reply.Result, nil
		case <-aborted:
			// The operation still ends by its own reply.
			aborted = nil
			if _, _, err := d.send("abort", object{"target": id}); err != nil {
				return nil, err
			}
		case <-d.left:
			return nil, errors.New("the client is closed")
		case <-d.process.ended:
			return nil, errors.New("the clients' Node process has ended")
		}
	}
}

func (d *nodeDriver) close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	defer close(d.left)
	defer d.process.leave(d.number)
	late := fmt.Errorf("it took more than %v", closeLimit)
	// Not the test's context: cleanups close clients after it has ended.
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, late)
	defer cancel()
	_, replies, err := d.send("close", nil)
	if err != nil {
		return err
	}
	select {
	case reply := <-replies:
		if reply.Failed != nil {
			return reply.Failed
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.process.ended:
		return errors.New("the clients' Node process has ended")
	}
}

// stderrFile names the file that the programs which a client starts write their
// stderr to.
type stderrFile string

func (f stderrFile) String() string {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// lockedBuffer is a buffer that a process may write to while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
