//go:build unix

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// There is a man page for every program and command, which says what the command
// itself says, and which no formatter finds fault with.
func TestManPages(t *testing.T) {
	if testing.Short() {
		t.Skip("starts programs")
	}
	dir := filepath.Join(t.TempDir(), "man")
	command := exec.Command("make", "man", "MAN="+dir)
	command.Dir = ".."
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make man: %v\n%s", err, output)
	}
	for page, texts := range map[string][]string{
		"devproxyctl":                {"devproxyctl\\-trace", ".SH \"EXIT STATUS\"", "no daemon runs"},
		"devproxyctl-call":           {`\fB\-\-arg\fR \fINAME=VALUE\fR`, "COMMON OPTIONS", `devproxyctl call search \-\-arg query="a b"`},
		"devproxyctl-resources-read": {"Read a resource"},
		"devproxyctl-completion":     {"fish"},
		"devproxyd":                  {"devproxyd\\-run"},
		"devproxyd-run":              {"foreground"},
		"devproxy-shim":              {`\-\-no\-autostart`},
	} {
		content, err := os.ReadFile(filepath.Join(dir, page+".1"))
		if err != nil {
			t.Error(err)
		}
		for _, text := range texts {
			if !strings.Contains(string(content), text) {
				t.Errorf("the page of %s has no %q", page, text)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "devproxyd-example-backend.1")); err == nil {
		t.Error("there is a page of a command that nobody types")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are the pages %v, %v", pages, err)
	}
	for _, formatter := range [][]string{
		{"mandoc", "-T", "lint", "-W", "warning"},
		{"man", "--warnings", "-E", "UTF-8", "-l"},
	} {
		if _, err := exec.LookPath(formatter[0]); err != nil {
			t.Logf("there is no %s here", formatter[0])
			continue
		}
		for _, page := range pages {
			check := exec.Command(formatter[0], append(formatter[1:len(formatter):len(formatter)], page)...)
			check.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100")
			var complaints strings.Builder
			check.Stderr = &complaints
			output, err := check.Output()
			if formatter[0] == "mandoc" {
				complaints.Write(output) // where a lint puts them
			}
			if err != nil || complaints.Len() > 0 {
				t.Errorf("%s: %v\n%s", strings.Join(check.Args, " "), err, complaints.String())
			}
		}
	}
}
