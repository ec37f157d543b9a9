//go:build unix

package daemon

// sameVariable reports whether two names are of one variable.
func sameVariable(a, b string) bool { return a == b }
