package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
)

// deadline is far below the time after which a glance would find what an event
// did not tell, and far above what a busy machine needs.
const deadline = 10 * time.Second

// project is a project on disk with a running watcher.
type project struct {
	t    *testing.T
	root string
	tree *tree
	*Watcher
}

// watchProject runs a watcher on a new project. Paths in config are relative.
// prepare makes the files that are there from the start.
func watchProject(t *testing.T, config Config, prepare func(*project)) *project {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &project{t: t, root: root}
	if prepare != nil {
		prepare(p)
	}
	config.Root = root
	if config.Paths == nil {
		config.Paths = []string{"dist"}
	}
	config.Paths = slices.Clone(config.Paths)
	for i, path := range config.Paths {
		config.Paths[i] = p.path(path)
	}
	if config.Entry != "" {
		config.Entry = p.path(config.Entry)
	}
	if config.Settle == 0 {
		config.Settle = 30 * time.Millisecond
	}
	w, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	p.Watcher, p.tree = w, w.ground.(*tree)

	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel(nil)
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	if _, err := w.Baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
	if mode := w.Status().Mode; mode != Events && config.Poll == 0 {
		t.Fatalf("no events here: %s", w.Status().Problem)
	}
	return p
}

func (p *project) path(name string) string { return filepath.Join(p.root, filepath.FromSlash(name)) }

func (p *project) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) write(name, text string) {
	p.t.Helper()
	path := p.path(name)
	p.must(os.MkdirAll(filepath.Dir(path), 0o755))
	p.must(os.WriteFile(path, []byte(text), 0o644))
}

func (p *project) mkdir(name string)  { p.t.Helper(); p.must(os.MkdirAll(p.path(name), 0o755)) }
func (p *project) remove(name string) { p.t.Helper(); p.must(os.RemoveAll(p.path(name))) }
func (p *project) rename(a, b string) { p.t.Helper(); p.must(os.Rename(p.path(a), p.path(b))) }
func (p *project) link(target, name string) {
	p.t.Helper()
	p.must(os.MkdirAll(filepath.Dir(p.path(name)), 0o755))
	if err := os.Symlink(filepath.FromSlash(target), p.path(name)); err != nil {
		if runtime.GOOS == "windows" {
			p.t.Skipf("links need a privilege: %v", err)
		}
		p.t.Fatal(err)
	}
}

// relink points a link elsewhere in one step.
func (p *project) relink(target, name string) {
	p.t.Helper()
	p.link(target, name+".new")
	p.rename(name+".new", name)
}

// atOnce makes several steps one change, however slow the machine is.
func (p *project) atOnce(steps func()) {
	p.t.Helper()
	defer p.Hold()()
	steps()
}

// awaitChange collects changes until they are exactly those of the given files.
func (p *project) awaitChange(want ...string) {
	p.t.Helper()
	slices.Sort(want)
	got := map[string]bool{}
	timeout := time.After(deadline)
	for {
		names := slices.Sorted(keysOf(got))
		if slices.Equal(names, want) {
			return
		}
		select {
		case change := <-p.Changes():
			for _, path := range change.Paths {
				rel, err := filepath.Rel(p.root, path)
				p.must(err)
				got[filepath.ToSlash(rel)] = true
			}
		case <-timeout:
			p.t.Fatalf("changed files (-want +got):\n%sstatus %+v", cmp.Diff(want, names), p.Status())
		}
	}
}

func keysOf(set map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range set {
			if !yield(key) {
				return
			}
		}
	}
}

// awaitOnly makes a change and waits for it: what was done before it must not
// have been one, though its events have come by then.
func (p *project) awaitOnly(name string) {
	p.t.Helper()
	p.write(name, unique())
	p.awaitChange(name)
}

