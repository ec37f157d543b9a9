package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/debugmcp/devproxy/internal/config"
	"github.com/debugmcp/devproxy/internal/process"
	"github.com/debugmcp/devproxy/internal/project"
	"github.com/debugmcp/devproxy/watch"
)

const configCheck = project.ConfigName

// lookConfig: is it there, and valid?
func lookConfig(_ context.Context, f *facts) []Finding {
	switch err := f.configErr; {
	case errors.Is(f.ProjectErr, project.ErrNotFound):
		missing, _ := errors.AsType[*project.NotFoundError](f.ProjectErr)
		if missing.Missing != nil {
			return with(one(Problem, "%v", missing), "check --project")
		}
		return with(one(Problem, "%v", missing), `"devproxyctl init" writes one; or name the project with --project DIR`)
	case f.ProjectErr != nil:
		return with(one(Problem, "%v", f.ProjectErr), "name the project with --project DIR")
	case errors.Is(err, fs.ErrNotExist):
		return with(one(Problem, "there is none in %s", f.Project.Root), `"devproxyctl init" writes one; or check --project`)
	case err != nil:
		var faults []string
		if many, ok := errors.AsType[config.Errors](err); ok {
			for _, fault := range many {
				faults = append(faults, fault.Error())
			}
			return with(one(Problem, "%d things in %s are wrong", len(many), f.Project.Config()),
				"mend these lines; docs/configuration.md has every key", faults...)
		}
		return with(one(Problem, "%v", err), "mend that; docs/configuration.md has every key")
	}
	b := f.config.Backend
	return one(OK, "%s: %s, %s", f.Project.Config(), b.Transport, strings.Join(b.Command, " "))
}

// lookCommand: would the daemon find the program?
func lookCommand(_ context.Context, f *facts) []Finding {
	b := f.config.Backend
	env := f.environment()
	path, err := process.LookPath(b.Command[0], env.path, b.Cwd)
	if err != nil && f.kept.terminalPath != "" {
		if there, terminalErr := process.LookPath(b.Command[0], f.kept.terminalPath, b.Cwd); terminalErr == nil {
			path, err = there, nil
			env.whose = "the PATH of the last start from a terminal"
		}
	}
	if err != nil {
		missing, _ := errors.AsType[*process.NotFoundError](err)
		if missing.Advice() != "" {
			return with(one(Problem, "%v", err), missing.Advice())
		}
		if missing.File != "" {
			return with(one(Problem, "%v", err), f.buildFirst())
		}
		found := with(one(Problem, "%v", err), "install it, or put its path into command of [backend]", "looked in "+env.whose)
		if here, hereErr := process.LookPath(b.Command[0], process.SearchPath(f.Environ), b.Cwd); hereErr == nil {
			found[0].Details = append(found[0].Details, "in this terminal's PATH it is "+here)
			found[0].Remedy = `"devproxyd restart" has the daemon take this terminal's environment`
		}
		return found
	}
	if hint, remedy := wrapper(f.config, os.ReadFile); hint != "" {
		return with(one(Warning, "%s", hint), remedy)
	}
	if path == b.Command[0] {
		return one(OK, "%s", path)
	}
	return one(OK, "%s is %s, from %s", b.Command[0], path, env.whose)
}

// wrapper says what a program that stands between devproxy and the server does
// that a person may not want.
func wrapper(c *config.Config, read func(string) ([]byte, error)) (hint, remedy string) {
	words := c.Backend.Command
	name := strings.TrimSuffix(filepath.Base(filepath.FromSlash(words[0])), ".exe")
	rest := words[1:]
	switch name {
	case "nodemon", "watchexec", "entr", "air":
		return name + " restarts the server behind devproxy's back, which takes that for a crash",
			"name the server itself in command, and what " + name + " watches in [watch] paths"
	case "node", "tsx", "bun", "deno":
		if slices.Contains(rest, "--watch") || len(rest) > 0 && name == "tsx" && rest[0] == "watch" {
			return name + " restarts the server itself when a file changes, which devproxy does not see",
				"leave its watching out of command, and name the files in [watch] paths"
		}
	case "npm", "pnpm", "yarn":
		script := scriptOf(rest)
		quiet := slices.ContainsFunc(rest, func(word string) bool { return word == "-s" || word == "--silent" || word == "--quiet" })
		if script == "" || quiet || c.Backend.Transport != config.Stdio {
			return "", ""
		}
		remedy = "say in command what the script runs"
		if line := packageScript(c, script, read); line != "" {
			remedy += ": " + line
		}
		return fmt.Sprintf("%s writes lines of its own to stdout before the server speaks, and stands between it and devproxy", name), remedy
	}
	return "", ""
}

