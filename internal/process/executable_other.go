//go:build !linux

package process

import "os"

// ownExecutable names the file of the running program.
func ownExecutable() (string, error) { return os.Executable() }
