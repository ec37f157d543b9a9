//go:build unix

package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode fs.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	plain := write("plain/tool", 0o600)
	first := write("first/tool", 0o700)
	write("second/tool", 0o700)
	local := write("local", 0o700)
	search := func(names ...string) string { return strings.Join(names, string(filepath.ListSeparator)) }

	found := []struct{ name, path, want string }{
		{"tool", search(dir+"/first", dir+"/second"), first},
		{"tool", search(dir+"/none", dir+"/plain", dir+"/first"), first},
		{"tool", search("first"), first}, // relative entries are those of dir
		{"local", search("", "first"), local},
		{"./local", "", local},
		{"first/tool", "", first},
		{first, "", first},
		{dir + "/second/../local", "", local},
	}
	for _, test := range found {
		if got, err := LookPath(test.name, test.path, dir); err != nil || got != test.want {
			t.Errorf("%q in %q: %q, %v, want %q", test.name, test.path, got, err, test.want)
		}
	}

	missing := []struct {
		name, path string
		is         error
		want       string
	}{
		{"", "/bin", fs.ErrNotExist, "command is empty"},
		{"no-such-tool", "/one:/two", fs.ErrNotExist, `command "no-such-tool" not found; PATH searched: /one:/two`},
		{"no-such-tool", "/a:/b:/c:/d", fs.ErrNotExist, `command "no-such-tool" not found; PATH searched: /a:/b:/c:/d`},
		{"no-such-tool", "/a:/b:/c:/d:/e", fs.ErrNotExist, `command "no-such-tool" not found; PATH searched: /a:/b:/c and 2 more folders`},
		{"tool", "", fs.ErrNotExist, `command "tool" not found: PATH is empty`},
		{"tool", dir + "/plain", fs.ErrPermission, `command "tool" found, but not executable; PATH searched: ` + dir + "/plain"},
		{"first", dir, fs.ErrPermission, `command "first" found, but not executable; PATH searched: ` + dir},
		{"./nothing", "", fs.ErrNotExist, `command "./nothing" not found: there is no ` + dir + "/nothing"},
		{plain, "", fs.ErrPermission, `command "` + plain + `": ` + plain + " is not an executable file"},
		{"./first", "", fs.ErrPermission, `command "./first": ` + dir + "/first is not an executable file"},
	}
	for _, test := range missing {
		_, err := LookPath(test.name, test.path, dir)
		failure, ok := errors.AsType[*NotFoundError](err)
		if !ok || !errors.Is(err, test.is) || err.Error() != test.want || failure.Name != test.name {
			t.Errorf("%q in %q: error %v, want %s", test.name, test.path, err, test.want)
			continue
		}
		if want := test.name == plain || test.name == "./first"; (failure.Advice() != "") != want || strings.Contains(failure.Advice(), "chmod +x "+plain) != (test.name == plain) {
			t.Errorf("%q in %q: advice %q", test.name, test.path, failure.Advice())
		}
	}
}

func TestSearchPath(t *testing.T) {
	for want, env := range map[string][]string{
		"":     {"XPATH=/x", "Path=/lower", "PATH"},
		"/a:b": {"HOME=/", "PATH=/a:b", "PATH=/second"},
	} {
		if got := SearchPath(env); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}
