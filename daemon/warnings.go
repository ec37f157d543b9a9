package daemon

import (
	"fmt"
	"strings"
	"sync"

	"github.com/debugmcp/devproxy/daemon/backend"
)

// warning is something that works, but not as a person would want it to.
type warning struct {
	text, advice string
}

// noise is what a stdio backend wrote to stdout that is no protocol. The backend's
// output comes from several goroutines.
type noise struct {
	mu         sync.Mutex
	generation uint64
	lines      int
	first      string
}

func (n *noise) heard(generation uint64, line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if generation != n.generation {
		n.generation, n.lines, n.first = generation, 0, strings.Clone(valid(line, maxName))
	}
	n.lines++
}

func (n *noise) of(generation uint64) (lines int, first string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if generation != n.generation {
		return 0, ""
	}
	return n.lines, n.first
}

// warnings are what is to say of the backend, though it may serve.
func (v view) warnings() []warning {
	if v.backend.State == backend.Idle || v.backend.NeverRan {
		return nil
	}
	var all []warning
	if v.noise > 0 {
		is := "a line on its stdout is no protocol"
		if v.noise > 1 {
			is = fmt.Sprintf("%d lines on its stdout are no protocol, the first", v.noise)
		}
		all = append(all, warning{is + ": " + v.mask.text(v.firstNoise), "write them to stderr: stdout is for the protocol alone"})
	}
	if exit := v.backend.LastExit; exit != nil && exit.Deaf && v.backend.Transport == backend.Stdio {
		all = append(all, warning{
			fmt.Sprintf("generation %d did not end when its input was closed, and got SIGTERM after stop_timeout, so that every restart takes that long", exit.Generation),
			"make the server end when its stdin does, or lower stop_timeout of [backend]",
		})
	}
	if len(v.hidden) > 0 && v.backend.State == backend.Running {
		all = append(all, warning{
			"the server has tools of its own that hide devproxy's: " + strings.Join(v.hidden, ", "),
			"to have both set tool_prefix of [proxy] in devproxy.toml; then \"devproxyd restart\"",
		})
	}
	return all
}