func TestFiles(t *testing.T) {
	p := watchProject(t, Config{}, func(p *project) {
		p.write("dist/index.js", "1")
		p.write("dist/lib/a.js", "1")
		p.write("src/index.ts", "1")
	})
	p.write("dist/index.js", "2")
	p.awaitChange("dist/index.js")

	p.write("dist/lib/b.js", "1")
	p.awaitChange("dist/lib/b.js")

	p.remove("dist/lib/a.js")
	p.awaitChange("dist/lib/a.js")

	p.atOnce(func() { // as editors and bundlers save
		p.write("dist/lib/c.tmp", "1")
		p.rename("dist/lib/c.tmp", "dist/index.js")
	})
	p.awaitChange("dist/index.js")

	p.write("dist/new/and/deep/x.js", "1")
	p.awaitChange("dist/new/and/deep/x.js")
	p.write("dist/new/and/deep/x.js", "2")
	p.awaitChange("dist/new/and/deep/x.js")

	p.rename("dist/new", "dist/renamed")
	p.awaitChange("dist/new/and/deep/x.js", "dist/renamed/and/deep/x.js")
	p.write("dist/renamed/and/deep/x.js", "3")
	p.awaitChange("dist/renamed/and/deep/x.js")

	p.write("src/index.ts", "2")
	p.awaitOnly("dist/index.js")
	if status := p.Status(); status.Files != 3 || status.LastChanged != p.path("dist/index.js") || status.Problem != "" {
		t.Errorf("status %+v", status)
	}
}

func TestNoChange(t *testing.T) {
	p := watchProject(t, Config{Ignore: []string{"**/*.map", "logs/"}}, func(p *project) {
		p.write("dist/index.js", "1")
		p.write("dist/run.sh", "1")
	})
	p.must(os.Chmod(p.path("dist/run.sh"), 0o700))
	p.must(os.Chtimes(p.path("dist/index.js"), time.Unix(1, 0), time.Unix(2, 0)))
	p.write("dist/index.js", "1")
	p.write("dist/index.js.map", "1")
	p.write("dist/logs/today", "1")
	p.write("dist/node_modules/x/index.js", "1")
	p.write("dist/.git/HEAD", "1")
	p.write("dist/__pycache__/x.pyc", "1")
	p.mkdir("dist/empty")
	p.write("distant.js", "1")
	p.awaitOnly("dist/other.js")
	if files := p.Status().Files; files != 3 {
		t.Errorf("%d files, want 3", files)
	}
}

func TestRecreation(t *testing.T) {
	fill := func(p *project, text string) {
		p.write("dist/index.js", text)
		p.write("dist/lib/deep/a.js", text)
	}
	p := watchProject(t, Config{}, func(p *project) { fill(p, "1") })
	for i := range 20 { // often: a directory made anew can get the inode of the old one
		p.atOnce(func() {
			p.remove("dist")
			fill(p, fmt.Sprint("build ", i))
		})
		p.awaitChange("dist/index.js", "dist/lib/deep/a.js")
		p.awaitOnly("dist/lib/deep/a.js")
		p.write("dist/lib/deep/a.js", fmt.Sprint("build ", i))
		p.awaitChange("dist/lib/deep/a.js")
	}
	p.atOnce(func() {
		p.remove("dist")
		fill(p, "build 19")
	})
	p.awaitOnly("dist/new.js")
}

func TestNestedRecreation(t *testing.T) {
	p := watchProject(t, Config{}, func(p *project) { p.write("dist/a/b/c/x.js", "0") })
	for i := range 20 {
		p.atOnce(func() {
			p.remove("dist/a/b")
			p.write("dist/a/b/c/x.js", fmt.Sprint("build ", i))
		})
		p.awaitChange("dist/a/b/c/x.js")
		p.awaitOnly("dist/a/b/c/x.js")
	}
}

func TestAppearing(t *testing.T) {
	p := watchProject(t, Config{Paths: []string{"packages/server/dist", "dist"}}, nil)
	p.write("packages/server/src/index.ts", "1")
	p.write("packages/server/dist/index.js", "1")
	p.awaitChange("packages/server/dist/index.js")
	p.write("dist/lib/index.js", "1")
	p.awaitChange("dist/lib/index.js")
	p.awaitOnly("dist/lib/index.js")

	p.remove("packages")
	p.awaitChange("packages/server/dist/index.js")
	p.write("packages/server/dist/index.js", "2")
	p.awaitChange("packages/server/dist/index.js")

	p.atOnce(func() { // the whole way moves, and a new one is put in its place
		p.rename("packages", "old")
		p.write("packages/server/dist/index.js", "3")
	})
	p.awaitChange("packages/server/dist/index.js")
	p.write("old/server/dist/index.js", "4")
	p.awaitOnly("packages/server/dist/index.js")
}

func TestAtomicRename(t *testing.T) {
	p := watchProject(t, Config{}, func(p *project) {
		p.write("dist/index.js", "1")
		p.write("dist/lib/a.js", "1")
	})
	for i := range 5 {
		p.write("dist.tmp/index.js", fmt.Sprint("build ", i))
		p.write("dist.tmp/lib/a.js", "1")
		p.atOnce(func() {
			p.rename("dist", fmt.Sprint("dist.old", i))
			p.rename("dist.tmp", "dist")
		})
		p.awaitChange("dist/index.js")

		p.write("dist/lib/b.js", fmt.Sprint(i))
		p.awaitChange("dist/lib/b.js")
		p.write(fmt.Sprintf("dist.old%d/lib/a.js", i), "2")
		p.awaitOnly("dist/index.js")
		p.remove("dist/lib/b.js")
		p.awaitChange("dist/lib/b.js")
	}
	for _, dir := range p.watchList() {
		if strings.Contains(dir, "dist.old") {
			t.Errorf("%s is watched still", dir)
		}
	}
}

func TestLinkedRoot(t *testing.T) {
	p := watchProject(t, Config{Entry: "dist/index.js"}, func(p *project) {
		p.write("releases/v1/index.js", "1")
		p.write("releases/v1/lib/a.js", "1")
		p.write("releases/v2/index.js", "2")
		p.write("releases/v2/lib/a.js", "1")
		p.link("releases/current", "dist")
		p.link("v1", "releases/current")
	})
	if files := p.Status().Files; files != 2 {
		t.Fatalf("%d files behind the links", files)
	}
	p.relink("v2", "releases/current")
	p.awaitChange("dist/index.js")

	p.write("releases/v2/lib/a.js", "2")
	p.awaitChange("dist/lib/a.js")
	p.write("releases/v1/lib/a.js", "3")
	p.write("releases/v2/index.js", "3")
	p.awaitChange("dist/index.js")

	p.atOnce(func() { // what the link leads to is made anew
		p.remove("releases/v2")
		p.write("releases/v2/index.js", "4")
	})
	p.awaitChange("dist/index.js", "dist/lib/a.js")

	p.atOnce(func() {
		p.relink("elsewhere", "dist")
		p.write("elsewhere/index.js", "5")
	})
	p.awaitChange("dist/index.js")
}

func TestLinkBeyondProject(t *testing.T) {
	outside := t.TempDir()
	p := watchProject(t, Config{}, func(p *project) { p.link(filepath.Join(outside, "build", "out"), "dist") })
	p.must(os.MkdirAll(filepath.Join(outside, "build", "out"), 0o755))
	p.Recheck() // only the last directory that was there is watched outside of the project
	p.must(os.WriteFile(filepath.Join(outside, "build", "out", "x.js"), nil, 0o644))
	p.awaitChange("dist/x.js")
	p.must(os.RemoveAll(filepath.Join(outside, "build", "out")))
	p.awaitChange("dist/x.js")
}

func TestLinksInside(t *testing.T) {
	p := watchProject(t, Config{}, func(p *project) {
		p.write("assets/logo.svg", "1")
		p.write("shared/util.js", "1")
		p.write("dist/index.js", "1")
		p.link("../assets", "dist/assets")
		p.link("../shared/util.js", "dist/util.js")
		p.link(".", "dist/self")
		p.link("../..", "dist/up")
		p.link("../dist", "dist/again")
		p.link("gone", "dist/broken")
	})
	if files := p.Status().Files; files != 4 {
		t.Errorf("%d files, want index.js, util.js, broken and assets/logo.svg", files)
	}
	p.write("assets/logo.svg", "2")
	p.awaitChange("dist/assets/logo.svg")
	p.write("shared/util.js", "2") // told by no event
	p.Recheck()
	p.awaitChange("dist/util.js")
	p.relink("also-gone", "dist/broken")
	p.awaitChange("dist/broken")
	p.relink("../shared", "dist/assets")
	p.awaitChange("dist/assets/logo.svg", "dist/assets/util.js")
	p.write("shared/more.js", "1")
	p.awaitChange("dist/assets/more.js")
}

func TestWatchedFile(t *testing.T) {
	p := watchProject(t, Config{Paths: []string{"server.js", "lib/app.js"}}, func(p *project) {
		p.write("server.js", "1")
	})
	p.write("server.js", "2")
	p.awaitChange("server.js")
	p.atOnce(func() {
		p.write("server.js.tmp", "3")
		p.rename("server.js.tmp", "server.js")
	})
	p.awaitChange("server.js")
	p.write("lib/app.js", "1")
	p.awaitChange("lib/app.js")
	p.write("lib/other.js", "1")
	p.awaitOnly("lib/app.js")
	p.remove("server.js")
	p.awaitChange("server.js")
}

