//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/debugmcp/devproxy/integration/internal/starts"
)

// againVariable is the pid of the first process, which has had its fault, in the
// environment of a second one.
const againVariable = "BADSERVER_AGAIN"

// begin does what goes wrong at the start. It returns when this process is to
// serve.
func begin(fault string) error {
	if leader := os.Getenv(againVariable); leader != "" {
		if fault != "detached" {
			awaitEnd(leader)
		}
		fmt.Fprintln(os.Stderr, "serving as pid", os.Getpid())
		return starts.Count(os.Getenv("FIXTURE_STARTS"))
	}
	switch fault {
	case "exit":
		fmt.Fprintln(os.Stderr, "Error: cannot find module 'x'")
		os.Exit(3)
	case "hang":
		if err := starts.Count(os.Getenv("FIXTURE_STARTS")); err != nil {
			return err
		}
		hang("hanging at start")
	case "deaf-to-term":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	case "daemon", "orphan":
		// The leader is gone before anybody serves: as a daemon in a session of
		// its own, or merely in the background as with "server &".
		if _, err := again(fault == "daemon"); err != nil {
			return err
		}
		os.Exit(0)
	case "detached":
		// The leader stays, but what serves has left its group, and hears of no
		// signal to it.
		child, err := again(true)
		if err != nil {
			return err
		}
		return child.Wait()
	case "holder":
		if err := hold(); err != nil {
			return err
		}
	}
	return starts.Count(os.Getenv("FIXTURE_STARTS"))
}

// again starts this program once more, on the same pipes.
func again(session bool) (*exec.Cmd, error) {
	child := exec.Command(os.Args[0], os.Args[1:]...)
	child.Env = append(os.Environ(), againVariable+"="+strconv.Itoa(os.Getpid()))
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	return child, child.Start()
}

// awaitEnd waits until a process was reaped.
func awaitEnd(pid string) {
	number, err := strconv.Atoi(pid)
	for err == nil && syscall.Kill(number, 0) == nil {
		time.Sleep(time.Millisecond)
	}
}

// hold leaves behind a process that holds stdout and stderr and hears of no
// signal but the last one.
func hold() error {
	child := exec.Command("/bin/sh", "-c", `trap "" TERM INT HUP; exec sleep 1000`)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return child.Start()
}

// hang waits for a signal, looking at nothing.
func hang(say string) {
	fmt.Fprintln(os.Stderr, say)
	for {
		time.Sleep(time.Hour)
	}
}

// flood writes so many lines a second to stderr, for ever.
func flood(rate int) {
	const lines = 1000
	chunk := bytes.Repeat([]byte("2026-11-30T12:00:00Z DEBUG a line that says nothing\n"), lines)
	for begun, written := time.Now(), 0; ; written += lines {
		due := begun.Add(time.Duration(float64(written) / float64(rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
		if _, err := os.Stderr.Write(chunk); err != nil {
			return
		}
	}
}
