package relay

import (
	"testing"
	"testing/synctest"
)

// Some clients hold on to a list, whatever they are told of changes: status says
// whose tools each has.
func TestListedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		listed := func() uint64 { return w.router.Snapshot()[0].Listed }
		w.run(`
			attach A
			A> ${INIT}
			A< $*
			up legacy shared ${TOOLS}
			A> {"jsonrpc":"2.0","id":1,"method":"prompts/list"}
			A< $*`)
		if got := listed(); got != 0 {
			t.Errorf("before its first list it has the tools of generation %d", got)
		}
		w.run(`
			A> {"jsonrpc":"2.0","id":2,"method":"tools/list"}
			L1< $*
			L1> {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}
			A< $*
			down backend-restarted x
			up legacy shared ${TOOLS}`)
		if got := listed(); got != 1 {
			t.Errorf("after a restart it has the tools of generation %d, want 1", got)
		}
		w.run(`
			A> {"jsonrpc":"2.0","id":3,"method":"tools/list"}
			L2< $*
			L2> {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}
			A< $*`)
		if got := listed(); got != 2 {
			t.Errorf("after it asked again it has the tools of generation %d, want 2", got)
		}
	})
}
