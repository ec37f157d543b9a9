package process

// Alive reports whether a process has that pid and has not ended, whoever its
// parent is. It is for waiting for a process that is not ours to wait for; a
// pid says nothing about who has it now.
func Alive(pid int) bool { return alive(pid) }
