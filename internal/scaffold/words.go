package scaffold

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/debugmcp/devproxy/internal/config"
)

// assignment is a word such as PORT=3000 at the beginning of a command.
var assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// splitAssignments takes the variables off that a script sets for its command.
func splitAssignments(words []string) (env []Variable, command []string) {
	for i, word := range words {
		if i == 0 && (word == "cross-env" || word == "env") {
			continue
		}
		match := assignment.FindStringSubmatch(word)
		if match == nil {
			return env, words[i:]
		}
		env = append(env, Variable{match[1], match[2]})
	}
	return env, nil
}

// evidence is what a command says of its transport.
type evidence struct {
	transport config.Transport
	why       string
}

var (
	portFlag  = regexp.MustCompile(`^(--port|--http-port|-p)$`)
	portEqual = regexp.MustCompile(`^(--port|--http-port)=(\d+)$`)
	wordParts = regexp.MustCompile(`[A-Za-z]+`)
)

// evidenceOf looks for a transport in the words of a command, in the name of the
// script it comes from and in its variables. What is said outright counts before
// what follows from a port.
func evidenceOf(command []string, script string, env []Variable) evidence {
	var weak evidence
	for i, word := range command {
		switch named := transportNamed(word); {
		case i == 0:
		case named != "":
			return evidence{named, "the command says " + word}
		case portFlag.MatchString(word) && i+1 < len(command) && isPort(command[i+1]),
			portEqual.MatchString(word), strings.Contains(word, "{port}"), strings.Contains(word, "$PORT"):
			weak = evidence{config.HTTP, "the command says " + word}
		}
	}
	for _, v := range env {
		switch named := transportNamed(v.Value); {
		case strings.Contains(v.Name, "TRANSPORT") && named != "":
			return evidence{named, v.Name + " is " + v.Value}
		case v.Name == "PORT" && weak.transport == "":
			weak = evidence{config.HTTP, "PORT is set for it"}
		}
	}
	if named := transportNamed(script); named != "" {
		return evidence{named, "the script is called " + script}
	}
	return weak
}

// transportNamed reads a transport from a word such as "http", "--transport=sse",
// "start:http" or "dist/streamable-http.js"; not from a URL or a package.
func transportNamed(word string) config.Transport {
	if strings.Contains(word, "://") || strings.HasPrefix(word, "@") {
		return ""
	}
	// Folders may be called anything.
	parts := wordParts.FindAllString(strings.ToLower(path.Base(filepath.ToSlash(word))), -1)
	switch {
	case slices.Contains(parts, "stdio"):
		return config.Stdio
	case slices.Contains(parts, "http"), slices.Contains(parts, "streamable"), slices.Contains(parts, "streamablehttp"):
		return config.HTTP
	case slices.Contains(parts, "sse"):
		return config.SSE
	}
	return ""
}

func isPort(word string) bool {
	if strings.Contains(word, "PORT") || word == "{port}" {
		return true
	}
	n, err := strconv.Atoi(word)
	return err == nil && n > 0 && n < 1<<16
}

// takePort puts {port} in the place of the port that a command is told, and
// returns it; 0 if it is told none.
func takePort(command []string) int {
	for i, word := range command {
		if match := portEqual.FindStringSubmatch(word); match != nil {
			port, _ := strconv.Atoi(match[2])
			command[i] = match[1] + "={port}"
			return port
		}
		if !portFlag.MatchString(word) || i+1 == len(command) {
			continue
		}
		if port, err := strconv.Atoi(command[i+1]); err == nil {
			command[i+1] = "{port}"
			return port
		}
	}
	return 0
}

// sources are the extensions of files that run as they are.
var sources = []string{".ts", ".tsx", ".mts", ".cts", ".py", ".rb", ".php"}

func isSource(file string) bool { return slices.Contains(sources, path.Ext(file)) }

// outputs are the folders that builds write to, and folders of sources that are
// watched as a whole too.
var outputs = []string{"dist", "build", "out", "lib", "src", "bin"}

// fileName is what a word looks like that names a file.
var fileName = regexp.MustCompile(`\.[A-Za-z][A-Za-z0-9]*$`)

// runs is the file of the project that a command runs: its first word that
// names one, relative to the project; "" if none does.
func runs(src Source, command []string, cwd string) string {
	for i, word := range command {
		word = filepath.ToSlash(word)
		if i == 0 && !strings.Contains(word, "/") || strings.HasPrefix(word, "-") || strings.Contains(word, "://") || strings.Contains(word, "{port}") {
			continue
		}
		file := inside(src.Root, path.Join(filepath.ToSlash(cwd), word))
		if path.IsAbs(word) {
			file = inside(src.Root, word)
		}
		if file == "" || file == "." || installed(file) {
			continue
		}
		info, err := fs.Stat(src.Files, file)
		if err == nil && info.Mode().IsRegular() || err != nil && fileName.MatchString(word) || err != nil && i == 0 {
			return file
		}
	}
	return ""
}

// installed reports whether a file is not the project's own, such as a program
// of a virtual environment.
func installed(file string) bool {
	first := firstPart(file)
	return first == "node_modules" || first == "venv" || strings.HasPrefix(first, ".")
}

// inside is a path relative to the project, "" if it leads out of it.
func inside(root, name string) string {
	name = filepath.ToSlash(name)
	if rest, within := strings.CutPrefix(name, filepath.ToSlash(root)+"/"); within {
		name = rest
	} else if name == filepath.ToSlash(root) {
		name = "."
	}
	name = path.Clean(name)
	if !fs.ValidPath(name) {
		return ""
	}
	return name
}

// watchFor is what to watch for a server that runs a file.
func watchFor(src Source, file string) []string {
	parts := strings.Split(path.Dir(file), "/")
	for i, part := range parts {
		if slices.Contains(outputs, part) {
			return []string{strings.Join(parts[:i+1], "/")}
		}
	}
	if dir := path.Dir(file); dir != "." {
		return []string{dir}
	}
	// In the root itself there is everything; what it imports is elsewhere.
	watch := []string{file}
	for _, dir := range []string{"src", "lib"} {
		if info, err := fs.Stat(src.Files, dir); err == nil && info.IsDir() {
			watch = append(watch, dir)
		}
	}
	return watch
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}
