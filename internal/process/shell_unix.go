//go:build unix

package process

// Shell is the Spec that runs command through the platform's shell: /bin/sh -c, or cmd /C on
// Windows. Dir, Env and Marker are left to the caller.
func Shell(command string) (Spec, error) {
	return Spec{Path: "/bin/sh", Args: []string{"-c", command}}, nil
}
