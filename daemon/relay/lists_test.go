package relay

import (
	"slices"
	"testing"
)

// A backend that hides a dev tool is told of once, not with every list.
func TestHiddenToolsAreNewsOnce(t *testing.T) {
	tools := newDevTools(testTools{})
	page := []byte(`{"tools":[{"name":"dev_status"},{"name":"other"}]}`)
	if news := tools.note(page, true); !slices.Equal(news, []string{"dev_status"}) {
		t.Errorf("news = %q", news)
	}
	if hidden := tools.hidden(); !slices.Equal(hidden, []string{"dev_status"}) {
		t.Errorf("hidden are %q", hidden)
	}
	if news := tools.note(page, true); news != nil {
		t.Errorf("the second list is news: %q", news)
	}
	if tools.has("dev_status") || !tools.has("dev_slow") || len(tools.free()) != 0 {
		t.Error("a name that the backend has is still ours, or another one is not")
	}
	if tools.note([]byte(`{"tools":[]}`), true); !tools.has("dev_status") || tools.hidden() != nil {
		t.Error("a name that the backend gave up is still its own")
	}
}
