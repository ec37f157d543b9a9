package scaffold

import (
	"encoding/json"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
)

// Bounds of what is read: a source or a manifest has less, and a project that
// has more files is not looked through.
const (
	maxFile    = 1 << 20
	maxSources = 400
)

// findings is what there is in a project.
type findings struct {
	files   fs.FS
	node    *nodeProject
	python  *pythonProject
	golang  *goProject
	cargo   *cargoProject
	servers []clientServer
	// url is an entry of a client that names the server by its address on this
	// machine.
	url *localURL
	// otherURLs are further ones.
	otherURLs []string
	// brokenClients: a client's file was there and could not be read.
	brokenClients bool
	faults        []Fact
}

// survey looks at all there is.
func survey(src Source) *findings {
	look := &findings{files: src.Files}
	look.node = look.lookNode()
	look.python = look.lookPython()
	look.golang = look.lookGo()
	look.cargo = look.lookCargo()
	look.lookClients(src)
	return look
}

func (f *findings) fault(where string, err error) {
	f.faults = append(f.faults, Fact{where, "cannot be read: " + firstLine(err.Error())})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// found are the facts that the decisions rest on.
func (f *findings) found() []Fact {
	var facts []Fact
	if f.node != nil {
		facts = append(facts, Fact{"package.json", f.node.String()})
	}
	if f.python != nil {
		facts = append(facts, Fact{f.python.where(), f.python.String()})
	}
	if f.golang != nil {
		facts = append(facts, Fact{"go.mod", f.golang.String()})
	}
	if f.cargo != nil {
		facts = append(facts, Fact{"Cargo.toml", f.cargo.String()})
	}
	for _, server := range f.servers {
		facts = append(facts, Fact{server.file, server.String()})
	}
	return append(facts, f.faults...)
}

// looked is found, with what was not found.
func (f *findings) looked() []Fact {
	facts := f.found()
	missing := func(is bool, where, what string) {
		if is {
			facts = append(facts, Fact{where, "not there: would have been asked for " + what})
		}
	}
	missing(f.node == nil && !exists(f.files, "package.json"), "package.json", "its bin, main and scripts")
	missing(f.python == nil && !exists(f.files, "pyproject.toml"), "pyproject.toml", "[project.scripts]")
	missing(f.golang == nil, "go.mod", "its main packages")
	missing(f.cargo == nil && !exists(f.files, "Cargo.toml"), "Cargo.toml", "its binaries")
	missing(len(f.servers) == 0 && !f.brokenClients, ".mcp.json, .cursor/mcp.json, …", "an entry that starts the server itself")
	return facts
}

// read returns a file, or nil if it is not there.
func (f *findings) read(name string) []byte {
	file, err := f.files.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil
	}
	return content
}

// readJSON decodes a file of JSON, with comments or without, and reports
// whether there was one.
func (f *findings) readJSON(name string, into any) bool {
	content := f.read(name)
	if content == nil {
		return false
	}
	plain, err := hujson.Standardize(content)
	if err == nil {
		err = json.Unmarshal(plain, into)
	}
	if err != nil {
		f.fault(name, err)
		return false
	}
	return true
}

func (f *findings) readTOML(name string, into any) bool {
	content := f.read(name)
	if content == nil {
		return false
	}
	if err := toml.Unmarshal(content, into); err != nil {
		f.fault(name, err)
		return false
	}
	return true
}

// target is what a command runs, relative to the project: a file, or the folder
// of a module; "" if it runs nothing of the project.
func (f *findings) target(src Source, command []string, cwd string) string {
	if file := runs(src, command, cwd); file != "" {
		return file
	}
	for i, word := range command {
		if i == 0 {
			continue
		}
		if f.python != nil && f.python.packages[word] != "" {
			return f.python.packages[word]
		}
		if command[i-1] == "-m" {
			if module := f.module(word); module != "" {
				return module
			}
		}
		if f.node == nil || word == "run" || !f.node.usedBy(command) {
			continue
		}
		if script := f.node.script(src, word); script != nil {
			return runs(src, script.command, "")
		}
	}
	return ""
}

// module is where a module of Python lies; "" if it is not in the project.
func (f *findings) module(name string) string {
	top, _, _ := strings.Cut(name, ".")
	for _, candidate := range []string{"src/" + top, top, top + ".py", "src/" + top + ".py"} {
		if fs.ValidPath(candidate) && exists(f.files, candidate) {
			return candidate
		}
	}
	return ""
}

// What servers in the usual languages say when they listen.
var (
	readsPort = regexp.MustCompile(`process\.env\.PORT\b|process\.env\[['"]PORT['"]\]|Bun\.env\.PORT\b|os\.environ(\.get)?[(\[]\s*['"]PORT['"]|os\.getenv\(\s*['"]PORT['"]|os\.(Getenv|LookupEnv)\("PORT"\)|env::var\("PORT"\)`)
	listens   = regexp.MustCompile(`\.listen\(\s*(\d{2,5})\b|\bport\s*[=:]\s*(\d{2,5})\b|"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\])?:(\d{2,5})"`)
)

