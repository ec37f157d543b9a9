//go:build !race

package testbed

// Race says that the tests are built with the race detector. The programs under
// test are built the way the tests are.
const Race = false

// RaceEnv is what the detector needs in the programs' environment.
var RaceEnv []string
