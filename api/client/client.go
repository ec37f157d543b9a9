package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
)

// DialTimeout bounds a Dial whose context has no earlier end. Connecting to a
// daemon takes a millisecond; one that takes this long is stopped or stuck.
const DialTimeout = 5 * time.Second

var (
	// ErrNoDaemon says that nobody listens at the socket: it is missing, or a
	// daemon that is gone left it behind.
	ErrNoDaemon = errors.New("no daemon is running")
	// ErrNotServing says that somebody holds the socket and does not serve it:
	// a daemon that starts, ends, is stopped or stuck. Starting another one
	// would not help.
	ErrNotServing = errors.New("the daemon does not answer")
	// ErrHungUp is an ErrNotServing of one that took the connection and closed it,
	// as a daemon does in the moment of its end.
	ErrHungUp = fmt.Errorf("%w: it closed the connection", ErrNotServing)

	errDialTimeout = fmt.Errorf("no answer within %s", DialTimeout)
	errConnLost    = errors.New("the connection to the daemon was lost")
)

// Client is one connection to a daemon. It is safe for use by several
// goroutines.
type Client struct {
	conn   *grpc.ClientConn
	loss   *lossWatch
	socket string
}

// Dial connects to the daemon that serves the unix socket at path and waits
// until it answers, at most DialTimeout. It fails at once when nobody listens
// (ErrNoDaemon), with a *project.UnsafeError when the file is no socket of this
// user, and with a *project.StrangerError when another user listens on it.
func Dial(ctx context.Context, path string) (*Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, DialTimeout, errDialTimeout)
	defer cancel()
	c, err := dial(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("dialing the daemon at %s: %w", path, err)
	}
	c.socket = path
	return c, nil
}

func dial(ctx context.Context, path string) (*Client, error) {
	if _, err := project.CheckSocket(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNoDaemon
		}
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		// The file may have become another one since it was looked at.
		if err := checkPeer(conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return New(ctx, conn)
	case nobodyListens(err):
		return nil, fmt.Errorf("%w (%w)", ErrNoDaemon, err)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotServing, context.Cause(ctx))
	case backlogFull(err):
		return nil, fmt.Errorf("%w (%w)", ErrNotServing, err)
	}
	return nil, err
}

func checkPeer(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("a connection of type %T tells nothing of its peer", conn)
	}
	return project.CheckPeer(unix)
}

// New makes a Client of a connection that is already open and waits until the
// other end answers or ctx ends. The connection belongs to the Client then; it
// is closed if New fails.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	loss := newLossWatch()
	cc, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(once(conn)),
		grpc.WithNoProxy(),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(loss),
		grpc.WithInitialWindowSize(WindowSize),
		grpc.WithInitialConnWindowSize(WindowSize),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxCallMessage), grpc.MaxCallSendMsgSize(MaxCallMessage)),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the connection: %w", err), conn.Close())
	}
	if err := awaitReady(ctx, cc); err != nil {
		_ = cc.Close()
		_ = conn.Close() // no-op if gRPC has taken it
		return nil, err
	}
	return &Client{conn: cc, loss: loss}, nil
}

// once hands conn out a single time: a Client does not reconnect.
func once(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	var taken atomic.Bool
	return func(context.Context, string) (net.Conn, error) {
		if taken.Swap(true) {
			return nil, errConnLost
		}
		return conn, nil
	}
}

// awaitReady returns nil once the other end has sent its HTTP/2 settings: it
// serves, and not only listens.
func awaitReady(ctx context.Context, cc *grpc.ClientConn) error {
	for {
		state := cc.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return ErrHungUp
		case connectivity.Idle:
			// At first, and where the connection is over again: then there is no
			// second one. Nothing else brings it out of that state.
			cc.Connect()
		case connectivity.Connecting:
		}
		if !cc.WaitForStateChange(ctx, state) {
			return fmt.Errorf("%w: %w", ErrNotServing, context.Cause(ctx))
		}
	}
}

// Attach is the service that carries an MCP client's traffic.
func (c *Client) Attach() devproxyv1.AttachServiceClient {
	return devproxyv1.NewAttachServiceClient(c.conn)
}

// Control is the service behind devproxyctl.
func (c *Client) Control() devproxyv1.ControlServiceClient {
	return devproxyv1.NewControlServiceClient(c.conn)
}

// Socket is the path that was dialled, for messages; empty after New.
func (c *Client) Socket() string { return c.socket }

// Lost is closed as soon as the connection broke, even while messages that came
// before wait to be received. Someone who has stopped receiving for want of
// memory learns by it that receiving to the end costs at most WindowSize.
func (c *Client) Lost() <-chan struct{} { return c.loss.lost }

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }
