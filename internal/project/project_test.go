package project

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newProject returns the canonical path of a fresh project folder, with HOME
// set to a fresh folder too.
func newProject(t *testing.T) string {
	t.Helper()
	setHome(t, t.TempDir())
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, ConfigName))
	return root
}

func setHome(t *testing.T, home string) {
	t.Helper()
	t.Setenv("HOME", home)
	t.Setenv("LOCALAPPDATA", home)
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindLooksUpwards(t *testing.T) {
	root := newProject(t)
	deep := mkdir(t, filepath.Join(root, "a", "b"))
	// A folder of that name is no configuration.
	mkdir(t, filepath.Join(root, "a", ConfigName))
	for _, dir := range []string{root, filepath.Join(root, "a"), deep} {
		p, err := Find(dir)
		if err != nil {
			t.Fatalf("Find(%s): %v", dir, err)
		}
		if p.Root != root || len(p.Hash) != 2*hashBytes || filepath.Base(p.StateDir) != p.Hash {
			t.Errorf("Find(%s) = %+v, want root %s", dir, p, root)
		}
	}
}

func TestTheNearestConfigWins(t *testing.T) {
	root := newProject(t)
	inner := mkdir(t, filepath.Join(root, "packages", "inner"))
	writeFile(t, filepath.Join(inner, ConfigName))
	p, err := Find(inner)
	if err != nil || p.Root != inner {
		t.Fatalf("Find = %+v, %v; want %s", p, err, inner)
	}
}

func TestTwoPathsToOneProjectAreOne(t *testing.T) {
	root := newProject(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Skip("no symbolic links:", err)
	}
	direct, err := Find(root)
	if err != nil {
		t.Fatal(err)
	}
	deep := mkdir(t, filepath.Join(root, "a", "b"))
	t.Chdir(root)
	for _, dir := range []string{
		link, link + "/.", link + "/", ".", "a/..", root + "//", root + "/a/../", deep + "/../..", link + "/a/b/../..",
	} {
		for _, find := range []func(string) (Project, error){Find, At} {
			if p, err := find(dir); err != nil || p != direct {
				t.Errorf("%s: %+v, %v; want %+v", dir, p, err, direct)
			}
		}
	}
}

// Where names are told apart without regard to case, so are projects.
func TestCaseOfTheFileSystem(t *testing.T) {
	root := newProject(t)
	name := mkdir(t, filepath.Join(root, "MiXed"))
	other := filepath.Join(root, "mIxED")
	a, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.Stat(other); err != nil || !os.SameFile(a, b) {
		t.Skip("this file system tells names apart by case")
	}
	first, err := At(name)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := At(other); err != nil || second != first {
		t.Errorf("%+v, %v; want %+v", second, err, first)
	}
}

func TestNotFoundNamesWhereItLooked(t *testing.T) {
	setHome(t, t.TempDir())
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Find(dir)
	missing, ok := errors.AsType[*NotFoundError](err)
	if !ok || !errors.Is(err, ErrNotFound) {
		t.Fatalf("Find = %v, want a *NotFoundError", err)
	}
	if missing.Looked[0] != dir || !slices.Contains(missing.Looked, filepath.Dir(dir)) {
		t.Errorf("looked in %v, want %s and the folders above", missing.Looked, dir)
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), ConfigName) {
		t.Errorf("the error %q does not name the file and the folder", err)
	}
	p, err := At(dir)
	if err != nil {
		t.Fatalf("At must not need a %s: %v", ConfigName, err)
	}
	if err := p.HasConfig(); !errors.Is(err, ErrNotFound) {
		t.Errorf("HasConfig = %v, want ErrNotFound", err)
	}
}

func TestMissingFolderIsAnError(t *testing.T) {
	root := newProject(t)
	gone := filepath.Join(root, "gone")
	if _, err := At(gone); !errors.Is(err, ErrNotFound) || err.Error() != "there is no folder "+gone {
		t.Errorf("At = %v, want ErrNotFound, which names the folder", err)
	}
	for _, find := range []func(string) (Project, error){Find, At} {
		if _, err := find(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing folder gives %v", err)
		}
		if _, err := find(filepath.Join(root, ConfigName)); err == nil {
			t.Error("a file passes for a folder")
		}
	}
}

