//go:build race

package integration

// The programs under test are built the way the tests are.
const raceEnabled = true

// raceEnv spares the programs the second that the detector otherwise sleeps at
// their end.
var raceEnv = []string{"GORACE=atexit_sleep_ms=0"}
