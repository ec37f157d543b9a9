package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/clients"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/rewrite"
)

// place is a file of clients.
type place struct {
	client clients.Client
	// names are those of the clients that share it.
	names []string
	scope clients.Scope
	path  string
}

// places are the files that clients read on this machine, each once.
func (f *facts) places() []place {
	var all []place
	for _, c := range clients.All() {
		for _, scope := range []clients.Scope{clients.Project, clients.User} {
			path := c.Path(f.Host, scope)
			if path == "" {
				continue
			}
			if i := slices.IndexFunc(all, func(p place) bool { return p.path == path }); i >= 0 {
				all[i].names = append(all[i].names, c.ID)
				continue
			}
			all = append(all, place{c, []string{c.ID}, scope, path})
		}
	}
	return all
}

// lookClients: who starts the shim of this project, and could he?
func lookClients(_ context.Context, f *facts) []Finding {
	var found []Finding
	registered := false
	for _, at := range f.places() {
		some, is := f.lookAt(at)
		registered = registered || is
		found = append(found, some...)
	}
	if !registered {
		found = append(found, Finding{
			State: Warning, Summary: "no client starts the shim of this project",
			Remedy: `"devproxyctl register" lists the clients; name yours to have it start the shim`,
		})
	}
	return found
}

func (f *facts) lookAt(at place) (found []Finding, registered bool) {
	tell := func(state State, remedy, summary string, args ...any) {
		found = append(found, Finding{
			Check: "client", State: state, Remedy: remedy,
			Summary: strings.Join(at.names, ", ") + ": " + fmt.Sprintf(summary, args...),
		})
	}
	broken := Warning // others' matter, unless it is this project's
	if at.scope == clients.Project {
		broken = Problem
	}
	file, err := rewrite.Open(at.path)
	if err != nil {
		tell(broken, "see to it that you may read it", "%v", err)
		return found, false
	}
	if !file.Exists {
		return nil, false
	}
	servers, err := at.client.Servers(file.Content)
	if err != nil {
		remedy := "mend the file: a client that cannot read it has none of the servers in it"
		if syntax, ok := errors.AsType[*clients.SyntaxError](err); !ok || syntax.Line == 0 {
			remedy = "mend the file"
		}
		tell(broken, remedy, "%s: %v", at.path, err)
		return found, false
	}
	for _, server := range servers {
		again := fmt.Sprintf("\"devproxyctl register %s --scope %s --name %s\" writes it anew", at.client.ID, at.scope, server.Name)
		root, isShim := server.IsShim()
		switch {
		case isShim && server.Serves(f.Project.Root):
			registered = true
			if why := f.unstartable(server); why != "" {
				tell(Problem, again, "entry %q of %s starts %s, %s", server.Name, at.path, server.Command, why)
				continue
			}
			path, _ := process.LookPath(server.Command, process.SearchPath(f.Environ), f.Project.Root)
			if other := otherBuild(path); other != "" {
				tell(Warning, again+", and a restart of the client takes it", "entry %q of %s starts %s, which is %s", server.Name, at.path, server.Command, other)
				continue
			}
			tell(OK, "", "entry %q of %s", server.Name, at.path)
			if path != filepath.Clean(server.Command) {
				found[len(found)-1].Details = []string{fmt.Sprintf("%s is %s in this terminal's PATH; that of a client may be shorter", server.Command, path)}
			}
		case isShim && at.scope == clients.Project && root != "":
			tell(Warning, "take the entry out, or give it this project's folder", "entry %q of %s starts the shim of %s, not of this project", server.Name, at.path, root)
		case isShim && at.scope == clients.Project:
			registered = true
			tell(OK, "", "entry %q of %s, for the project that the client is started in", server.Name, at.path)
		case !isShim && at.scope == clients.Project && f.config != nil && server.Starts(f.config.Backend.Command, f.config.DeriveEntry(), f.Project.Root):
			tell(Warning, fmt.Sprintf("\"devproxyctl register %s --name %s --force\" puts the shim in its place", at.client.ID, server.Name),
				"entry %q of %s starts the server itself, past devproxy", server.Name, at.path)
		}
	}
	return found, registered
}

// unstartable says why the client could not start the entry; empty if it could.
func (f *facts) unstartable(server clients.Server) string {
	_, err := process.LookPath(server.Command, process.SearchPath(f.Environ), f.Project.Root)
	if err == nil {
		return ""
	}
	if _, there := os.Stat(server.Command); there == nil {
		return "which is no program that can be run"
	}
	if filepath.Base(server.Command) == server.Command {
		return "which is not in PATH"
	}
	return "which is not there"
}
