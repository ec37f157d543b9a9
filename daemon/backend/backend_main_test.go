//go:build unix

package backend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/debugmcp/devproxy/internal/process"
)

// The test binary is also the backend of the tests with real processes, and the
// daemon that dies. What it is says roleVariable, how it misbehaves the words in
// tricksVariable.
const (
	roleVariable   = "BACKEND_TEST_ROLE"
	tricksVariable = "BACKEND_TEST_TRICKS"
)

func TestMain(m *testing.M) {
	process.Main()
	tricks := strings.Fields(os.Getenv(tricksVariable))
	switch os.Getenv(roleVariable) {
	case "http":
		httpBackend(tricks)
	case "stdio":
		stdioBackend(tricks)
	case "daemon":
		doomedDaemon()
	default:
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			removeDocker()
			os.Exit(code)
		}))
	}
}

// begin does what both kinds of backend do before they serve.
func begin(tricks []string) {
	fmt.Fprintln(os.Stderr, "starting with", strings.Join(tricks, " "))
	if slices.Contains(tricks, "deaf") {
		signal.Ignore(syscall.SIGTERM)
	}
	if slices.Contains(tricks, "grandchild") {
		spawnGrandchild()
	}
	switch {
	case slices.Contains(tricks, "exit"):
		fmt.Fprintln(os.Stderr, "Error: cannot find module 'x'")
		os.Exit(3)
	case slices.Contains(tricks, "hang"):
		wait := make(chan os.Signal, 1)
		signal.Notify(wait, syscall.SIGUSR1)
		fmt.Fprintln(os.Stderr, "hangs as", os.Getpid())
		<-wait
	}
}

// spawnGrandchild leaves behind a process in a session of its own that holds
// stdout and stderr.
func spawnGrandchild() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tricksVariable+"=deaf hang")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	fmt.Fprintln(os.Stderr, "grandchild", cmd.Process.Pid)
}

// serveInAChild is what a shell does that does not exec.
func serveInAChild(tricks []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tricksVariable+"="+strings.Join(tricks, " "))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(4)
}

// serve does what both kinds do once they are up.
func serve(tricks []string) {
	if slices.Contains(tricks, "crash") {
		time.AfterFunc(50*time.Millisecond, func() {
			fmt.Fprintln(os.Stderr, "panic: oh dear")
			os.Exit(2)
		})
	}
	if slices.Contains(tricks, "flood") {
		go flood(os.Stderr)
	}
	if slices.Contains(tricks, "flood-stdout") {
		go flood(os.Stdout)
	}
	if slices.Contains(tricks, "unreading") {
		select {}
	}
}

// flood writes for ever.
func flood(to io.Writer) {
	for lines := []byte(strings.Repeat("a line that says nothing\n", 1000)); ; {
		if _, err := to.Write(lines); err != nil {
			return
		}
	}
}

func httpBackend(tricks []string) {
	begin(tricks)
	if i := slices.Index(tricks, "child"); i >= 0 {
		serveInAChild(slices.Delete(tricks, i, i+1))
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if !slices.Contains(tricks, "deaf") && !slices.Contains(tricks, "no-stdin") {
			os.Exit(0)
		}
	}()
	healthy := time.Now().Add(200 * time.Millisecond)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if slices.Contains(tricks, "sick") || time.Now().Before(healthy) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if slices.Contains(tricks, "speechless") {
			<-r.Context().Done()
			return
		}
		if strings.Contains(string(body), "notifications/initialized") {
			serve(tricks)
		}
		reply := answerTo(body)
		if reply == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMethodNotAllowed)
	})
	host := "127.0.0.1"
	if slices.Contains(tricks, "v6") {
		host = "[::1]"
	}
	fmt.Println("listening on", os.Getenv("PORT"))
	if slices.Contains(tricks, "reuseport") {
		port, _ := strconv.Atoi(os.Getenv("PORT"))
		listener, err := reusePort(port)
		if err == nil {
			err = http.Serve(listener, mux)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(5)
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe(host+":"+os.Getenv("PORT"), mux))
	os.Exit(5)
}

// reusePort listens on a port that others may share who do the same.
func reusePort(port int) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var err error
		return errors.Join(conn.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}), err)
	}}
	return config.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
}

func stdioBackend(tricks []string) {
	begin(tricks)
	fmt.Println("a banner")
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if slices.Contains(tricks, "deaf") || slices.Contains(tricks, "no-stdin") {
				select {}
			}
			os.Exit(0)
		}
		if slices.Contains(tricks, "touchy") && strings.Contains(string(line), "server/discover") {
			os.Exit(6)
		}
		if strings.Contains(string(line), "notifications/initialized") {
			serve(tricks)
		}
		switch {
		case strings.Contains(string(line), "mute"):
			_ = os.Stdout.Close()
			continue
		case strings.Contains(string(line), "deafen"):
			_ = os.Stdin.Close()
			tricks = append(tricks, "deaf")
		}
		if reply := answerTo(line); reply != nil {
			fmt.Println(string(reply))
		}
	}
}

// answerTo is a legacy server: it knows initialize, and one more method that
// tells of its environment.
func answerTo(message []byte) []byte {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal(message, &m) != nil || m.ID == nil {
		return nil
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	switch m.Method {
	case "initialize":
		answer["result"] = map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "test", "version": "1"},
		}
	case "env":
		answer["result"] = map[string]any{
			"PORT": os.Getenv("PORT"), "exit": os.Getenv("MCP_EXIT_ON_STDIN_CLOSE"),
			"marker": os.Getenv(process.MarkerVariable), "args": os.Args[1:],
		}
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "method not found"}
	}
	reply, _ := json.Marshal(answer)
	return reply
}

// doomedDaemon starts a backend, says its pid, and waits to be killed.
func doomedDaemon() {
	dir := os.Args[1]
	var l Launch
	if err := json.Unmarshal([]byte(os.Args[3]), &l); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s := New(Config{
		Launch: func(context.Context) (Launch, error) {
			return l, nil
		},
		RecordFile: filepath.Join(dir, "backend.json"), Marker: os.Args[2],
	})
	go func() { _ = s.Run(context.Background()) }()
	if err := s.Start(context.Background(), nil); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Status().PID)
	select {}
}

// selfAs launches this binary in a role, with tricks.
func selfAs(role string, tricks ...string) Launch {
	return Launch{
		Command: []string{os.Args[0]}, Path: os.Args[0],
		Env: []string{
			"PATH=" + os.Getenv("PATH"), roleVariable + "=" + role,
			tricksVariable + "=" + strings.Join(tricks, " "),
			"GORACE=atexit_sleep_ms=0", // else the race detector makes an exit last a second
		},
		Transport: Transport(role), Endpoint: "/mcp",
		StartTimeout: 20 * time.Second, StopTimeout: 5 * time.Second, RestartOnCrash: true,
	}
}
