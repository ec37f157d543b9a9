package doctor

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/debugmcp/devproxy/api/client"
	"github.com/debugmcp/devproxy/internal/process"
)

// module is that of our programs.
const module = "github.com/debugmcp/devproxy"

// program finds one of ours, as it is found when it is needed: beside this one, or
// in PATH.
func (f *facts) program(name string) (string, error) {
	path, looked, err := client.Beside(name)
	if path != "" {
		return path, nil
	}
	if path, inPath := process.LookPath(name, process.SearchPath(f.Environ), f.Project.Root); inPath == nil {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s is neither in %s nor in PATH", name, strings.Join(looked, ", "))
}

// otherBuild says in words of what build a program is, if it is not of this one's;
// empty if it is, or if that cannot be told. The program is not run: it is named in
// files that anybody may have written.
func otherBuild(path string) string {
	theirs, err := buildinfo.ReadFile(path)
	if err != nil {
		return "" // a script that runs it, say
	}
	if theirs.Main.Path != module {
		return "no program of devproxy"
	}
	ours, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return compareBuilds(ours, theirs)
}

func compareBuilds(ours, theirs *debug.BuildInfo) string {
	a, b := revisionOf(ours), revisionOf(theirs)
	if a == "" || b == "" || a == b {
		return ""
	}
	return "of another build, " + b
}

// revisionOf is what tells builds apart: the commit, or else the version; empty
// where neither is known.
func revisionOf(info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			const enough = 12
			return "commit " + setting.Value[:min(enough, len(setting.Value))]
		}
	}
	if info.Main.Version == "(devel)" {
		return ""
	}
	return info.Main.Version
}
