package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func addressOf(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// mustListen listens until the test ends, or skips it where the address family
// does not exist.
func mustListen(t *testing.T, network, address string) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("listening on %s: %v", address, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, int(addressOf(l.Addr().String()).Port())
}

func TestAPortInUseIsNoticedOnAnyAddress(t *testing.T) {
	for _, where := range []struct{ network, address string }{
		{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"tcp4", "0.0.0.0:0"}, {"tcp", "[::]:0"},
	} {
		t.Run(where.network+" "+where.address, func(t *testing.T) {
			l, port := mustListen(t, where.network, where.address)
			err := checkPort(t.Context(), port)
			f, ok := errors.AsType[*Failure](err)
			if !ok || f.Reason != PortInUse {
				t.Fatalf("error = %v", err)
			}
			if want := "port " + strconv.Itoa(port) + " is in use by pid " + strconv.Itoa(os.Getpid()) + " ("; runtime.GOOS == "linux" && !strings.HasPrefix(f.Message, want) {
				t.Errorf("message = %q, want it to begin with %q", f.Message, want)
			}
			if _, err := choosePort(t.Context(), port); err == nil {
				t.Error("a port in use was chosen")
			}
			_ = l.Close()
			if err := awaitFree(t.Context(), port); err != nil {
				t.Errorf("after closing: %v", err)
			}
			if got, err := choosePort(t.Context(), port); got != port || err != nil {
				t.Errorf("chosen %d, %v", got, err)
			}
		})
	}
}

// A server that closes its connections first leaves the port in TIME_WAIT for a
// minute. Whoever listens as servers do may have it all the same.
func TestAPortInTimeWaitIsFree(t *testing.T) {
	l, port := mustListen(t, "tcp", "127.0.0.1:0")
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the client reads %v", err)
	}
	_ = client.Close()
	_ = l.Close()
	if err := awaitFree(t.Context(), port); err != nil {
		t.Error(err)
	}
}

func TestAFreePortIsChosen(t *testing.T) {
	port, err := choosePort(t.Context(), 0)
	if err != nil || port < firstPort || port > lastPort {
		t.Fatalf("port %d, %v", port, err)
	}
	if err := checkPort(t.Context(), port); err != nil {
		t.Error(err)
	}
}

func TestAwaitAcceptFindsEitherLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, port := mustListen(t, "tcp", address)
		got, err := awaitAccept(t.Context(), port)
		if err != nil || got.String() != l.Addr().String() {
			t.Errorf("%v, %v; want %v", got, err, l.Addr())
		}
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(stopped) })
	port, err := choosePort(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := awaitAccept(ctx, port); !errors.Is(err, stopped) {
		t.Errorf("error = %v", err)
	}
}
