// Devproxy-shim is what an MCP client spawns: it connects the client's stdin and
// stdout to the devproxy daemon of a project, and starts that daemon if none
// runs.
//
// Usage:
//
//	devproxy-shim [--project DIR] [--socket PATH] [--no-autostart]
//
// The project is the folder that holds devproxy.toml: DIR, or the nearest one
// from the working directory upwards. The exit code is 0 when the client has
// closed stdin or stdout or ended the shim by a signal, 1 when the client was
// given up because it does not read, 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/debugmcp/devproxy/shim"
)

// Exit codes.
const (
	exitOK      = 0
	exitGivenUp = 1
	exitUsage   = 2
)

func main() {
	stdin, polled := clientInput(os.Stdin)
	lean(polled)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	// Asked for, so that a write to a client that is gone is an error to Run and
	// not the end of the process by SIGPIPE. Ignoring the signal would do too, but
	// the daemon and the backend would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// lean keeps the process small: hosts spawn a shim per client, probe and agent,
// by the hundred at times, and each lives for hours with next to no work. Its
// live heap is a few hundred kilobytes, of which the default of the garbage
// collector would make 4 MiB before it looks.
//
// One processor does for a message that goes from one goroutine to the next: to wake
// a thread on another one costs more than what is done there, and a processor is a
// cache of the allocator. Where the wait for the client's input is not a polled one
// it would occupy that processor, so that there are two.
func lean(polled bool) {
	const (
		// heapGrowth makes the first collection come at 1 MiB.
		heapGrowth = 25
		// softLimit is above which memory goes back to the system with force, once
		// a message of many megabytes has passed. While one passes it costs a third
		// more time.
		softLimit = 24 << 20
	)
	processors := 2
	if polled {
		processors = 1
	}
	debug.SetGCPercent(heapGrowth)
	debug.SetMemoryLimit(softLimit)
	runtime.GOMAXPROCS(min(processors, runtime.NumCPU()))
}

// about is what the program says of itself.
const about = `devproxy-shim is what an MCP client spawns in place of the server: it connects the
client's stdin and stdout to the devproxy daemon of a project, and starts that
daemon if none runs. The project is the folder that holds devproxy.toml: DIR, or
the nearest one from the working directory upwards.

A person has no need to start it. "devproxyctl register" puts it into the
configuration of a client, and "devproxyctl call" plays a client.

Exit codes: 0 the client has closed stdin or stdout, or ended the shim by a signal;
1 the client was given up because it does not read; 2 wrong usage.`

// options are what the flags say.
type options struct {
	dir, socket          string
	noStart, showVersion bool
}

// newFlags returns the flags of the program, and where they are put.
func newFlags() (*flag.FlagSet, *options) {
	flags, o := flag.NewFlagSet("devproxy-shim", flag.ContinueOnError), new(options)
	flags.StringVar(&o.dir, "project", "", "the project's folder `DIR` (default: the nearest one with a devproxy.toml, from here upwards)")
	flags.StringVar(&o.socket, "socket", os.Getenv("DEVPROXY_SOCKET"), "`PATH` of the daemon's socket (default: $DEVPROXY_SOCKET, else the project's own)")
	flags.BoolVar(&o.noStart, "no-autostart", false, "do not start a daemon if none runs")
	flags.BoolVar(&o.showVersion, "version", false, "print the version and exit")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(flags.Output(), "%s\n\nFlags:\n", about)
		flags.PrintDefaults()
	}
	return flags, o
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags, o := newFlags()
	flags.SetOutput(stderr)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(stderr, "devproxy-shim: unexpected argument %q; the project's folder is given as --project DIR\n", flags.Arg(0))
		return exitUsage
	case o.showVersion:
		_, _ = fmt.Fprintln(stdout, "devproxy-shim "+buildVersion())
		return exitOK
	}
	err := shim.Run(ctx, shim.Config{
		Stdin: stdin, Stdout: stdout, Stderr: stderr,
		ProjectDir:  o.dir,
		Socket:      o.socket,
		NoAutostart: o.noStart,
		Version:     buildVersion(),
		Environ:     os.Environ(),
	})
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "devproxy-shim:", err)
		return exitGivenUp
	}
	return exitOK
}
