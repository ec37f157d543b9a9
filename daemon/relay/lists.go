package relay

import (
	"context"
	"time"

	"github.com/debugmcp/devproxy/daemon/era"
	"github.com/debugmcp/devproxy/internal/wire"
)

// devTools are the tools of Config.Tools, and what is known of the names that
// the backend has itself: those stay the backend's.
type devTools struct {
	tools       Tools
	definitions []devTool
	backend     map[string]struct{} // names in the backend's lists
	told        map[string]struct{} // names of which the log has been told
}

type devTool struct {
	name       string
	definition []byte
}

func newDevTools(tools Tools) devTools {
	d := devTools{tools: tools, backend: make(map[string]struct{}), told: make(map[string]struct{})}
	if tools == nil {
		return d
	}
	for _, definition := range tools.Definitions() {
		if name, ok := memberString(definition, "name"); ok {
			d.definitions = append(d.definitions, devTool{name, definition})
		}
	}
	return d
}

// has reports whether a call of that name is for the dev tools.
func (d *devTools) has(name string) bool {
	if d.tools == nil || !d.tools.Has(name) {
		return false
	}
	_, taken := d.backend[name]
	return !taken
}

// free returns the definitions whose names the backend has not taken.
func (d *devTools) free() [][]byte {
	var free [][]byte
	for _, tool := range d.definitions {
		if _, taken := d.backend[tool.name]; !taken {
			free = append(free, tool.definition)
		}
	}
	return free
}

// hidden are the names of dev tools that the backend has taken.
func (d *devTools) hidden() []string {
	var hidden []string
	for _, tool := range d.definitions {
		if _, taken := d.backend[tool.name]; taken {
			hidden = append(hidden, tool.name)
		}
	}
	return hidden
}

// note remembers which names of dev tools a page of the backend's list takes,
// and returns those that were never taken before.
func (d *devTools) note(page []byte, first bool) (news []string) {
	if d.tools == nil {
		return nil
	}
	if first {
		clear(d.backend)
	}
	for _, name := range era.ToolNames(page) {
		if !d.tools.Has(name) {
			continue
		}
		d.backend[name] = struct{}{}
		if _, told := d.told[name]; !told {
			d.told[name] = struct{}{}
			news = append(news, name)
		}
	}
	return news
}

// mergeTools puts the dev tools behind the backend's on the last page of its
// list. raw is the page as the backend sent it, result the one for the client.
func (r *Router) mergeTools(call *call, raw, result []byte) []byte {
	_, next := memberString(call.req.Params, "cursor")
	for _, name := range r.tools.note(raw, !next) {
		r.log.Warn("the backend has a tool of its own that hides devproxy's; set [proxy] tool_prefix to have both", "tool", name)
	}
	hidden := r.tools.hidden()
	r.hiddenTools.Store(&hidden)
	merged, err := era.MergeTools(result, r.tools.free())
	if err != nil {
		r.log.Warn("merging the dev tools into the backend's list", "error", err)
		return result
	}
	return merged
}

// toolsAlone is the tools/list of a backend that is not there or has no tools.
func (r *Router) toolsAlone(call *call) []byte {
	empty, _ := call.front.Empty(methodToolsList)
	merged, err := era.MergeTools(empty, r.tools.free())
	if err != nil {
		r.log.Error("listing the dev tools", "error", err)
		return empty
	}
	return merged
}

// emptyList answers a list that the backend says it does not have: clients ask
// for it because they were told a superset, or another backend's capabilities.
func (r *Router) emptyList(call *call, l *link) ([]byte, bool) {
	capability := ""
	switch call.req.Method {
	case methodToolsList:
		capability = "tools"
	case methodPromptsList:
		capability = "prompts"
	case methodResources, methodTemplates:
		capability = "resources"
	default:
		return nil, false
	}
	if l.facts.Has(capability) {
		return nil, false
	}
	if call.req.Method == methodToolsList {
		return r.toolsAlone(call), true
	}
	return call.front.Empty(call.req.Method)
}

const (
	// fullProgress is how many steps of a dev tool a client hears of, whatever
	// they are; of later ones one each progressPause. A build may print more lines
	// than a client can take, which would be closed for it.
	fullProgress  = 100
	progressPause = 100 * time.Millisecond
)

// callDevTool runs a dev tool if the call is for one.
func (r *Router) callDevTool(call *call) bool {
	name, ok := wire.String(call.params.name)
	if !ok || !r.tools.has(name) {
		return false
	}
	arguments := call.params.arguments
	call.delivered = true
	call.stop = r.spawn(func(ctx context.Context) {
		steps, last := 0, time.Time{}
		answer := r.config.Tools.Call(ctx, name, arguments, func(message string) {
			if steps++; steps > fullProgress && time.Since(last) < progressPause {
				return
			}
			last = time.Now()
			r.mail.post(toolProgressEvent{call, steps, message})
		})
		r.mail.post(toolAnsweredEvent{call, answer})
	})
	return true
}

type (
	toolProgressEvent struct {
		call    *call
		step    int
		message string
	}
	toolAnsweredEvent struct {
		call   *call
		answer ToolAnswer
	}
)

func (e toolProgressEvent) handle(r *Router) {
	if e.call.done || e.call.req.Token == nil {
		return
	}
	params := new(wire.Object)
	params.Set("progressToken", e.call.req.Token)
	params.Set("progress", []byte(wire.IntID(int64(e.step))))
	params.Set("message", wire.Quote(e.message))
	r.notify(e.call.client, noteProgress, params.Bytes())
}

func (e toolAnsweredEvent) handle(r *Router) {
	if !e.call.done {
		r.succeed(e.call, e.call.front.ToolResult(e.answer.Text, e.answer.IsError, e.answer.Structured))
	}
}

// memberString returns a member of an object that is a string.
func memberString(object []byte, key string) (string, bool) {
	o, err := wire.ParseObject(object)
	if err != nil {
		return "", false
	}
	return wire.String(o.Get(key))
}
