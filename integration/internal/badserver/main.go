//go:build unix

// Command badserver is the fixture backend that misbehaves, as no SDK would let
// it: a legacy server by hand on stdio, Streamable HTTP or HTTP+SSE. What it does
// wrong its clients say with the name of the tool that they call, and its flags
// with the method at which it happens:
//
//	badserver [-port N] [-at METHOD=FAULT]... stdio|http|sse
//
// METHOD may be "start", for what happens before anything else. The faults are
// the functions of this program; what is none is an answer with its own name.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// exitCode is the status of an exit after an answer.
const exitCode = 7

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "badserver:", err)
		os.Exit(1)
	}
}

func run() error {
	faults := map[string]string{}
	port := flag.String("port", os.Getenv("PORT"), "port to listen on")
	flag.Func("at", "METHOD=FAULT, what goes wrong at a method", func(rule string) error {
		method, fault, _ := strings.Cut(rule, "=")
		faults[method] = fault
		return nil
	})
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("usage: badserver [-port N] [-at METHOD=FAULT]... stdio|http|sse")
	}
	if err := begin(faults["start"]); err != nil {
		return err
	}
	s := &server{faults: faults, late: map[string]func(string){}}
	switch transport := flag.Arg(0); transport {
	case "stdio":
		return s.serveStdio()
	case "http":
		return s.serveHTTP(*port)
	case "sse":
		return s.serveSSE(*port)
	default:
		return fmt.Errorf("unknown transport %q", transport)
	}
}

// server is what all transports have in common.
type server struct {
	faults map[string]string // by method

	mu sync.Mutex
	// sessions counts those of HTTP; gone is the status for them once they are
	// lost, 0 while they are not.
	sessions, gone int
	late           map[string]func(string) // how to answer what waits for its cancellation
}

// message is what a client sends.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name            string
		ProtocolVersion string
		RequestID       json.RawMessage
	}
}

// fault returns what is to go wrong with a message, and its number if it has
// one: "torn:1000" is torn and 1000.
func (s *server) fault(m message) (fault string, n int) {
	text := s.faults[m.Method]
	if m.Method == "tools/call" && text == "" {
		text = m.Params.Name
	}
	fault, number, _ := strings.Cut(text, ":")
	n, _ = strconv.Atoi(number) // what has no number needs none
	return fault, n
}

// do does what is wrong with a message before any answer, if it is of that kind.
func (s *server) do(fault string, n int) {
	switch fault {
	case "exit":
		fmt.Fprintln(os.Stderr, "exiting as told")
		os.Exit(n)
	case "hang":
		hang("hanging as told")
	case "flood":
		go flood(n)
	case "mute":
		_ = os.Stdout.Close()
	case "deaf":
		_ = os.Stdin.Close()
	}
}

// answer is the text that answers a request.
func answer(m message) string {
	switch m.Method {
	case "initialize":
		return response(m.ID, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"bad-fixture","version":"0"}}`,
			m.Params.ProtocolVersion))
	case "tools/list":
		return response(m.ID, `{"tools":[{"name":"ok","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		return toolText(m.ID, m.Params.Name)
	case "ping":
		return response(m.ID, `{}`)
	default:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
	}
}

func response(id []byte, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func toolText(id []byte, text string) string {
	return response(id, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text))
}

// answers returns the messages that answer a request, wrong as they are.
func answers(m message, fault string, n int) []string {
	right := answer(m)
	switch fault {
	case "twice":
		return []string{right, toolText(m.ID, "the same once more")}
	case "never-asked":
		return []string{toolText([]byte("123456789"), "stray"), toolText([]byte(`"stray"`), "stray"), toolText([]byte("null"), "stray"), right}
	case "batch":
		note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":123456789,"progress":1}}`
		return []string{"[" + note + "," + right + "," + toolText([]byte("123456789"), "stray") + "," + right + "]"}
	case "large", "large-exit":
		return []string{toolText(m.ID, strings.Repeat("x", n))}
	}
	return []string{right}
}

// halfOf is the first half of an answer that never gets its other one.
func halfOf(m message, n int) (half string, whole int) {
	text := toolText(m.ID, strings.Repeat("x", n))
	return text[:len(text)/2], len(text)
}

// cancelled answers what was cancelled, though nobody wants to know any more.
func (s *server) cancelled(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := s.late[string(id)]; answer != nil {
		answer(toolText(id, "too late"))
		fmt.Fprintln(os.Stderr, "answered too late")
	}
}

// untilCancelled keeps a request for cancelled.
func (s *server) untilCancelled(id []byte, answer func(string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late[string(id)] = answer
	fmt.Fprintln(os.Stderr, "waiting for a cancellation")
}
