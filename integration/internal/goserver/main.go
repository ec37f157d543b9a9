// Command goserver is the fixture backend written in Go: a server on the
// go-sdk over stdio, stateful and stateless Streamable HTTP, one that dies of
// everything but initialize ("legacy-only"), and a hand-made one ("raw") whose
// answers no SDK would let through unchanged.
//
//	goserver [-port N] stdio|http|http-stateless|legacy-only|raw FEATURES
//
// FEATURES names a JSON file {"tools":["name",…]}: what the current "build"
// adds. It is the fixture's counterpart of a dist folder.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "goserver:", err)
		os.Exit(1)
	}
}

func run() error {
	port := flag.String("port", os.Getenv("PORT"), "port to listen on")
	flag.Parse()
	if flag.NArg() != 2 {
		return errors.New("usage: goserver [-port N] stdio|http|http-stateless|legacy-only|raw FEATURES")
	}
	mode, features := flag.Arg(0), flag.Arg(1)
	extra, err := extraTools(features)
	if err != nil {
		return err
	}
	if err := countStart(os.Getenv("FIXTURE_STARTS")); err != nil {
		return err
	}
	switch mode {
	case "stdio":
		return newServer(extra).Run(context.Background(), &mcp.StdioTransport{})
	case "legacy-only":
		return serveLegacyOnly(newServer(extra))
	case "http", "http-stateless":
		return serveHTTP(newServer(extra), *port, mode == "http-stateless")
	case "raw":
		return serveRaw(os.Stdin, os.Stdout, os.Getenv("FIXTURE_WIRE"))
	}
	return fmt.Errorf("unknown mode %q", mode)
}

// extraTools reads the names of the tools that the current build adds. A
// missing file adds none.
func extraTools(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var features struct {
		Tools []string `json:"tools"`
	}
	if err := json.Unmarshal(data, &features); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return features.Tools, nil
}

// countStart adds a line for this start to the file at path, and one more for
// each earlier process of that file which is still alive.
func countStart(path string) error {
	if path == "" {
		return nil
	}
	earlier, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "start %d\n", os.Getpid())
	for line := range strings.Lines(string(earlier)) {
		field, found := strings.CutPrefix(strings.TrimSpace(line), "start ")
		if !found {
			continue
		}
		pid, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		if pid != os.Getpid() && alive(pid) {
			fmt.Fprintf(&lines, "overlap %d %d\n", pid, os.Getpid())
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(lines.String())
	return errors.Join(err, file.Close())
}

// alive says whether a process exists that has not ended; good enough for the
// systems that the black-box tests run on.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil || process.Signal(syscall.Signal(0)) != nil {
		return false
	}
	// A zombie that its parent forgot, as some containers' init does, has
	// ended. Where there is no /proc the signal alone has to tell.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	return !strings.Contains(string(stat), ") Z ")
}

// serveLegacyOnly serves on stdio, but ends if the first request is none of the
// legacy era's: so do servers on the Rust SDK, which take nothing before
// initialize.
func serveLegacyOnly(server *mcp.Server) error {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	var first struct{ Method string }
	if err := json.Unmarshal(line, &first); err != nil {
		return err
	}
	if first.Method != "initialize" {
		return fmt.Errorf("expected initialize, got %s", first.Method)
	}
	return server.Run(context.Background(), &mcp.IOTransport{
		Reader: io.NopCloser(io.MultiReader(bytes.NewReader(line), input)),
		Writer: os.Stdout,
	})
}

func serveHTTP(server *mcp.Server, port string, stateless bool) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true},
	))
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	return http.Serve(listener, mux)
}
