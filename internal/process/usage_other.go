//go:build !linux

package process

func usageOf(int) (Usage, bool) { return Usage{}, false }

func stopped(int) bool { return false }
