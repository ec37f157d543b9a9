//go:build unix

// Command chaosbackend is the server behind devproxy in the chaos test: it
// speaks one era of MCP or both, over stdio, Streamable HTTP or HTTP+SSE, without
// an SDK, and its tools do everything that servers under development do to whoever
// started them.
//
//	chaosbackend [-transport stdio|http|sse] [-era legacy|modern|both] [-port N] -dir DIR -seed N BUILD
//
// BUILD is the file that stands for the build output; what it says becomes the
// name of a tool. In DIR the backend holds a lock while it lives, and appends
// to a journal what it does: see journal.go.
package main

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// longestStart bounds the random time that a start takes.
	longestStart = 500 * time.Millisecond
	// stillborn is how many of a hundred lives end before they serve.
	stillborn = 3
	// grandchildLife bounds the life of a grandchild that nobody ends, so that a
	// failed test leaves none for ever.
	grandchildLife = 5 * time.Minute
)

type options struct {
	transport, era, port, dir string
	seed                      uint64
	build                     string
}

func main() {
	var o options
	grandchild := flag.Int("grandchild", 0, "be a grandchild of the backend with this pid")
	flag.StringVar(&o.transport, "transport", "stdio", "stdio, http or sse")
	flag.StringVar(&o.era, "era", eraBoth, "legacy, modern or both")
	flag.StringVar(&o.port, "port", os.Getenv("PORT"), "port to listen on")
	flag.StringVar(&o.dir, "dir", "", "folder of the journal and the lock")
	flag.Uint64Var(&o.seed, "seed", 0, "what random decisions follow from")
	flag.Parse()
	if *grandchild != 0 {
		linger()
		return
	}
	o.build = flag.Arg(0)
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "chaosbackend:", err)
		os.Exit(1)
	}
}

// linger is the life of a grandchild: it keeps its parent's pipes open and
// takes no hint.
func linger() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	time.Sleep(grandchildLife)
}

func run(o options) error {
	j, err := openJournal(filepath.Join(o.dir, "journal"))
	if err != nil {
		return err
	}
	j.write("start", os.Getenv("DEVPROXY_BACKEND"))
	if err := claim(filepath.Join(o.dir, "alive"), j); err != nil {
		return err
	}
	random := randomLife(o.seed, j.starts())
	time.Sleep(time.Duration(random.Int64N(int64(longestStart))))
	if random.IntN(100) < stillborn && !isCalm(o.dir) {
		j.write("exit", "at-start")
		os.Exit(3)
	}
	b := &backend{
		journal: j, era: o.era, transport: o.transport, tools: tools(buildName(o.build)),
		sessions: map[string]*session{}, leave: func(why string, code int) {
			j.write("exit", why)
			os.Exit(code)
		},
	}
	go b.heedSignals()
	switch o.transport {
	case "http":
		return b.serveHTTP(o.port)
	case "sse":
		return b.serveSSE(o.port)
	}
	b.serveStdio(os.Stdin, os.Stdout)
	return nil
}

// isCalm reports whether the faults are over, and nothing new is to go wrong.
func isCalm(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "calm"))
	return err == nil
}

// randomLife makes what happens in the nth life follow from the seed alone.
func randomLife(seed uint64, n int) *rand.Rand {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "backend %d", n)
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

// buildName is the tool that the current build adds.
func buildName(path string) string {
	content, err := os.ReadFile(path)
	name := strings.TrimSpace(string(content))
	if err != nil || name == "" {
		return "build_none"
	}
	return name
}

// claim makes this process the one live backend, or says in the journal that
// there is another. The lock is held as long as the process lives: descriptors
// are not passed on to grandchildren.
func claim(path string, j *journal) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		j.write("overlap", os.Getenv("DEVPROXY_BACKEND"))
	}
	held.Store(file)
	return nil
}

// held keeps the lock's file from being collected, and so closed.
var held atomic.Pointer[os.File]

// heedSignals ends the process on SIGTERM, unless a tool has made it stubborn.
func (b *backend) heedSignals() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for range signals {
		if !b.stubborn.Load() {
			b.leave("signal", 0)
		}
	}
}
