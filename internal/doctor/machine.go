package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/port"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/watch"
)

// lookEvents: do the watched paths send events, and are there enough for them?
func lookEvents(ctx context.Context, f *facts) []Finding {
	w := f.config.Watch
	switch {
	case len(w.Paths) == 0:
		return one(Skipped, "nothing is watched")
	case w.Poll > 0:
		return one(OK, "not needed: devproxy looks every %s", w.Poll)
	}
	outlook := watch.Foresee(ctx, f.watching())
	if outlook.Silent != "" {
		return with(one(Warning, "%s is on a %s file system, which sends no events of changes made elsewhere; devproxy looks every few seconds instead", f.display(outlook.SilentPath), outlook.Silent),
			`say how often in [watch], such as poll = "1s", or build onto a local disk`)
	}
	use, known := inotifyUse(ctx)
	if !known {
		return one(OK, "%s to watch", count(outlook.Directories, "folder"))
	}
	use.need = outlook.Directories
	use.watching = f.status.GetWatch().GetMode() == "events"
	return judgeEvents(use)
}

// eventUse is how much of the kernel's events this user has, of what he may have.
type eventUse struct {
	maxWatches, maxInstances, watches, instances int
	// need is how many folders the project has to watch, and watching says that a
	// daemon does so already.
	need     int
	watching bool
}

// nearly is the part of a limit above which the next program may fail.
const nearly = 0.9

func judgeEvents(use eventUse) []Finding {
	watches, instances := use.watches, use.instances
	if !use.watching {
		watches, instances = watches+use.need, instances+1
	}
	told := fmt.Sprintf("%s to watch; of this user's %d watches %d are in use, of %d inotify instances %d",
		count(use.need, "folder"), use.maxWatches, use.watches, use.maxInstances, use.instances)
	raise := func(name string, now, enough int) string {
		return fmt.Sprintf("raise the limit: sudo sysctl fs.inotify.%s=%d; a line \"fs.inotify.%[1]s=%[2]d\" in /etc/sysctl.d/60-inotify.conf keeps it",
			name, max(enough, 2*now))
	}
	const enoughWatches, enoughInstances = 524288, 512
	state := OK
	over := func(used, limit int) bool {
		switch {
		case used > limit:
			state = Problem
		case float64(used) > nearly*float64(limit):
			state = Warning
		default:
			return false
		}
		return true
	}
	switch {
	case over(watches, use.maxWatches):
		return with(one(state, "%s", told), raise("max_user_watches", use.maxWatches, enoughWatches), "without events devproxy looks every few seconds")
	case over(instances, use.maxInstances):
		return with(one(state, "%s", told), raise("max_user_instances", use.maxInstances, enoughInstances), "without events devproxy looks every few seconds")
	}
	return one(OK, "%s", told)
}

// lookPort: is it free, or the backend's own?
func lookPort(ctx context.Context, f *facts) []Finding {
	b := f.config.Backend
	switch {
	case b.Transport == config.Stdio:
		return one(Skipped, "a server on standard input and output needs none")
	case b.Port == 0:
		return one(OK, "a free one at each start")
	case int(f.status.GetBackend().GetPort()) == b.Port && f.status.GetBackend().GetPid() != 0:
		return one(OK, "%d, which the backend has, pid %d", b.Port, f.status.GetBackend().GetPid())
	}
	if err := port.Check(ctx, b.Port); err != nil {
		return with(one(Problem, "%v", err), "end that process; or let devproxy choose: port = 0 of [backend], and {port} in command")
	}
	return one(OK, "%d is free", b.Port)
}

// lookPrograms: are the programs there, and of one build?
func lookPrograms(_ context.Context, f *facts) []Finding {
	const install = "install the three programs together, as \"make install\" does"
	const replace = `"devproxyd restart" replaces the daemon by the installed one; clients keep their connections`
	if f.status != nil {
		theirs := client.RunningBuild(f.status)
		err := client.CheckContract(f.Program, theirs)
		if other, ok := errors.AsType[*client.IncompatibleError](err); ok {
			remedy := install
			if other.TheirsIsOlder() {
				remedy = replace
			}
			return with(one(Problem, "%v", err), remedy)
		}
	}
	daemon, err := f.program("devproxyd")
	if err != nil {
		return with(one(Problem, "%v: no daemon can be started", err), install)
	}
	shim, err := f.program("devproxy-shim")
	if err != nil {
		return with(one(Problem, "%v: it is what clients start", err), install)
	}
	if f.status != nil {
		if skew := client.Skew(f.Program, client.RunningBuild(f.status)); skew != "" {
			return with(one(Warning, "%s", skew), replace)
		}
	}
	for _, path := range []string{daemon, shim} {
		if other := otherBuild(path); other != "" {
			return with(one(Warning, "%s is %s, and this is %s %s", path, other, f.Program.Program, f.Program.Version), install)
		}
	}
	if filepath.Dir(daemon) == filepath.Dir(shim) {
		return one(OK, "%s %s, with devproxyd and devproxy-shim in %s", f.Program.Program, f.Program.Version, filepath.Dir(daemon))
	}
	return one(OK, "%s %s, %s and %s", f.Program.Program, f.Program.Version, daemon, shim)
}

