//go:build unix

package chaos

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// plan is what the seed decides about a world as a whole.
type plan struct {
	transport  string // stdio, http or sse
	era        string // of the backend: legacy, modern or both
	fixedPort  bool   // of a backend that listens
	drain      time.Duration
	stop       time.Duration // each rung of the ladder
	watch      bool
	deadly     int // how many of a hundred calls of the tools that end the backend are really made
	clients    int
	storm      time.Duration
	terminal   bool // a person starts the daemon; else the first shim does
	freshCalm  bool // the backend is restarted once it is calm
	newCalm    bool // devproxyd is replaced, and the daemon, once it is calm
	dump       bool // the daemon's goroutines are compared in the end, at the cost of its orderly stop
	faultGap   time.Duration
	faultTimes map[string]int // weights
}

func newPlan(seed uint64, short bool) plan {
	d := roll(seed, "plan", 0)
	p := plan{
		transport: pick(d, "stdio", "stdio", "http", "http", "sse"),
		era:       pick(d, "legacy", "modern", "both", "both"),
		fixedPort: d.chance(50),
		drain:     pick(d, 0, 0, 300*time.Millisecond, 2*time.Second),
		stop:      pick(d, 300*time.Millisecond, time.Second),
		watch:     d.chance(85),
		clients:   3 + d.IntN(4),
		storm:     d.between(12*time.Second, 25*time.Second),
		terminal:  d.chance(50),
		freshCalm: d.chance(50),
		newCalm:   d.chance(25),
		dump:      d.chance(50),
		faultGap:  d.between(400*time.Millisecond, 2*time.Second),
	}
	// Else a backend that keeps crashing is all that most requests meet.
	p.deadly = pick(d, 5, 15, 15, 30, 100)
	if p.transport == "sse" {
		p.era = "legacy" // the only one that knows this transport
	}
	if short {
		p.storm, p.faultGap = 10*time.Second, 700*time.Millisecond
	}
	p.faultTimes = map[string]int{}
	for _, f := range faults {
		weight := f.weight
		// Some worlds go without some faults, so that what only shows in a long
		// life shows.
		if d.chance(30) {
			weight = 0
		}
		if f.needs != nil && !f.needs(p) {
			weight = 0
		}
		p.faultTimes[f.name] = weight
	}
	p.faultTimes["kill daemon"] = max(p.faultTimes["kill daemon"], 1) // there has to be one
	return p
}

func (p plan) String() string {
	var off []string
	for _, f := range faults {
		if p.faultTimes[f.name] == 0 {
			off = append(off, f.name)
		}
	}
	return fmt.Sprintf("%s backend of era %s, fixed port %v, drain %v, stop %v, watch %v, deadly %d %%, %d clients, storm %v, from a terminal %v, dump %v, gap %v, without: %s",
		p.transport, p.era, p.fixedPort, p.drain, p.stop, p.watch, p.deadly, p.clients, p.storm.Round(time.Second), p.terminal,
		p.dump, p.faultGap.Round(time.Millisecond), strings.Join(off, ", "))
}

// listens reports whether the backend has a port.
func (p plan) listens() bool { return p.transport != "stdio" }

// toml is the project's configuration.
func (p plan) toml(w *world) string {
	command := []string{
		program("chaosbackend"), "-transport", p.transport, "-era", p.era, "-dir", w.base,
		"-seed", strconv.FormatUint(w.seed, 10),
	}
	address := ""
	if p.listens() {
		command = append(command, "-port", "{port}")
		address = fmt.Sprintf("port = %d\n", w.port)
	}
	if p.transport == "sse" {
		address += "path = \"/sse\"\n"
	}
	command = append(command, "dist/build")
	quoted := make([]string, len(command))
	for i, word := range command {
		quoted[i] = strconv.Quote(word)
	}
	paths := `["dist"]`
	if !p.watch {
		paths = "[]"
	}
	return fmt.Sprintf(`[backend]
command = [%s]
transport = %q
%sstart_timeout = "10s"
stop_timeout = %q
drain_timeout = %q

[watch]
paths = %s
settle = "100ms"

[proxy]
request_wait = "5s"
idle_exit = "0s"
`, strings.Join(quoted, ", "), p.transport, address, p.stop, p.drain, paths)
}