func TestWholeProject(t *testing.T) {
	p := watchProject(t, Config{Paths: []string{"."}}, func(p *project) {
		p.write("main.py", "1")
		p.write(".git/HEAD", "1")
		p.write("node_modules/x/index.js", "1")
	})
	if files := p.Status().Files; files != 1 {
		t.Errorf("%d files", files)
	}
	p.write(".git/HEAD", "2")
	p.write("node_modules/x/index.js", "2")
	p.awaitOnly("lib/x.py")
}

func TestEntryFile(t *testing.T) {
	for _, entry := range []string{"dist/main.js", "build/ready"} {
		t.Run(entry, func(t *testing.T) {
			p := watchProject(t, Config{Entry: entry}, func(p *project) { p.write(entry, "1") })
			p.remove(filepath.Dir(entry))
			p.write("dist/lib.js", "1")
			p.awaitEntryMissing(true)
			missing, err := p.Baseline(t.Context())
			if missing != p.path(entry) || err != nil {
				t.Errorf("missing %q, %v", missing, err)
			}
			p.write(entry, "") // created, not yet written
			missing, err = p.Baseline(t.Context())
			if missing != p.path(entry) || err != nil {
				t.Errorf("empty: missing %q, %v", missing, err)
			}
			p.write(entry, "1")
			select {
			case change := <-p.Changes():
				if p.Status().EntryMissing {
					t.Errorf("change %+v, status %+v", change, p.Status())
				}
			case <-time.After(deadline):
				t.Fatalf("no change when the file came; status %+v", p.Status())
			}
			if missing, err := p.Baseline(t.Context()); missing != "" || err != nil {
				t.Errorf("missing %q, %v", missing, err)
			}
		})
	}
}

func (p *project) awaitEntryMissing(want bool) {
	p.t.Helper()
	for end := time.Now().Add(deadline); p.Status().EntryMissing != want; {
		if time.Now().After(end) {
			p.t.Fatalf("status %+v", p.Status())
		}
		runtime.Gosched()
	}
}

func TestPollingFiles(t *testing.T) {
	p := watchProject(t, Config{Poll: 50 * time.Millisecond, Entry: "dist/index.js"}, nil)
	p.write("dist/index.js", "1")
	p.awaitChange("dist/index.js")
	p.atOnce(func() {
		p.remove("dist")
		p.write("dist/index.js", "2")
	})
	p.awaitChange("dist/index.js")
	p.must(os.Chtimes(p.path("dist/index.js"), time.Unix(1, 0), time.Unix(2, 0)))
	p.awaitOnly("dist/lib/a.js")
	if status := p.Status(); status.Mode != Polling || status.Problem != "" {
		t.Errorf("status %+v", status)
	}
}

// TestSoak makes a mess at random, and then checks that no watch was lost in it.
func TestSoak(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open directories cannot be moved there")
	}
	p := watchProject(t, Config{Paths: []string{"packages/a/dist", "dist"}, Settle: 10 * time.Millisecond}, nil)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dirs := []string{"packages", "packages/a", "packages/a/dist", "dist", "dist/x", "dist/x/y", "dist/x/y/z", "spare"}
	pick := func() string { return dirs[random.IntN(len(dirs))] }
	for range 150 {
		for range 1 + random.IntN(6) {
			switch random.IntN(4) {
			case 0:
				_ = os.RemoveAll(p.path(pick()))
			case 1:
				_ = os.Rename(p.path(pick()), p.path(pick()))
			default:
				_ = os.MkdirAll(p.path(pick()), 0o755)
			}
		}
		for _, name := range []string{"dist/x/y/z/mark", "packages/a/dist/mark"} {
			p.write(name, unique())
			p.awaitMention(name)
			p.write(name, unique())
			p.awaitMention(name)
		}
	}
}

func (p *project) awaitMention(name string) {
	p.t.Helper()
	timeout := time.After(deadline)
	for {
		select {
		case change := <-p.Changes():
			if slices.Contains(change.Paths, p.path(name)) {
				return
			}
		case <-timeout:
			p.t.Fatalf("no change names %s; status %+v, watched %q", name, p.Status(), p.watchList())
		}
	}
}

