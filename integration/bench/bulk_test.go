//go:build linux

package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// spell is how long a round of a throughput lasts.
const spell = 700 * time.Millisecond

// flood makes a way that keeps n calls of a peer open. It gives calls per second.
func flood(p *peer, n int, frame func(id int) []byte) way {
	id := 0
	return func(t testing.TB) []float64 {
		t.Helper()
		began := time.Now()
		for range n {
			id++
			p.send(t, frame(id))
		}
		answered := 0
		for open := n; open > 0; answered++ {
			p.next(t)
			open--
			if time.Since(began) < spell {
				id++
				p.send(t, frame(id))
				open++
			}
		}
		return []float64{float64(answered) / time.Since(began).Seconds()}
	}
}

func measureInFlight(t *testing.T) []line {
	var lines []line
	for _, backend := range []struct {
		name string
		make func(*world) server
	}{
		{"TypeScript", func(w *world) server { return w.node(t, "ts2.mjs", "stdio") }},
		{"go-sdk", func(w *world) server { return w.sdk(t, "stdio") }},
		{"a server that costs nothing", func(w *world) server { return w.raw(t) }},
	} {
		w := newWorld(t)
		s := backend.make(w)
		direct, through, bare := ways(t, w, legacy, s)
		for _, n := range []int{1, 32, 256} {
			goal := target{}
			if n == 32 && s.name != "raw" {
				goal = ratioAtLeast(0.8)
			}
			lines = append(lines, contest(t, fmt.Sprintf("throughput, stdio, %d in flight: %s", n, backend.name), "calls/s", *roundsFlag,
				flood(direct, n, legacy.echo), flood(through, n, legacy.echo), flood(bare, n, legacy.echo), p50(goal))...)
		}
	}
	return lines
}

// crowd makes a way in which all callers call, one call open each. It gives calls
// per second.
func crowd(callers []caller, frame func(id int) []byte) way {
	return func(t testing.TB) []float64 {
		t.Helper()
		counts := make([]int, len(callers))
		began := time.Now()
		var group sync.WaitGroup
		for i, c := range callers {
			group.Go(func() {
				for time.Since(began) < spell {
					c.call(t, frame(counts[i]+1))
					counts[i]++
				}
			})
		}
		group.Wait()
		took := time.Since(began).Seconds()
		all := 0
		for _, count := range counts {
			all += count
		}
		return []float64{float64(all) / took}
	}
}

// measureClients has many clients of one HTTP server, which is what they can have
// without devproxy too.
func measureClients(t *testing.T) []line {
	w := newWorld(t)
	s := w.node(t, "ts2.mjs", "http", "--port", "{port}")
	w.use(t, s, `health = "/health"`, "port = 0")
	url := w.serve(t, s)
	var direct, through []caller
	var lines []line
	for _, n := range []int{1, 10, 100} {
		for len(direct) < n {
			client := browse(t, modern, url)
			defer client.close()
			shim := w.attach(t, modern)
			defer shim.end(t)
			direct, through = append(direct, client), append(through, shim)
		}
		warm(t, direct[n-1], modern.echo)
		warm(t, through[n-1], modern.echo)
		lines = append(lines, contest(t, fmt.Sprintf("throughput, HTTP: %d clients", n), "calls/s", *roundsFlag,
			crowd(direct, modern.echo), crowd(through, modern.echo), nil, p50(target{}))...)
	}
	return lines
}

// largeSizes are those that are measured.
var largeSizes = []int{1 << 20, 9 << 20}

func measureLarge(t *testing.T) []line {
	w := newWorld(t)
	s := w.node(t, "ts2.mjs", "stdio")
	w.use(t, s)
	var lines []line
	for _, size := range largeSizes {
		goal := target{}
		if size > 1<<20 {
			goal = ratioAtMost(1.5)
		}
		lines = append(lines, contest(t, fmt.Sprintf("result of %d MiB, TypeScript on both ends", size>>20), "ms", *roundsFlag,
			typescript(t, w, legacy, size, s.args...), typescript(t, w, legacy, size, w.shim(t)...),
			typescript(t, w, legacy, size, bareRelay(t, w, s, fmt.Sprint(w.base, "/", size))...), p50(goal))...)
	}
	return append(lines, measureLargeBare(t)...)
}

// measureLargeBare is measureLarge with ends that cost nothing.
func measureLargeBare(t *testing.T) []line {
	w := newWorld(t)
	direct, through, bare := ways(t, w, legacy, w.raw(t))
	daemon := w.pid(t)
	var lines []line
	for _, size := range largeSizes {
		big := func(id int) []byte { return legacy.tool(id, "big", fmt.Sprintf(`"n":%d`, size)) }
		name := fmt.Sprintf("result of %d MiB", size>>20)
		lines = append(lines, contest(t, name+", neither end costs anything", "ms", *roundsFlag,
			calls(largePerRound, direct, big), calls(largePerRound, through, big), calls(largePerRound, bare, big), p50(target{}))...)
		lines = append(lines, peak(t, name, "daemon", daemon, size, through, big), peak(t, name, "shim", through.pid(), size, through, big))
	}
	return lines
}

