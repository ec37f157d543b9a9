package process

func alive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && !s.dead()
}
