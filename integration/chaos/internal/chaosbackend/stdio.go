//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
)

// serveStdio is the conversation on a pair of pipes, until the input ends.
func (b *backend) serveStdio(in io.Reader, out io.Writer) {
	pipe := &stream{out: out}
	s := b.open("stdio", pipe.send)
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			b.inputEnded()
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		s.take(context.Background(), pipe, m)
	}
}

// take takes any message of a conversation.
func (s *session) take(ctx context.Context, out *stream, m message) {
	switch {
	case m.isRequest():
		s.begin(ctx, out, m)
	case m.isNotification():
		s.notified(m)
	default:
		s.answered(m)
	}
}

// inputEnded ends the process as servers do, or leaves it to be killed.
func (b *backend) inputEnded() {
	if b.stubborn.Load() {
		select {}
	}
	b.leave("end-of-input", 0)
}