// lookState: is the state folder ours alone, and can sockets be made in it?
func lookState(_ context.Context, f *facts) []Finding {
	dir := f.Project.StateDir
	faults := f.Project.Faults()
	if len(faults) > 0 {
		found := one(Problem, "%v", faults[0])
		for _, fault := range faults[1:] {
			found[0].Details = append(found[0].Details, fault.Error())
		}
		found[0].Remedy = "no daemon starts before that is mended"
		if unsafe, ok := errors.AsType[*project.UnsafeError](faults[0]); ok {
			found[0].Summary = fmt.Sprintf("%s is not safe to use: %s", unsafe.Path, unsafe.Reason)
			found[0].Remedy = unsafe.Fix + "; " + found[0].Remedy
		}
		return found
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if above, writable := writableAbove(dir); !writable {
			return with(one(Problem, "%s cannot be made: you may not write to %s", dir, above), "mend its rights, or check HOME")
		}
		return one(OK, "%s is made by the first daemon", f.Host.Short(dir))
	}
	if !mayWrite(dir) {
		return with(one(Problem, "you may not write to %s", dir), "mend its rights, or look whether the disk is read-only")
	}
	if f.status == nil {
		if err := trySocket(dir); err != nil {
			return with(one(Problem, "the file system of %s takes no sockets: %v", dir, err), "name a socket elsewhere with --socket PATH or DEVPROXY_SOCKET, to all programs and clients")
		}
	}
	return one(OK, "%s, yours alone", f.Host.Short(dir))
}

// writableAbove finds the folder in which dir would be made, and whether it may be.
func writableAbove(dir string) (above string, writable bool) {
	for above = filepath.Dir(dir); ; above = filepath.Dir(above) {
		if _, err := os.Lstat(above); err == nil || above == filepath.Dir(above) {
			return above, mayWrite(above)
		}
	}
}

// trySocket makes a socket and removes it again. Its path is no longer than that of
// the daemon's.
func trySocket(dir string) error {
	path := filepath.Join(dir, ".probe.sock")
	l, err := net.Listen("unix", path)
	if err == nil {
		return l.Close() // which removes it
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || isUnsupported(err) {
		return err
	}
	return nil // one who looks at the same time has it, or the path is too long for it
}

// lookSocket: can the socket be reached, and is it ours?
func lookSocket(_ context.Context, f *facts) []Finding {
	socket, err := f.Project.Socket(f.Socket)
	if err != nil {
		return with(one(Problem, "%v", err), "choose another with --socket PATH or DEVPROXY_SOCKET, for all programs and clients")
	}
	if recorded := f.Project.RecordedSocket(); f.Socket == "" && recorded != "" {
		socket = recorded
	}
	if f.status != nil {
		socket = f.status.GetDaemon().GetSocket()
		if root := f.status.GetDaemon().GetProjectRoot(); root != f.Project.Root {
			return with(one(Problem, "the daemon at %s serves %s", socket, root), "check --socket and DEVPROXY_SOCKET")
		}
	}
	info, err := project.CheckSocket(socket)
	switch {
	case f.away:
		return one(Skipped, "%s, which the daemon is to make anew", f.Host.Short(socket))
	case errors.Is(err, fs.ErrNotExist):
		return one(OK, "%s, which a daemon makes", f.Host.Short(socket))
	case err != nil:
		if unsafe, ok := errors.AsType[*project.UnsafeError](err); ok {
			return with(one(Problem, "%s is not safe to use: %s", unsafe.Path, unsafe.Reason), unsafe.Fix)
		}
		return with(one(Problem, "%v", err), "see to it that you may reach it")
	case errors.Is(f.statusErr, client.ErrNoDaemon):
		return with(one(Warning, "%s was left behind by a daemon that was killed", socket), "nothing: the next daemon replaces it")
	case openToOthers(info):
		return with(one(Warning, "%s has mode %#o", socket, info.Mode().Perm()), "chmod 600 "+socket)
	}
	return one(OK, "%s", f.Host.Short(socket))
}

// words joins what is there.
func words(parts ...string) string {
	var there []string
	for _, part := range parts {
		if part != "" {
			there = append(there, part)
		}
	}
	return strings.Join(there, " ")
}
