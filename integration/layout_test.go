package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/debugmcp/devproxy"

// house says which packages of ours each package may import, and why no
// others. Every package has a line: a new one is a decision.
var house = map[string]struct {
	imports []string
	why     string
}{
	"api/devproxy/v1": {nil, "the contract is generated and knows nobody"},
	"api/client": {
		[]string{"api/devproxy/v1", "internal/project"},
		"it is the way in for shim and ctl alike, and has to stay as small as the shim",
	},
	"cmd/devproxyd": {
		[]string{"api/client", "daemon", "internal/cli", "internal/config", "internal/demo", "internal/process", "internal/project"},
		"main is a doorway: it reads flags and calls the daemon",
	},
	"cmd/devproxyctl": {
		[]string{
			"api/client", "internal/cli", "internal/clients", "internal/config", "internal/doctor", "internal/process", "internal/project", "internal/rewrite", "internal/scaffold",
			"internal/wire", "shim",
		},
		"ctl is a client: what it shows it asks the daemon for, and a tool it calls as any client does, through a shim; what it writes are the files of persons and " +
			"clients, which no daemon touches, and what it runs is a person's own build, in his terminal",
	},
	"cmd/devproxy-shim": {
		[]string{"api/client", "internal/cli", "internal/project", "shim"},
		"main is a doorway: it reads flags and calls the shim",
	},
	"shim": {
		[]string{"api/client", "api/devproxy/v1", "internal/project", "internal/wire"},
		"the shim carries bytes: clients start it many times, so it has no TOML, no SDK and no policy",
	},
	"watch": {nil, "watching a folder has nothing to do with MCP, and could be used elsewhere"},
	"daemon": {
		[]string{
			"api/client", "api/devproxy/v1", "daemon/backend", "daemon/backend/link", "daemon/build", "daemon/devtools",
			"daemon/era", "daemon/instance", "daemon/logs", "daemon/relay", "daemon/traffic", "internal/config", "internal/process",
			"internal/project", "internal/wire", "watch",
		},
		"the composition root joins the pieces; of api/client it takes what both ends of the contract must agree on, or do with its messages",
	},
	"daemon/instance": {
		[]string{"internal/project"},
		"being the only daemon is a matter of files and sockets, not of what the daemon does",
	},
	"daemon/backend": {
		[]string{"daemon/backend/link", "daemon/era", "internal/port", "internal/process", "internal/wire"},
		"the supervisor knows no client and no router: it tells an observer that it declares itself",
	},
	"daemon/backend/link": {
		[]string{"daemon/era", "internal/wire"},
		"a link speaks to a backend that runs; starting one is the supervisor's",
	},
	"daemon/build": {
		[]string{"internal/process"},
		"a build is a process whose output somebody reads",
	},
	"daemon/relay": {
		[]string{"daemon/era", "internal/wire"},
		"the router knows no process and no transport: it declares the small interfaces it needs",
	},
	"daemon/era": {
		[]string{"internal/wire"},
		"the codecs are pure: bytes in, bytes out",
	},
	"daemon/devtools": {
		[]string{"daemon/era", "internal/wire"},
		"the tools ask through an interface of their own, so that the daemon decides what they may do",
	},
	"daemon/logs":      {nil, "a log takes text from anybody and so depends on nobody"},
	"daemon/traffic":   {[]string{"daemon/relay", "internal/wire"}, "it shows what the router passes, and the router knows nothing of who looks"},
	"internal/project": {nil, "all three programs use it, the shim too"},
	"internal/config":  {[]string{"internal/project"}, "the file is read for a project; what its values mean is others' matter"},
	"internal/process": {nil, "a process and its group are the operating system's matter"},
	"internal/wire":    {nil, "frames and envelopes need nothing but the standard library"},
	"internal/port":    {[]string{"internal/process"}, "who has a port is the operating system's matter"},
	"internal/cli": {
		[]string{"api/client", "internal/project"},
		"it holds what the programs say to a person in the same way",
	},
	"internal/clients": {nil, "an edit of a client's file is a function of its bytes and knows no project"},
	"internal/scaffold": {
		[]string{"internal/clients", "internal/config"},
		"a guess at a configuration is a function of a project's files: it runs and writes nothing",
	},
	"internal/manual": {nil, "a man page is a function of what a command says of itself"},
	"internal/doctor": {
		[]string{
			"api/client", "daemon/logs", "internal/clients", "internal/config", "internal/port", "internal/process", "internal/project", "internal/rewrite", "watch",
		},
		"it looks at what everybody else works with, from outside, and has to work where they do not; of the daemon it takes how secrets are hidden",
	},
	"internal/rewrite": {nil, "replacing a file is a matter of files, whatever they hold"},
	"internal/demo": {
		[]string{"internal/process"},
		"the demo uses the real programs from outside, as a person would",
	},
	"integration": {nil, "a black-box test knows what a user knows"},
	"integration/internal/badserver": {
		[]string{"integration/internal/starts"},
		"a fixture must not share a bug with what it tests",
	},
	"integration/internal/goserver": {
		[]string{"integration/internal/starts"},
		"a fixture must not share a bug with what it tests",
	},
	"integration/chaos": {nil, "a black-box test knows what a user knows"},
	"integration/chaos/internal/chaosbackend": {
		nil, "the fixture must not share a bug with what it tests",
	},
	"integration/bench":                    {nil, "what is measured is what a user has; its tests alone look inside, to count"},
	"integration/bench/internal/floor":     {nil, "the least that can be done is done without devproxy"},
	"integration/bench/internal/rawserver": {nil, "a fixture must not share a bug with what it tests"},
	"integration/wine":                     {nil, "a black-box test knows what a user knows"},
	"integration/internal/testbed":         {nil, "it serves the black-box tests, which know what a user knows"},
	"integration/internal/starts":          {nil, "what counts the starts of fixtures is one of them"},
}

