package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// polledInput reads a descriptor that is in blocking mode, as clients hand it to
// their children, and waits for it in Go's poller. The mode is one of the pipe's end
// and not of the descriptor: a shell, a wrapper or a terminal may have the same one,
// and would find it changed. So it stays as it is, and an epoll instance beside it,
// which can be in the poller, tells when there is something to read.
type polledInput struct {
	fd   int
	poll *os.File // the epoll instance
	conn syscall.RawConn
}

// newPolledInput fails for what is never waited for, such as a regular file, and
// where the system has no room for one more that is.
func newPolledInput(file *os.File) (*polledInput, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating an epoll instance for %s: %w", file.Name(), err)
	}
	p := &polledInput{fd: int(file.Fd())}
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, p.fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	if err == nil {
		err = unix.SetNonblock(epoll, true) // the poller takes no other
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for %s: %w", file.Name(), err), unix.Close(epoll))
	}
	p.poll = os.NewFile(uintptr(epoll), file.Name())
	if err = p.poll.SetReadDeadline(time.Time{}); err == nil { // else it is not in the poller
		p.conn, err = p.poll.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for %s: %w", file.Name(), err), p.poll.Close())
	}
	return p, nil
}

func (p *polledInput) Read(b []byte) (n int, err error) {
	waiting := p.conn.Read(func(uintptr) bool {
		n, err = p.readNow(b)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waiting != nil:
		return 0, waiting
	case err != nil:
		return 0, &os.PathError{Op: "read", Path: p.poll.Name(), Err: err}
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// readNow fails with EAGAIN if there is nothing to read. The poller tells of a change
// only: what the Read before has left, or somebody else has read since, is found out
// here. It blocks if that happens in the middle of it.
func (p *polledInput) readNow(b []byte) (int, error) {
	for {
		events := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(events, 0)
		if err == nil && ready == 0 {
			return 0, unix.EAGAIN
		}
		n := 0
		if err == nil {
			n, err = unix.Read(p.fd, b)
		}
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// SetDeadline ends a Read that waits then.
func (p *polledInput) SetDeadline(t time.Time) error { return p.poll.SetReadDeadline(t) }