// peak is how far one result raises a process's memory, in multiples of it. The
// process is one that has handed back what earlier results took.
func peak(t *testing.T, name, who string, pid, size int, c caller, frame func(int) []byte) line {
	t.Helper()
	var samples []float64
	for id := range 5 {
		forgetPeak(t, pid)
		before, _ := rss(t, pid)
		c.call(t, frame(-1-id))
		_, most := rss(t, pid)
		samples = append(samples, (most-before)/float64(size))
	}
	l := line{
		name: fmt.Sprintf("%s: peak memory of the %s above its rest, per message", name, who), unit: "×", direct: none, floor: none,
		devproxy: quantile(samples, 1), ratio: none,
	}
	if size > 1<<20 {
		l.target = atMost(4, "×")
	}
	return l
}

// measureNoisy has one client call while another one makes noise: two at one server
// through devproxy, and, to tell what is the machine's, two that each have a server
// of their own and no devproxy.
func measureNoisy(t *testing.T) []line {
	w := newWorld(t)
	s := w.node(t, "ts2.mjs", "stdio")
	w.use(t, s)
	var peers [4]*peer // two through devproxy, and two direct
	for i := range peers {
		if i < 2 {
			peers[i] = w.attach(t, legacy)
		} else {
			peers[i] = open(t, legacy, w.env, s.args...)
		}
		defer peers[i].end(t)
		warm(t, peers[i], legacy.echo)
	}
	ping := func(id int) []byte { return legacy.request(id, "ping", "") }
	// One call in a hundred is what counts: it takes more rounds than a median.
	rounds := 3 * *roundsFlag
	var lines []line
	for _, noise := range []struct {
		name  string
		n     int
		frame func(int) []byte
		goal  target
	}{
		{"another calls without a pause", 1, legacy.echo, ratioAtMost(2)},
		{"another has 32 calls in flight", 32, legacy.echo, target{}},
		{"another pings without a pause, 32 in flight", 32, ping, ratioAtMost(2)},
	} {
		name := "p99 of a small call while " + noise.name
		through := calls(callsPerRound, peers[0], legacy.echo)
		lines = append(lines, contest(t, name+" (direct: alone)", "ms", rounds, through,
			beside(through, peers[1], noise.n, noise.frame), nil, statistic{q: 0.99, target: noise.goal})...)
		direct := calls(callsPerRound, peers[2], legacy.echo)
		lines = append(lines, contest(t, name+", each at a server of its own (direct: alone)", "ms", rounds, direct,
			nil, beside(direct, peers[3], noise.n, noise.frame), statistic{q: 0.99})...)
	}
	return lines
}

// beside measures while another client keeps n requests open.
func beside(measure way, noisy *peer, n int, frame func(int) []byte) way {
	return func(t testing.TB) []float64 {
		t.Helper()
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			storm(t, noisy, n, frame, stop)
		}()
		samples := measure(t)
		close(stop)
		<-over
		return samples
	}
}

// storm keeps n calls open until stop is closed.
func storm(t testing.TB, p *peer, n int, frame func(int) []byte, stop <-chan struct{}) {
	t.Helper()
	id := 1
	for ; id <= n; id++ {
		p.send(t, frame(id))
	}
	for open := n; open > 0; id++ {
		p.next(t)
		select {
		case <-stop:
			open--
		default:
			p.send(t, frame(id))
		}
	}
}

// measureWork is what the programs do for a message, in CPU time, which does not
// depend on who else is on the machine as the time that passes does.
func measureWork(t *testing.T) []line {
	w := newWorld(t)
	_, through, bare := ways(t, w, legacy, w.raw(t))
	server := func(p *peer) func(testing.TB) time.Duration {
		return func(t testing.TB) time.Duration { t.Helper(); return cpu(t, p.pid()) }
	}
	daemon := w.pid(t)
	ran := map[string]func(testing.TB) time.Duration{
		"the daemon": func(t testing.TB) time.Duration { t.Helper(); return cpu(t, daemon) },
		"the shim":   server(through),
	}
	big := func(id int) []byte { return legacy.tool(id, "big", fmt.Sprintf(`"n":%d`, 9<<20)) }
	var lines []line
	for _, work := range []struct {
		name  string
		n     int
		frame func(int) []byte
		unit  string
		per   time.Duration
	}{
		{"a small call", 1000, legacy.echo, "µs", time.Microsecond},
		{"a result of 9 MiB", 5, big, "ms", time.Millisecond},
	} {
		during := func(p *peer, ran func(testing.TB) time.Duration) way {
			call := calls(work.n, p, work.frame)
			return func(t testing.TB) []float64 {
				t.Helper()
				before := ran(t)
				call(t)
				return []float64{float64(ran(t)-before) / float64(work.n) / float64(work.per)}
			}
		}
		for _, who := range []string{"the daemon", "the shim"} {
			floor := during(bare, server(bare))
			if who == "the daemon" {
				floor = nil // which has as many servers as clients
			}
			lines = append(lines, contest(t, "CPU of "+who+" for "+work.name, work.unit, *roundsFlag,
				nil, during(through, ran[who]), floor, p50(target{}))...)
		}
	}
	return lines
}
