package watch

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadingStandsInNobodysWay(t *testing.T) {
	dir := t.TempDir()
	for name, act := range map[string]func(path string) error{
		"removed": os.Remove,
		"renamed": func(path string) error { return os.Rename(path, path+".old") },
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		reader, err := openFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := act(path); err != nil {
			t.Errorf("a file that is read cannot be %s: %v", name, err)
		}
		_ = reader.Close()
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	reader, err := openFile(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if err := os.Rename(folder, folder+".old"); err != nil {
		t.Errorf("a folder that is read cannot be renamed: %v", err)
	}
	if entries, err := readDir(dir); err != nil || len(entries) == 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
