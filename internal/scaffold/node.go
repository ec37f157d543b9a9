package scaffold

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/config"
)

// nodeProject is what package.json says, and what lies beside it.
type nodeProject struct {
	Name            string            `json:"name"`
	Main            string            `json:"main"`
	Type            string            `json:"type"`
	Scripts         map[string]string `json:"scripts"`
	Dependencies    map[string]string `json:"dependencies"`
	DevDependencies map[string]string `json:"devDependencies"`
	PackageManager  string            `json:"packageManager"`
	Bin             binaries          `json:"bin"`

	files fs.FS
	// pm is the package manager: npm, pnpm, yarn or bun.
	pm string
	// outDir is where TypeScript writes to; "" without a tsconfig.json.
	outDir string
}

// binaries is the bin of a package.json: one path, or several by their names.
type binaries map[string]string

// UnmarshalJSON takes both forms, and leaves out what is neither.
func (b *binaries) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*b = binaries{"": one}
		return nil
	}
	several := map[string]string{}
	if err := json.Unmarshal(data, &several); err != nil {
		return fmt.Errorf("bin must be a path or paths by their names: %w", err)
	}
	*b = several
	return nil
}

func (f *findings) lookNode() *nodeProject {
	n := &nodeProject{files: f.files}
	if !f.readJSON("package.json", n) {
		return nil
	}
	n.pm = n.manager()
	var tsconfig struct {
		CompilerOptions struct {
			OutDir string `json:"outDir"`
		} `json:"compilerOptions"`
	}
	if f.readJSON("tsconfig.json", &tsconfig) {
		n.outDir = path.Clean(tsconfig.CompilerOptions.OutDir)
	}
	return n
}

func (n *nodeProject) manager() string {
	if name, _, _ := strings.Cut(n.PackageManager, "@"); slices.Contains([]string{"npm", "pnpm", "yarn", "bun"}, name) {
		return name
	}
	for _, lock := range []struct{ file, manager string }{
		{"package-lock.json", "npm"}, {"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lock", "bun"}, {"bun.lockb", "bun"},
	} {
		if exists(n.files, lock.file) {
			return lock.manager
		}
	}
	return "npm"
}

func (n *nodeProject) has(dependency string) bool {
	_, runtime := n.Dependencies[dependency]
	_, development := n.DevDependencies[dependency]
	return runtime || development
}

func (n *nodeProject) dependencies() bool { return len(n.Dependencies)+len(n.DevDependencies) > 0 }

// sdk reports whether the package depends on something to write servers with.
func (n *nodeProject) sdk() bool {
	for _, dependencies := range []map[string]string{n.Dependencies, n.DevDependencies} {
		for name := range dependencies {
			if strings.HasPrefix(name, "@modelcontextprotocol/") || strings.Contains(name, "mcp") {
				return true
			}
		}
	}
	return false
}

// String is what is worth knowing of the package.
func (n *nodeProject) String() string {
	parts := []string{n.pm}
	if n.Name != "" {
		parts = []string{n.Name, n.pm}
	}
	for _, tool := range []string{"typescript", "tsup"} {
		if n.has(tool) {
			parts = append(parts, tool)
		}
	}
	if len(n.Scripts) > 0 {
		parts = append(parts, "scripts "+strings.Join(slices.Sorted(maps.Keys(n.Scripts)), " "))
	}
	return strings.Join(parts, ", ")
}

// Scripts by which servers are started, the plainer ones first.
var startScripts = []string{"start:stdio", "mcp", "start", "start:mcp", "serve", "server", "start:server"}

// httpScripts are taken first where the server is known to listen on a port, and
// else last.
var httpScripts = []string{"start:http", "http", "start:streamable-http", "start:sse", "sse"}

// launch finds the way the package is started: by a script that runs a file, by
// its bin or its main, or by what a build makes of src/index.ts.
func (n *nodeProject) launch(src Source, wantHTTP bool) *launch {
	scripts := startScripts
	if wantHTTP {
		scripts = slices.Concat(httpScripts, startScripts)
	}
	for _, script := range scripts {
		if l := n.script(src, script); l != nil {
			return l
		}
	}
	for _, find := range []func() (string, string){n.bin, n.main, n.convention} {
		if file, why := find(); file != "" {
			return &launch{command: n.run(file), why: why}
		}
	}
	for _, script := range httpScripts {
		if l := n.script(src, script); l != nil {
			return l
		}
	}
	return nil
}

