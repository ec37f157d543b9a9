package project

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

// ConfigName is the name of the file that makes a folder a project.
const ConfigName = "devproxy.toml"

// hashBytes is how much of the SHA-256 names a project: 64 bits keep the socket
// path short and make an accidental clash of two projects of one user a matter
// of billions of projects.
const hashBytes = 8

// ErrNotFound is what every *NotFoundError is.
var ErrNotFound = errors.New("no " + ConfigName)

// NotFoundError says that no folder from Dir upwards is a project.
type NotFoundError struct {
	// Dir is where the search began, or the only folder that was looked at.
	Dir string
	// Looked lists the folders that were looked at, innermost first.
	Looked []string
	// Missing says that Dir itself is not there; nil if it is.
	Missing error
}

// Error names the folders that were looked at.
func (e *NotFoundError) Error() string {
	if e.Missing != nil {
		return "there is no folder " + e.Dir
	}
	if len(e.Looked) <= 1 {
		return fmt.Sprintf("no %s in %s", ConfigName, e.Dir)
	}
	return fmt.Sprintf("no %s in %s or any folder above it (looked in %s)",
		ConfigName, e.Dir, strings.Join(e.Looked, ", "))
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// Unwrap returns Missing.
func (e *NotFoundError) Unwrap() error { return e.Missing }

// Project is one project of this user. The zero value is none.
type Project struct {
	// Root is the canonical path of the project's folder; of a folder that is
	// mounted at several paths the one at which it was used first.
	Root string
	// Hash names the project in paths: 16 hexadecimal digits of the SHA-256 of
	// Root.
	Hash string
	// StateDir is the folder that holds the project's state, outside of it. It
	// may not exist yet: see EnsureDirs.
	StateDir string
}

// Find returns the project that dir lies in: dir itself or the nearest folder
// above it that holds a devproxy.toml. The error is a *NotFoundError when there
// is none.
func Find(dir string) (Project, error) {
	start, err := canonical(dir)
	if err != nil {
		return Project{}, fmt.Errorf("looking for %s: %w", ConfigName, err)
	}
	var looked []string
	for folder := start; ; folder = filepath.Dir(folder) {
		looked = append(looked, folder)
		found, err := hasConfig(folder)
		if err != nil {
			return Project{}, fmt.Errorf("looking for %s: %w", ConfigName, err)
		}
		if found {
			return known(folder)
		}
		if folder == filepath.Dir(folder) {
			return Project{}, &NotFoundError{Dir: start, Looked: looked}
		}
	}
}

// At returns the project whose folder is root. The folder must exist, or have
// existed when a daemon served it: if it did not, the error is a *NotFoundError.
// Whether it holds a devproxy.toml is not asked; see HasConfig. So a daemon whose
// file or folder was removed can still be talked to.
func At(root string) (Project, error) {
	folder, err := canonical(root)
	if err == nil {
		return known(folder)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if p, found := removed(root); found {
			return p, nil
		}
		return Project{}, &NotFoundError{Dir: root, Missing: err}
	}
	return Project{}, fmt.Errorf("finding the project folder: %w", err)
}

// removed returns the project whose folder was root, if it left its state.
func removed(root string) (Project, bool) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return Project{}, false
	}
	above, err := canonical(filepath.Dir(abs))
	if err != nil {
		return Project{}, false
	}
	p, err := fromCanonical(filepath.Join(above, filepath.Base(abs)))
	if err != nil {
		return Project{}, false
	}
	_, err = os.Stat(p.RootFile())
	return p, err == nil
}

// HasConfig returns nil if the project's devproxy.toml is there, and a
// *NotFoundError if it is not.
func (p Project) HasConfig() error {
	found, err := hasConfig(p.Root)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", ConfigName, err)
	}
	if !found {
		return &NotFoundError{Dir: p.Root, Looked: []string{p.Root}}
	}
	return nil
}

