//go:build unix

package integration

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// systemd accepts the unit, for a project whose path needs escaping.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"systemd-analyze", "systemd-escape"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s here", name)
		}
	}
	p := newFolders(t)
	unit, err := os.ReadFile(filepath.Join(moduleRoot, "packaging", "systemd", "devproxyd@.service"))
	if err != nil {
		t.Fatal(err)
	}
	// As docs/daemon.md has it done where the program is not in /usr/bin.
	text := strings.ReplaceAll(string(unit), "/usr/bin/devproxyd", program(t, "devproxyd"))
	escaped, err := exec.Command("systemd-escape", "--path", "--template=devproxyd@.service", p.root+"/my-server 2").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.base, strings.TrimSpace(string(escaped)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.Command("systemd-analyze", "verify", "--user", "--man=no", file)
	check.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+p.tmp)
	if output, err := check.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("%v: %v\n%s", check.Args, err, output)
	}
}

// What a unit does to a daemon: it runs in the foreground, ends with 0 when it is
// told to, with 2 for a faulty file, and with another code where one runs already.
func TestRunsUnderASupervisor(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.use(t, backendNamed(t, "go-stdio"))
	command := exec.Command(program(t, "devproxyd"), "run", "--project", p.root)
	command.Dir, command.Env = "/", p.terminalEnv()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitDaemon(t)
	c := p.client(t, "ts1")
	c.connect(t)
	c.wantText(t, "hi", "echo", object{"text": "hi"})
	if o := p.run(t, "devproxyd", "run"); o.code != 1 {
		t.Errorf("a second daemon: %v", o)
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	p.write(t, "devproxy.toml", "[backend]\nnonsense = 1\n")
	if o := p.run(t, "devproxyd", "run"); o.code != 2 {
		t.Errorf("with a faulty devproxy.toml: %v", o)
	}
}

func TestLaunchdTemplate(t *testing.T) {
	file, err := os.Open(filepath.Join(moduleRoot, "packaging", "launchd", "dev.devproxy.plist"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var texts []string
	for decoder := xml.NewDecoder(file); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, strings.TrimSpace(string(text)))
		}
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"dev.devproxy.@NAME@", "@BIN@/devproxyd", "@PROJECT@", "@PATH@"} {
		if !strings.Contains(all, want) {
			t.Errorf("the template has no %s", want)
		}
	}
}

// What the packages are made of is there; what "make man" and "make completions"
// write is theirs to write.
func TestPackagedFilesExist(t *testing.T) {
	configuration, err := os.ReadFile(filepath.Join(moduleRoot, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)- src: (\S+)$`).FindAllStringSubmatch(string(configuration), -1)
	if len(found) == 0 {
		t.Fatal("the configuration names no files")
	}
	for _, match := range found {
		if strings.HasPrefix(match[1], "bin/") {
			continue
		}
		if files, err := filepath.Glob(filepath.Join(moduleRoot, match[1])); err != nil || len(files) == 0 {
			t.Errorf("%s is packaged, and not there: %v", match[1], err)
		}
	}
}
