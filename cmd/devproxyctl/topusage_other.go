//go:build !linux

package main

// usageOf knows nothing here.
func usageOf(int) (usage, bool) { return usage{}, false }
