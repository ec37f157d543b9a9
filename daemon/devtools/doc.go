// Package devtools is the handful of tools that devproxy adds to the backend's
// own, so that a model at the other end of a client can see and steer the
// server it is helping to write.
//
// The package knows neither the protocol's eras nor how the daemon does what
// the tools ask for: it describes the tools, checks their arguments and words
// their answers. A Controller does the work.
package devtools
