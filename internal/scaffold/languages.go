package scaffold

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pythonProject is what pyproject.toml says, and what lies beside it.
type pythonProject struct {
	name    string
	scripts map[string]string
	// runner starts a program in the project's environment.
	runner []string
	tool   string
	// file is a program in the root, where there are no scripts.
	file string
	sdk  bool
	// manifest says that there is a pyproject.toml.
	manifest bool
	// packages are the folders and files of the scripts' modules.
	packages map[string]string
}

func (f *findings) lookPython() *pythonProject {
	var manifest struct {
		Project struct {
			Name         string            `toml:"name"`
			Scripts      map[string]string `toml:"scripts"`
			Dependencies []string          `toml:"dependencies"`
		} `toml:"project"`
		Tool struct {
			UV     map[string]any `toml:"uv"`
			Poetry struct {
				Scripts      map[string]any `toml:"scripts"`
				Dependencies map[string]any `toml:"dependencies"`
			} `toml:"poetry"`
		} `toml:"tool"`
	}
	there := f.readTOML("pyproject.toml", &manifest)
	p := &pythonProject{manifest: there, name: manifest.Project.Name, scripts: map[string]string{}, packages: map[string]string{}}
	maps.Copy(p.scripts, manifest.Project.Scripts)
	for name, target := range manifest.Tool.Poetry.Scripts {
		if text, ok := target.(string); ok {
			p.scripts[name] = text
		}
	}
	dependencies := append(manifest.Project.Dependencies, slices.Collect(maps.Keys(manifest.Tool.Poetry.Dependencies))...)
	dependencies = append(dependencies, strings.Fields(string(f.read("requirements.txt")))...)
	p.sdk = slices.ContainsFunc(dependencies, func(requirement string) bool { return pythonSDK.MatchString(requirement) })
	switch {
	case manifest.Tool.UV != nil || exists(f.files, "uv.lock"):
		p.tool, p.runner = "uv", []string{"uv", "run"}
	case exists(f.files, "poetry.lock"):
		p.tool, p.runner = "poetry", []string{"poetry", "run"}
	}
	for name, target := range p.scripts {
		module, _, _ := strings.Cut(target, ":")
		p.packages[name] = f.module(module)
	}
	for _, file := range []string{"server.py", "main.py", "app.py", "src/server.py", "src/main.py"} {
		if p.file == "" && p.sdk && exists(f.files, file) {
			p.file = file
		}
	}
	if !there && p.file == "" {
		return nil
	}
	if p.tool == "" && exists(f.files, ".venv") {
		p.tool = ".venv"
	}
	return p
}

var pythonSDK = regexp.MustCompile(`^(mcp|fastmcp)\b`)

func (p *pythonProject) where() string {
	if p.manifest {
		return "pyproject.toml"
	}
	return "requirements.txt"
}

func (p *pythonProject) String() string {
	var parts []string
	for _, part := range []string{p.name, p.tool, p.file} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(p.scripts) > 0 {
		parts = append(parts, "scripts "+strings.Join(slices.Sorted(maps.Keys(p.scripts)), " "))
	}
	if len(parts) == 0 {
		return "no [project.scripts]"
	}
	return strings.Join(parts, ", ")
}

func (p *pythonProject) launch(src Source) *launch {
	name := likely(slices.Sorted(maps.Keys(p.scripts)), p.name)
	if name == "" {
		return p.launchFile(src)
	}
	l := &launch{command: append(slices.Clone(p.runner), name), why: fmt.Sprintf("script %q of pyproject.toml", name)}
	for _, other := range slices.Sorted(maps.Keys(p.scripts)) {
		if other != name && name != p.name {
			l.others, l.otherwise = append(l.others, strings.Join(append(slices.Clone(p.runner), other), " ")), "script in pyproject.toml"
		}
	}
	if p.tool == ".venv" {
		l.command = []string{p.inEnvironment(src, name)}
	}
	l.watch, l.watchWhy = []string{}, "the modules of the script were not found"
	if dir := p.packages[name]; dir != "" {
		l.watch, l.watchWhy = []string{dir}, "the modules of the script"
	}
	return l
}

