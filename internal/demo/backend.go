package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// crashTool is the tool that ends the backend in the middle of a call.
const crashTool = "crash"

// exampleTool is one tool of the example backend as its "build output" has it.
type exampleTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Reply is what the tool answers; {text} stands for its argument.
	Reply string `json:"reply"`
}

type textArgument struct {
	Text string `json:"text,omitempty" jsonschema:"what to answer with"`
}

// ServeBackend serves the example backend over Streamable HTTP on a loopback
// port until ctx ends or stdin does. Its tools are what toolsFile said at the
// start, which makes that file the build output of the example project.
func ServeBackend(ctx context.Context, toolsFile, port string, stdin io.Reader, stderr io.Writer) error {
	server, err := exampleServer(toolsFile)
	if err != nil {
		return err
	}
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true})
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	httpServer := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		// Ends with the process at the latest: a read of stdin has no deadline.
		_, _ = io.Copy(io.Discard, stdin)
		cancel(errors.New("stdin ended"))
	}()
	stop := context.AfterFunc(ctx, func() { _ = httpServer.Close() })
	defer stop()
	_, _ = fmt.Fprintf(stderr, "example backend: serving %s on %s\n", toolsFile, listener.Addr())
	if err := httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

func exampleServer(toolsFile string) (*mcp.Server, error) {
	raw, err := os.ReadFile(toolsFile)
	if err != nil {
		return nil, fmt.Errorf("reading the tools: %w", err)
	}
	var tools []exampleTool
	if err := json.Unmarshal(raw, &tools); err != nil {
		return nil, fmt.Errorf("reading the tools: %s: %w", toolsFile, err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "devproxy-example", Version: "1.0.0"}, nil)
	for _, tool := range tools {
		mcp.AddTool(server, &mcp.Tool{Name: tool.Name, Description: tool.Description}, tool.answer)
	}
	return server, nil
}

func (t exampleTool) answer(_ context.Context, _ *mcp.CallToolRequest, args textArgument) (*mcp.CallToolResult, any, error) {
	if t.Name == crashTool {
		os.Exit(3) //nolint:forbidigo // dying in the middle of a call is what this tool is for
	}
	text := strings.ReplaceAll(t.Reply, "{text}", args.Text)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}
