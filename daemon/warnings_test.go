package daemon

import (
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/daemon/backend"
	"github.com/debugmcp/devproxy/daemon/logs"
)

func TestWarnings(t *testing.T) {
	var heard noise
	heard.heard(1, "old")
	heard.heard(2, "hello\xff")
	heard.heard(2, "again")
	loud := func(v *view) { v.noise, v.firstNoise = heard.of(2) }
	deaf := func(v *view) {
		v.backend.Transport, v.backend.LastExit = backend.Stdio, &backend.Exit{Generation: 1, Deaf: true}
	}
	hides := func(v *view) { v.hidden = []string{"dev_restart", "dev_logs"} }
	for name, test := range map[string]struct {
		make func(*view)
		want string // empty for no warning
	}{
		"quiet": {func(*view) {}, ""},
		"noise": {loud, "2 lines on its stdout are no protocol, the first: hello\uFFFD; write them to stderr"},
		"deaf":  {deaf, "generation 1 did not end when its input was closed"},
		"hides": {hides, "hide devproxy's: dev_restart, dev_logs; to have both set tool_prefix"},
		"hid": {func(v *view) {
			hides(v)
			v.backend.State = backend.Failed
		}, ""},
		"noise of another": {func(v *view) {
			v.noise, v.firstNoise = heard.of(1)
		}, ""},
		"never ran": {func(v *view) {
			loud(v)
			deaf(v)
			hides(v)
			v.backend.NeverRan = true
		}, ""},
	} {
		v := view{mask: masking{masker: logs.NewMasker()}}
		v.backend.State, v.backend.Generation = backend.Running, 2
		test.make(&v)
		var got []string
		for _, w := range v.warnings() {
			got = append(got, w.text+"; "+w.advice)
		}
		if text := strings.Join(got, "\n"); (text == "") != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}
