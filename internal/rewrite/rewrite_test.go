package rewrite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func open(t *testing.T, path string) *File {
	t.Helper()
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, content)
	}
	if runtime.GOOS == "windows" || mode == 0 {
		return
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
		t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, mode)
	}
}

func wantNames(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names) {
		t.Fatalf("%s holds %v, %v; want %v", dir, entries, err, names)
	}
	for i, entry := range entries {
		if entry.Name() != names[i] {
			t.Errorf("%s holds %v; want %v", dir, entries, names)
		}
	}
}

func TestExistingFileKeepsModeAndBackup(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o664, 0o444} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f.json")
		write(t, path, "old", mode)
		before := "old"
		for _, step := range []struct{ content, backup string }{
			{"new", ""}, {"newer", "-2"}, {"old", "-3"}, {"newest", ""}, // what was kept is not kept again
		} {
			file := open(t, path)
			backup, err := file.Write([]byte(step.content), 0o644)
			if err != nil || backup != file.Path+BackupSuffix+step.backup {
				t.Fatalf("Write = %q, %v", backup, err)
			}
			wantFile(t, path, step.content, mode)
			wantFile(t, backup, before, mode)
			before = step.content
		}
		wantNames(t, dir, "f.json", "f.json"+BackupSuffix, "f.json"+BackupSuffix+"-2", "f.json"+BackupSuffix+"-3")
	}
}

func TestBackupsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	write(t, path, "0", 0o600)
	for i := 1; i <= maxBackups; i++ {
		if _, err := open(t, path).Write([]byte(strconv.Itoa(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(t, path).Write([]byte("one too many"), 0o600); err == nil || !strings.Contains(err.Error(), "100 of "+path) {
		t.Errorf("Write = %v", err)
	}
	wantFile(t, path, strconv.Itoa(maxBackups), 0o600)
}

func TestNewFileIsMadeWithItsFolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "f.json")
	file := open(t, path)
	if file.Exists || len(file.Content) != 0 {
		t.Fatalf("Open = %+v", file)
	}
	backup, err := file.Write([]byte("new"), 0o600)
	if err != nil || backup != "" {
		t.Fatalf("Write = %q, %v", backup, err)
	}
	wantFile(t, path, "new", 0o600)
	wantNames(t, filepath.Dir(path), "f.json")
}

func TestLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "dotfiles", "mcp.json")
	link := filepath.Join(dir, "home", "mcp.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(target), 0o700), os.Mkdir(filepath.Dir(link), 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, target, "old", 0o600)
	if err := os.Symlink(filepath.Join("..", "dotfiles", "mcp.json"), link); err != nil {
		t.Skip("no symbolic links:", err)
	}
	if _, err := open(t, link).Write([]byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFile(t, target, "new", 0o600)
	wantNames(t, filepath.Dir(target), "mcp.json", "mcp.json"+BackupSuffix)
	wantNames(t, filepath.Dir(link), "mcp.json")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if file, err := Open(link); err == nil {
		t.Errorf("a link that leads nowhere opens as %+v", file)
	}
}

func TestChangeMeanwhileIsSeen(t *testing.T) {
	for name, test := range map[string]struct {
		before string // empty if there is no file
		change func(path string) error
	}{
		"changed": {"old", func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) }},
		"made":    {"", func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) }},
		"removed": {"old", os.Remove},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.json")
			if test.before != "" {
				write(t, path, test.before, 0o600)
			}
			file := open(t, path)
			if err := test.change(path); err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write([]byte("new"), 0o600); !errors.Is(err, ErrChanged) {
				t.Errorf("Write = %v, want ErrChanged", err)
			}
			if content, err := os.ReadFile(path); err == nil && string(content) != "theirs" {
				t.Errorf("the file holds %q", content)
			}
		})
	}
}

func TestWhatIsNoPlainFile(t *testing.T) {
	if file, err := Open(t.TempDir()); err == nil {
		t.Errorf("a folder opens as %+v", file)
	}
}
