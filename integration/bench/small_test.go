//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	// callsPerRound is how many small calls a round has: enough for a p99.
	callsPerRound = 300
	// largePerRound is how many it has with a large result.
	largePerRound = 5
)

func measureFloors(t *testing.T) []line {
	w := newWorld(t)
	pipe := start(t, w.env, program(t, "floor"), "pipe")
	defer pipe.end(t)
	echo := start(t, w.env, program(t, "floor"), "echo", w.base+"/echo")
	defer kill(t, echo)
	await(t, "the echo", func() bool {
		_, err := os.Stat(w.base + "/echo")
		return err == nil
	})
	client := start(t, w.env, program(t, "floor"), "client", w.base+"/echo")
	defer client.end(t)
	answer := func(id int) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, id) }
	warm(t, pipe, answer)
	warm(t, client, answer)
	lines := contest(t, "round trip of a pipe", "ms", *roundsFlag, nil, nil, calls(callsPerRound, pipe, answer), p50(target{}))
	return append(lines, contest(t, "round trip of a pipe, a gRPC stream and a pipe", "ms", *roundsFlag,
		nil, nil, calls(callsPerRound, client, answer), p50(target{}))...)
}

// kill ends a process that does not end with its input.
func kill(t testing.TB, p *peer) {
	t.Helper()
	_ = p.command.Process.Kill()
	p.end(t)
}

// begin makes a way of starting a process n times and waiting for its first line.
func begin(n int, w *world, frame string, command ...string) way {
	return func(t testing.TB) []float64 {
		t.Helper()
		samples := make([]float64, 0, n)
		for range n {
			began := time.Now()
			p := start(t, w.env, command...)
			if frame != "" {
				p.send(t, []byte(frame))
			}
			p.next(t)
			samples = append(samples, milliseconds(time.Since(began)))
			p.end(t)
		}
		return samples
	}
}

func measureStart(t *testing.T) []line {
	w := newWorld(t)
	w.use(t, w.raw(t))
	keep := w.attach(t, modern)
	defer keep.end(t)
	const starts = 10
	empty := begin(starts, w, "", program(t, "floor"), "start")
	lines := contest(t, "shim: exec to the answer of server/discover, warm daemon", "ms", *roundsFlag,
		nil, begin(starts, w, modern.hello, w.shim(t)...), empty, p50(ratioAtMost(3)))
	return append(lines, contest(t, "shim: exec to the answer of initialize, warm daemon", "ms", *roundsFlag,
		nil, begin(starts, w, legacy.hello, w.shim(t)...), empty, p50(target{}))...)
}

// connect makes a way of a TypeScript client's connect, as it measures it itself.
// before is done first each time.
func connect(w *world, mode string, before func(testing.TB), command ...string) way {
	return func(t testing.TB) []float64 {
		t.Helper()
		if before != nil {
			before(t)
		}
		p, took := connected(t, w, mode, command...)
		p.end(t)
		return []float64{took}
	}
}

// connected starts a client on the TypeScript SDK that times its own work, and
// tells how long its connect took. Where it connects is a command or a URL.
func connected(t testing.TB, w *world, mode string, where ...string) (p *peer, took float64) {
	t.Helper()
	p = start(t, w.env, append([]string{"node", filepath.Join(nodeDir(t), "clients", "calls.mjs"), mode}, where...)...)
	return p, times(t, p, p.next(t), 1)[0]
}

// times reads n of them.
func times(t testing.TB, p *peer, answer []byte, n int) []float64 {
	t.Helper()
	var samples []float64
	if err := json.Unmarshal(answer, &samples); err != nil || len(samples) != n {
		t.Fatalf("not %d times: %v %.300s\n%s", n, err, answer, p.said.text)
	}
	return samples
}

func measureConnect(t *testing.T) []line {
	w := newWorld(t)
	backend := w.node(t, "ts2.mjs", "stdio")
	w.use(t, backend)
	var lines []line
	for _, mode := range []string{"auto", "legacy"} {
		direct := connect(w, mode, nil, backend.args...)
		cold := connect(w, mode, func(t testing.TB) { t.Helper(); w.stop(t) }, w.shim(t)...)
		lines = append(lines, contest(t, "connect of TypeScript 2.4.0, "+mode+", cold daemon", "ms", *roundsFlag, direct, cold, nil, p50(target{}))...)
		keep := w.attach(t, legacy)
		mustSucceed(t, keep.call(t, legacy.echo(1)))
		lines = append(lines, contest(t, "connect of TypeScript 2.4.0, "+mode+", warm daemon", "ms", *roundsFlag,
			direct, connect(w, mode, nil, w.shim(t)...), nil, p50(target{}))...)
		keep.end(t)
	}
	return lines
}

// firstList makes a way from exec to the answer of the first tools/list.
func firstList(w *world, before func(testing.TB), command ...string) way {
	return func(t testing.TB) []float64 {
		t.Helper()
		if before != nil {
			before(t)
		}
		began := time.Now()
		p := open(t, legacy, w.env, command...)
		mustSucceed(t, p.call(t, legacy.request(1, "tools/list", "")))
		took := milliseconds(time.Since(began))
		p.end(t)
		return []float64{took}
	}
}

func measureFirstList(t *testing.T) []line {
	w := newWorld(t)
	backend := w.node(t, "ts2.mjs", "stdio")
	w.use(t, backend)
	direct := firstList(w, nil, backend.args...)
	rounds := max(*roundsFlag/2, 1)
	cold := firstList(w, func(t testing.TB) { t.Helper(); w.stop(t) }, w.shim(t)...)
	lines := contest(t, "exec to the first tools/list, cold daemon and server", "ms", rounds, direct, cold, nil, p50(target{}))
	keep := w.attach(t, legacy)
	defer keep.end(t)
	mustSucceed(t, keep.call(t, legacy.request(1, "tools/list", "")))
	return append(lines, contest(t, "exec to the first tools/list, warm", "ms", rounds, direct, firstList(w, nil, w.shim(t)...), nil, p50(target{}))...)
}

