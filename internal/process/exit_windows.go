package process

import "os"

// signalOf is empty: Windows has no signals, a killed process has the status of its killer.
func signalOf(*os.ProcessState) string { return "" }

func signalNumber(string) int { return 0 }
