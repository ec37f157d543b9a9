package daemon

import (
	"log/slog"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/daemon/build"
	"github.com/debugmcp/devproxy/daemon/devtools"
	"github.com/debugmcp/devproxy/daemon/logs"
	"github.com/debugmcp/devproxy/internal/process"
)

// ledger is a file of the state folder that tells the next daemon of the build
// watcher.
type ledger struct {
	file string
	log  *slog.Logger
}

// Read implements build.Ledger.
func (l ledger) Read() (process.Identity, bool) { return readKept[process.Identity](l.file, l.log) }

// Write implements build.Ledger.
func (l ledger) Write(identity process.Identity) error { return keep(l.file, identity) }

// Remove implements build.Ledger.
func (l ledger) Remove() error { return forget(l.file) }

func (d *daemon) newKeeper() *build.Keeper {
	return build.NewKeeper(build.KeeperConfig{
		Spec:   d.launcher.buildWatch,
		Ledger: ledger{file: d.options.Project.BuildWatchRecord(), log: d.log},
		Output: func(line string) { d.buffer.Append(logs.Entry{Source: logs.Build, Stream: "watch", Text: line}) },
		Logger: d.log,
	})
}

// buildWatchToProto is nil where no build watcher is wanted.
func (v view) buildWatchToProto() *devproxyv1.BuildWatch {
	w := v.buildWatch
	if w.Command == "" && w.Message == "" {
		return nil
	}
	return &devproxyv1.BuildWatch{
		Command: v.mask.text(w.Command), Pid: int64(w.PID), StartTime: toTime(w.StartedAt), Restarts: uint32(w.Restarts),
		Message: v.mask.text(w.Message), Tail: v.mask.texts(w.Tail),
	}
}

// buildWatchToDevtools is the same for dev_server_status.
func (v view) buildWatchToDevtools() *devtools.BuildWatch {
	w := v.buildWatch
	if w.Command == "" && w.Message == "" {
		return nil
	}
	return &devtools.BuildWatch{
		Command: v.mask.text(w.Command), PID: w.PID, Restarts: w.Restarts, Message: v.mask.text(w.Message),
		Tail: v.mask.texts(w.Tail),
	}
}
