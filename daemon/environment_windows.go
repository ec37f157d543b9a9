package daemon

import "strings"

// sameVariable reports whether two names are of one variable: Windows asks for
// PATH and finds Path.
func sameVariable(a, b string) bool { return strings.EqualFold(a, b) }
