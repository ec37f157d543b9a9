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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/debugmcp/devproxy/integration/internal/starts"
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
	if err := starts.Count(os.Getenv("FIXTURE_STARTS")); err != nil {
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
