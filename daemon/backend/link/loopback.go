package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	// maxIdle is how many connections to one backend are kept for reuse: more requests than that are rarely in
	// flight at once, and a new connection on the loopback costs little.
	maxIdle = 64
	// idleTime is shorter than the 5 s after which Node closes an idle connection. A POST that meets that close
	// cannot be repeated, as it may have been taken.
	idleTime = 4 * time.Second
	// maxHeaders bounds the headers of one answer, in bytes: far more than a session id or a cookie has.
	maxHeaders = 1 << 20
	// maxRedirects is enough for a server that adds or removes a slash.
	maxRedirects = 3
)

var errNotLoopback = errors.New("only loopback addresses are dialled (127.0.0.0/8, ::1, localhost)")

// parseTarget reads the URL of a backend.
func parseTarget(raw string) (*url.URL, error) {
	target, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the backend's URL: %w", err)
	case target.Scheme != "http":
		return nil, fmt.Errorf("the backend's URL %s must begin with http://", raw)
	}
	if _, err := loopback(target.Hostname()); err != nil {
		return nil, fmt.Errorf("the backend's URL %s: %w", raw, err)
	}
	return target, nil
}

// loopback returns the addresses of a host, which must be this machine. No name is resolved: what "localhost" is
// must not depend on a resolver.
func loopback(host string) ([]string, error) {
	if strings.EqualFold(host, "localhost") {
		return []string{"127.0.0.1", "::1"}, nil
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Unmap().IsLoopback() {
		return nil, fmt.Errorf("%w, not %q", errNotLoopback, host)
	}
	return []string{host}, nil
}

// dialLoopback is what every connection to a backend goes through, also after a redirect.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialling the backend: %w", err)
	}
	addresses, err := loopback(host)
	if err != nil {
		return nil, fmt.Errorf("dialling the backend: %w", err)
	}
	var dialer net.Dialer
	var failures []error
	for _, a := range addresses {
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(a, port))
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// newClient makes the HTTP client of one host. It has no time limits of its own: tools may take as long as they
// like, and streams stay open.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // one that the environment names has no business between us
			DialContext:            dialLoopback,
			DisableCompression:     true, // a compressor may hold back events
			MaxIdleConnsPerHost:    maxIdle,
			IdleConnTimeout:        idleTime,
			MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects || req.Method != via[0].Method {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// undelivered reports whether an error of a request means that none of it was sent.
func undelivered(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// notReady reports whether an error is one of a server that is still coming up.
func notReady(err error) bool {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	switch statusOf(err) {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}
