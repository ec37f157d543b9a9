package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programExtensions are what Windows runs, in the default order of PATHEXT.
func programExtensions() []string { return []string{".com", ".exe", ".bat", ".cmd"} }

// makeExecutable says how a file comes to be run.
const makeExecutable = "put the program that runs %s before it"

// findExecutable returns file, or file with the first extension under which a program is there.
// What is there under another name only is an error that wraps fs.ErrPermission.
func findExecutable(file string) (string, error) {
	names := []string{file}
	if !slices.Contains(programExtensions(), strings.ToLower(filepath.Ext(file))) {
		names = names[:0]
		for _, extension := range programExtensions() {
			names = append(names, file+extension)
		}
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			return name, nil
		}
	}
	if _, err := os.Stat(file); err == nil {
		return "", fs.ErrPermission
	}
	return "", fs.ErrNotExist
}

// isPathVariable: Windows itself spells it Path, and takes any spelling.
func isPathVariable(name string) bool { return strings.EqualFold(name, "PATH") }
