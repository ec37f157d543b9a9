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
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodeDriver is a client of testdata/node/clients, and the Node process it
// runs in.
type nodeDriver struct {
	command *exec.Cmd
	inbox   *inbox
	stderr  *lockedBuffer

	mu      sync.Mutex // guards what follows and the writes to stdin
	stdin   io.WriteCloser
	nextID  int
	waiting map[int]chan nodeReply

	// ended is closed when the process's output has ended.
	ended chan struct{}
}

// nodeReply is a line of a Node client: of an operation, or an event.
type nodeReply struct {
	event
	Result json.RawMessage
	Failed *callError
}

func (r *nodeReply) UnmarshalJSON(data []byte) error {
	var answer struct {
		ID     int
		Event  string
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
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

// newNodeClient starts a Node client that will start server, with the
// environment env for both.
func newNodeClient(t testing.TB, script string, flags []string, env []string, server ...string) *client {
	t.Helper()
	dir := nodeDir(t)
	args := append([]string{filepath.Join(dir, "clients", script)}, flags...)
	args = append(append(args, "--"), server...)
	command := exec.Command("node", args...)
	// Any working directory has to do: nobody promises a client's to be the
	// project's.
	command.Dir, command.Env = "/", env
	stderr := &lockedBuffer{}
	command.Stderr = stderr
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
	d := &nodeDriver{
		command: command, inbox: newInbox(), stderr: stderr, stdin: stdin, nextID: 1,
		waiting: map[int]chan nodeReply{}, ended: make(chan struct{}),
	}
	go d.read(stdout)
	name := strings.TrimSuffix(script, ".mjs") + strings.TrimPrefix(strings.Join(flags, ""), "--mode")
	c := &client{driver: d, name: name, inbox: d.inbox, stderr: stderr}
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

func (d *nodeDriver) read(stdout io.Reader) {
	defer close(d.ended)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var reply nodeReply
		if err := json.Unmarshal(line, &reply); err != nil {
			fmt.Fprintf(d.stderr, "unreadable line %q: %v\n", line, err)
			continue
		}
		if reply.Event != "" {
			d.inbox.put(reply.event)
			continue
		}
		d.mu.Lock()
		waiter := d.waiting[reply.ID]
		delete(d.waiting, reply.ID)
		d.mu.Unlock()
		if waiter != nil {
			waiter <- reply
		}
	}
}

// send writes one operation and returns its number and where its reply goes.
func (d *nodeDriver) send(op string, args object) (int, <-chan nodeReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := object{"id": d.nextID, "op": op}
	maps.Copy(line, args)
	text, err := json.Marshal(line)
	if err != nil {
		return 0, nil, err
	}
	id, reply := d.nextID, make(chan nodeReply, 1)
	d.nextID++
	d.waiting[id] = reply
	_, err = d.stdin.Write(append(text, '\n'))
	return id, reply, err
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
		case <-d.ended:
			return nil, errors.New("the Node client has ended")
		}
	}
}

func (d *nodeDriver) close() error {
	d.mu.Lock()
	err := d.stdin.Close()
	d.mu.Unlock()
	if err != nil {
		// It was closed before.
		return nil
	}
	// The SDKs give a server two seconds for each rung of their ladder.
	const limit = 15 * time.Second
	kill := time.AfterFunc(limit, func() { _ = d.command.Process.Kill() })
	<-d.ended
	err = d.command.Wait()
	if !kill.Stop() {
		return fmt.Errorf("it took more than %v", limit)
	}
	return err
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
