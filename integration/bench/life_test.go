//go:build linux

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// settle is the default of [watch] settle, which the measured projects have.
const settle = 300 * time.Millisecond

func measureRestart(t *testing.T) []line {
	var lines []line
	for _, backend := range []struct {
		name string
		make func(*world) server
		wait string
	}{
		{"TypeScript", func(w *world) server { return w.node(t, "ts2.mjs", "stdio") }, "dist/index.mjs"},
		{"a server that costs nothing", func(w *world) server { return w.raw(t) }, "dist/built"},
	} {
		w := newWorld(t)
		s := backend.make(w)
		w.use(t, s)
		client := w.attach(t, legacy)
		whose := func(id int) string { return string(client.call(t, legacy.tool(id, "pid", ""))) }
		id := 1
		whose(id)
		content, err := os.ReadFile(filepath.Join(w.root, backend.wait))
		if err != nil {
			t.Fatal(err)
		}
		var gaps, bounds []float64
		for round := range *roundsFlag {
			began := time.Now()
			direct := open(t, legacy, w.env, s.args...)
			mustSucceed(t, direct.call(t, legacy.tool(1, "pid", "")))
			own := time.Since(began)
			stop := direct.end(t)

			id++
			before := text(whose(id))
			w.write(t, backend.wait, string(content)+strings.Repeat("\n", round+1))
			written := time.Now()
			for {
				id++
				answer := whose(id)
				if text(answer) != before && strings.Contains(answer, `"result":`) && !strings.Contains(answer, `"isError":true`) {
					break
				}
			}
			gaps = append(gaps, milliseconds(time.Since(written)-own))
			bounds = append(bounds, milliseconds(settle+stop)+50)
		}
		client.end(t)
		w.stop(t)
		l := line{
			name: "restart gap without the server's own start: " + backend.name + " (floor: settle + its stop)", unit: "ms", direct: none,
			devproxy: median(gaps), floor: median(bounds) - 50, ratio: none,
		}
		l.target = target{"≤ floor + 50 ms", func(l line) bool { return l.devproxy <= l.floor+50 }}
		lines = append(lines, l)
	}
	return lines
}

// text returns the text of a tool's result.
func text(answer string) string {
	_, after, _ := strings.Cut(answer, `"text":"`)
	value, _, _ := strings.Cut(after, `"`)
	return value
}

func mebibytes(bytes float64) float64 { return bytes / (1 << 20) }

func measureMemory(t *testing.T) []line {
	w := newWorld(t)
	w.use(t, w.raw(t))
	// One process more than the shims keeps what they share shared, as a client
	// with a second server does.
	var shims []*peer
	defer func() {
		for _, p := range shims {
			p.end(t)
		}
	}()
	shims = append(shims, w.attach(t, legacy))
	mustSucceed(t, shims[0].call(t, legacy.request(1, "tools/list", "")))
	daemon := w.pid(t)
	var lines []line
	before, rate, per := pss(t, daemon), 0.0, 0.0
	for _, n := range []int{1, 10, 100, 1000} {
		began, added := time.Now(), n-len(shims)
		for len(shims) < n {
			p := w.attach(t, legacy)
			mustSucceed(t, p.call(t, legacy.request(1, "tools/list", "")))
			shims = append(shims, p)
		}
		took := time.Since(began)
		all := 0.0
		for _, p := range shims {
			all += pss(t, p.pid())
		}
		now := pss(t, daemon)
		goal := target{}
		if n == 10 {
			goal = atMost(4, "MiB")
		}
		lines = append(lines,
			value(fmt.Sprintf("PSS of the daemon, %d clients", n), "MiB", mebibytes(now), target{}),
			value(fmt.Sprintf("PSS per shim, %d clients", n), "MiB", mebibytes(all/float64(n)), goal))
		if n >= 100 {
			// Both of those that came since the step before.
			memory := value(fmt.Sprintf("memory of the daemon per client, up to %d", n), "KiB", (now-before)/float64(added)/(1<<10), target{})
			attached := value(fmt.Sprintf("clients attached per second, up to %d", n), "1/s", float64(added)/took.Seconds(), target{})
			if n == 1000 {
				memory.target, attached.target = flat(memory.devproxy <= 1.3*per), flat(attached.devproxy >= 0.7*rate)
			}
			per, rate = memory.devproxy, attached.devproxy
			lines = append(lines, memory, attached)
		}
		before = now
	}
	return lines
}

