//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The official conformance scenarios against two servers, directly and through
// devproxy: none may be worse through it. `make conformance` installs what the
// test needs.
func TestConformance(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("testdata", "conformance"))
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); testing.Short() || err != nil {
		t.Skip("make conformance installs the scenarios and runs them")
	}
	node := node22(t, modules)
	for name, server := range map[string][]string{
		"server-everything": {"node", filepath.Join(modules, "@modelcontextprotocol", "server-everything", "dist", "index.js"), "stdio"},
		"go-sdk":            {everythingServer(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folders := newFolders(t)
			direct := scenarios(t, node, modules, func() *rawClient { return newRawClient(t, folders.clientEnv(), server...) })
			p := newProject(t)
			p.configure(t, fmt.Sprintf("[backend]\ncommand = %s\ntransport = \"stdio\"\n", tomlStrings(server)))
			proxied := scenarios(t, node, modules, func() *rawClient { return p.raw(t) })
			passed := 0
			for scenario, checks := range direct {
				for check, status := range checks {
					got := proxied[scenario][check]
					if got != status && (status == "SUCCESS" || got == "FAILURE") {
						t.Errorf("%s: %s is %s directly and %q through devproxy", scenario, check, status, got)
					}
					if got == "SUCCESS" {
						passed++
					}
				}
			}
			// That few scenarios hold would be a fault of this test.
			const least = 10
			if passed < least {
				t.Errorf("only %d checks passed: %v", passed, direct)
			}
			t.Logf("%d scenarios, %d checks passed through devproxy", len(direct), passed)
		})
	}
}

// node22 is a Node that the scenarios run on: that of the packages where there
// is one for this machine, else the one on PATH.
func node22(t *testing.T, modules string) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	packaged := filepath.Join(modules, "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(packaged); err == nil {
		return packaged
	}
	version, err := exec.Command("node", "--version").Output()
	var major int
	if _, scanErr := fmt.Sscanf(string(version), "v%d", &major); errors.Join(err, scanErr) != nil || major < 22 {
		t.Skipf("the scenarios need Node 22, this is %s", version)
	}
	return "node"
}

// everythingServer builds the server that the go-sdk has for the scenarios.
func everythingServer(t *testing.T) string {
	t.Helper()
	program(t, "devproxyd") // binDir is there
	path := filepath.Join(binDir, "everything-server")
	command := exec.Command("go", "build", "-o", path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	command.Dir = moduleRoot
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building the go-sdk's everything server: %v\n%s", err, output)
	}
	return path
}

// scenarios runs all scenarios against what start starts for each session, and
// returns the status of every check by scenario.
func scenarios(t *testing.T, node, modules string, start func() *rawClient) map[string]map[string]string {
	t.Helper()
	front := newHTTPFront(start)
	server := httptest.NewServer(front)
	results := t.TempDir()
	// The pending scenarios are those that this version does not trust itself.
	command := exec.CommandContext(t.Context(), node, filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
		"server", "--url", server.URL+"/mcp", "--output-dir", results)
	command.Dir = results
	output, err := command.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	server.CloseClientConnections()
	front.close()
	server.Close()

	all := map[string]map[string]string{}
	files, err := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status string }
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatal(err)
		}
		// server-NAME-TIME
		scenario := filepath.Base(filepath.Dir(file))
		if at := strings.Index(scenario, "-20"); at > 0 {
			scenario = scenario[:at]
		}
		statuses := map[string]string{}
		for _, check := range checks {
			if statuses[check.ID] != "FAILURE" {
				statuses[check.ID] = check.Status
			}
		}
		all[scenario] = statuses
	}
	if len(all) == 0 {
		t.Fatalf("the scenarios left no results\n%s", output)
	}
	return all
}

// httpFront puts a server on stdio behind Streamable HTTP, as plainly as the
// scenarios allow: one process a session, answers on the stream of their
// request, everything else on that of the newest one, or else the GET stream.
type httpFront struct {
	start func() *rawClient

	mu       sync.Mutex
	sessions map[string]*frontSession
	readers  sync.WaitGroup
}

