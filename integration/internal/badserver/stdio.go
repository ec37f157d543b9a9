//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// pipe is the transport of lines on the standard streams.
type pipe struct {
	mu sync.Mutex // held for a line
}

func (p *pipe) write(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(os.Stdout, text) // whoever should have read it is gone
}

// serveStdio takes a line after the other. With the fault noise at its start it
// says more on stdout than it should.
func (s *server) serveStdio() error {
	p := &pipe{}
	for lines := bufio.NewReaderSize(os.Stdin, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if _, stays := s.faults["EOF"]; stays {
				hang("staying in spite of the end of input")
			}
			return nil
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("reading %q: %w", line, err)
		}
		s.handleLine(p, m)
	}
}

func (s *server) handleLine(p *pipe, m message) {
	fault, n := s.fault(m)
	s.do(fault, n)
	switch {
	case m.Method == "notifications/cancelled":
		s.cancelled(m.Params.RequestID)
	case m.ID == nil:
	case fault == "torn":
		half, whole := halfOf(m, n)
		p.write(half)
		hang(fmt.Sprintf("torn after %d of %d bytes", len(half), whole))
	case fault == "late":
		s.untilCancelled(m.ID, func(answer string) { p.write(answer + "\n") })
	case fault == "noise":
		p.write(noisy(answer(m)))
	default:
		for _, text := range answers(m, fault, n) {
			p.write(text + "\n")
		}
	}
	if fault == "large-exit" {
		os.Exit(exitCode)
	}
}

// noisy is an answer between lines that are none: a banner, a log line that looks
// like JSON, half a message, a progress bar and control characters.
func noisy(answer string) string {
	return strings.Join([]string{
		"", "=== bad-fixture 0.0 ===", `{"level":"info","id":1,"method":"tools/call","msg":"handled"}`,
		`{"jsonrpc":"2.0","id":1,"result":`, "\x1b[32mok\x1b[0m 50%\r100%\r", answer, "done in 3 ms", "",
	}, "\n")
}
