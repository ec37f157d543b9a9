package watch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxFiles bounds memory and the time of a look. Build output is a tenth
	// of that at most; what is larger is a path that was not meant.
	maxFiles = 100_000
	// maxDirectories keeps one project from using up the file watches of the
	// whole machine (8192 to some hundred thousand).
	maxDirectories = 10_000
	// maxLinks is how many links on the way to one path are followed, as in Linux.
	maxLinks = 40
)

// tree is the watched paths as they are on disk. Its examine is called from one
// goroutine at a time; classify may run beside it.
type tree struct {
	config  Config
	filter  filter
	hasher  hasher
	last    fingerprint
	marks   map[string]metadata // of the paths at the last look, for glance
	events  subscriptions       // nil while polling
	watched map[string]identity // the directories whose events come

	// mu guards the maps for single operations. A directory is in them before
	// its events are asked for, or the first of those would mean nothing.
	mu    sync.RWMutex
	dirs  map[string]place
	gates map[string]map[string]bool // directories on the way, and the names in them that lead on
}

// subscriptions are the directories whose events come; *fsnotify.Watcher outside of tests.
type subscriptions interface {
	Add(dir string) error
	Remove(dir string) error
	Close() error
}

// place is where a real directory stands in the configuration's view.
type place struct {
	path    string // as reached from the configured path, links and all
	watched string // the configured path
}

// identity tells a directory from another one of the same name. On Windows all
// are alike: to ask for more would take opening each. There a directory can be
// renamed only if none below it is watched; its watch goes with it, and nobody listens.
type identity struct{ inode, device uint64 }

func identityOf(dir string) (_ identity, ok bool) {
	info, err := os.Lstat(dir)
	if err != nil {
		return identity{}, false
	}
	meta := metadataOf(info)
	return identity{meta.inode, meta.device}, true
}

func newTree(config Config) *tree {
	return &tree{
		config: config, filter: newFilter(config), hasher: hasher{seed: maphash.MakeSeed()},
		watched: map[string]identity{}, dirs: map[string]place{}, gates: map[string]map[string]bool{},
	}
}

// open starts to receive events.
func (t *tree) open() (<-chan fsnotify.Event, <-chan error, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, err
	}
	t.events = events
	return events.Events, events.Errors, nil
}

// close ends the events; not to be called beside examine.
func (t *tree) close() {
	if t.events == nil {
		return
	}
	_ = t.events.Close()
	t.events, t.watched = nil, map[string]identity{}
}

// silent names the file system of the first path that is known to send no
// events, and that path.
func (t *tree) silent() (kind, path string) {
	for _, path := range t.config.Paths {
		if kind := silentFileSystem(existing(path)); kind != "" {
			return kind, path
		}
	}
	return "", ""
}

// existing is the nearest directory or file on the way to path that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		parent := filepath.Dir(path)
		if parent == path {
			return path
		}
		path = parent
	}
}

// classify says what an event is about.
func (t *tree) classify(event fsnotify.Event) class {
	const counts = fsnotify.Create | fsnotify.Write | fsnotify.Remove | fsnotify.Rename
	if event.Name == "" || event.Op&counts == 0 {
		return irrelevant // permissions and times
	}
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.gates[dir][name] {
		if event.Op&counts == fsnotify.Write {
			return content
		}
		return passage
	}
	_, isDir := t.dirs[event.Name]
	if isDir && event.Has(fsnotify.Rename) {
		return passage // what is below has moved with it
	}
	if in, ok := t.dirs[dir]; ok {
		if skips(name) || t.filter.ignored(filepath.Join(in.path, name), in.watched) {
			return irrelevant
		}
		if event.Has(fsnotify.Create) {
			return created
		}
		return content
	}
	if isDir {
		return content // a watched directory about itself
	}
	return irrelevant
}

// examine does a task.
func (t *tree) examine(ctx context.Context, task task) finding {
	switch {
	case task.look:
		return t.look(ctx)
	case task.survey:
		s := t.survey(ctx)
		return finding{grown: s.grown, limit: s.limit}
	case task.glance:
		return finding{disturbed: t.disturbed()}
	}
	return t.register(ctx, task.created)
}

// look finds out what is there, and reads what may have changed.
func (t *tree) look(ctx context.Context) finding {
	s := t.survey(ctx)
	t.hasher.complete(ctx, s.files, t.last)
	f := finding{
		look: true, limit: s.limit, notes: s.notes(), print: s.files,
		moved: t.last != nil && moved(t.last, s.files), entryMissing: t.entryMissing(),
	}
	t.last, t.marks = s.files, t.currentMarks()
	return f
}

// register watches new directories, and those in them, without waiting for the
// burst of events to end: what happens in them belongs to the burst.
func (t *tree) register(ctx context.Context, paths map[string]bool) finding {
	s := t.newSurvey(ctx)
	for path := range paths {
		t.mu.RLock()
		in, ok := t.dirs[filepath.Dir(path)]
		t.mu.RUnlock()
		if ok {
			s.entry(filepath.Dir(path), filepath.Base(path), in)
		}
	}
	return finding{grown: s.grown, limit: s.limit}
}

