//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes devproxyctl itself a command of the scripts, and a small server.
func TestMain(m *testing.M) {
	time.Local = time.UTC // before anything reads it; for the times on screens
	testscript.Main(m, map[string]func(){"devproxyctl": main, "mcpserver": serveSample})
}

// serveSample is a server on standard input and output.
func serveSample() {
	server := mcp.NewServer(&mcp.Implementation{Name: "sample", Version: "1.2.3"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "says hello"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil, nil
	})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
}

// buildPrograms builds the daemon and the shim into one folder.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "../devproxyd", "../devproxy-shim")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// The scripts use the programs as a person does, each in a home of its own. What
// they start they also stop.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the programs")
	}
	programs := buildPrograms(t)
	root, err := os.MkdirTemp("", "s") // short, for the sockets' paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "script"),
		WorkdirRoot: root,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("PROGRAMS", programs)
			env.Defer(func() {
				stop := exec.Command(filepath.Join(programs, "devproxyd"), "stop", "--project", filepath.Join(env.WorkDir, "p"))
				stop.Env = env.Vars
				_ = stop.Run() // there may be no project
			})
			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits CODE PROGRAM ARGUMENTS... runs a program and wants that exit code.
func exits(ts *testscript.TestScript, negated bool, args []string) {
	const least = 2
	if negated || len(args) < least {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENTS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}
