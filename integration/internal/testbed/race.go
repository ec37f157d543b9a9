//go:build race

package testbed

// Race says that the tests are built with the race detector. The programs under
// test are built the way the tests are.
const Race = true

// RaceEnv spares the programs the second that the detector otherwise sleeps at
// their end.
var RaceEnv = []string{"GORACE=atexit_sleep_ms=0"}