// What the sources of a server have that serves HTTP, and of one that speaks on
// standard input and output.
var (
	servesHTTP = regexp.MustCompile(`\bListenAndServe(TLS)?\b|\bNewStreamableHTTP(Handler|Server)\b|\bStreamableHTTPServerTransport\b|\bStreamableHttpService\b|\.listen\(|\bcreateMcpExpressApp\b|["']streamable-http["']|\bstreamable_http_app\b|\buvicorn\.run\b|\baxum::serve\b`)
	servesSSE  = regexp.MustCompile(`\bNewSSE(Handler|Server)\b|\bSSEServerTransport\b|["']sse["']|\bsse_app\b|\bSseServer\b`)
	usesStdio  = regexp.MustCompile(`\bStdio(Server)?Transport\b|\bServeStdio\b|\bNewStdioServer\b|\bstdio_server\b|\bprocess\.stdin\b|\bos\.Stdin\b|\bsys\.stdin\b|["']stdio["']|\bio::stdin\b|\bstdio\(\)`)
)

// signs are what the server's sources have first of each kind, and where.
type signs struct{ http, sse, stdio Fact }

// signs looks for them in the main package of a program of Go, else in all that a
// server may be made of.
func (f *findings) signs(src Source, command []string, cwd string) signs {
	var found signs
	note := func(name string, text []byte) bool {
		for _, kind := range []struct {
			sign  *regexp.Regexp
			first *Fact
		}{{servesHTTP, &found.http}, {servesSSE, &found.sse}, {usesStdio, &found.stdio}} {
			if match := kind.sign.Find(text); match != nil && kind.first.What == "" {
				*kind.first = Fact{name, strings.Trim(string(match), ".()")}
			}
		}
		return true
	}
	if dir, is := f.goPackage(src, command, cwd); is {
		files, _ := fs.Glob(f.files, path.Join(dir, "*.go")) // the pattern is no bad one
		for _, name := range files[:min(len(files), maxSources)] {
			if !strings.HasSuffix(name, "_test.go") {
				note(name, f.read(name))
			}
		}
		return found
	}
	f.sources(command, note)
	return found
}

// goPackage is the folder of the main package that a command runs.
func (f *findings) goPackage(src Source, command []string, cwd string) (dir string, is bool) {
	if f.golang == nil || len(f.golang.mains) == 0 {
		return "", false
	}
	file := runs(src, command, cwd)
	switch {
	case command[0] == "go":
		return f.golang.called(command[len(command)-1]).dir, true
	case file != "" && path.Base(file) == path.Base(command[0]):
		return f.golang.called(file).dir, true
	}
	return "", false
}

// readsPort reports whether the server's sources read $PORT.
func (f *findings) readsPort(command []string) bool {
	found := false
	f.sources(command, func(_ string, text []byte) bool {
		found = readsPort.Match(text)
		return !found
	})
	return found
}

// listensOn is the port in the server's sources, 0 if there is none.
func (f *findings) listensOn(command []string) int {
	port := 0
	f.sources(command, func(_ string, text []byte) bool {
		match := listens.FindSubmatch(text)
		if match == nil {
			return true
		}
		for _, group := range match[1:] {
			if n, err := strconv.Atoi(string(group)); err == nil && n < 1<<16 {
				port = n
			}
		}
		return port == 0
	})
	return port
}

// sources visits the files that a server may be made of, until visit returns
// false.
func (f *findings) sources(command []string, visit func(name string, text []byte) bool) {
	for _, word := range command {
		if name := path.Clean(word); fs.ValidPath(name) && fileName.MatchString(word) {
			if content := f.read(name); content != nil && !visit(name, content) {
				return
			}
		}
	}
	left := maxSources
	_ = fs.WalkDir(f.files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read says nothing
		case entry.IsDir() && name != "." && (skipped[base] || strings.HasPrefix(base, ".")):
			return fs.SkipDir
		case entry.IsDir() || !isProgram(name) || strings.Contains(base, "test"):
			return nil
		}
		if left--; left < 0 {
			return fs.SkipAll
		}
		if content := f.read(name); content != nil && !visit(name, content) {
			return fs.SkipAll
		}
		return nil
	})
}

// skipped are folders that hold no sources of the project's own.
var skipped = map[string]bool{
	"node_modules": true, "vendor": true, "testdata": true, "dist": true, "build": true, "out": true, "target": true,
	"__pycache__": true, "venv": true, "test": true, "tests": true,
}

func isProgram(name string) bool {
	switch path.Ext(name) {
	case ".ts", ".mts", ".js", ".mjs", ".cjs", ".py", ".go", ".rs":
		return true
	}
	return false
}