func (p *pythonProject) launchFile(src Source) *launch {
	if p.file == "" {
		return nil
	}
	l := &launch{command: append(slices.Clone(p.runner), p.file), why: p.file + " is there"}
	switch p.tool {
	case "uv":
	case ".venv":
		l.command = []string{p.inEnvironment(src, "python"), p.file}
	default:
		l.command = append(slices.Clone(p.runner), "python", p.file)
	}
	return l
}

// inEnvironment is a program of the virtual environment.
func (p *pythonProject) inEnvironment(src Source, name string) string {
	if src.OS == "windows" {
		return ".venv/Scripts/" + name + ".exe"
	}
	return ".venv/bin/" + name
}

// likely is the name that a server has: that of the project, or one with mcp or
// server in it, or the first.
func likely(names []string, project string) string {
	if slices.Contains(names, project) {
		return project
	}
	for _, part := range []string{"mcp", "server"} {
		if i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, part) }); i >= 0 {
			return names[i]
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// goProject is a module and its main packages.
type goProject struct {
	module string
	mains  []goMain
	sdk    bool
}

type goMain struct {
	dir, name string
	sdk       bool
}

// argument is the package as the go command takes it.
func (m goMain) argument() string {
	if m.dir == "." {
		return "."
	}
	return "./" + m.dir
}

// place is the package as a person names it.
func (m goMain) place() string {
	if m.dir == "." {
		return "in the root"
	}
	return m.dir
}

var (
	goModule = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)
	goSDK    = regexp.MustCompile(`github\.com/(modelcontextprotocol/go-sdk|mark3labs/mcp-go|metoro-io/mcp-golang)`)
)

// maxDepth is how far down main packages are looked for: cmd/name and a folder
// above it.
const maxDepth = 3

func (f *findings) lookGo() *goProject {
	manifest := f.read("go.mod")
	match := goModule.FindSubmatch(manifest)
	if match == nil {
		return nil
	}
	g := &goProject{module: string(match[1]), sdk: goSDK.Match(manifest)}
	seen := map[string]int{}
	left := maxSources
	_ = fs.WalkDir(f.files, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read has no main package
		case entry.IsDir():
			nested := name != "." && exists(f.files, path.Join(name, "go.mod"))
			if name != "." && (skipped[base] || nested || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || strings.Count(name, "/") >= maxDepth) {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		if left--; left < 0 {
			return fs.SkipAll
		}
		file := parseGo(f.read(name))
		if file == nil || file.Name.Name != "main" {
			return nil
		}
		dir := path.Dir(name)
		i, known := seen[dir]
		if !known {
			i = len(g.mains)
			seen[dir] = i
			g.mains = append(g.mains, goMain{dir: dir, name: g.binary(dir)})
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			g.mains[i].sdk = g.mains[i].sdk || err == nil && goSDK.MatchString(imported)
		}
		g.sdk = g.sdk || g.mains[i].sdk
		return nil
	})
	return g
}

// parseGo reads a file up to its imports; nil if it is none, or is left out of
// builds.
func parseGo(content []byte) *ast.File {
	if content == nil || bytes.HasPrefix(content, []byte("//go:build ignore")) {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", content, parser.ImportsOnly)
	if err != nil {
		return nil
	}
	return file
}

var majorVersion = regexp.MustCompile(`^v\d+$`)

// binary is the name that go build gives to the program of a folder.
func (g *goProject) binary(dir string) string {
	if dir != "." {
		return path.Base(dir)
	}
	if base := path.Base(g.module); !majorVersion.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(g.module))
}

// best is the main package that the server is most likely in.
func (g *goProject) best() goMain {
	var names []string
	for _, only := range []bool{true, false} {
		for _, main := range g.mains {
			if main.sdk || !only {
				names = append(names, main.name)
			}
		}
		if len(names) > 0 {
			break
		}
	}
	name := likely(names, path.Base(g.module))
	return g.mains[slices.IndexFunc(g.mains, func(m goMain) bool { return m.name == name })]
}

// called is the main package that makes a program of that name, or the best.
func (g *goProject) called(file string) goMain {
	name := strings.TrimSuffix(path.Base(file), ".exe")
	if i := slices.IndexFunc(g.mains, func(m goMain) bool { return m.name == name }); i >= 0 {
		return g.mains[i]
	}
	return g.best()
}