// scriptOf is the script that the arguments of a package manager run.
func scriptOf(words []string) string {
	for i, word := range words {
		switch {
		case strings.HasPrefix(word, "-"):
		case word == "start" || word == "test":
			return word
		case word == "run" || word == "run-script":
			if i+1 < len(words) {
				return words[i+1]
			}
			return ""
		default:
			return ""
		}
	}
	return ""
}

func packageScript(c *config.Config, script string, read func(string) ([]byte, error)) string {
	text, err := read(filepath.Join(c.Backend.Cwd, "package.json"))
	var manifest struct{ Scripts map[string]string }
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		return ""
	}
	return manifest.Scripts[script]
}

func lookCwd(_ context.Context, f *facts) []Finding {
	cwd := f.config.Backend.Cwd
	if cwd == f.config.Root {
		return nil // found already
	}
	info, err := os.Stat(cwd)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return with(one(Problem, "there is no folder %s", cwd), "make it, or mend cwd of [backend]")
	case err != nil:
		return with(one(Problem, "%v", err), "mend cwd of [backend]")
	case !info.IsDir():
		return with(one(Problem, "%s is no folder", cwd), "mend cwd of [backend]")
	}
	return one(OK, "%s", cwd)
}

func lookEnvFile(_ context.Context, f *facts) []Finding {
	if f.config.Backend.EnvFile == "" {
		return nil
	}
	variables, err := f.config.LoadEnv()
	if err != nil {
		return with(one(Problem, "%v", err), "mend the file, or env_file of [backend]; no start succeeds without it")
	}
	return one(OK, "%s: %s", f.config.Backend.EnvFile, count(len(variables), "variable"))
}

// lookBuild: is there the program that builds?
func lookBuild(_ context.Context, f *facts) []Finding {
	b := f.config.Build
	if !b.Command.Configured() && !b.Watch.Configured() {
		return one(Skipped, "no build command; build as you always do")
	}
	env := f.environment()
	search := strings.Join(slices.DeleteFunc([]string{env.path, f.kept.terminalPath}, func(path string) bool { return path == "" }), string(os.PathListSeparator))
	for _, command := range []config.Command{b.Command, b.Watch} {
		program := programOf(command)
		if program == "" {
			continue
		}
		if _, err := process.LookPath(program, search, f.config.Root); err != nil {
			return with(one(Problem, "%v", err), "install it, or mend [build]", "the command is "+command.String(), "looked in "+env.whose)
		}
	}
	if !b.Command.Configured() {
		return one(OK, "%s", b.Watch)
	}
	return one(OK, "%s", b.Command)
}

// programOf is the program that a command runs; "" where a shell would have to say.
func programOf(c config.Command) string {
	if len(c.Argv) > 0 {
		return c.Argv[0]
	}
	for word := range strings.FieldsSeq(c.Script) {
		switch name, _, assigns := strings.Cut(word, "="); {
		case assigns && name != "" && !strings.ContainsAny(name, `/\"'$`):
			continue // a variable for the command that follows
		case strings.ContainsAny(word, "\"'`$(){}[]<>|&;~*?!#\\"):
			return ""
		case slices.Contains([]string{"cd", "set", "export", "if", "for", "while", "test", "exec", "eval", "source", ".", ":"}, word):
			return ""
		}
		return word
	}
	return ""
}

