//go:build unix

package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Everything that is wrong is told at once, and nothing is made.
func TestFaults(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	root := t.TempDir()
	p, err := At(root)
	if err != nil {
		t.Fatal(err)
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Errorf("a project without state has faults: %v", faults)
	}
	if _, err := os.Stat(p.StateDir); err == nil {
		t.Error("the state folder was made")
	}
	if err := p.EnsureDirs(); err != nil {
		t.Fatal(err)
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Errorf("a sound state folder has faults: %v", faults)
	}
	for path, mode := range map[string]os.FileMode{p.StateDir: 0o755, p.RootFile(): 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(p.RootFile(), p.Environment()); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, fault := range p.Faults() {
		told = append(told, fault.Error())
	}
	text := strings.Join(told, "\n")
	for _, want := range []string{p.StateDir + " is not safe", "run chmod 700", p.RootFile(), "run chmod 600", p.Environment() + " is not safe to use: it is a symbolic link"} {
		if !strings.Contains(text, want) {
			t.Errorf("they do not tell %q:\n%s", want, text)
		}
	}
	if len(told) != 3 {
		t.Errorf("there are %d faults: %s", len(told), text)
	}
	if _, err := os.Stat(filepath.Join(home, "root")); err == nil {
		t.Error("something was made")
	}
}