// fillTree makes n files of a few hundred bytes, a hundred in each directory.
func fillTree(tb testing.TB, root string, n int) {
	tb.Helper()
	text := strings.Repeat("export const x = 1;\n", 20)
	for i := range n {
		dir := filepath.Join(root, fmt.Sprintf("pkg%d", i/1000), fmt.Sprintf("dir%d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				tb.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d.js", i)), []byte(text+fmt.Sprint(i)), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestLargeTree(t *testing.T) {
	const n = 2000
	p := watchProject(t, Config{}, func(p *project) { fillTree(p.t, p.path("dist"), n) })
	if files := p.Status().Files; files != n {
		t.Fatalf("%d files", files)
	}
	p.awaitOnly("dist/pkg1/dir19/new.js")

	// Everything has been at rest for a while: only what is written is read.
	time.Sleep(freshFor)
	p.awaitOnly("dist/pkg0/dir3/file301.js")
	before := p.tree.hasher.read.Load()
	p.awaitOnly("dist/pkg1/dir12/file1201.js")
	if read := p.tree.hasher.read.Load() - before; read > 3 {
		t.Errorf("read %d files for a change of one", read)
	}

	p.atOnce(func() {
		p.remove("dist")
		fillTree(t, p.path("dist"), n)
	})
	p.awaitChange("dist/pkg0/dir3/file301.js", "dist/pkg1/dir12/file1201.js", "dist/pkg1/dir19/new.js")
}

// Twenty thousand files are what there is where node_modules is bundled into dist.
func TestTwentyThousandFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 20,000 files")
	}
	const n = 20_000
	p := watchProject(t, Config{}, func(p *project) { fillTree(p.t, p.path("dist"), n) })
	if files := p.Status().Files; files != n {
		t.Fatalf("%d files", files)
	}
	began := time.Now()
	p.awaitOnly("dist/pkg0/dir3/file301.js")
	t.Logf("one change among %d files took %v", n, time.Since(began))

	// A build that makes all of it anew, in place of the old, and the last file last.
	p.mkdir("next")
	fillTree(t, p.path("next/dist"), n)
	p.write("next/dist/last.js", "1")
	began = time.Now()
	p.atOnce(func() {
		p.remove("dist")
		p.rename("next/dist", "dist")
	})
	p.awaitChange("dist/last.js", "dist/pkg0/dir3/file301.js")
	t.Logf("all of them anew took %v", time.Since(began))
	p.awaitOnly("dist/pkg1/dir12/file1201.js")
	if status := p.Status(); status.Mode != Events || status.Problem != "" || status.Files != n+1 {
		t.Errorf("the status is %+v", status)
	}
}

func TestSameBuildOfLargeTree(t *testing.T) {
	p := watchProject(t, Config{}, func(p *project) { fillTree(p.t, p.path("dist"), 2000) })
	p.atOnce(func() {
		p.remove("dist")
		fillTree(t, p.path("dist"), 2000)
	})
	p.awaitOnly("dist/pkg0/dir7/marker.js")
}

func TestManyDirectories(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 10,000 directories")
	}
	p := watchProject(t, Config{Paths: []string{"dist", "small"}}, nil)
	for i := range maxDirectories {
		p.mkdir(fmt.Sprintf("dist/%d/%d", i/100, i%100))
	}
	p.write("small/x", "1")
	p.awaitChange("small/x")
	for end := time.Now().Add(deadline); p.Status().Mode != Polling; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("status %+v", p.Status())
		}
	}
	if problem := p.Status().Problem; !strings.Contains(problem, "more than 10000 directories, most of them below dist") {
		t.Errorf("problem %q", problem)
	}
	p.write("small/x", "2")
	p.awaitChange("small/x")
}

// fullSubscriptions are those of a system whose limit is reached.
type fullSubscriptions struct{ err error }

func (s fullSubscriptions) Add(string) error  { return &fs.PathError{Op: "add", Path: "x", Err: s.err} }
func (fullSubscriptions) Remove(string) error { return nil }
func (fullSubscriptions) Close() error        { return nil }