// buildFirst says how what is missing comes about.
func (f *facts) buildFirst() string {
	switch b := f.config.Build; {
	case b.Command.Configured():
		return fmt.Sprintf("build first: %s, or \"devproxyctl restart --rebuild\"", b.Command)
	case b.Watch.Configured():
		return fmt.Sprintf("it comes with the first build of %s, which the daemon runs", b.Watch)
	}
	return "build it; or mend command of [backend] and [watch]"
}

// lookEntry: is there the file that the backend is?
func lookEntry(_ context.Context, f *facts) []Finding {
	entry := f.config.DeriveEntry()
	if entry == "" {
		if missing := missingArgument(f.config); missing != "" {
			return with(one(Warning, "%s, which the command names, is not there", missing), f.buildFirst())
		}
		return one(Skipped, "no watched file is named in the command, so that a start waits for none")
	}
	info, err := os.Stat(entry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return with(one(Problem, "%s is missing; nothing is started before it is there", f.display(entry)), f.buildFirst())
	case err != nil:
		return with(one(Problem, "%v", err), "see to it that you may read it")
	case !info.Mode().IsRegular():
		return with(one(Problem, "%s is no file", f.display(entry)), "mend command of [backend] or entry of [watch]")
	case info.Size() == 0:
		return with(one(Problem, "%s is empty; nothing is started before it has content", f.display(entry)), f.buildFirst())
	}
	file, err := os.Open(entry)
	if err != nil {
		return with(one(Problem, "%v", err), "see to it that you may read it")
	}
	_ = file.Close()
	return one(OK, "%s, %s", f.display(entry), size(info.Size()))
}

// missingArgument is an argument of the command that looks like a program's file
// and is not there.
func missingArgument(c *config.Config) string {
	for _, word := range c.Backend.Command[1:] {
		switch filepath.Ext(word) {
		case ".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".rb", ".jar", ".php", ".dll":
		default:
			continue
		}
		if strings.HasPrefix(word, "-") || strings.Contains(word, "://") {
			continue
		}
		path := filepath.FromSlash(word)
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Backend.Cwd, path)
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return word
		}
	}
	return ""
}

// watching is the watcher's configuration.
func (f *facts) watching() watch.Config {
	w := f.config.Watch
	return watch.Config{Root: f.config.Root, Paths: w.Paths, Ignore: w.Ignore, Entry: f.config.DeriveEntry(), Poll: w.Poll}
}

// lookWatch: is there something to watch, and can it be read?
func lookWatch(ctx context.Context, f *facts) []Finding {
	paths := f.config.Watch.Paths
	if len(paths) == 0 {
		return with(one(Skipped, "nothing is watched, so that nothing restarts the backend by itself"),
			`name the build's output as paths of [watch], or restart with "devproxyctl restart"`)
	}
	var missing, shown []string
	for _, path := range paths {
		shown = append(shown, f.display(path))
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, f.display(path))
		}
	}
	outlook := watch.Foresee(ctx, f.watching())
	notes := outlook.Notes
	if problem := f.status.GetWatch().GetProblem(); problem != "" && !slices.Contains(notes, problem) {
		notes = append(notes, problem)
	}
	switch {
	case len(missing) > 0:
		is := "is"
		if len(missing) > 1 {
			is = "are"
		}
		return with(one(Warning, "%s %s not there yet", strings.Join(missing, ", "), is), f.buildFirst(), notes...)
	case len(notes) > 0:
		return with(one(Warning, "%s", notes[0]), "", notes[1:]...)
	case outlook.Files == 0:
		return with(one(Warning, "%s: there are no files", strings.Join(shown, ", ")), f.buildFirst())
	}
	return one(OK, "%s: %s in %s", strings.Join(shown, ", "), count(outlook.Files, "file"), count(outlook.Directories, "folder"))
}

// display is a path as a person in the project would write it.
func (f *facts) display(path string) string {
	rel, err := filepath.Rel(f.Project.Root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return rel
}

// count is a number of things in words.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return count(int(n), "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