// eras are those of a client and of its server.
type eras struct {
	client, server dialect
	oldSDK         bool // the server is on the SDK that knows the legacy era alone
	modernOnly     bool
	name           string
}

var pairings = []eras{
	{client: legacy, server: legacy, name: "legacy"},
	{client: modern, server: modern, name: "modern"},
	{client: modern, server: legacy, oldSDK: true, name: "modern client, legacy server"},
	{client: legacy, server: modern, modernOnly: true, name: "legacy client, modern server"},
}

// nodeServer is the TypeScript server of a pairing.
func (e eras) nodeServer(t *testing.T, w *world, transport string) server {
	t.Helper()
	args := []string{transport}
	if transport == "http" {
		args = append(args, "--port", "{port}")
	}
	if e.modernOnly {
		args = append(args, "--modern-only")
	}
	script := "ts2.mjs"
	if e.oldSDK {
		script = "ts1.mjs"
	}
	return w.node(t, script, args...)
}

// typescript makes a way of the calls of a connected client, warmed up: small ones,
// or fewer with a result of that size.
func typescript(t *testing.T, w *world, d dialect, size int, where ...string) way {
	t.Helper()
	p, _ := connected(t, w, d.name, where...)
	t.Cleanup(func() { p.end(t) })
	n := callsPerRound
	if size > 0 {
		n = largePerRound
	}
	measure := func(t testing.TB) []float64 {
		t.Helper()
		return times(t, p, p.call(t, fmt.Appendf(nil, "%d %d", n, size)), n)
	}
	measure(t)
	return measure
}

func measureStdio(t *testing.T) []line {
	var lines []line
	for _, e := range pairings {
		w := newWorld(t)
		s := e.nodeServer(t, w, "stdio")
		w.use(t, s)
		socket := w.base + "/relay"
		lines = append(lines, contest(t, "small call, stdio, TypeScript on both ends: "+e.name, "ms", *roundsFlag,
			typescript(t, w, e.server, 0, s.args...),
			typescript(t, w, e.client, 0, w.shim(t)...),
			typescript(t, w, e.server, 0, bareRelay(t, w, s, socket)...),
			p50(ratioAtMost(2)), p99())...)
	}
	return lines
}

// measureBare measures with a client that costs nothing, and so what devproxy costs
// alone: ratios that no user meets.
func measureBare(t *testing.T) []line {
	w := newWorld(t)
	lines := smallStdio(t, w, legacy, w.sdk(t, "stdio"), "client that costs nothing, go-sdk server")
	w = newWorld(t)
	return append(lines, smallStdio(t, w, modern, w.raw(t), "neither end costs anything")...)
}

// bareRelay starts a daemon without a thought before s, and returns the command of
// its shim.
func bareRelay(t *testing.T, w *world, s server, socket string) []string {
	t.Helper()
	relay := start(t, w.env, append([]string{program(t, "floor"), "relay", socket, "--"}, s.args...)...)
	t.Cleanup(func() { kill(t, relay) })
	await(t, socket, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	return []string{program(t, "floor"), "client", socket}
}

func smallStdio(t *testing.T, w *world, d dialect, s server, name string) []line {
	t.Helper()
	direct, through, bare := ways(t, w, d, s)
	return contest(t, "small call, stdio: "+name, "ms", *roundsFlag, calls(callsPerRound, direct, d.echo),
		calls(callsPerRound, through, d.echo), calls(callsPerRound, bare, d.echo), p50(target{}), p99())
}

// ways are clients of a stdio server: its own, devproxy's, and one of a bare relay.
// All are warm.
func ways(t *testing.T, w *world, d dialect, s server) (direct, through, bare *peer) {
	t.Helper()
	w.use(t, s)
	direct = open(t, d, w.env, s.args...)
	through = w.attach(t, d)
	bare = open(t, d, w.env, bareRelay(t, w, s, w.base+"/relay")...)
	for _, p := range []*peer{direct, through, bare} {
		t.Cleanup(func() { p.end(t) })
		warm(t, p, d.echo)
	}
	return direct, through, bare
}

func measureHTTP(t *testing.T) []line {
	var lines []line
	for _, e := range pairings {
		w := newWorld(t)
		s := e.nodeServer(t, w, "http")
		w.use(t, s, `health = "/health"`, "port = 0")
		lines = append(lines, contest(t, "small call, HTTP, TypeScript on both ends: "+e.name, "ms", *roundsFlag,
			typescript(t, w, e.server, 0, w.serve(t, s)), typescript(t, w, e.client, 0, w.shim(t)...), nil,
			p50(ratioAtMost(1.5)), p99())...)
	}
	w := newWorld(t)
	s := w.sdk(t, "http")
	w.use(t, s, `health = "/health"`, "port = 0")
	direct := browse(t, legacy, w.serve(t, s))
	defer direct.close()
	through := w.attach(t, legacy)
	defer through.end(t)
	warm(t, direct, legacy.echo)
	warm(t, through, legacy.echo)
	return append(lines, contest(t, "small call, HTTP: client that costs nothing, go-sdk server", "ms", *roundsFlag,
		calls(callsPerRound, direct, legacy.echo), calls(callsPerRound, through, legacy.echo), nil, p50(target{}), p99())...)
}