// script makes a command of a script, if it is one that runs a file of the
// project. What comes before the last && is taken for a build.
func (n *nodeProject) script(src Source, name string) *launch {
	steps := strings.Split(n.Scripts[name], "&&")
	words, err := config.SplitWords(strings.TrimSpace(steps[len(steps)-1]))
	if err != nil {
		return nil
	}
	env, words := splitAssignments(words)
	if len(words) == 0 || slices.Contains([]string{"npm", "pnpm", "yarn", "nodemon", "concurrently", "pm2", "mcp-inspector"}, words[0]) {
		return nil
	}
	if len(words) > 1 && words[1] == "watch" {
		// devproxy restarts it, and so nothing else may.
		words = slices.Delete(slices.Clone(words), 1, 2)
	}
	if n.has(words[0]) || words[0] == "tsc" {
		words = append(n.exec(), words...)
	}
	if runs(src, words, "") == "" {
		return nil
	}
	l := &launch{command: words, env: env, script: name, why: fmt.Sprintf("script %q of package.json", name)}
	if len(steps) > 1 && n.buildCommand() == "" {
		l.build = strings.TrimSpace(strings.Join(steps[:len(steps)-1], "&&"))
	}
	return l
}

func (n *nodeProject) exec() []string {
	switch n.pm {
	case "pnpm":
		return []string{"pnpm", "exec"}
	case "bun":
		return []string{"bunx"}
	}
	return []string{"npx"}
}

// run is the command that runs a file.
func (n *nodeProject) run(file string) []string {
	switch {
	case !isSource(file):
		return []string{"node", file}
	case n.pm == "bun":
		return []string{"bun", file}
	}
	return append(n.exec(), "tsx", file)
}

// bin is the binary called like the package, or the only one, or the first.
func (n *nodeProject) bin() (file, why string) {
	names := slices.Sorted(maps.Keys(n.Bin))
	if len(names) == 0 {
		return "", ""
	}
	name := names[0]
	own := n.Name[strings.LastIndexByte(n.Name, '/')+1:]
	if i := slices.IndexFunc(names, func(name string) bool { return name == own }); i >= 0 {
		name = names[i]
	} else if i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "mcp") }); i >= 0 {
		name = names[i]
	}
	why = "bin of package.json"
	if len(names) > 1 {
		why = fmt.Sprintf("bin %q of package.json, one of %s", name, strings.Join(names, ", "))
	}
	return path.Clean(n.Bin[name]), why
}

func (n *nodeProject) main() (file, why string) {
	if n.Main == "" {
		return "", ""
	}
	file = path.Clean(n.Main)
	if path.Ext(file) == "" {
		file += ".js"
	}
	// npm init writes one that is not there.
	if file == "index.js" && !exists(n.files, file) {
		return "", ""
	}
	return file, "main of package.json"
}

func (n *nodeProject) convention() (file, why string) {
	for _, name := range []string{"src/index.ts", "src/server.ts", "src/main.ts"} {
		if n.outDir != "" && n.outDir != "." && exists(n.files, name) {
			file := path.Join(n.outDir, strings.TrimSuffix(path.Base(name), ".ts")+".js")
			return file, "what tsconfig.json makes of " + name
		}
	}
	for _, name := range []string{"dist/index.js", "build/index.js", "index.js", "index.mjs", "server.js", "server.mjs", "src/index.js", "src/server.js", "src/index.ts", "index.ts", "server.ts"} {
		if exists(n.files, name) {
			return name, "it is there"
		}
	}
	return "", ""
}

// buildCommand is how the package is built; "" if it is not.
func (n *nodeProject) buildCommand() string {
	switch exec := strings.Join(n.exec(), " "); {
	case n.Scripts["build"] != "":
		return n.pm + " run build"
	case n.has("tsup"):
		return exec + " tsup"
	case n.has("typescript") && n.outDir != "" && n.outDir != ".":
		return exec + " tsc"
	}
	return ""
}

// watchScripts are those by which a package is built continuously.
var watchScripts = []string{"watch", "dev", "build:watch", "watch:build"}

// watchCommand is the script by which the package is built whenever a source
// changes; "" if there is none. One that also runs something would run the server
// beside devproxy.
func (n *nodeProject) watchCommand() string {
	for _, script := range watchScripts {
		words, err := config.SplitWords(n.Scripts[script])
		if err != nil {
			continue
		}
		_, words = splitAssignments(words)
		if len(words) > 1 && words[0] == "npx" {
			words = words[1:]
		}
		watches := slices.ContainsFunc(words, func(word string) bool {
			return slices.Contains([]string{"-w", "--watch", "-watch"}, word)
		})
		if watches && slices.Contains([]string{"tsc", "tsup"}, words[0]) && !slices.Contains(words, "--onSuccess") {
			return n.pm + " run " + script
		}
	}
	return ""
}

func (n *nodeProject) buildWhy() string {
	switch {
	case n.Scripts["build"] != "":
		return `script "build" of package.json`
	case n.has("tsup"):
		return "tsup is among the dependencies"
	}
	return "typescript is among the dependencies"
}

// usedBy reports whether a command runs a program of Node's.
func (n *nodeProject) usedBy(command []string) bool {
	return slices.Contains([]string{"node", "npm", "npx", "pnpm", "yarn", "bun", "bunx", "deno", "tsx"}, path.Base(command[0]))
}