// packageFiles is what the sources of one package show, on all platforms.
type packageFiles struct {
	imports  map[string]string // path of an import to a file that has it
	comments []string          // files with a package comment
	calls    map[string]string // qualified name, such as os.Exit, to a place
}

// readHouse reads the sources of every package of the module.
func readHouse(t *testing.T) map[string]packageFiles {
	t.Helper()
	packages := map[string]packageFiles{}
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != ".." {
				return fs.SkipDir // a module of its own, such as an example
			}
			if base == "testdata" || base == "node_modules" || base == "bin" || strings.HasPrefix(base, ".") && base != ".." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(filepath.ToSlash(name), "../")))
		p, known := packages[dir]
		if !known {
			p = packageFiles{imports: map[string]string{}, calls: map[string]string{}}
		}
		if file.Doc != nil {
			p.comments = append(p.comments, base)
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			p.imports[imported] = base
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				if name, ok := selector.X.(*ast.Ident); ok {
					p.calls[name.Name+"."+selector.Sel.Name] = files.Position(node.Pos()).String()
				}
			}
			return true
		})
		packages[dir] = p
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func TestImportsGoOneWay(t *testing.T) {
	packages := readHouse(t)
	for name, rule := range house {
		if _, exists := packages[name]; !exists {
			t.Errorf("package %s is in the table but not in the module", name)
		}
		for _, imported := range rule.imports {
			if _, exists := house[imported]; !exists {
				t.Errorf("%s may import %s, which has no line in the table", name, imported)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		rule, known := house[name]
		if !known {
			t.Errorf("package %s has no line in the table: say what it may import, and why", name)
			continue
		}
		for imported, file := range packages[name].imports {
			own, ours := strings.CutPrefix(imported, modulePath+"/")
			if ours && !slices.Contains(rule.imports, own) {
				t.Errorf("%s/%s imports %s: %s", name, file, own, rule.why)
			}
		}
	}
}

// onlyIn names what some packages alone may use, and why.
var onlyIn = []struct {
	what   string
	isUsed func(packageFiles) (where string, used bool)
	by     []string
	why    string
}{
	{
		"the generated contract", importing(modulePath + "/api/devproxy/v1"),
		[]string{"daemon", "api/client", "shim"},
		"the contract is the border: behind it the daemon has types of its own",
	},
	{
		"package flag", importing("flag"), []string{"cmd/*", "integration/internal/*server", "integration/chaos/internal/chaosbackend"},
		"only main knows that there are flags",
	},
	{
		"cobra", importing("github.com/spf13/cobra"), []string{"cmd/devproxyd", "cmd/devproxyctl", "internal/cli", "internal/manual"},
		"only main knows that there are flags",
	},
	{
		"package testing", importing("testing"), nil,
		"what only tests need stands in a file that only tests compile",
	},
	{
		"os.Exit", calling("os.Exit"),
		[]string{
			"cmd/*", "internal/process", "internal/demo", "integration/internal/*server", "integration/chaos/internal/chaosbackend",
			"integration/bench/internal/*",
		},
		"only main ends the program; the gate of internal/process is one, and a tool of the demo's backend crashes",
	},
	{
		"the environment", calling("os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv"),
		[]string{
			"cmd/*", "api/client", "internal/cli", "internal/demo", "internal/process", "internal/project",
			"integration/internal/*server", "integration/internal/testbed", "integration/chaos/internal/chaosbackend",
		},
		"the environment is main's to read and everybody else's to be given; api/client passes it on to a daemon that it starts, internal/cli holds main's flags, " +
			"internal/demo plays a terminal, the gate of internal/process is a main, internal/project looks up the home directory, integration/internal/testbed passes it on to the go command",
	},
	{
		"net/http servers", calling("http.ListenAndServe", "http.Serve", "http.Server"),
		[]string{"internal/demo", "integration/internal/*server", "integration/chaos/internal/chaosbackend"},
		"devproxy listens on nothing but its Unix socket; only example backends serve HTTP",
	},
}

func importing(imported string) func(packageFiles) (string, bool) {
	return func(p packageFiles) (string, bool) {
		where, used := p.imports[imported]
		return where, used
	}
}

func calling(names ...string) func(packageFiles) (string, bool) {
	return func(p packageFiles) (string, bool) {
		for _, name := range names {
			if where, used := p.calls[name]; used {
				return where, true
			}
		}
		return "", false
	}
}

func TestOnlySomeUse(t *testing.T) {
	packages := readHouse(t)
	for _, rule := range onlyIn {
		for name, p := range packages {
			where, used := rule.isUsed(p)
			allowed := slices.ContainsFunc(rule.by, func(pattern string) bool {
				match, err := path.Match(pattern, name)
				if err != nil {
					t.Fatal(err)
				}
				return match
			})
			if used && !allowed {
				t.Errorf("%s uses %s (%s): %s", name, rule.what, where, rule.why)
			}
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	for name, p := range readHouse(t) {
		if len(p.comments) != 1 {
			t.Errorf("package %s has %d package comments (%s), want one", name, len(p.comments), strings.Join(p.comments, ", "))
		}
	}
}

// A client starts the shim twice or more for each server it has, so nothing
// that the shim does not need may find its way into it.
func TestShimIsSmall(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", modulePath+"/cmd/devproxy-shim").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	dependencies := strings.Fields(string(output))
	for _, unwanted := range []string{
		"github.com/spf13/cobra",
		"github.com/pelletier/go-toml",
		"github.com/modelcontextprotocol/go-sdk",
		"github.com/fsnotify/fsnotify",
		"charm.land/lipgloss",
		modulePath + "/daemon",
		modulePath + "/internal/config",
	} {
		for _, dependency := range dependencies {
			if dependency == unwanted || strings.HasPrefix(dependency, unwanted+"/") {
				t.Errorf("devproxy-shim depends on %s", dependency)
			}
		}
	}
}
