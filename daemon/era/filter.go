package era

import "github.com/debugmcp/devproxy/internal/wire"

// Filter is what a subscriptions/listen asks for.
type Filter struct {
	Tools, Prompts, Resources bool // list changes
	URIs                      []string
	Unknown                   []wire.Member // as sent, such as the taskIds of the tasks extension
}
