//go:build !linux

package process

func alive(pid int) bool {
	_, err := identify(pid)
	return err == nil
}