func (g *goProject) String() string {
	var names []string
	for _, main := range g.mains {
		names = append(names, main.place())
	}
	if len(names) == 0 {
		return g.module + ", no main package"
	}
	return g.module + ", main packages: " + strings.Join(names, ", ")
}

func (g *goProject) launch(src Source) *launch {
	if len(g.mains) == 0 {
		return nil
	}
	best := g.best()
	l := g.program(src, best)
	for _, main := range g.mains {
		if main != best && (main.sdk || !best.sdk) && best.name != path.Base(g.module) {
			l.others, l.otherwise = append(l.others, g.program(src, main).command[0]), "main package"
		}
	}
	return l
}

// program builds a main package into bin and runs what comes out.
func (g *goProject) program(src Source, main goMain) *launch {
	file := src.program("bin/" + main.name)
	return &launch{
		command: []string{file}, why: "main package " + main.place(),
		build: "go build -o " + file + " " + main.argument(), watch: []string{file}, watchWhy: "what the build makes", entry: file,
	}
}

// cargoProject is a crate, or a workspace of them, and its binaries.
type cargoProject struct {
	name     string
	binaries []string
	fallback string // default-run
	sdk      bool
}

type cargoManifest struct {
	Package struct {
		Name       string `toml:"name"`
		DefaultRun string `toml:"default-run"`
	} `toml:"package"`
	Bin []struct {
		Name string `toml:"name"`
	} `toml:"bin"`
	Dependencies map[string]any `toml:"dependencies"`
	Workspace    struct {
		Members []string `toml:"members"`
	} `toml:"workspace"`
}

func (f *findings) lookCargo() *cargoProject {
	var manifest cargoManifest
	if !f.readTOML("Cargo.toml", &manifest) {
		return nil
	}
	c := &cargoProject{name: manifest.Package.Name, fallback: manifest.Package.DefaultRun}
	c.add(f, ".", manifest)
	for _, pattern := range manifest.Workspace.Members {
		dirs, err := fs.Glob(f.files, pattern)
		if err != nil {
			continue
		}
		for _, dir := range dirs {
			var member cargoManifest
			if f.readTOML(path.Join(dir, "Cargo.toml"), &member) {
				c.add(f, dir, member)
			}
		}
	}
	return c
}

// add takes the binaries of a crate. Cargo finds more than the manifest names.
func (c *cargoProject) add(f *findings, dir string, m cargoManifest) {
	var names []string
	for _, bin := range m.Bin {
		names = append(names, bin.Name)
	}
	if m.Package.Name != "" && exists(f.files, path.Join(dir, "src/main.rs")) && len(m.Bin) == 0 {
		names = append(names, m.Package.Name)
	}
	extra, err := fs.Glob(f.files, path.Join(dir, "src/bin/*.rs"))
	if err == nil {
		for _, file := range extra {
			names = append(names, strings.TrimSuffix(path.Base(file), ".rs"))
		}
	}
	for _, name := range names {
		if name != "" && !slices.Contains(c.binaries, name) {
			c.binaries = append(c.binaries, name)
		}
	}
	for name := range m.Dependencies {
		c.sdk = c.sdk || strings.Contains(name, "mcp")
	}
}

func (c *cargoProject) String() string {
	var parts []string
	if c.name != "" {
		parts = append(parts, c.name)
	}
	if len(c.binaries) == 0 {
		return strings.Join(append(parts, "no binaries"), ", ")
	}
	return strings.Join(append(parts, "binaries "+strings.Join(c.binaries, " ")), ", ")
}

func (c *cargoProject) launch(src Source) *launch {
	name := c.fallback
	if name == "" {
		name = likely(c.binaries, c.name)
	}
	if name == "" {
		return nil
	}
	file := src.program("target/debug/" + name)
	l := &launch{
		command: []string{file}, why: fmt.Sprintf("binary %q of Cargo.toml", name),
		build: "cargo build", watch: []string{file}, watchWhy: "what the build makes", entry: file,
	}
	for _, other := range c.binaries {
		if other != name && name != c.fallback && name != c.name {
			l.others, l.otherwise = append(l.others, src.program("target/debug/"+other)), "binary"
		}
	}
	return l
}
