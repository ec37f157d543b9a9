package era

import (
	"strings"

	"github.com/debugmcp/devproxy/internal/wire"
)

// Facts is what a server said of itself in a handshake.
type Facts struct {
	Era          Era
	Version      string   // negotiated
	Eras         []Era    // that it is known to offer
	Versions     []string // that it is known to offer
	Capabilities []byte   // raw object, nil where absent
	Info         []byte   // raw serverInfo, nil where absent
	Instructions []byte   // raw JSON string, nil where absent
	// Raw is the whole result of the handshake, nil where there was none. Clients of the same era get its
	// other members too.
	Raw []byte
}

// Superset is what is said in the place of a backend that was never seen: everything, as SDK clients never ask
// for what was not announced. What the backend then lacks is answered with an empty list or an error.
func Superset() Facts {
	return Facts{Capabilities: []byte(`{"tools":{"listChanged":true},` +
		`"resources":{"subscribe":true,"listChanged":true},` +
		`"prompts":{"listChanged":true},"completions":{},"logging":{}}`)}
}

// Has reports whether a capability was declared, by its dotted path, such as "tools" or "resources.subscribe".
func (f Facts) Has(capability string) bool { return declares(f.Capabilities, capability) }

// declares reads a dotted path: objects count as declared, and so does true.
func declares(capabilities []byte, path string) bool {
	raw := at(capabilities, strings.Split(path, ".")...)
	return isObject(raw) || string(raw) == "true"
}

// forClients returns the capabilities a front of era e shows. Lists always change here: devproxy itself sends
// list_changed whenever a backend comes up, and has tools of its own.
func (f Facts) forClients(e Era) []byte {
	caps := object(f.Capabilities)
	setListChanged(caps, "tools")
	for _, key := range []string{"prompts", "resources"} {
		if isObject(caps.Get(key)) {
			setListChanged(caps, key)
		}
	}
	if f.Era != e {
		hideTasks(caps)
	}
	return caps.Bytes()
}

func setListChanged(caps *wire.Object, key string) {
	list := object(caps.Get(key))
	if string(list.Get("listChanged")) != "true" {
		list.Set("listChanged", []byte("true"))
		caps.Set(key, list.Bytes())
	}
}

// hideTasks removes the tasks of both eras, whose shapes have nothing in common.
func hideTasks(caps *wire.Object) {
	caps.Delete("tasks")
	extensions := object(caps.Get("extensions"))
	extensions.Delete(TasksExtension)
	switch {
	case !extensions.Changed():
	case extensions.Len() == 0:
		caps.Delete("extensions")
	default:
		caps.Set("extensions", extensions.Bytes())
	}
}

// MetaFailure is the key in _meta of a tool result under which devproxy puts the data of a failure of its own.
const MetaFailure = "com.github.debugmcp.devproxy/failure"

// orUnknown returns a clientInfo or serverInfo that satisfies the schema of both eras, which demand a name and
// a version of everyone.
func orUnknown(info []byte) []byte {
	o := object(info)
	for _, field := range []struct{ key, otherwise string }{{"name", "unknown"}, {"version", "0.0.0"}} {
		if _, ok := wire.String(o.Get(field.key)); !ok {
			o.Set(field.key, wire.Quote(field.otherwise))
		}
	}
	return o.Bytes()
}
