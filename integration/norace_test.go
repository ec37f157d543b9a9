//go:build !race

package integration

// The programs under test are built the way the tests are.
const raceEnabled = false

var raceEnv []string