func TestLimitReached(t *testing.T) {
	root := t.TempDir()
	tree := newTree(Config{Root: root, Paths: []string{filepath.Join(root, "dist")}})
	tree.events = fullSubscriptions{syscall.ENOSPC}
	limit := tree.examine(t.Context(), task{look: true}).limit
	if limit == nil {
		t.Fatal("no limit is told")
	}
	if runtime.GOOS == "linux" && !strings.Contains(limit.Error(), "sudo sysctl fs.inotify.max_user_watches=") {
		t.Errorf("advice %q", limit)
	}
	for _, err := range []error{fs.ErrNotExist, fs.ErrPermission} {
		tree.events = fullSubscriptions{err}
		if limit := tree.examine(t.Context(), task{look: true}).limit; limit != nil {
			t.Errorf("%v counts as a limit: %v", err, limit)
		}
	}
}

func TestFileLimit(t *testing.T) {
	root := t.TempDir()
	s := newTree(Config{Root: root}).newSurvey(t.Context())
	for i := range maxFiles + 1 {
		s.file(fmt.Sprint(i), fileState{})
	}
	if len(s.files) != maxFiles || len(s.notes()) != 1 || !strings.Contains(s.notes()[0], "more than 100000 files") {
		t.Errorf("%d files, notes %q", len(s.files), s.notes())
	}
}

func TestClosedDirectory(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("nothing is closed to this user")
	}
	p := watchProject(t, Config{}, func(p *project) {
		p.write("dist/secret/x", "1")
		p.must(os.Chmod(p.path("dist/secret"), 0))
	})
	defer func() { _ = os.Chmod(p.path("dist/secret"), 0o700) }()
	if problem := p.Status().Problem; !strings.Contains(problem, "may not be read") {
		t.Errorf("problem %q", problem)
	}
}

func TestClassify(t *testing.T) {
	p := watchProject(t, Config{Paths: []string{"a/dist"}, Ignore: []string{"*.map"}, Entry: "ready"}, func(p *project) {
		p.write("a/dist/lib/x.js", "1")
	})
	tests := []struct {
		name string
		op   fsnotify.Op
		want class
	}{
		{"a/dist/lib/x.js", fsnotify.Write, content},
		{"a/dist/lib/x.js", fsnotify.Chmod, irrelevant},
		{"a/dist/lib/x.js", fsnotify.Chmod | fsnotify.Write, content},
		{"a/dist/lib/y.js", fsnotify.Create, created},
		{"a/dist/lib/x.js", fsnotify.Remove, content},
		{"a/dist/lib/x.js", fsnotify.Rename, content},
		{"a/dist/lib", fsnotify.Remove, content},
		{"a/dist/x.js.map", fsnotify.Create, irrelevant},
		{"a/dist/node_modules", fsnotify.Create, irrelevant},
		{"a/dist", fsnotify.Create, passage},
		{"a/dist", fsnotify.Remove, passage},
		{"a", fsnotify.Rename, passage},
		{"a/dist/lib", fsnotify.Rename, passage},
		{"ready", fsnotify.Create, passage},
		{"ready", fsnotify.Write, content},
		{"a/src", fsnotify.Create, irrelevant},
		{"b", fsnotify.Create, irrelevant},
		{"a/dist/unwatched/x", fsnotify.Write, irrelevant},
	}
	for _, test := range tests {
		if got := p.tree.classify(fsnotify.Event{Name: p.path(test.name), Op: test.op}); got != test.want {
			t.Errorf("%s %s: class %d, want %d", test.op, test.name, got, test.want)
		}
	}
	if got := p.tree.classify(fsnotify.Event{}); got != irrelevant {
		t.Errorf("an empty event: class %d", got)
	}
}

func TestFreshFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	tree := newTree(Config{Root: dir, Paths: []string{dir}})
	stamp := time.Now()
	look := func(text string, at time.Time) fingerprint {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return tree.look(t.Context()).print
	}
	// The same size and time; only the content tells them apart.
	if paths := difference(look("one", stamp), look("two", stamp)); len(paths) != 1 {
		t.Errorf("changed: %q", paths)
	}

	tests := []struct {
		meta metadata
		age  time.Duration
		want bool
	}{
		{metadata{modified: 123}, 50 * time.Millisecond, true},
		{metadata{modified: 123}, 150 * time.Millisecond, false},
		{metadata{modified: 1, changed: 123}, 50 * time.Millisecond, true},
		{metadata{modified: int64(time.Second)}, time.Second, true}, // whole seconds
		{metadata{modified: int64(time.Second)}, 3 * time.Second, false},
		{metadata{modified: 123}, -time.Hour, true}, // another machine's clock
	}
	for _, test := range tests {
		now := time.Unix(0, max(test.meta.modified, test.meta.changed)).Add(test.age)
		if got := isFresh(test.meta, now); got != test.want {
			t.Errorf("%+v after %v: %v", test.meta, test.age, got)
		}
	}
}

func TestHugeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "data")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxHashed+1); err != nil {
		t.Skipf("no room for a sparse file: %v", err)
	}
	tree := newTree(Config{Root: dir, Paths: []string{dir}})
	first := tree.look(t.Context()).print
	if read := tree.hasher.read.Load(); read != 0 {
		t.Errorf("read %d files", read)
	}
	if err := os.Chtimes(path, time.Unix(5, 0), time.Unix(5, 0)); err != nil {
		t.Fatal(err)
	}
	if paths := difference(first, tree.look(t.Context()).print); len(paths) != 1 {
		t.Errorf("changed: %q", paths)
	}
}

func TestNew(t *testing.T) {
	root := t.TempDir()
	tests := []struct {
		name   string
		config Config
	}{
		{"relative root", Config{Root: "x"}},
		{"relative path", Config{Root: root, Paths: []string{"dist"}}},
		{"relative entry", Config{Root: root, Entry: "dist/x"}},
		{"bad pattern", Config{Root: root, Ignore: []string{"a["}}},
	}
	for _, test := range tests {
		if _, err := New(test.config); err == nil {
			t.Errorf("%s: accepted", test.name)
		}
	}
	w, err := New(Config{Root: root, Entry: filepath.Join(root, "x"), Paths: []string{root}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if _, err := w.Baseline(ctx); err == nil || err.Error() != "gone" {
		t.Errorf("Baseline without Run: %v", err)
	}
	want := Status{Paths: []string{root}, Mode: Events, Entry: filepath.Join(root, "x")}
	if diff := cmp.Diff(want, w.Status()); diff != "" {
		t.Errorf("first status (-want +got):\n%s", diff)
	}
}

func BenchmarkLook(b *testing.B) {
	dir := b.TempDir()
	fillTree(b, dir, 20_000)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			newTree(Config{Root: dir, Paths: []string{dir}}).look(b.Context())
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		tree := newTree(Config{Root: dir, Paths: []string{dir}})
		tree.look(b.Context())
		for b.Loop() {
			tree.look(b.Context())
		}
	})
	b.Run("unchanged, watched", func(b *testing.B) {
		tree := newTree(Config{Root: dir, Paths: []string{dir}})
		events, _, err := tree.open()
		if err != nil {
			b.Fatal(err)
		}
		defer tree.close()
		go func() {
			for range events {
			}
		}()
		tree.look(b.Context())
		for b.Loop() {
			tree.look(b.Context())
		}
	})
}

func unique() string { return fmt.Sprint(rand.Uint64()) }

func (p *project) watchList() []string { return p.tree.events.(*fsnotify.Watcher).WatchList() }

// askingSubscriptions ask, as soon as a directory is watched, what an event in
// it would be held for.
type askingSubscriptions struct {
	fullSubscriptions
	added func(dir string)
}

func (s askingSubscriptions) Add(dir string) error { s.added(dir); return nil }

func TestFirstEventsCount(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &project{t: t, root: root}
	p.write("pkg/dist/lib/x.js", "1")
	tree := newTree(Config{Root: root, Paths: []string{p.path("pkg/dist")}, Entry: p.path("run/ready")})
	next := map[string]string{"": "pkg", "pkg": "dist", "pkg/dist": "new.js", "pkg/dist/lib": "new.js"}
	asked := map[string]bool{}
	tree.events = askingSubscriptions{added: func(dir string) {
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(dir, root), string(filepath.Separator)))
		asked[rel] = true
		event := fsnotify.Event{Name: filepath.Join(dir, next[rel]), Op: fsnotify.Create}
		if tree.classify(event) == irrelevant {
			t.Errorf("while %q is looked at, the event %s would be lost", rel, event)
		}
	}}
	tree.look(t.Context())
	for dir := range next {
		if !asked[dir] {
			t.Errorf("%q is not watched", dir)
		}
	}
}
