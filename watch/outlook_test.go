package watch

import (
	"os"
	"path/filepath"
	"testing"
)

func TestForesee(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"dist/a/b", "dist/node_modules/x", "src"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "f.js"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := Config{Root: root, Paths: []string{filepath.Join(root, "dist"), filepath.Join(root, "missing")}}
	got := Foresee(t.Context(), config)
	if got.Directories != 3 || got.Files != 1 || got.Silent != "" || len(got.Notes) > 0 {
		t.Errorf("it foresees %+v; want 3 directories, without node_modules, and one file", got)
	}
}
