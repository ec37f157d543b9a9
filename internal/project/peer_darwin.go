package project

import "golang.org/x/sys/unix"

func peerUID(fd int) (int, error) {
	peer, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}
