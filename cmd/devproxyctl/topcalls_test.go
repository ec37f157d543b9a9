package main

import (
	"io"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/debugmcp/devproxy/api/client"
)

// An answer that was missed is known of also where the status stays as it is.
func TestMissedAnswersWithTheSameStatus(t *testing.T) {
	status := &client.Status{Sessions: []*client.Session{{Id: 1}}}
	at := now.Add(-time.Second)
	m := &topModel{}
	m.now = func() time.Time { return at }
	p := newTopPrinter(io.Discard, io.Discard)
	missing := said(0, 1, "c", `{"method":"x"}`)
	missing.entry.Lost = 1
	for _, msg := range []tea.Msg{said(time.Second, 1, "c", toolCall(1, "x")), missing, statusMsg{status}} {
		m.Update(msg)
		p.take(msg, at)
	}
	at = now.Add(time.Minute)
	m.Update(loadMsg{})
	p.take(loadMsg{}, at)
	for name, c := range map[string]*calls{"top": &m.calls, "top --json": &p.calls} {
		if len(c.all) != 1 || c.all[0].outcome != callUnseen {
			t.Errorf("%s: %d calls, the first is %q", name, len(c.all), c.all[0].outcome)
		}
	}
}
