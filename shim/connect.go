package shim

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/debugmcp/devproxy/api/client"
	devproxyv1 "github.com/debugmcp/devproxy/api/devproxy/v1"
	"github.com/debugmcp/devproxy/internal/project"
)

// attemptTimeout bounds one attempt to get a daemon, its start included. What
// slows a start down (a cold disk, a machine under load) is over by then, and a
// daemon that comes up later is found by the next attempt.
const attemptTimeout = 30 * time.Second

var errAttemptTimeout = fmt.Errorf("it does not serve after %s", attemptTimeout)

// connector gets connections to the project's daemon. One attempt uses it at a
// time.
type connector struct {
	config Config
	found  *project.Project // once it was; a client belongs to one project
	root   string           // of it, for the hello
}

// open makes one attempt: it finds the project, dials its daemon or starts one,
// and attaches.
func (c *connector) open(ctx context.Context, autostart, resumed bool) (*link, error) {
	daemon, err := c.connect(ctx, autostart)
	if err != nil {
		return nil, err
	}
	return attach(ctx, daemon, &devproxyv1.Hello{
		Contract:           client.Contract,
		Version:            c.config.Version,
		Pid:                int64(os.Getpid()),
		ProjectRoot:        c.root,
		Resumed:            resumed,
		EnvironmentDigests: digests(c.config.Environ),
	})
}

func (c *connector) connect(ctx context.Context, autostart bool) (Daemon, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errAttemptTimeout)
	defer cancel()
	if c.config.Connect != nil {
		return c.config.Connect(ctx, autostart)
	}
	if err := c.find(); err != nil {
		return nil, err
	}
	daemon, err := client.EnsureRunning(ctx, client.Options{
		Project:     *c.found,
		Socket:      c.config.Socket,
		DialOnly:    !autostart,
		Environment: c.config.Environ,
	})
	if err != nil {
		return nil, err
	}
	return daemon, nil
}

func (c *connector) find() error {
	if c.found != nil {
		return nil
	}
	find, dir := project.Find, c.config.Dir
	if c.config.ProjectDir != "" {
		find, dir = project.At, c.config.ProjectDir
	}
	p, err := find(dir)
	if err != nil {
		return err
	}
	c.found, c.root = &p, p.Root
	return nil
}

// digests are those of the environment, by name.
func digests(environ []string) map[string][]byte {
	all := make(map[string][]byte, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			all[strings.ToValidUTF8(name, "\uFFFD")] = client.EnvironmentDigest(value)
		}
	}
	return all
}
