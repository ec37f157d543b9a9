package testbed

import (
	"fmt"
	"os"
	"os/exec"
)

// Build builds the commands that the patterns match into the folder dir. root
// is the folder of go.mod.
func Build(root, dir string, race bool, patterns ...string) error {
	// Without what only debuggers read: linking takes half the time.
	args := []string{"build", "-ldflags=-s -w", "-o", dir + "/"}
	cgo := "CGO_ENABLED=0"
	if race {
		args = append(args, "-race")
		cgo = "CGO_ENABLED=1"
	}
	command := exec.Command("go", append(args, patterns...)...)
	command.Dir = root
	command.Env = append(os.Environ(), cgo)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %v: %w\n%s", patterns, err, output)
	}
	return nil
}