// survey walks everything, watches every directory and forgets those that are
// no more.
func (t *tree) survey(ctx context.Context) *survey {
	t.dropMoved()
	s := t.newSurvey(ctx)
	for _, path := range t.config.Paths {
		if real, ok := s.trace(path); ok {
			s.root(real, path)
		}
	}
	if entry := t.config.Entry; entry != "" && !t.watches(entry) {
		s.trace(entry)
	}
	if t.events != nil && s.limit == nil && ctx.Err() == nil {
		for dir := range t.watched {
			if _, inside := s.dirs[dir]; !inside && s.gates[dir] == nil {
				_ = t.events.Remove(dir)
				delete(t.watched, dir)
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirs, t.gates = s.dirs, s.gates
	return s
}

// dropMoved ends the watches of directories that were renamed. Such a watch goes
// with its directory but keeps the old name, and while it lasts neither the
// directory under its new name nor another one under the old can be watched.
func (t *tree) dropMoved() {
	if t.events == nil {
		return
	}
	for dir, was := range t.watched {
		if now, ok := identityOf(dir); !ok || now != was {
			_ = t.events.Remove(dir) // an error says that it was not watched any more
			delete(t.watched, dir)
		}
	}
}

// watches reports whether path lies below a watched one.
func (t *tree) watches(path string) bool {
	return slices.ContainsFunc(t.config.Paths, func(watched string) bool { return within(watched, path) })
}

// disturbed reports whether the paths themselves look otherwise than at the
// last look, whatever the events said.
func (t *tree) disturbed() bool {
	if t.marks == nil {
		return false
	}
	now := t.currentMarks()
	for path, mark := range t.marks {
		if now[path] != mark {
			return true
		}
	}
	return false
}

func (t *tree) currentMarks() map[string]metadata {
	marks := map[string]metadata{}
	for _, path := range append(slices.Clone(t.config.Paths), t.config.Entry) {
		if path == "" {
			continue
		}
		var mark metadata // zero: nothing there
		if info, err := os.Stat(path); err == nil {
			mark = metadataOf(info)
			// Permissions and the count of links change it without a change of content.
			mark.changed = 0
		}
		marks[path] = mark
	}
	return marks
}

func (t *tree) entryMissing() bool {
	if t.config.Entry == "" {
		return false
	}
	info, err := os.Stat(t.config.Entry)
	return err != nil || !info.Mode().IsRegular() || info.Size() == 0
}

// survey is one walk.
type survey struct {
	tree    *tree
	ctx     func() error // of the walk's context
	base    string       // the project's root without links
	files   fingerprint
	dirs    map[string]place
	gates   map[string]map[string]bool
	visited map[string]bool // real directories
	perRoot map[string]int  // directories below each watched path
	grown   bool            // a directory was found that was not watched
	full    bool            // maxFiles was reached
	closed  string          // a directory that may not be read
	limit   error           // events cannot be had for everything
}

func (t *tree) newSurvey(ctx context.Context) *survey {
	base, err := filepath.EvalSymlinks(t.config.Root)
	if err != nil {
		base = t.config.Root
	}
	return &survey{
		tree: t, ctx: ctx.Err, base: base, files: fingerprint{}, dirs: map[string]place{},
		gates: map[string]map[string]bool{}, visited: map[string]bool{}, perRoot: map[string]int{},
	}
}

func (s *survey) notes() []string {
	var notes []string
	if s.full {
		notes = append(notes, fmt.Sprintf("more than %d files below the watched paths; the rest is not looked at: "+
			"name narrower paths in [watch]", maxFiles))
	}
	if s.closed != "" {
		notes = append(notes, s.closed+" may not be read")
	}
	return notes
}

// trace finds the real place of a path, component by component, and notes each
// name that would lead elsewhere if it were made, removed, renamed or, being a
// link, pointed elsewhere. ok is false while something on the way is missing.
func (s *survey) trace(path string) (real string, ok bool) {
	links := 0
	return s.traceFrom(filepath.Clean(path), &links)
}

func (s *survey) traceFrom(path string, links *int) (string, bool) {
	at, names := s.start(path)
	for i, name := range names {
		s.gate(at, name)
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return "", false
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(next)
			if *links++; err != nil || *links > maxLinks {
				return "", false
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(at, target)
			}
			real, ok := s.traceFrom(filepath.Clean(target), links)
			if !ok {
				return "", false
			}
			next = real
		} else if !info.IsDir() && i < len(names)-1 {
			return "", false
		}
		at = next
	}
	return at, true
}

// start is where to begin to watch the way to path, and the names that remain:
// at the project, or else at the last directory before it that is there.
func (s *survey) start(path string) (dir string, names []string) {
	for _, root := range []string{s.tree.config.Root, s.base} {
		if path == root {
			return s.base, nil
		}
		if within(root, path) {
			return s.base, strings.Split(strings.TrimPrefix(path[len(root):], string(filepath.Separator)),
				string(filepath.Separator))
		}
	}
	parent := existing(filepath.Dir(path))
	rest, err := filepath.Rel(parent, path)
	if err != nil {
		return path, nil
	}
	if real, err := filepath.EvalSymlinks(parent); err == nil {
		parent = real
	}
	if rest == "." {
		return parent, nil // the root of the file system
	}
	return parent, strings.Split(rest, string(filepath.Separator))
}

// gate watches a name in a directory. To be called before looking at the name.
func (s *survey) gate(dir, name string) {
	s.tree.mu.Lock()
	addTo(s.gates, dir, name)
	addTo(s.tree.gates, dir, name)
	s.tree.mu.Unlock()
	s.watch(dir)
}

func addTo(gates map[string]map[string]bool, dir, name string) {
	if gates[dir] == nil {
		gates[dir] = map[string]bool{}
	}
	gates[dir][name] = true
}

// root walks what a watched path leads to.
func (s *survey) root(real, path string) {
	info, err := os.Stat(real)
	if err != nil {
		return
	}
	if info.IsDir() {
		s.directory(real, place{path: path, watched: path})
	} else if info.Mode().IsRegular() {
		s.file(path, fileState{meta: metadataOf(info), real: real})
	}
}

// directory watches one and then reads it, in this order: what is made between
// the two is seen twice rather than never.
func (s *survey) directory(real string, in place) {
	if s.visited[real] || s.full || s.ctx() != nil {
		return
	}
	s.visited[real] = true
	info, err := os.Lstat(real)
	if err != nil || !info.IsDir() {
		return
	}
	s.dirs[real] = in
	s.tree.mu.Lock()
	s.tree.dirs[real] = in
	s.tree.mu.Unlock()
	s.perRoot[in.watched]++
	s.watch(real)

	entries, err := readDir(real)
	if errors.Is(err, fs.ErrPermission) && s.closed == "" {
		s.closed = in.path
	}
	for _, entry := range entries {
		s.dirEntry(real, in, entry.Name(), entry.Type(), entry.Info)
	}
}

// entry looks at one name in a directory.
func (s *survey) entry(dir, name string, in place) {
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil {
		return
	}
	s.dirEntry(dir, in, name, info.Mode().Type(), func() (fs.FileInfo, error) { return info, nil })
}

func (s *survey) dirEntry(dir string, in place, name string, kind fs.FileMode, stat func() (fs.FileInfo, error)) {
	path := filepath.Join(in.path, name)
	if skips(name) || s.tree.filter.ignored(path, in.watched) {
		return
	}
	real := filepath.Join(dir, name)
	below := place{path: path, watched: in.watched}
	switch {
	case kind.IsDir():
		s.directory(real, below)
	case kind&fs.ModeSymlink != 0:
		s.link(real, below)
	case kind.IsRegular():
		if info, err := stat(); err == nil {
			s.file(path, fileState{meta: metadataOf(info), real: real})
		}
	}
}

func (s *survey) link(real string, in place) {
	info, err := os.Stat(real)
	if err != nil {
		if target, err := os.Readlink(real); err == nil {
			s.file(in.path, fileState{link: target})
		}
		return
	}
	if info.Mode().IsRegular() {
		s.file(in.path, fileState{meta: metadataOf(info), real: real})
		return
	}
	target, err := filepath.EvalSymlinks(real)
	if err != nil || !info.IsDir() || within(target, filepath.Dir(real)) || within(target, s.base) {
		return
	}
	s.directory(target, in)
}

func (s *survey) file(path string, state fileState) {
	if len(s.files) >= maxFiles {
		s.full = true
		return
	}
	s.files[path] = state
}

// watch asks for the events of one directory. To ask again for one that is
// watched is cheap, and the only sure way to watch the right one: a directory
// that was removed and made anew can have the name and the inode of the old.
func (s *survey) watch(dir string) {
	t := s.tree
	if t.events == nil || s.limit != nil {
		return
	}
	if len(s.dirs) > maxDirectories {
		s.limit = s.tooMany()
		return
	}
	id, ok := identityOf(dir)
	if !ok {
		return // gone meanwhile, which its parent tells
	}
	err := t.events.Add(dir)
	switch {
	case err == nil:
		_, known := t.watched[dir]
		t.watched[dir] = id
		s.grown = s.grown || !known
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrPermission):
		// Gone meanwhile, or closed to us.
	default:
		s.limit = errors.New(adviceFor(err))
	}
}

func (s *survey) tooMany() error {
	largest := ""
	for path, n := range s.perRoot {
		if largest == "" || n > s.perRoot[largest] {
			largest = path
		}
	}
	return fmt.Errorf("more than %d directories, most of them below %s: name narrower paths in [watch], or add to ignore",
		maxDirectories, s.display(largest))
}

func (s *survey) display(path string) string { return slashRel(s.tree.config.Root, path) }
