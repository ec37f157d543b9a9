package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends returns the two ends of each kind of stdin that a client or a shell hands
// over, in blocking mode.
func ends(t *testing.T, kind string) (input, peer *os.File) {
	t.Helper()
	var fds [2]int
	var err error
	switch kind {
	case "pipe":
		err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	case "socket":
		fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	case "terminal":
		var number uint32
		if fds[1], err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			t.Skip("no terminals here:", err)
		}
		if err = unix.IoctlSetPointerInt(fds[1], unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetUint32(fds[1], unix.TIOCGPTN)
		}
		if err == nil {
			fds[0], err = unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	input, peer = os.NewFile(uintptr(fds[0]), "input"), os.NewFile(uintptr(fds[1]), "peer")
	t.Cleanup(func() { _, _ = input.Close(), peer.Close() })
	return input, peer
}

func TestPolledInput(t *testing.T) {
	for _, kind := range []string{"pipe", "socket", "terminal"} {
		t.Run(kind, func(t *testing.T) {
			file, peer := ends(t, kind)
			input, polled := clientInput(file)
			if !polled {
				t.Fatal("not polled")
			}
			p := input.(*polledInput)
			defer func() { _ = p.poll.Close() }()
			for i := range 100 {
				want := slices.Repeat([]byte{byte('a' + i%26)}, 1+i*7)
				want = append(want, '\n')
				if i%2 == 0 { // what is there already, and what comes during the wait
					if _, err := peer.Write(want); err != nil {
						t.Fatal(err)
					}
				} else {
					go func() { _, _ = peer.Write(want) }()
				}
				// In pieces, so that some of it is left for the next Read.
				var got []byte
				for b := make([]byte, 100); len(got) < len(want); {
					n, err := input.Read(b)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, b[:n]...)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
			if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("its flags are now %x: %v", flags, err)
			}
			interrupted := make(chan error, 1)
			go func() {
				_, err := input.Read(make([]byte, 1))
				interrupted <- err
			}()
			if err := p.SetDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			if err := <-interrupted; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("an interrupted Read: %v", err)
			}
			if err := errors.Join(p.SetDeadline(time.Time{}), peer.Close()); err != nil {
				t.Fatal(err)
			}
			n, err := input.Read(make([]byte, 1))
			// The end of a terminal is what the system says it is.
			if n != 0 || err != io.EOF && (kind != "terminal" || !errors.Is(err, unix.EIO)) {
				t.Errorf("at the end: %d, %v", n, err)
			}
		})
	}
}

func TestInputThatDoesNotBlock(t *testing.T) {
	file, _ := ends(t, "pipe")
	if err := unix.SetNonblock(int(file.Fd()), true); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	own := os.NewFile(uintptr(fd), "input")
	defer func() { _ = own.Close() }()
	if input, polled := clientInput(own); input != io.Reader(own) || !polled {
		t.Errorf("read through %T, polled %v", input, polled)
	}
}

func TestInputThatIsNeverWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, os.DevNull} {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		if input, polled := clientInput(file); input != io.Reader(file) || polled {
			t.Errorf("%s is read through %T, polled %v", name, input, polled)
		}
	}
}

// A signal, such as those that Go's scheduler sends itself, does not let a Read take
// nothing for something, and block.
func TestPolledInputUnderSignals(t *testing.T) {
	file, _ := ends(t, "pipe")
	input, _ := clientInput(file)
	p := input.(*polledInput)
	defer func() { _ = p.poll.Close() }()
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Kill(os.Getpid(), unix.SIGURG)
			}
		}
	}()
	defer func() { close(stop); <-over }()
	for range 1000 {
		if err := p.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := p.Read(make([]byte, 1))
			done <- err
		}()
		runtime.Gosched()
		if err := p.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a Read goes on behind its deadline")
		}
	}
}

// The kernel lets only so many wait for one pipe in this way.
func TestInputThatTooManyWaitFor(t *testing.T) {
	file, _ := ends(t, "pipe")
	for range 2000 {
		input, polled := clientInput(file)
		if !polled {
			if input != io.Reader(file) {
				t.Errorf("read through %T", input)
			}
			return
		}
		p := input.(*polledInput)
		defer func() { _ = p.poll.Close() }()
		if err := p.SetDeadline(time.Time{}); err != nil {
			t.Fatal("not in the poller:", err)
		}
	}
	t.Log("it took all of them")
}
