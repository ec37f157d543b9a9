package process

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// Shell is the Spec that runs command through the platform's shell: /bin/sh -c, or cmd /C on
// Windows. Dir, Env and Marker are left to the caller.
func Shell(command string) (Spec, error) {
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return Spec{}, fmt.Errorf("finding the shell: %w", err)
	}
	path := system + `\cmd.exe`
	// cmd does not unquote as other programs do. With /S it drops the outer quotes and takes the
	// rest as it is; /D keeps the user's AutoRun commands out.
	verbatim := `"` + path + `" /D /S /C "` + command + `"`
	return Spec{Path: path, verbatim: verbatim}, nil
}