// flat is the target that ten times as many clients cost no more each.
func flat(is bool) target { return target{"flat", func(line) bool { return is }} }

func value(name, unit string, devproxy float64, goal target) line {
	return line{name: name, unit: unit, direct: none, devproxy: devproxy, floor: none, ratio: none, target: goal}
}

// manyFiles is how many a large build output has.
const manyFiles = 20_000

// fill writes the build output of a large project, all of it new.
func fill(t testing.TB, w *world, build int) {
	t.Helper()
	content := []byte(strings.Repeat(fmt.Sprintf("// build %d\n", build), 100))
	for n := range manyFiles {
		dir := fmt.Sprintf("%s/dist/%d", w.root, n/100)
		if n%100 == 0 {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%d.js", dir, n), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// largeProject is a daemon that watches a large build output.
func largeProject(t *testing.T) (w *world, client *peer) {
	t.Helper()
	w = newWorld(t)
	w.use(t, w.raw(t))
	fill(t, w, 0)
	client = w.attach(t, legacy)
	mustSucceed(t, client.call(t, legacy.tool(1, "pid", "")))
	return w, client
}

func measureWatch(t *testing.T) []line {
	w, client := largeProject(t)
	defer client.end(t)
	daemon := w.pid(t)
	whose := func() string { return string(client.call(t, legacy.tool(1, "pid", ""))) }
	var rewrites, gaps []float64
	for build := range 3 {
		before, ran := text(whose()), cpu(t, daemon)
		fill(t, w, build+1)
		written := time.Now()
		await(t, "the restart", func() bool {
			answer := whose()
			return text(answer) != before && !strings.Contains(answer, `"isError":true`)
		})
		gaps = append(gaps, milliseconds(time.Since(written)))
		rewrites = append(rewrites, (cpu(t, daemon) - ran).Seconds())
	}
	return []line{
		value("20,000 files rewritten: CPU of the daemon", "s", median(rewrites), atMost(1, "s")),
		value("20,000 files rewritten: last write to the first answer", "ms", median(gaps), target{}),
	}
}

// measureLog has a server write lines to stderr, which the daemon masks, keeps and
// rotates; directly they are thrown away.
func measureLog(t *testing.T) []line {
	w := newWorld(t)
	s := w.raw(t)
	w.use(t, s)
	direct := open(t, legacy, w.env, s.args...)
	defer direct.end(t)
	through := w.attach(t, legacy)
	defer through.end(t)
	const lines = 50_000
	write := func(p *peer) way {
		return func(t testing.TB) []float64 {
			t.Helper()
			began := time.Now()
			mustSucceed(t, p.call(t, legacy.tool(1, "log", fmt.Sprintf(`"n":%d`, lines))))
			return []float64{lines / time.Since(began).Seconds()}
		}
	}
	return contest(t, "lines of 100 bytes on the server's stderr", "lines/s", *roundsFlag, write(direct), write(through), nil, p50(target{}))
}

func measureIdle(t *testing.T) []line {
	w := newWorld(t)
	w.use(t, w.raw(t))
	const clients = 100
	var shims []*peer
	for range clients {
		p := w.attach(t, legacy)
		defer p.end(t)
		shims = append(shims, p)
	}
	mustSucceed(t, shims[0].call(t, legacy.echo(1)))
	large, client := largeProject(t)
	defer client.end(t)
	daemon, watcher := w.pid(t), large.pid(t)
	all := func() (sum time.Duration) {
		for _, p := range shims {
			sum += cpu(t, p.pid())
		}
		return sum
	}
	// What a start leaves to do is over.
	pause(time.Second)
	daemonRan, watcherRan, shimsRan := cpu(t, daemon), cpu(t, watcher), all()
	pause(*idleFlag)
	per := func(ran time.Duration) float64 { return milliseconds(ran) * float64(time.Minute) / float64(*idleFlag) }
	// A scheduler's tick is 10 ms, below which top shows nothing.
	few, many := per(cpu(t, daemon)-daemonRan), per(cpu(t, watcher)-watcherRan)
	return []line{
		value("idle for a minute, 100 clients: CPU of the daemon", "ms", few, target{}),
		value("idle for a minute: CPU of a shim", "ms", per(all()-shimsRan)/clients, atMost(10, "ms")),
		value("idle for a minute: CPU of watching 20,000 files (beside the daemon above)", "ms", many-few, atMost(10, "ms")),
	}
}

// pause is for what happens while nothing does.
func pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-interrupted:
	}
}
