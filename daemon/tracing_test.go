package daemon

import (
	"strings"
	"testing"

	"github.com/debugmcp/devproxy/daemon/logs"
)

// A message that is cut shows no half of a secret.
func TestTracedFrame(t *testing.T) {
	const secret = "a-long-and-secret-value"
	mask := masking{masker: logs.NewMasker(map[string]string{"TOKEN": secret})}
	open := `{"x":"` + strings.Repeat("x", 100) + secret
	short := open + `"}`
	long := open + strings.Repeat("y", 2*beyondCut) + `"}`
	for _, frame := range []string{short, long} {
		for _, limit := range []int{0, 50, 110, 1000} {
			got := string(mask.frame([]byte(frame), limit))
			if strings.Contains(got, "a-l") || limit > 0 && len(got) > limit {
				t.Errorf("cut to %d: %d bytes, %.200s", limit, len(got), got)
			}
			if whole := masking.frame(masking{show: true}, []byte(frame), limit); limit == 0 && string(whole) != frame || limit > 0 && len(whole) > limit {
				t.Errorf("shown whole it has %d bytes at %d", len(whole), limit)
			}
		}
	}
	if got := string(mask.frame([]byte(`{"n":1.0,"password":"abcd"}`), 0)); got != `{"n":1.0,"password":"***"}` {
		t.Errorf("the message is %s", got)
	}
	if got := string(masking{show: true}.frame([]byte("日本"), 4)); got != "日" {
		t.Errorf("cut within a letter: %q", got)
	}
}