func fromCanonical(root string) (Project, error) {
	base, err := stateBase()
	if err != nil {
		return Project{}, err
	}
	sum := sha256.Sum256([]byte(root))
	hash := hex.EncodeToString(sum[:hashBytes])
	return Project{Root: root, Hash: hash, StateDir: filepath.Join(base, hash)}, nil
}

// canonical returns the one path of the folder dir.
func canonical(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	path, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	path = spelling(path)
	if !utf8.ValidString(path) {
		// Messages between the programs are UTF-8, and so is what people read.
		return "", &fs.PathError{Op: "open", Path: strconv.Quote(path), Err: errNotUTF8}
	}
	return path, nil
}

var errNotUTF8 = errors.New("the path of a project must be UTF-8")

func hasConfig(folder string) (bool, error) {
	info, err := os.Stat(filepath.Join(folder, ConfigName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return !info.IsDir(), nil
}

// Config is the path of the project's devproxy.toml.
func (p Project) Config() string { return filepath.Join(p.Root, ConfigName) }

// Lock is the file whose lock makes a process the daemon of this project. It
// is never removed: a removed lock file can be locked by two.
func (p Project) Lock() string { return filepath.Join(p.StateDir, "lock") }

// StartLock is the file whose lock a client holds while it starts a daemon, so
// that clients that arrive together start one instead of one each.
func (p Project) StartLock() string { return filepath.Join(p.StateDir, "start.lock") }

// SocketFile holds the path of the socket that the daemon serves.
func (p Project) SocketFile() string { return filepath.Join(p.StateDir, "socket.path") }

// PIDFile holds the process id of the daemon, for messages only.
func (p Project) PIDFile() string { return filepath.Join(p.StateDir, "daemon.pid") }

// DaemonPID is the process id in PIDFile, 0 if there is none. The process may be
// gone, and be another one by now.
func (p Project) DaemonPID() int {
	note, err := os.ReadFile(p.PIDFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(note)))
	if err != nil {
		return 0
	}
	return pid
}

// rootName and folderName are the names of RootFile and FolderFile.
const (
	rootName   = "root"
	folderName = "folder"
)

// RootFile holds Root, so that state folders can be told apart and listed.
func (p Project) RootFile() string { return filepath.Join(p.StateDir, rootName) }

// FolderFile holds what the system calls the folder at Root, where it says so.
func (p Project) FolderFile() string { return filepath.Join(p.StateDir, folderName) }

// Record holds the identity of the running backend process.
func (p Project) Record() string { return filepath.Join(p.StateDir, "backend.json") }

// BuildWatchRecord holds the identity of the running build watcher.
func (p Project) BuildWatchRecord() string { return filepath.Join(p.StateDir, "build-watch.json") }

// Snapshot holds what the backend said of itself in its last handshakes.
func (p Project) Snapshot() string { return filepath.Join(p.StateDir, "snapshot.json") }

// Environment holds the environment that the daemon was started with.
func (p Project) Environment() string { return filepath.Join(p.StateDir, "environment.json") }

// Overrides holds the environment overrides of the last restart.
func (p Project) Overrides() string { return filepath.Join(p.StateDir, "overrides.json") }

// TerminalPath holds the PATH of the last start from a terminal.
func (p Project) TerminalPath() string { return filepath.Join(p.StateDir, "terminal-path.json") }

// DaemonLog is the log of the daemon.
func (p Project) DaemonLog() string { return filepath.Join(p.StateDir, "daemon.log") }

// StartLog holds what a daemon that was started in the background wrote to its
// stdout and stderr: why a start failed, or the trace of a crash.
func (p Project) StartLog() string { return filepath.Join(p.StateDir, "start.log") }

// files are all of these that a daemon or a client makes itself.
func (p Project) files() []string {
	return []string{
		p.Lock(), p.StartLock(), p.SocketFile(), p.PIDFile(), p.RootFile(), p.FolderFile(),
		p.Record(), p.BuildWatchRecord(), p.Snapshot(), p.Environment(), p.Overrides(), p.TerminalPath(), p.DaemonLog(), p.StartLog(),
	}
}
