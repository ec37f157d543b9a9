//go:build unix

package project

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// nobody is a uid that is not ours.
const nobody = 65534

func TestUnsetHomeIsLookedUp(t *testing.T) {
	root := newProject(t)
	for _, home := range []string{"", "relative"} {
		t.Setenv("HOME", home)
		p, err := At(root)
		if err != nil {
			t.Fatalf("HOME=%q: %v", home, err)
		}
		if !filepath.IsAbs(p.StateDir) || strings.Contains(p.StateDir, "relative") {
			t.Errorf("HOME=%q: state in %s", home, p.StateDir)
		}
	}
}

func TestDeepHomeGetsAShortSocket(t *testing.T) {
	root := newProject(t)
	setHome(t, filepath.Join(t.TempDir(), strings.Repeat("d", 200)))
	p, err := At(root)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := p.Socket("")
	if err != nil {
		t.Fatal(err)
	}
	want := "/tmp/devproxy-" + strconv.Itoa(os.Getuid()) + "/" + p.Hash + ".sock"
	if socket != want {
		t.Errorf("socket %s, want %s", socket, want)
	}
	if err := p.EnsureDirs(); err != nil {
		t.Errorf("a deep home: %v", err)
	}
}

// A path of exactly maxSocketPath bytes binds and one more does not: the
// constant is the system's own.
func TestSocketLimitIsTheSystems(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	fits := dir + "/" + strings.Repeat("s", maxSocketPath-len(dir)-1)
	listener, err := net.Listen("unix", fits)
	if err != nil {
		t.Fatalf("%d bytes do not bind: %v", len(fits), err)
	}
	_ = listener.Close()
	if listener, err = net.Listen("unix", fits+"s"); err == nil {
		_ = listener.Close()
		t.Errorf("%d bytes bind", len(fits)+1)
	}
}

func TestPathThatIsNoTextIsRefused(t *testing.T) {
	setHome(t, t.TempDir())
	dir := filepath.Join(t.TempDir(), "a\xff")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skipf("this system has no such names: %v", err)
	}
	for name, find := range map[string]func(string) (Project, error){"At": At, "Find": Find} {
		if _, err := find(dir); !errors.Is(err, errNotUTF8) || !strings.Contains(err.Error(), `a\xff`) {
			t.Errorf("%s = %v, want an error that names the path", name, err)
		}
	}
}

func TestUmaskDoesNotMatter(t *testing.T) {
	p, err := At(newProject(t))
	if err != nil {
		t.Fatal(err)
	}
	// Parents come with the umask, so they exist before it gets odd.
	mkdir(t, filepath.Dir(filepath.Dir(p.StateDir)))
	old := syscall.Umask(0o277)
	defer syscall.Umask(old)
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(p.RootFile())
	if err != nil || info.Mode().Perm() != privateFile {
		t.Errorf("root file: %v, %v", info.Mode(), err)
	}
}

func TestUnsafeFoldersAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(t *testing.T, dir string)
		reason string
	}{
		{"open to the group", func(t *testing.T, dir string) {
			t.Helper()
			mkdir(t, dir)
			if err := os.Chmod(dir, 0o750); err != nil {
				t.Fatal(err)
			}
		}, "0750"},
		{"symbolic link", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Symlink(mkdir(t, t.TempDir()), dir); err != nil {
				t.Fatal(err)
			}
		}, "a symbolic link"},
		{"plain file", func(t *testing.T, dir string) {
			t.Helper()
			writeFile(t, dir)
		}, "a plain file"},
		{"somebody else's", func(t *testing.T, dir string) {
			t.Helper()
			mkdir(t, dir)
			if err := os.Chown(dir, nobody, -1); err != nil {
				t.Skip("needs root:", err)
			}
		}, "belongs to uid 65534"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := newProject(t)
			p, err := At(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{p.StateDir, filepath.Dir(p.StateDir)} {
				if err := os.RemoveAll(filepath.Dir(p.StateDir)); err != nil {
					t.Fatal(err)
				}
				mkdir(t, filepath.Dir(dir))
				test.spoil(t, dir)
				for what, err := range map[string]error{
					"EnsureDirs":      p.EnsureDirs(),
					"EnsureSocketDir": EnsureSocketDir(filepath.Join(dir, "s")),
				} {
					unsafe, ok := errors.AsType[*UnsafeError](err)
					if !ok || unsafe.Path != dir || !strings.Contains(err.Error(), test.reason) {
						t.Errorf("%s(%s) = %v, want an *UnsafeError with %q", what, dir, err, test.reason)
					}
				}
			}
		})
	}
}

// A file that somebody else could have written, or can read, is not used, be it
// one that only messages are made of.
func TestUnsafeFilesAreRefused(t *testing.T) {
	p, err := At(newProject(t))
	if err == nil {
		err = p.EnsureDirs()
	}
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside)
	for _, path := range p.files() {
		for reason, spoil := range map[string]func() error{
			"a symbolic link": func() error { return errors.Join(os.Remove(path), os.Symlink(outside, path)) },
			"a folder":        func() error { return errors.Join(os.Remove(path), os.Mkdir(path, privateDir)) },
			"a special file":  func() error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
			"0640, not 0600":  func() error { return os.Chmod(path, 0o640) },
			"uid 65534":       func() error { return os.Chown(path, nobody, -1) },
		} {
			writeFile(t, path)
			if err := spoil(); err != nil {
				if reason == "uid 65534" && os.Getuid() != 0 {
					continue
				}
				t.Fatal(err)
			}
			err := p.EnsureDirs()
			unsafe, ok := errors.AsType[*UnsafeError](err)
			if !ok || unsafe.Path != path || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s that is %s: %v", filepath.Base(path), reason, err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	// One that its own user cannot write closes nobody out but him.
	writeFile(t, p.Lock())
	if err := errors.Join(os.Chmod(p.Lock(), 0o400), p.EnsureDirs()); err != nil {
		t.Errorf("a lock file of mode 0400: %v", err)
	}
	if content, err := os.ReadFile(outside); err != nil || len(content) != 0 {
		t.Errorf("behind the links is %q, %v", content, err)
	}
}

func TestCheckSocket(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	if _, err := CheckSocket(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there gives %v", err)
	}
	writeFile(t, path+".file")
	if _, err := CheckSocket(path + ".file"); !isUnsafe(err) {
		t.Errorf("a plain file gives %v", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if _, err := CheckSocket(path); err != nil {
		t.Errorf("our socket gives %v", err)
	}
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckSocket(path + ".link"); !isUnsafe(err) {
		t.Errorf("a link to a socket gives %v", err)
	}
	if os.Chown(path, nobody, -1) == nil {
		if _, err := CheckSocket(path); !isUnsafe(err) {
			t.Errorf("somebody else's socket gives %v", err)
		}
	}
}

func isUnsafe(err error) bool {
	_, ok := errors.AsType[*UnsafeError](err)
	return ok
}

func TestWriteFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	// A folder in the way makes the rename fail.
	blocked := mkdir(t, filepath.Join(dir, "d", "x"))
	if err := WriteFile(filepath.Dir(blocked), []byte("new")); err == nil {
		t.Fatal("a folder was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != privateFile {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