// A daemon whose project was removed can still be named, and only such a one.
func TestAtFindsRemovedProjectByItsState(t *testing.T) {
	root := newProject(t)
	before, err := At(root)
	if err == nil {
		err = errors.Join(before.EnsureDirs(), os.RemoveAll(root))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := At(root); err != nil || got != before {
		t.Errorf("At = %+v, %v; want %+v", got, err, before)
	}
	for _, other := range []string{root + "x", filepath.Join(root, "below")} {
		if p, err := At(other); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("At(%s) = %+v, %v; want that it does not exist", other, p, err)
		}
	}
}

func TestStateFollowsFromHomeAlone(t *testing.T) {
	root := newProject(t)
	before, err := At(root)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := before.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"} {
		t.Setenv(name, t.TempDir())
	}
	after, err := At(root)
	if err != nil || after != before {
		t.Errorf("with XDG and TMPDIR set: %+v, %v; want %+v", after, err, before)
	}
	if again, err := after.Socket(""); err != nil || again != socket {
		t.Errorf("the socket moved from %s to %s (%v)", socket, again, err)
	}
}

func TestEnsureDirsIsIdempotentAndNotesTheRoot(t *testing.T) {
	p, err := At(newProject(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.EnsureDirs(); err != nil {
			t.Fatal(err)
		}
	}
	note, err := os.ReadFile(p.RootFile())
	if err != nil || string(note) != p.Root+"\n" {
		t.Errorf("the root file holds %q, %v", note, err)
	}
	entries, err := os.ReadDir(p.StateDir)
	if err != nil || len(entries) > 2 {
		t.Errorf("the state folder holds %v, %v; want the notes of the folder alone", entries, err)
	}
}

func TestRecordedSocket(t *testing.T) {
	p, err := At(newProject(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.RecordedSocket(); got != "" {
		t.Errorf("recorded %q before any daemon", got)
	}
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{"/run/a b.sock", "/run/c.sock"} {
		if err := p.RecordSocket(socket); err != nil {
			t.Fatal(err)
		}
		if got := p.RecordedSocket(); got != socket {
			t.Errorf("recorded %q, read %q", socket, got)
		}
	}
}

func TestSocketOverride(t *testing.T) {
	p, err := At(newProject(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Socket("x.sock")
	if want := filepath.Join(cwd, "x.sock"); err != nil || got != want {
		t.Errorf("Socket = %s, %v; want %s", got, err, want)
	}
	_, err = p.Socket("/" + strings.Repeat("x", maxSocketPath))
	long, ok := errors.AsType[*SocketPathError](err)
	if !ok || long.Limit != maxSocketPath {
		t.Errorf("a path that is too long gives %v", err)
	}
}

func TestAll(t *testing.T) {
	root := newProject(t)
	if all, err := All(); err != nil || len(all) != 0 {
		t.Errorf("before anything was used: %v, %v", all, err)
	}
	a, err := At(root)
	if err != nil {
		t.Fatal(err)
	}
	b, err := At(mkdir(t, filepath.Join(root, "z")))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Project{b, a} {
		if err := p.EnsureDirs(); err != nil {
			t.Fatal(err)
		}
	}
	// Neither a folder of somebody else nor a copy of ours is a project.
	mkdir(t, filepath.Join(filepath.Dir(a.StateDir), "other"))
	copied := mkdir(t, filepath.Join(filepath.Dir(a.StateDir), "copied"))
	if err := os.WriteFile(filepath.Join(copied, rootName), []byte(a.Root+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// One whose folder is gone still has its state.
	if err := os.Remove(b.Root); err != nil {
		t.Fatal(err)
	}
	if all, err := All(); err != nil || !slices.Equal(all, []Project{a, b}) {
		t.Errorf("all projects are %v, %v, want %v", all, err, []Project{a, b})
	}
}
