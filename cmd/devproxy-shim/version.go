package main

import "runtime/debug"

// version is set by the linker in a release.
var version string

// buildVersion is the version of this build: the linker's, else that of the
// module.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
