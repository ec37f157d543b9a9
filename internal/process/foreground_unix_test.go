//go:build unix

package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestForeground(t *testing.T) {
	dir := t.TempDir()
	spec := func(command string) Spec { return Spec{Path: "/bin/sh", Args: []string{"-c", command}, Dir: dir} }
	for command, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -TERM $$": 143, "kill -KILL $$": 137} {
		if exit, err := Foreground(spec(command)); err != nil || exit.ShellCode() != want {
			t.Errorf("%s: %v (%d), %v", command, exit, exit.ShellCode(), err)
		}
	}
	// It is in its caller's group, with his terminal, in the folder and environment given.
	there := spec(`ps -o pgid= -p $$ > group; echo "$WHAT$HOME" > what`)
	there.Env = []string{"WHAT=that", "PATH=" + os.Getenv("PATH")}
	if exit, err := Foreground(there); err != nil || !exit.Success() {
		t.Fatal(exit, err)
	}
	group, err := os.ReadFile(filepath.Join(dir, "group"))
	if err != nil || strings.TrimSpace(string(group)) != strconv.Itoa(syscall.Getpgrp()) {
		t.Errorf("its group is %q, %v", group, err)
	}
	if what, err := os.ReadFile(filepath.Join(dir, "what")); err != nil || string(what) != "that\n" {
		t.Errorf("its environment is %q, %v", what, err)
	}
}

func TestForegroundThatCannotRun(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		spec Spec
		want string
		is   error
	}{
		"nothing":       {Spec{}, "no program given", nil},
		"no file":       {Spec{Path: dir + "/none"}, "running " + dir + "/none: no such file or directory", fs.ErrNotExist},
		"no program":    {Spec{Path: text}, "running " + text + ": permission denied", fs.ErrPermission},
		"no folder":     {Spec{Path: "/bin/sh", Dir: dir + "/none"}, "entering directory " + dir + "/none: no such file or directory", fs.ErrNotExist},
		"a file for it": {Spec{Path: "/bin/sh", Dir: text}, "entering directory " + text + ": not a directory", nil},
	} {
		_, err := Foreground(test.spec)
		if err == nil || !strings.HasSuffix(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
