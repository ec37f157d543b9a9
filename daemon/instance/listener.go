package instance

import (
	"log/slog"
	"net"

	"github.com/debugmcp/devproxy/internal/project"
)

// listener yields the connections whose peer is this user.
type listener struct {
	*net.UnixListener

	log *slog.Logger
}

// Accept returns the next connection of this user. Others are closed with a
// line in the log, and never end the listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := project.CheckPeer(conn); err != nil {
			l.log.Warn("a connection was dropped", "error", err)
			_ = conn.Close()
			continue
		}
		return conn, nil
	}
}
