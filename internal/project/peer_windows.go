package project

import "net"

// CheckPeer accepts everybody: Windows does not say who is at the other end of
// a unix socket, and the ACL of LocalAppData lets nobody else reach it.
func CheckPeer(*net.UnixConn) error { return nil }