type frontSession struct {
	server  *rawClient
	mu      sync.Mutex
	streams []*frontStream
	early   []string // what came while no stream was open
}

type frontStream struct {
	id    string // of the request, "" for GET
	lines chan string
}

func newHTTPFront(start func() *rawClient) *httpFront {
	return &httpFront{start: start, sessions: map[string]*frontSession{}}
}

func (f *httpFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("Mcp-Session-Id")
	f.mu.Lock()
	session := f.sessions[name]
	f.mu.Unlock()
	switch {
	case name != "" && session == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodPost:
		f.post(w, r, session)
	case session == nil:
		http.Error(w, "no session", http.StatusBadRequest)
	case r.Method == http.MethodGet:
		session.serve(w, r, "", "")
	case r.Method == http.MethodDelete:
		f.mu.Lock()
		delete(f.sessions, name)
		f.mu.Unlock()
		_ = session.server.stdin.Close()
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (f *httpFront) post(w http.ResponseWriter, r *http.Request, session *frontSession) {
	body, err := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := errors.Join(err, json.Unmarshal(body, &m)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if session == nil {
		if m.Method != "initialize" {
			http.Error(w, "no session", http.StatusBadRequest)
			return
		}
		session = &frontSession{server: f.start()}
		f.mu.Lock()
		name := fmt.Sprint("session-", len(f.sessions)+1, "-", time.Now().UnixNano())
		f.sessions[name] = session
		f.mu.Unlock()
		f.readers.Go(session.read)
		w.Header().Set("Mcp-Session-Id", name)
	}
	line := strings.ReplaceAll(string(body), "\n", " ")
	if m.Method == "" || m.ID == nil {
		if _, err := fmt.Fprintln(session.server.stdin, line); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	session.serve(w, r, string(m.ID), line)
}

// serve opens a stream, sends line, and passes on what belongs to the stream.
func (s *frontSession) serve(w http.ResponseWriter, r *http.Request, id, line string) {
	stream := &frontStream{id: id, lines: make(chan string, 64)}
	s.mu.Lock()
	s.streams = append(s.streams, stream)
	early := s.early
	s.early = nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(other *frontStream) bool { return other == stream })
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	write := func(text string) {
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
		_ = http.NewResponseController(w).Flush()
	}
	_ = http.NewResponseController(w).Flush()
	for _, text := range early {
		write(text)
	}
	if line != "" {
		if _, err := fmt.Fprintln(s.server.stdin, line); err != nil {
			return
		}
	}
	for {
		select {
		case text, open := <-stream.lines:
			if !open {
				return
			}
			write(text)
			if id != "" && isAnswer(text, id) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// isAnswer reports whether a line is the response to a request.
func isAnswer(text, id string) bool {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	return json.Unmarshal([]byte(text), &m) == nil && m.Method == "" && string(m.ID) == id
}

// read deals what the server says out to the streams, until it ends.
func (s *frontSession) read() {
	for line := range s.server.lines {
		s.mu.Lock()
		to := s.streamFor(line)
		if to == nil {
			s.early = append(s.early, strings.TrimSuffix(line, "\n"))
		} else {
			to.lines <- strings.TrimSuffix(line, "\n")
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.streams {
		close(stream.lines)
	}
	s.streams = nil
}

// streamFor is where a line belongs, nil if it has to wait for a stream. The
// caller holds mu.
func (s *frontSession) streamFor(line string) *frontStream {
	var newest *frontStream
	for _, stream := range s.streams {
		if stream.id != "" && isAnswer(line, stream.id) {
			return stream
		}
		if newest == nil || stream.id != "" || newest.id == "" {
			newest = stream
		}
	}
	return newest
}

// close ends every session.
func (f *httpFront) close() {
	f.mu.Lock()
	for _, session := range f.sessions {
		_ = session.server.stdin.Close()
	}
	f.mu.Unlock()
	f.readers.Wait()
}
