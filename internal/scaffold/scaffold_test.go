package scaffold

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/debugmcp/devproxy/internal/config"
)

var update = flag.Bool("update", false, "write the results into testdata/*.txt anew")

// Sections of a file of testdata that are no files of the project.
const (
	environmentSection = "ENVIRONMENT" // NAME=value lines
	commandSection     = "COMMAND"     // --command
	systemSection      = "SYSTEM"      // runtime.GOOS
	reportSection      = "REPORT"      // what is said
	resultSection      = "RESULT"      // devproxy.toml without comments
	wholeSection       = "WHOLE"       // devproxy.toml, where the comments matter
)

const testRoot = "/home/me/work/my-server"

var sectionLine = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

// sections splits a file into what its marker lines name, in order.
func sections(text string) (names []string, content map[string]string) {
	content = map[string]string{}
	places := sectionLine.FindAllStringSubmatchIndex(text, -1)
	for i, at := range places {
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		name := text[at[2]:at[3]]
		names = append(names, name)
		content[name] = text[at[1]:end]
	}
	return names, content
}

func source(t testing.TB, content map[string]string) Source {
	t.Helper()
	files := fstest.MapFS{}
	env := map[string]string{}
	src := Source{Files: files, Root: testRoot, OS: "linux", Getenv: func(name string) string { return env[name] }}
	for name, text := range content {
		switch name {
		case environmentSection:
			for line := range strings.Lines(text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				env[name] = value
			}
		case commandSection:
			src.Command = strings.TrimSpace(text)
		case systemSection:
			src.OS = strings.TrimSpace(text)
		case reportSection, resultSection, wholeSection:
		default:
			if dir, isDir := strings.CutSuffix(name, "/"); isDir {
				files[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
				continue
			}
			files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	return src
}

// report is all that is said to a person.
func report(p *Plan) string {
	var b strings.Builder
	facts(&b, p.Found)
	for _, choice := range p.Choices() {
		fmt.Fprintf(&b, "%s: %s (%s)\n", choice.Key, choice.Value, choice.Why)
	}
	for _, check := range p.Checks {
		fmt.Fprintf(&b, "check: %s\n", check)
	}
	for _, step := range p.Next {
		fmt.Fprintf(&b, "next: %s (%s)\n", step.Command, step.Why)
	}
	return b.String()
}

func facts(b *strings.Builder, facts []Fact) {
	for _, fact := range facts {
		fmt.Fprintf(b, "found %s: %s\n", fact.Where, fact.What)
	}
}

// Each file of testdata is a project, with what is said of it and what
// devproxy.toml comes out, which is read as the daemon reads it.
func TestProjects(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the project's path is one of Unix")
	}
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			names, content := sections(string(text))
			plan, err := Make(source(t, content))
			got := map[string]string{}
			if nothing, ok := errors.AsType[*NothingError](err); ok {
				var b strings.Builder
				b.WriteString(nothing.Error() + "\n")
				facts(&b, nothing.Looked)
				got[reportSection] = b.String()
			} else if err != nil {
				t.Fatal(err)
			} else {
				got[reportSection], got[resultSection] = report(plan), withoutComments(plan.TOML())
				if _, wanted := content[wholeSection]; wanted {
					got[wholeSection] = string(plan.TOML())
				}
				checkResult(t, plan)
			}
			if *update {
				write(t, path, names, content, got)
				return
			}
			for _, name := range []string{reportSection, resultSection, wholeSection} {
				if diff := cmp.Diff(content[name], got[name]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

func withoutComments(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			b.WriteString(line)
		}
	}
	return b.String()
}

func write(t *testing.T, path string, names []string, content, got map[string]string) {
	t.Helper()
	var b strings.Builder
	for _, name := range names {
		if name != reportSection && name != resultSection && name != wholeSection {
			fmt.Fprintf(&b, "-- %s --\n%s", name, content[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		fmt.Fprintf(&b, "-- %s --\n%s", name, got[name])
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkResult wants the file to parse, to say what was decided, and to parse
// still with any of its comments made a key.
func checkResult(t *testing.T, plan *Plan) {
	t.Helper()
	text := string(plan.TOML())
	cfg, err := config.Parse(testRoot, []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !slices.Equal(cfg.Backend.Command, plan.command) || cfg.Backend.Transport != plan.transport || cfg.Build.Command.Script != plan.build {
		t.Errorf("it says %q, %s, %q", cfg.Backend.Command, cfg.Backend.Transport, cfg.Build.Command.Script)
	}
	if plan.portGiven && cfg.Backend.Port != plan.port || len(cfg.Watch.Paths) != len(plan.watch) {
		t.Errorf("it says port %d, paths %q", cfg.Backend.Port, cfg.Watch.Paths)
	}
	commented := regexp.MustCompile(`(?m)^# ([a-z_]+ = )`)
	for _, at := range commented.FindAllStringSubmatchIndex(text, -1) {
		with := text[:at[0]] + text[at[2]:]
		if _, err := config.Parse(testRoot, []byte(with)); err != nil {
			t.Errorf("with %q: %v", text[at[2]:at[3]], err)
		}
	}
	if !strings.Contains(text, "\n[backend]\n") || strings.Contains(text, "\t") {
		t.Errorf("it looks odd:\n%s", text)
	}
}

func TestCommandThatIsNone(t *testing.T) {
	for _, command := range []string{"a | b", "'", "  ", "node $HOME/x.js"} {
		src := source(t, nil)
		src.Command = command
		if _, err := Make(src); !errors.Is(err, errCommand) {
			t.Errorf("%q gives %v", command, err)
		}
	}
}

func TestEvidence(t *testing.T) {
	for _, test := range []struct {
		command, script string
		want            config.Transport
		env             string
	}{
		{"node dist/index.js", "start", "", ""},
		{"node dist/index.js http", "", config.HTTP, ""},
		{"node dist/index.js --port 3000", "", config.HTTP, ""},
		{"node dist/index.js --port=3000", "", config.HTTP, ""},
		{"node dist/index.js -p 3000", "", config.HTTP, ""},
		{"node dist/index.js -p some/path", "", "", ""},
		{"node dist/index.js --port {port}", "", config.HTTP, ""},
		{"node dist/index.js --transport sse --port 3", "", config.SSE, ""},
		{"node dist/index.js --transport=streamable-http", "", config.HTTP, ""},
		{"node dist/index.js stdio --port 3000", "", config.Stdio, ""},
		{"node dist/http.js", "", config.HTTP, ""},
		{"node http/dist/index.js", "", "", ""},
		{"node dist/index.js --api https://x.org", "", "", ""},
		{"npx @me/http-server", "", "", ""},
		{"node dist/index.js", "start:http", config.HTTP, ""},
		{"node dist/index.js stdio", "start:http", config.Stdio, ""},
		{"http dist/index.js", "", "", ""},
		{"node dist/index.js", "start", config.HTTP, "PORT=3000"},
		{"node dist/index.js", "start", config.SSE, "MCP_TRANSPORT=sse"},
		{"node dist/index.js", "start", config.Stdio, "TRANSPORT=stdio PORT=1"},
		{"node dist/index.js", "start", "", "NAME=http"},
	} {
		env, _ := splitAssignments(strings.Fields(test.env + " x"))
		if got := evidenceOf(strings.Fields(test.command), test.script, env); got.transport != test.want || (got.why == "") != (test.want == "") {
			t.Errorf("%q, script %q: %+v, want %q", test.command, test.script, got, test.want)
		}
	}
}

func TestDevProxyWords(t *testing.T) {
	for text, want := range map[string][]string{
		`node  x.js`:                     {"node", "x.js"},
		`"C:\Program Files\node" 'a b'c`: {`C:\Program Files\node`, "a bc"},
	} {
		if got, err := devProxyWords(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q = %q, %v", text, got, err)
		}
	}
	if _, err := devProxyWords(" "); err == nil {
		t.Error("nothing passes for a command")
	}
}

// Whatever a project holds, what comes out is a configuration.
func FuzzMake(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, content := sections(string(text))
		f.Add(content["package.json"], content[".mcp.json"]+content[".vscode/mcp.json"], content[environmentSection])
	}
	f.Add("", "", `DEV_PROXY_BACKEND_CMD="a" 'b`)
	f.Fuzz(func(t *testing.T, manifest, entries, environment string) {
		src := source(t, map[string]string{
			"package.json": manifest, ".mcp.json": entries, ".vscode/mcp.json": entries, environmentSection: environment, "src/index.ts": "",
		})
		plan, err := Make(src)
		if err != nil {
			return
		}
		text := plan.TOML()
		_, err = config.Parse(testRoot, text)
		if err != nil && !strings.Contains(err.Error(), "NUL") {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}
