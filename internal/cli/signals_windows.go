package cli

import "os"

// endSignals ask a program to end.
var endSignals = []os.Signal{os.Interrupt}
